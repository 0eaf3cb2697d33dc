"""Threads: the same bits on any number of them, BLAS left as it was found, and a life after a fork."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from svmcore.runtime import threads as thread_pool
from svmcore.runtime.threads import one_blas_thread, side_by_side, split_range

ROOT = Path(__file__).parents[2]


SET_BLAS = """
    import sys, numpy, scipy.linalg
    from threadpoolctl import ThreadpoolController

    for library in ThreadpoolController().select(user_api="blas").lib_controllers:
        library.set_num_threads({threads})
        getattr(library, "clear_controlling_thread", lambda: None)()  # as if nobody had set it
"""


def python(script, threads):
    """A started process with so many threads of ours and of BLAS, however many cores there are."""
    script = textwrap.dedent(SET_BLAS.replace("{threads}", str(threads))) + textwrap.dedent(script)
    environment = {**os.environ, "SVMCORE_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=environment, stdout=subprocess.PIPE)


def printed(process, timeout=100):
    """What the process printed, which has to end well and in time."""
    try:
        out = process.communicate(timeout=timeout)[0]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    return json.loads(out)


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


# --- the same bits --------------------------------------------------------------------------------------------------
@given(n=st.integers(0, 500), least=st.integers(1, 90), grain=st.integers(1, 90), threads=st.integers(1, 8))
def test_split_range__covers_the_range_from_multiples_of_the_grain(n, least, grain, threads):
    ranges = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thread_pool, "n_threads", lambda: threads)
        split_range(n, lambda start, stop: ranges.append((start, stop)), least, grain)
    ranges.sort()
    assert ranges[0][0] == 0
    assert ranges[-1][1] == n
    assert all(a[1] == b[0] and b[0] % grain == 0 for a, b in pairwise(ranges))
    assert len(ranges) <= threads


def ranges_of(n):
    found = []
    split_range(n, lambda start, stop: found.append((start, stop)))
    return sorted(found)


@pytest.mark.parametrize(("n_threads", "at_once", "ranges"), [(2, 2, 1), (4, 2, 2), (5, 2, 2), (2, 3, 1), (3, 1, 3)])
def test_split_range__of_several_at_once_shares_the_threads(n_threads, at_once, ranges, monkeypatch):
    """Two problems on two cores that each wait for the other's threads leave a third of them idle."""
    monkeypatch.setattr(thread_pool, "n_threads", lambda: n_threads)
    monkeypatch.setattr(thread_pool, "_pools", [thread_pool._Pool()])
    met, left = threading.Barrier(at_once, timeout=30), threading.Barrier(at_once, timeout=30)

    def work():
        met.wait()
        found = ranges_of(100)
        left.wait()
        return found

    for found in side_by_side([work] * at_once, at_once):
        assert len(found) == ranges
    assert len(ranges_of(100)) == n_threads  # all threads are there again


def test_split_range__has_all_threads_after_a_call_that_failed(monkeypatch):
    monkeypatch.setattr(thread_pool, "n_threads", lambda: 3)
    with pytest.raises(ZeroDivisionError):
        list(side_by_side([lambda: 1 // 0, lambda: 1], 2))
    assert len(ranges_of(100)) == 3


def test_split_range__the_caller_does_the_first_part_itself_and_splits_it_no_further(monkeypatch):
    monkeypatch.setattr(thread_pool, "n_threads", lambda: 3)
    monkeypatch.setattr(thread_pool, "_pools", [thread_pool._Pool()])
    found = {}
    split_range(90, lambda start, stop: found.update({start: (threading.get_ident(), ranges_of(100))}))
    assert found[0][0] == threading.get_ident()
    assert threading.get_ident() not in {found[30][0], found[60][0]}
    assert all(ranges == [(0, 100)] for _, ranges in found.values())
    with pytest.raises(ZeroDivisionError):
        split_range(90, lambda start, stop: 1 // start)  # the caller's part fails alone
    assert len(ranges_of(100)) == 3


FITS = """
    import hashlib, json, warnings
    import numpy as np
    from scipy import sparse
    from svmcore.estimator import SVC

    def rows(n, p=12):
        rng = np.random.default_rng(n)
        codes = rng.integers(3, size=n)
        X = rng.normal(size=(n, p)) + rng.normal(size=(3, p))[codes]
        return X, codes

    def digest(X, y, **parameters):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SVC(**parameters).fit(X, y)
        dual = model.dual_coef_
        parts = [dual.toarray() if sparse.issparse(dual) else dual, model.intercept_, model.decision_function(X[:1500])]
        parts += [np.array([c.primal, c.dual, c.kkt_gap]) for c in model.certificate_]
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()

    found, (X, y) = {}, rows(3100)
    forms = {
        "dense": (rows(3100, 60)[0], {"C": 1.0}),
        "few features": (X, {"C": 1.0}),
        "lattice": (np.clip(np.rint(4 * X) + 16, 0, 40), {"C": 1.0}),
        "linear": (X, {"kernel": "linear", "C": 0.01}),
        "polynomial": (X, {"kernel": "poly", "degree": 2, "coef0": 1.0, "C": 0.1}),
        "CSR": (sparse.csr_matrix(np.where(np.random.default_rng(0).random(X.shape) < 0.08, X, 0.0)), {"C": 1.0}),
    }
    for form, (values, parameters) in forms.items():
        for scheme in ("ovr", "ovo"):
            found[f"{form}, {scheme}"] = digest(values, y, multi_class=scheme, **parameters)
    for form, width in (("columns of products", 60), ("columns of few features", 12)):
        X, y = rows(6100, width)
        found[form] = digest(X, y == 0, cache_size=20, C=1.0)
    X, y = rows(10_500, 4)
    found["columns of many rows"] = digest(X, y == 0, cache_size=20, C=0.1)
    X, y = rows(900)
    found["Newton"] = digest(X, y, solver="primal-newton", loss="squared_hinge")
    print(json.dumps(found))
"""


@pytest.mark.timeout(300)
def test_bits__are_the_same_on_1_2_and_4_threads():
    processes = [python(FITS, threads) for threads in (1, 2, 4)]
    one, two, four = [printed(process, timeout=250) for process in processes]
    assert one == two
    assert one == four


# --- the limit on BLAS ----------------------------------------------------------------------------------------------
@pytest.fixture
def three_blas_threads():
    with threadpool_limits(3, "blas"):
        yield


def test_one_blas_thread__the_last_to_leave_lifts_it(three_blas_threads):
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas_threads() == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == {3}


def on_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_one_blas_thread__is_set_by_one_thread_and_lifted_by_another(three_blas_threads):
    held = [one_blas_thread(), one_blas_thread()]
    on_a_thread(held[0].__enter__)
    held[1].__enter__()
    assert blas_threads() == {1}
    held[0].__exit__(None, None, None)
    on_a_thread(lambda: held[1].__exit__(None, None, None))
    assert blas_threads() == {3}


def test_one_blas_thread__held_by_many_threads_at_all_times(three_blas_threads):
    wrong = []

    def work():
        for _ in range(200):
            with one_blas_thread():
                wrong.extend(blas_threads() - {1})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert blas_threads() == {3}


def test_one_blas_thread__is_lifted_after_an_error(three_blas_threads):
    def fails(start, stop):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        split_range(100, fails)
    assert blas_threads() == {3}


PROBLEMS_AT_ONCE = """
    import json
    import numpy as np
    from threadpoolctl import threadpool_info
    from svmcore.estimator import SVC

    X = np.random.default_rng(0).normal(size=(4000, 30))
    SVC(multi_class="ovr", n_jobs=2).fit(X, np.arange(4000) % 4)
    print(json.dumps([library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]))
"""


def test_fit__of_problems_at_once_leaves_blas_its_threads():
    assert set(printed(python(PROBLEMS_AT_ONCE, 3))) == {3}


# --- forks ----------------------------------------------------------------------------------------------------------
FORK = """
    import json, os, signal, sys, threading
    import numpy as np
    from threadpoolctl import threadpool_info
    from svmcore.runtime.threads import one_blas_thread
    from svmcore.estimator import SVC

    def blas():
        return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")

    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 30))
    y = X[:, 0] + rng.normal(size=1500) > 0
    model = SVC().fit(X, y)
    expected = model.decision_function(X)

    held, leave = threading.Event(), threading.Event()
    def hold():
        with one_blas_thread():
            held.set()
            leave.wait()
    holder = threading.Thread(target=hold)
    {before}
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that hangs ends
        good = np.array_equal(model.decision_function(X), expected) and blas() == {blas}
        good = good and np.array_equal(SVC().fit(X, y).dual_coef_, model.dual_coef_)
        {end}(0 if good else 1)
    _, status = os.waitpid(child, 0)
    leave.set()
    good = np.array_equal(model.decision_function(X), expected)
    print(json.dumps([status, bool(good)]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(
    ("before", "blas", "end"),
    [
        ("pass", 2, "os._exit"),
        ("pass", 2, "sys.exit"),
        ("holder.start(); held.wait()", 2, "os._exit"),
        ("one_blas_thread().__enter__()", 1, "os._exit"),
    ],
    ids=["idle", "its exit", "limited by another thread", "limited by its own"],
)
def test_fork__the_child_predicts_and_trains(before, blas, end):
    script = FORK.replace("{before}", before).replace("{blas}", str(blas)).replace("{end}", end)
    assert printed(python(script, 2)) == [0, True]
