"""Steps on all rows of K: which solves begin so, that they end at the optimum, and when they go on with a square."""

import dataclasses

import numpy as np
import pytest
from sklearn.svm import SVC as LibSVM

from svmcore import SMO, Monitor, ResidentGram, SquaredHinge, Status, classification
from svmcore.passes.steps.pairs import solve_pairs
from svmcore.passes.steps.working_set import count_wanting
from svmcore.qp import Groups
from svmcore.solvers import rounds
from svmcore.solvers.auto import Auto
from svmcore.solvers.dual_ascent import DualAscent
from svmcore.solvers.row_steps import _left, begins_on_rows, row_steps
from svmcore.solvers.working_set import WorkingSet
from svmcore.state import MemoryState

N = 160


@pytest.fixture(autouse=True)
def small_problems_are_like_large_ones(monkeypatch):
    monkeypatch.setattr(rounds, "WHOLE", 0)


def table(n=N, noise=0.5, seed=0):
    """K of RBF (n, n) in float32, and labels that follow one coordinate but for noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2)).astype(np.float32)
    return K, np.where(X[:, 0] + noise * rng.normal(size=n) > 0, 1.0, -1.0)


def program(C=1.0, noise=0.5, dtype=np.float32, **more):
    K, y = table(noise=noise)
    return classification(ResidentGram(K.astype(dtype)), y, C, **more)


def no_square(monkeypatch):
    def refuse(*_):
        raise AssertionError("a working set was made")

    monkeypatch.setattr(rounds, "WorkingSet", refuse)


def libsvm_dual(qp, y, C):
    """Of LIBSVM's beta on the rows that may move, by the formula: sum |beta| - beta' (K + ridge) beta / 2."""
    at = np.flatnonzero(qp.hi > qp.lo)
    Q = qp.source.matrix[np.ix_(at, at)].astype(np.float64) + np.diag(qp.ridge[at])
    peer = LibSVM(kernel="precomputed", C=C, tol=1e-10).fit(Q, y[at])
    beta = np.zeros(len(at))
    beta[peer.support_] = peer.dual_coef_[0]
    return np.abs(beta).sum() - 0.5 * beta @ Q @ beta


@pytest.mark.parametrize("loss", ["hinge", "squared hinge"])
@pytest.mark.parametrize("held", [False, True], ids=["all rows", "a fold left out"])
def test_row_steps__end_at_libsvm_s_objective_without_a_square(held, loss, monkeypatch):
    K, y = table()
    C = np.where(held & (np.arange(N) % 5 == 0), 0.0, 1.0)
    more = {} if loss == "hinge" else {"loss": SquaredHinge()}
    qp = classification(ResidentGram(K), y, C, **more)
    no_square(monkeypatch)
    solution = SMO(tol=1e-5).solve(qp)
    assert solution.status == "converged"
    assert solution.n_iter > 0
    assert (solution.beta[C == 0.0] == 0.0).all()
    expected = libsvm_dual(qp, y, 1.0 if loss == "hinge" else 1e8)
    assert solution.certificate.dual == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("short", [False, True], ids=["all that is known", "some of it"])
def test_row_steps__go_on_with_a_square_where_it_is_known_who_will_be_in_it(short, monkeypatch):
    monkeypatch.setattr("svmcore.solvers.row_steps.SOME", 16)
    monkeypatch.setattr("svmcore.solvers.row_steps.WORTH", 100.0)
    if short:
        monkeypatch.setattr("svmcore.solvers.row_steps.MARGIN", 0.1)
    qp = program(C=1e3, noise=0.3)
    first, begun, gaps, admit, apply = [], [], [], WorkingSet.admit, MemoryState.apply
    after = lambda self, idx, beta: (apply(self, idx, beta), gaps.append(self.kkt_gap()))[0]  # noqa: E731
    monkeypatch.setattr(MemoryState, "apply", after)
    monkeypatch.setattr(WorkingSet, "admit", lambda self, idx: (first.append(idx), admit(self, idx))[1])
    monkeypatch.setattr(rounds, "row_steps", lambda *given: (begun.append(row_steps(*given)), begun[-1])[1])
    solution = SMO().solve(qp)
    assert len(begun) == 1
    np.testing.assert_array_equal(first[0], begun[0].members)
    assert len(first[0]) < N
    missed = np.setdiff1d(np.flatnonzero(solution.beta), first[0]).size  # on twelve such tables 0 to 3, or 11 to 28
    assert missed > 8 if short else missed < 4
    assert solution.n_iter > begun[0].n_iter
    assert short or gaps[0] <= 0.2 * begun[0].gap  # what is applied at once has been solved to a tenth on its members
    assert solution.status == "converged"
    monkeypatch.setattr("svmcore.solvers.row_steps.MOST", 0)
    assert solution.certificate.dual == pytest.approx(SMO().solve(qp).certificate.dual, rel=1e-4)


def begun_at(qp, steps, largest=N):
    """After so many steps at most; with the variables and their scores."""
    state = MemoryState(qp, np.zeros(qp.m))
    part, s = state.part(state.everyone), qp.p.astype(np.float32)
    return row_steps(qp, part, s, 1e-3, steps, largest), part, s


@pytest.mark.parametrize("C", [3.0, 1e3], ids=["some at a bound", "none at a bound"])
def test_row_steps__members_are_who_moved_and_who_are_next_to(C, monkeypatch):
    monkeypatch.setattr("svmcore.solvers.row_steps.SOME", 16)
    monkeypatch.setattr("svmcore.solvers.row_steps.WORTH", 100.0)
    qp = program(C=C, noise=0.3)
    begun, part, s = begun_at(qp, 10**6)
    moved = np.flatnonzero(part.beta)
    assert (np.abs(part.beta[moved]) == C).sum() > 5 or C == 1e3
    assert np.isin(moved, begun.members).all()
    grows, shrinks = part.beta < qp.hi, part.beta > qp.lo
    centre = (s[grows].max() + s[shrinks].min()) / 2
    behind = np.where(grows, centre - s, s - centre)  # of those at 0: the less the sooner they move
    wants = np.flatnonzero((behind < 0) & (part.beta == 0))
    assert len(begun.members) == len(moved) + int(1.5 * len(wants))
    others = np.setdiff1d(begun.members, moved)
    left = np.setdiff1d(np.arange(N), begun.members)
    assert behind[others].max() <= behind[left].min()
    assert begun_at(qp, 10**6, largest=len(begun.members) - 1)[0].n_iter > begun.n_iter


def test_row_steps__a_square_that_saves_less_than_it_costs_is_not_made(monkeypatch):
    monkeypatch.setattr("svmcore.solvers.row_steps.SOME", 16)
    monkeypatch.setattr("svmcore.solvers.row_steps.WORTH", 1e-3)
    begun, part, _ = begun_at(program(C=1e3, noise=0.3), 10**6)
    assert begun.members is None
    assert begun.gap <= 1e-3
    assert begun.n_iter > np.count_nonzero(part.beta)


@pytest.mark.parametrize("groups", [1, 2])
def test_count_wanting__those_at_0_on_the_side_of_their_centre_to_which_they_may_move(groups):
    rng = np.random.default_rng(groups)
    s, codes = rng.normal(size=300), rng.integers(0, groups, 300).astype(np.int8)
    lo, hi = -rng.integers(0, 2, 300).astype(float), rng.integers(0, 2, 300).astype(float)
    beta, centres = np.clip(rng.integers(-1, 2, 300).astype(float), lo, hi), np.array([*[0.3, -0.4][:groups], 0.0])
    moved, wanted = 0, 0
    for i in range(300):
        above = s[i] - centres[codes[i]]
        moved += beta[i] != 0
        wanted += beta[i] == 0 and ((hi[i] > 0 and above > 0) or (lo[i] < 0 and above < 0))
    assert count_wanting(s, beta, lo, hi, codes, centres) == (moved, wanted)
    assert min(moved, wanted) > 20


@pytest.mark.parametrize(
    ("gaps", "left"),
    [
        ([np.inf, 1.0], 0.0),  # nothing to go by
        ([np.inf, 1.0, 0.1], 512.0),  # a tenth for each 256
        ([np.inf, 1.0, 0.5], 512.0),  # half of it for each: more than there have been
        ([np.inf, 10.0, 1.0, 0.1, 0.01], 256.0),
        ([np.inf, 1.0, 1.0, 1.0, 0.01], 256.0),  # the last half is told by: a tenth for each 256
        ([np.inf, 0.1, 0.2], 512.0),  # it rises
        ([np.inf, 0.1, 0.0001], 0.0),  # below the target
        ([np.inf, 0.1, 0.0], 0.0),  # none is left
    ],
)
def test_left__steps_that_a_gap_will_take(gaps, left):
    assert _left(gaps, 1e-3) == pytest.approx(left)


@pytest.mark.parametrize("C", [0.01, 0.1, 1.0])
def test_row_steps__true_gap_is_the_target_s(C):
    """By scores that are formed anew, in float64."""
    qp = program(C=C)
    begun, part, _ = begun_at(qp, 10**6)
    assert begun.n_iter > 0
    assert begun.members is None
    assert not begun.unbounded
    score = qp.p - qp.source.matrix.astype(np.float64) @ part.beta
    grows, shrinks = part.beta < qp.hi, part.beta > qp.lo
    assert score[grows].max() - score[shrinks].min() <= 1.01e-3
    assert part.beta.sum() == pytest.approx(0.0, abs=1e-9 * C)


@pytest.mark.parametrize("most", [1, 100, 513])
def test_row_steps__count_as_iterations(most):
    with pytest.warns(UserWarning, match="max_iter"):
        solution = SMO(tol=1e-6, max_iter=most).solve(program(C=1e4, noise=1.0))
    assert (solution.status, solution.n_iter) == (Status.MAX_ITER, most)


def test_row_steps__tell_a_monitor_between_their_rounds(monkeypatch):
    monkeypatch.setattr(rounds, "STEPS", 20 * N)
    asked = []
    stop = lambda: asked.append(1) or len(asked) > 2  # noqa: E731
    with pytest.warns(UserWarning, match="stopped"):
        solution = SMO().solve(program(), monitor=Monitor(stop=stop))
    assert (solution.status, solution.n_iter) == (Status.STOPPED, 40)


def test_row_steps__hard_margins():
    K, y = table(noise=0.0)
    found = SMO().solve(classification(ResidentGram(K), y, np.inf))
    assert found.status == "converged"
    assert (y * (found.decision) >= 0.998).all()
    again = np.concatenate([np.arange(N), [0]])  # one row twice, with both labels
    qp = classification(ResidentGram(np.ascontiguousarray(K[np.ix_(again, again)])), np.append(y, -y[0]), np.inf)
    assert begun_at(qp, 10**6)[0].unbounded  # a step between the two has no end
    with pytest.warns(UserWarning, match="infeasible"):
        assert SMO().solve(qp).status == "infeasible"


def in_one_group_but_one():
    qp, codes = program(), np.zeros(N, np.int8)
    codes[0] = -1
    return dataclasses.replace(qp, groups=Groups((0.0,), codes))


CASES = {
    "likely variables": lambda: dataclasses.replace(program(), likely=np.arange(3)),
    "float64": lambda: program(dtype=np.float64),
    "a shift of K": lambda: dataclasses.replace(program(), shift=1.0),
    "a variable in no group": in_one_group_but_one,
    "no sums": lambda: program(bias="none"),
}


@pytest.mark.parametrize("case", CASES)
def test_begins_on_rows__only_where_it_pays(case, monkeypatch):
    qp = program()
    assert begins_on_rows(qp)
    assert not begins_on_rows(CASES[case]())
    assert SMO().begins_anew(qp)
    assert Auto().begins_anew(qp)
    assert not DualAscent().begins_anew(qp)
    monkeypatch.setattr("svmcore.solvers.row_steps.MOST", N - 1)
    assert not begins_on_rows(qp)


@pytest.mark.parametrize("factor", [0.5, 1.0])
def test_row_steps__go_on_from_a_start(factor, monkeypatch):
    no_square(monkeypatch)
    before = SMO(tol=1e-5).solve(program(C=1.0))
    qp = program(C=2.0)
    alone, after = SMO(tol=1e-5).solve(qp), SMO(tol=1e-5).solve(qp, factor * before.beta)
    assert after.certificate.dual == pytest.approx(alone.certificate.dual, rel=1e-7)
    assert after.n_iter > 0
    assert SMO(tol=1e-5).solve(qp, alone.beta).n_iter == 0


def test_solve_pairs__the_same_bits_with_a_diagonal_that_is_told():
    K, y = table(600)
    found = []
    for more in ((), (1.0, np.diag(K).astype(np.float64))):
        s, beta = y.astype(np.float32), np.zeros(600)
        box = np.minimum(y, 0.0), np.maximum(y, 0.0), np.zeros(600, np.int8)
        found.append((*solve_pairs(K, np.zeros(600), s, beta, *box, 1, 1e-3, 10**6, *more), beta.tobytes()))
    assert found[0] == found[1]


def test_row_steps__flat_directions_are_looked_at_where_there_is_no_set(monkeypatch):
    no_square(monkeypatch)
    qp = program()
    rough = SMO(tol=0.1).solve(qp)
    asked, squares, square, steps = [], [], MemoryState.square, rounds.free_steps
    monkeypatch.setattr(MemoryState, "square", lambda self, idx, *to: (asked.append(idx), square(self, idx, *to))[1])
    monkeypatch.setattr(rounds, "free_steps", lambda K, *given: (squares.append(K), steps(K, *given))[1])
    monkeypatch.setattr(rounds, "SHARE", 1e9)
    found = SMO(tol=0.1).solve(qp)
    assert len(asked) == len(squares) > 0
    free = np.flatnonzero((rough.beta > qp.lo) & (rough.beta < qp.hi))
    np.testing.assert_array_equal(asked[0], free)
    np.testing.assert_array_equal(squares[0], qp.source.matrix[np.ix_(free, free)])
    assert found.certificate.dual > rough.certificate.dual
