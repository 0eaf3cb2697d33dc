"""Programs that are solved at the same time on one K have the answers that each has alone, and share their passes."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from svmcore import RBF, SMO, CachedColumns, ComputedColumns, Polynomial, Status, Unsupported, certify, classification
from svmcore.estimator import SVC
from svmcore.kernels.exact import ExactKernel
from svmcore.runtime import threads
from svmcore.runtime.threads import Turns
from svmcore.solvers import shrinking
from svmcore.sources import ResidentGram, together
from svmcore.sources.together import solved_together

KERNEL, N, CLASSES = RBF(1e-5), 2400, 5
SECONDS = 60  # after which threads that wait for each other have done so for ever


def images(n=N, p=24, seed=0):
    """Rows of bytes, and a class for each (n,): values of K on a lattice have the same bits in any product."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(60, 190, size=(CLASSES, p))
    codes = rng.integers(0, CLASSES, size=n)
    return np.clip(centres[codes] + rng.normal(scale=40.0, size=(n, p)), 0, 255).round(), codes


def columns_of(X, kernel=KERNEL, limit=1 << 26):
    points = kernel.prepare_gram(X, np.float32)
    computed = ComputedColumns(kernel, points, np.float32, ExactKernel(kernel, X, like=points))
    return CachedColumns(computed, limit, None, limit // 4)


@pytest.fixture
def early(monkeypatch):
    """Leaves rows out from 64 on, however many of them violate."""
    monkeypatch.setattr(shrinking, "LEAST", 64)
    monkeypatch.setattr(shrinking, "WORTH_BYTES", 0)
    monkeypatch.setattr(shrinking, "MANY", 1.0)


@pytest.fixture
def counted(monkeypatch):
    """Columns over all rows that each pass has computed."""
    counts, outputs_of = [], ComputedColumns.outputs_of

    def count(self, coefs):
        if self.n == N:
            counts.append((len(coefs), np.count_nonzero(np.any(coefs, axis=0)), np.count_nonzero(coefs)))
        return outputs_of(self, coefs)

    monkeypatch.setattr(ComputedColumns, "outputs_of", count)
    return counts


def programs(codes):
    for k in range(CLASSES):
        yield lambda source, k=k: classification(source, np.where(codes == k, 1.0, -1.0), 4.0)


def solve(source, program):
    return SMO().solve(program(source))


def solved(source, codes, threads):
    found = {}

    def each(k, program, given):
        found[k] = solve(given, program)

    solves = [functools.partial(each, k, program) for k, program in enumerate(programs(codes))]
    assert len(list(solved_together(source, solves, threads))) == CLASSES
    return [found[k] for k in range(CLASSES)]


# ---- answers
@pytest.mark.parametrize("limit", [1 << 20, 1 << 26])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_answers__are_those_of_each_alone_bit_for_bit_and_proved(threads, limit, early, counted, monkeypatch):
    """Where each leaves out as many rows as it does alone."""
    monkeypatch.setattr(shrinking, "SHARED", shrinking.SHARE)
    X, codes = images()
    source = columns_of(X, limit=limit)
    assert source.shares == (4 if limit > 1 << 20 else 1)
    alone = [solve(columns_of(X, limit=limit // source.shares), program) for program in programs(codes)]
    assert {found.status for found in alone} == {Status.CONVERGED}
    counted.clear()
    K = ResidentGram(KERNEL(X, X))
    for one, program, found in zip(alone, programs(codes), solved(source, codes, threads), strict=True):
        if source.source.points.on_lattice:  # a processor that multiplies no bytes adds four columns in float32
            np.testing.assert_array_equal(found.beta, one.beta)
            np.testing.assert_array_equal(found.decision, one.decision)
            assert found.bias == one.bias
        assert found.certificate.dual == pytest.approx(one.certificate.dual, rel=1e-4)
        assert certify(program(K), found.beta).kkt_gap <= 1.1e-3
    assert sum(programs == CLASSES for programs, _, _ in counted) > 1
    assert sum(columns for _, columns, _ in counted) < 0.8 * sum(wanted for _, _, wanted in counted)


@pytest.mark.parametrize("share", [1.0, 1.05, 1.25])
def test_answers__rows_that_were_missed_join(share, early, monkeypatch):
    """With hardly a row but those that violate, the first guess is not enough."""
    monkeypatch.setattr(shrinking, "SHARED", share)
    X, codes = images(seed=2)
    K = ResidentGram(KERNEL(X, X))
    for program, found in zip(programs(codes), solved(columns_of(X), codes, 2), strict=True):
        assert found.status is Status.CONVERGED
        assert certify(program(K), found.beta).kkt_gap <= 1.1e-3
        assert found.certificate.dual == pytest.approx(solve(K, program).certificate.dual, rel=1e-4)


@pytest.mark.parametrize("changed", [{"n_jobs": 1}, {"n_jobs": 2}, {"n_jobs": None}, {"verbose": True}], ids=str)
def test_estimator__has_the_same_bits_on_any_number_of_jobs_and_watched(changed, early, monkeypatch):
    """Of rows that are on no lattice too, whose products round as they lie among others."""
    X, codes = images(p=40)
    X += np.random.default_rng(3).normal(size=X.shape)
    monkeypatch.setattr("svmcore.train.posing.plan.SMALL_BYTES", 0)
    monkeypatch.setattr("svmcore.train.opening.SMALL_BYTES", 0)
    machine = SVC(C=4.0, gamma=1e-5, cache_size=20, multi_class="ovr", n_jobs=4)
    first = machine.fit(X, codes)
    assert first.plan_ == "columns"
    expected = first.dual_coef_.copy(), first.intercept_.copy()
    again = machine.set_params(**changed).fit(X, codes)
    np.testing.assert_array_equal(again.dual_coef_, expected[0])
    np.testing.assert_array_equal(again.intercept_, expected[1])


def test_answers__of_few_support_vectors_share_passes_too(early, monkeypatch, counted):
    """Alone, columns of all rows would be as fast; here passes cost less than columns of each."""
    monkeypatch.setattr(shrinking, "WORTH_BYTES", 1 << 60)
    X, codes = images()
    assert {found.status for found in solved(columns_of(X), codes, 2)} == {Status.CONVERGED}
    assert sum(programs == CLASSES for programs, _, _ in counted) > 1


def test_memory__of_those_who_wait_is_for_those_who_compute(early, monkeypatch):
    """As many arenas are touched as programs compute at a time, however many are under way."""
    arenas, rest = [], together._Share._lay_down

    def count(self):
        arenas.append(self._memory.ctypes.data)
        rest(self)

    monkeypatch.setattr(together._Share, "_lay_down", count)
    X, codes = images()
    solved(columns_of(X), codes, 2)
    assert len(arenas) > CLASSES
    assert len(set(arenas)) == 2


def test_answers__of_programs_that_work_on_all_rows_are_right_and_keep_nobody_waiting(early, monkeypatch):
    monkeypatch.setattr(shrinking, "MANY", 0.0)  # each goes on with all rows at its first pass
    X, codes = images(p=6)
    K = ResidentGram(KERNEL(X, X))
    for program, found in zip(programs(codes), solved(columns_of(X), codes, 2), strict=True):
        assert found.status is Status.CONVERGED
        assert certify(program(K), found.beta).kkt_gap <= 1.1e-3


def test_shares__are_of_memory_that_has_room_and_of_columns_that_are_computed_here():
    X, _ = images()
    wanted = N**2 // 32 * 4
    assert [columns_of(X, limit=k * wanted // 2).shares for k in (1, 2, 4, 6, 18)] == [1, 1, 2, 3, 4]
    [share] = solved_together(columns_of(X, limit=2 * wanted), [lambda source: source], 2)
    assert share.limit_bytes == wanted
    given = CachedColumns(ResidentGram(np.eye(90)), 1 << 26)
    assert given.shares == 0
    with pytest.raises(Unsupported, match="ResidentGram serves one program at a time"):
        list(solved_together(given, [lambda source: source], 2))


def test_shares__are_for_programs_that_leave_rows_out_and_have_no_time_limit(early):
    X, codes = images()
    qp = next(programs(codes))(columns_of(X))
    assert SMO().shares(qp) == 4
    assert SMO(time_limit=9.0).shares(qp) == 0
    assert SMO().shares(next(programs(codes))(ResidentGram(KERNEL(X, X)))) == 0


# ---- passes
@pytest.mark.parametrize("kernel", [KERNEL, Polynomial(2, 1e-4, -1.0)], ids=["positive", "of both signs"])
def test_outputs_of__are_sums_of_all_columns(kernel):
    X, _ = images()
    rng, source = np.random.default_rng(1), columns_of(X, kernel).source
    coefs = rng.normal(size=(4, N)) * (rng.random((4, N)) < [[0.3], [0.02], [0.5], [0.0]])
    K = kernel(X, X)
    for coef, (values, sizes) in zip(coefs, source.outputs_of(coefs), strict=True):
        bound = 1e-5 * np.abs(K) @ np.abs(coef)
        assert (np.abs(values - K @ coef) <= bound + 1e-12).all()
        assert (np.abs(sizes - np.abs(K) @ np.abs(coef)) <= bound + 1e-12).all()


# ---- that end before their time
def asks_for_ever(begun, ended):
    """A solve that asks for passes until it is given up."""

    def solve(source):
        begun.set()
        try:
            while True:
                source.outputs(np.ones(600))
        except RuntimeError as error:
            ended.append(str(error))
            raise

    return solve


def test_an_error_in_one_solve_is_raised_and_the_others_are_given_up():
    X, _ = images(600)
    begun, ended = threading.Event(), []

    def wrong(source):
        source.outputs(np.ones(600))
        raise ZeroDivisionError

    right = asks_for_ever(begun, ended)
    with pytest.raises(ZeroDivisionError):
        list(solved_together(columns_of(X), [right, wrong, right], 2))
    assert len(ended) == 2
    assert all("nobody waits for this solve any more" in said for said in ended)


def test_solves_that_ask_for_columns_are_given_up_where_the_caller_stops():
    X, _ = images(600)
    begun, told, ended = threading.Event(), [], []

    def right(source):
        begun.set()
        try:
            for j in range(10**9):
                source.lookup(np.array([j % 600]))
        except RuntimeError as error:
            ended.append(str(error))
            raise

    solves = solved_together(columns_of(X, limit=1 << 16), [lambda _: "first", right], 2, lambda: told.append(True))
    assert next(solves) == "first"
    assert begun.wait(SECONDS)
    solves.close()
    assert told == [True]
    assert len(ended) == 1


def test_a_share_that_there_is_no_memory_for_is_an_error_and_nobody_waits(monkeypatch):
    X, _ = images(600)
    begun, ended, made = threading.Event(), [], together._Share.__init__

    def fails_second(self, whole, passes):
        if begun.is_set():
            raise MemoryError
        made(self, whole, passes)

    monkeypatch.setattr(together._Share, "__init__", fails_second)
    with pytest.raises(MemoryError):
        list(solved_together(columns_of(X), [asks_for_ever(begun, ended)] * 2, 1))
    assert len(ended) == 1


def test_a_thread_that_cannot_be_started_is_an_error_and_those_under_way_are_given_up(monkeypatch):
    X, _ = images(600)
    begun, ended, submit = threading.Event(), [], ThreadPoolExecutor.submit

    def fails_second(self, *call):
        if begun.is_set():
            raise RuntimeError("can't start new thread")
        future = submit(self, *call)
        assert begun.wait(SECONDS)
        return future

    monkeypatch.setattr(threads.ThreadPoolExecutor, "submit", fails_second)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        list(solved_together(columns_of(X), [asks_for_ever(begun, ended)] * 2, 2))
    assert len(ended) == 1


def test_an_error_in_a_pass_is_raised_by_all_who_wait_for_it(monkeypatch):
    X, _ = images(600)
    failed = []

    def fails(*_):
        raise MemoryError

    def asks(source):
        try:
            source.outputs(np.ones(600))
        except MemoryError:
            failed.append(threading.get_ident())
            raise

    monkeypatch.setattr(ComputedColumns, "outputs_of", fails)
    with pytest.raises(MemoryError):
        list(solved_together(columns_of(X), [asks] * 3, 2))
    assert len(set(failed)) == 3


def test_more_programs_than_a_lot_are_solved_lot_by_lot(monkeypatch):
    monkeypatch.setattr(together, "LOT", 2)
    X, _ = images(600)
    coef = np.ones(600)
    expected = columns_of(X).source.outputs(coef)[0]
    calls = [lambda source: source.outputs(coef)[0]] * 5
    found = list(solved_together(columns_of(X), calls, 2))
    assert len(found) == 5
    for each in found:
        np.testing.assert_array_equal(each, expected)


def test_turns__so_many_compute_at_a_time_and_one_that_waits_lends_its_own():
    turns, inside, most = Turns(1), [], []
    met = threading.Barrier(3, timeout=SECONDS)

    def work():
        with turns:
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            with turns.lent():
                met.wait()  # would be waited for for ever if the turn were kept

    workers = [threading.Thread(target=work) for _ in range(3)]
    for each in workers:
        each.start()
    for each in workers:
        each.join(SECONDS)
    assert not any(each.is_alive() for each in workers)
    assert max(most) == 1
