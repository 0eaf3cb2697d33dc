"""Phases of a fit: their seconds add up, what is counted is what was computed, and nothing of an answer changes."""

import time

import numpy as np
import pytest

from benchmarks.contest import phases
from benchmarks.page import report
from benchmarks.results import Results
from benchmarks.suites.fits import avx2, cores
from svmcore.estimator import SVC
from svmcore.kernels import RBF
from svmcore.runtime import threads
from svmcore.sources import ComputedColumns


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 5)).astype(np.float32)
    return X, (X[:, 0] + X[:, 1] ** 2 > 0.7).astype(int)


def fit(table):
    return SVC(C=10.0, gamma=0.2, cache_size=5).fit(*table)


def test_seconds_of_phases_are_all_that_passed(table):
    fit(table)
    start = time.perf_counter()
    with phases.watching() as found:
        fit(table)
    passed = time.perf_counter() - start
    assert 0.0 < sum(found.seconds.values()) <= passed
    assert {"rows", "columns of K", "steps", "scores", "proof"} <= set(found.seconds) <= {*phases.PHASES, phases.REST}


def test_a_fit_that_is_watched_has_the_same_bits_and_leaves_nothing_behind(table):
    pool, filled = threads._pools[-1], ComputedColumns.fill
    with phases.watching(alone=True) as found:
        watched = fit(table)
    assert threads._pools[-1] is pool
    assert ComputedColumns.fill is filled
    np.testing.assert_array_equal(watched.dual_coef_, fit(table).dual_coef_)
    assert found.values >= len(watched.support_) * len(table[1])


def test_values_of_columns_are_counted(table):
    source = ComputedColumns(RBF(0.2), RBF(0.2).prepare_gram(table[0], np.float32))
    with phases.watching(alone=True) as found:
        source.columns(np.arange(7))
    assert found.values == 7 * 3000


def test_more_threads_share_what_is_split_and_nothing_else():
    def work(start, stop):
        time.sleep(0.01)

    with phases.watching(alone=True) as found:
        time.sleep(0.03)
        threads.split_range(4, work)
    [(phase, ranges, split)], one = found.shared, sum(found.seconds.values())
    assert (phase, ranges) == (phases.REST, 4)
    assert split >= 0.04
    assert one - split >= 0.03
    assert sum(found.on(64).values()) == pytest.approx(one - 0.75 * split)  # 64 threads have no more than four ranges
    assert sum(found.on(2).values()) == pytest.approx(one - 0.5 * split)


def test_pages_of_cores_and_of_avx2(tmp_path):
    def phase(name, *seconds):
        told = dict(zip(("1", "2", "16", "64"), seconds, strict=True))
        return {"title": "a9a", "n": 10, "phase": name, "seconds": told, "values": 30.0, "needed": 20.0}

    def fitted(solver, seconds):
        return {"title": "a9a", "solver": solver, "median_seconds": seconds, "task": "binary"}

    Results(tmp_path, "cores", "1").append(
        "a9a", [phase("steps", 2.0, 2.0, 2.0, 2.0), phase("all", 8.0, 5.0, 4.0, 3.0)]
    )
    Results(tmp_path, "avx2", "1").append("a9a", [fitted("marginflow", 2.0), fitted(avx2.PEER, 9.0)])
    text = report.write(tmp_path, tmp_path / "docs").read_text()
    assert "| steps | 2.00 | 2.00 | 1.0× | 2.00 | 2.00 | 50% |" in text
    assert "| all | 8.00 | 5.00 | 1.6× | 4.00 | 3.00 | 100% |" in text
    assert "over those of the support vectors' columns: a9a | at most 1.5 | 1.50 | yes |" in text
    assert cores.note([phase("all", 1, 1, 1, 1)]).endswith("columns: 1.50.")
    assert "| a9a | 2.00 | 9.00 | 4.5× | – | – |" in text


def test_limits_of_avx2_hold_for_processes_started_meanwhile_alone(monkeypatch):
    import os

    monkeypatch.setenv("NUMBA_CPU_NAME", "host")
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    with avx2._environment(avx2.LIMITS):
        assert (os.environ["NUMBA_CPU_NAME"], os.environ["OPENBLAS_CORETYPE"]) == ("haswell", "Haswell")
    assert os.environ["NUMBA_CPU_NAME"] == "host"
    assert "OPENBLAS_CORETYPE" not in os.environ
