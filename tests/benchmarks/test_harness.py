"""The judge against closed forms and LIBSVM; the floor, the results and the tables against what they claim."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from benchmarks import cases, results
from benchmarks.contest import judge, machine, measure, memory, peers, worker
from benchmarks.page import claims, report, tables
from benchmarks.suites.fits import contests as suites
from benchmarks.suites.fits import merged_rows
from svmcore.points.byte_products import is_fast

X5 = np.array([[0, 0], [2, 2], [-1, -8], [-1, -1], [3, 3]], dtype=np.float32)
Y5 = np.array([[-1.0, 1.0, -1.0, -1.0, 1.0]])


def verdict(alpha, C):
    support = np.flatnonzero(alpha)
    answer = judge.Answer(support, (np.asarray(alpha) * Y5)[:, support], np.zeros(1))
    [found] = judge.judge(X5, Y5, answer, C, judge.linear())
    return found


@pytest.mark.parametrize(
    ("C", "alpha"),
    [(np.inf, [0.25, 0.25, 0, 0, 0]), (0.1, [0.1, 0.1, 0, 0.0125, 0.0125])],
    ids=["hard margin", "hinge"],
)
def test_closed_forms_have_no_gap(C, alpha):
    found = verdict(alpha, C)
    coef = alpha * Y5[0]
    assert found.dual == pytest.approx(sum(alpha) - 0.5 * coef @ (X5 @ X5.T) @ coef, rel=1e-12)
    assert abs(found.kkt_gap) < 1e-12
    assert found.infeasibility < 1e-12
    assert found.n_support == np.count_nonzero(alpha)


def test_a_worse_alpha_has_a_smaller_dual_and_an_open_gap():
    best, worse = verdict([0.1, 0.1, 0, 0.0125, 0.0125], 0.1), verdict([0.1, 0.1, 0, 0, 0], 0.1)
    assert worse.dual < best.dual
    assert worse.kkt_gap > 0.1


def test_broken_constraints_are_seen():
    assert verdict([0.25, 0.25, 0, 0, 0], 0.1).infeasibility == pytest.approx(0.15)
    assert verdict([0.1, 0.05, 0, 0, 0], 0.1).infeasibility == pytest.approx(0.05)


@pytest.fixture(scope="module")
def digits():
    X, labels = load_digits(return_X_y=True)
    kept = np.isin(labels, (3, 8))
    return (X[kept] / 16).astype(np.float32), (labels[kept] == 8).astype(np.int64)


def svc_answer(X, y, C, gamma, tol):
    model = SVC(C=C, gamma=gamma, tol=tol).fit(X, y)
    return model, judge.Answer(model.support_, model.dual_coef_, model.intercept_)


@pytest.mark.parametrize("tol", [1e-2, 1e-5])
def test_libsvm_keeps_its_promise_on_digits(digits, tol):
    X, y = digits
    model, answer = svc_answer(X, y, 1.0, 0.05, tol)
    Y = judge.one_against_rest(y, 2)
    [found] = judge.judge(X, Y, answer, 1.0, judge.rbf(0.05))
    coef = model.dual_coef_[0]
    K = np.exp(-0.05 * ((X[model.support_, None].astype(float) - X[model.support_]) ** 2).sum(axis=-1))
    assert found.dual == pytest.approx(np.abs(coef).sum() - 0.5 * coef @ K @ coef, rel=1e-10)
    assert 0 < found.kkt_gap <= 1.01 * tol
    assert found.infeasibility < 1e-10


def test_decision_values_are_the_machine(digits):
    X, y = digits
    model, answer = svc_answer(X[:200], y[:200], 10.0, 0.05, 1e-3)
    decision = judge.decision_values(X[:200], X[200:], answer, judge.rbf(0.05))
    np.testing.assert_allclose(decision[0], model.decision_function(X[200:].astype(float)), atol=1e-9)
    assert judge.accuracy(decision, y[200:]) == model.score(X[200:], y[200:])


def test_copies_do_not_change_a_verdict(digits):
    """Every row twice at C is every row once at 2 C: same dual, same gap."""
    X, y = digits
    _, once = svc_answer(X, y, 2.0, 0.05, 1e-3)
    n = len(y)
    twice = judge.Answer(np.r_[once.support, once.support + n], np.c_[once.coef, once.coef] / 2, once.bias)
    kernel = judge.rbf(0.05)
    [one] = judge.judge(X, judge.one_against_rest(y, 2), once, 2.0, kernel)
    [two] = judge.judge(np.r_[X, X], judge.one_against_rest(np.r_[y, y], 2), twice, 1.0, kernel)
    assert two.dual == pytest.approx(one.dual, rel=1e-12)
    assert two.kkt_gap == pytest.approx(one.kkt_gap, rel=1e-9)


def test_distinct_rows_rebuild_the_table():
    table = merged_rows.make(rows=2_000, distinct=150)
    first, inverse = judge.distinct_rows(table.X)
    assert len(first) == 150
    np.testing.assert_array_equal(table.X[first[inverse]], table.X)
    assert len(table.y) == 2_000
    assert set(np.unique(table.y)) == {0, 1}


def test_the_full_merged_table_has_the_promised_shape():
    table = merged_rows.make()
    assert table.X.shape == (619_326, 10)
    assert worker.n_distinct(table.X, table.y) == 35_421


def test_floor_counts_the_entries_of_the_plan():
    rates = machine.Rates(gemm_flops=1e9, exp_per_second=1e9, write_bytes_per_second=4e9)
    columns = machine.floor(rates, n=1000, p=5, n_support=100, resident=False)
    assert columns.entries == 100_000
    assert columns.seconds == pytest.approx(1e5 * (10 + 1 + 1) / 1e9)
    assert machine.floor(rates, n=1000, p=5, n_support=100, resident=True).entries == 500_500


def test_rates_measured_again_and_again_are_those_in_the_middle():
    measured = [machine.Rates(1.0, 5.0, 3.0), machine.Rates(3.0, 1.0, 1.0), machine.Rates(2.0, 9.0, 2.0)]
    assert machine.typical(measured) == machine.Rates(2.0, 5.0, 2.0)


def test_floor_takes_the_products_that_are_used():
    rates = machine.Rates(gemm_flops=1e9, exp_per_second=1e9, write_bytes_per_second=4e9)
    columns = machine.floor(rates, n=1000, p=5, n_support=100, resident=False, product=2e-9)
    assert columns.seconds == pytest.approx(1e5 * (2 + 1 + 1) / 1e9)


def test_products_of_a_lattice_are_timed_on_its_rows_and_no_others():
    pixels = np.random.default_rng(0).integers(0, 256, (1000, 64)).astype(np.float32) / np.float32(255)
    seconds = machine.lattice_product_seconds(pixels, 0.1)
    assert 1e-12 < seconds < 1e-6 if is_fast() else seconds is None
    assert machine.lattice_product_seconds(np.random.default_rng(0).random((1000, 64), np.float32), 0.1) is None


PEAK = """
import numpy as np
from benchmarks.contest import memory
memory.reset_peak()
before = memory.resident_bytes()
np.ones(2**23).sum()
print(memory.peak_bytes() - before)
"""


def test_peak_memory_sees_a_temporary_array():
    """In a process of its own: here others may give memory back in between, below which the peak would stay."""
    root = Path(__file__).parents[2]
    told = subprocess.run([sys.executable, "-c", PEAK], cwd=root, capture_output=True, text=True, check=True)
    assert 0.9 * 2**26 < int(told.stdout) < 1.5 * 2**26


def test_shortfall_is_the_worst_machine():
    assert measure.shortfall([1.0, 2.0], [1.0, 2.000004]) == pytest.approx(2e-6, rel=1e-3)
    assert measure.shortfall([3.0], [2.0]) < 0


def test_the_newest_run_of_a_case_counts(tmp_path):
    for run, value in (("1", [1, 2]), ("2", [3])):
        results.Results(tmp_path, "single", run).append("a9a", [{"seconds": v} for v in value])
    assert [r["seconds"] for r in results.latest(tmp_path, "single")["a9a"]] == [3]
    assert results.Results(tmp_path, "single", "2").has("a9a")
    assert not results.Results(tmp_path, "single", "3").has("a9a")
    assert results.last_run(tmp_path) is None
    results.Results(tmp_path, "machine", "3").append("machine", [{}])
    assert results.last_run(tmp_path) == "3"


def test_unknown_cases_are_named():
    with pytest.raises(SystemExit, match=r"unknown case 'a8a'; known: .*a9a"):
        suites.selected(["a8a"])
    assert {suite for suite, _, _ in suites.selected([])} == set(suites.SUITES)


def test_a_contest_in_processes(digits):
    """scikit-learn alone, end to end: cold call, repeats, verdict and memory in one record."""
    X, y = digits
    case = cases.Case("digits", "digits 3/8", 1.0, 0.05, lambda _: None, cache_mb=50)
    table = cases.Table(X[:250], y[:250], X[250:], y[250:])
    asked = []
    rates = lambda: asked.append(1) or machine.Rates(1e11, 1e9, 1e10)  # noqa: E731
    terms = measure.Terms(repeats=2, say=lambda _: None)
    [record] = measure.contest(case, table, [measure.Side("scikit-learn")], terms, rates)
    assert record["status"] == "ok"
    assert len(asked) == 7  # before each round, and once after the last
    assert len(record["seconds"]) == 6  # as they take milliseconds
    assert record["kkt_gap"] <= 1.01e-3
    assert record["accuracy"] > 0.9
    assert record["peak_bytes"] >= record["before_bytes"]
    assert tables.row(record, [record])[0] == "scikit-learn"


def test_a_solver_that_does_not_load_is_a_line_in_the_table(digits, tmp_path, monkeypatch):
    """A module of the peer's name that cannot be imported, first on the path that a worker process inherits."""
    (tmp_path / "thundersvm.py").write_text("raise ImportError('libthundersvm.so: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    X, y = digits
    case = cases.Case("digits", "digits 3/8", 1.0, 0.05, lambda _: None, cache_mb=50)
    terms = measure.Terms(repeats=1, say=lambda _: None)
    table = cases.Table(X, y, X, y)
    [record] = measure.contest(case, table, [measure.Side("thundersvm")], terms, lambda: machine.Rates(1, 1, 1))
    assert record["status"] == "ImportError: libthundersvm.so: cannot open shared object file"
    assert record["median_seconds"] is None


def test_a_form_in_which_a_solver_has_no_answer_is_not_taken(digits):
    """A peer that is right and fast with dense rows; with compressed ones it is faster, and far from the optimum."""
    entry = measure.Entry(measure.Side("scikit-learn"), peers.Spec(1.0, 0.05, 1e-3, 50), None)
    assert measure._fails({"failed": "ended after 60 s"}, 1e-3) == "ended after 60 s"
    assert measure._fails({"seconds": 1.0, "kkt_gap": 13.6}, 1e-3) == "m − M = 14"
    assert measure._fails({"seconds": 1.0, "kkt_gap": 0.03}, 1e-3) == measure._fails({"seconds": 1.0}, 1e-3) == ""
    told = {"dense": {"seconds": 3.0, "kkt_gap": 1e-3}, "csr": {"seconds": 1.0, "kkt_gap": 13.6}}
    answers = lambda _, __, method, *given: {"forms": ("dense", "csr")} if method == "forms" else told[given[0]]  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "_tried", answers)
        assert measure._form(entry, None) == "dense"
        assert (entry.no_answer, entry.status) == ({"csr": "m − M = 14"}, "ok")
        told["dense"] = {"failed": "the process died"}
        measure._form(entry, None)
    assert entry.status == "the process died"
    kept = record("scikit-learn", 1.0, no_answer={"csr": "m − M = 14"})
    [note] = tables.notes(kept)
    assert note == "scikit-learn has no answer on 4,000 of these rows as csr (m − M = 14): it is given another form."


def test_memory_is_touched_that_the_solvers_first_fit_took_and_half_as_much_again(monkeypatch):
    """The process of a solver holds its table, of 1 GB, before the clock starts; the fit takes 2 MB more."""
    touched = []
    monkeypatch.setattr(measure.memory, "touch", touched.append)
    worker = SimpleNamespace(call=lambda *_, **__: {"seconds": 1.0, "before_bytes": 10**9, "peak_bytes": 1002 * 10**6})
    entry = measure.Entry(measure.Side("scikit-learn"), peers.Spec(1.0, 0.05, 1e-3, 50), worker)
    entry.first("dense")
    assert touched == []
    entry.again()
    assert touched == [3 * 10**6]


@pytest.mark.parametrize(("seconds", "count"), [(0.1, 9), (0.9, 6), (1.6, 3), (70.0, 2), (150.0, 1)])
def test_short_fits_are_measured_up_to_three_times_as_often(seconds, count):
    """They add up to 6 s at most; long ones to the side's budget, of 200 s."""
    entry = measure.Entry(measure.Side("scikit-learn"), peers.Spec(1.0, 0.05, 1e-3, 50), None)
    while entry.wants_more(3):
        entry.seconds.append(seconds)
    assert len(entry.seconds) == count
    entry.status = "ended after 600 s"
    assert not entry.wants_more(100)


def test_one_page_is_touched_at_least():
    assert memory.touch(0) == memory.touch(1) == os.sysconf("SC_PAGE_SIZE")


def record(solver, seconds, **more):
    common = {"title": "a9a", "task": "binary", "n": 1000, "p": 5, "C": 1, "gamma": 1, "tol": 1e-3, "cache_mb": 100}
    return common | {"solver": solver, "seconds": [seconds], "median_seconds": seconds, "status": "ok"} | more


def ours(seconds, **more):
    floor = {"plan": "resident", "seconds": 1.0, "gemm": 0.5, "exp": 0.3, "memory": 0.2}
    return record("marginflow", seconds, floor=floor, kkt_gap=9e-4, dual=[5.0], shortfall=2e-7, **more)


def test_claims_follow_from_the_records():
    """Twice and 18 times as fast: geometric mean 6; slower than nobody; one fit is over three times its floor.

    Of first fits only those count whose memory was cold: one, which is four times as fast.
    """
    cold = {"cold_memory": True}
    single = {
        "a9a": [ours(2.0, case="a9a"), record("scikit-learn-intelex", 4.0)],
        "w8a": [
            ours(4.0, case="w8a") | cold | {"cold_seconds": 5.0},
            record("scikit-learn-intelex", 72.0) | cold | {"cold_seconds": 20.0},
        ],
    }
    found = {claim.what: claim for claim in claims.all_of({"single": single})}
    mean = found["single fits, geometric mean of 2 against scikit-learn-intelex"]
    assert (mean.measured, mean.holds) == ("6.0", True)
    first = found["first fits, geometric mean of 1 against scikit-learn-intelex"]
    assert (first.measured, first.holds) == ("4.0", True)
    assert found["single fits, least against scikit-learn"].holds is None
    floors = [claim.holds for what, claim in found.items() if "floor" in what]
    assert False in floors
    assert found["single fits: our KKT gap in float64 over tol = 1e-3, worst case"].holds


def test_claims_take_a_fit_that_was_ended_for_its_limit():
    """Three times as fast where there is an answer, at least 75 times where there is none: at least 15 on average."""
    ended = record("scikit-learn-intelex", None) | {"seconds": [], "status": "ended after 150 s"}
    single = {
        "a9a": [ours(2.0, case="a9a"), record("scikit-learn-intelex", 6.0)],
        "w8a": [ours(2.0, case="w8a"), ended],
    }
    found = {claim.what: claim for claim in claims.all_of({"single": single})}
    assert found["single fits, geometric mean of 1 against scikit-learn-intelex"].measured == "3.0"
    assert found["the same with 1 ended without an answer, as its limit"].measured == "15.0"


def foretold(plan, said, was):
    seconds = ({"kernel": 1.0, "solve": solve, "score": 1.0} for solve in (said, was))
    return {"solver": plan, "n": 9000, **dict(zip(("foretold", "taken"), seconds, strict=True))}


def test_claims_of_plans_and_of_whole_runs(tmp_path):
    """One is off by 2.5 where it says too little, and names the slower way; a run takes 1.2 times as long as a fit."""
    plans = {
        "letter": [foretold("resident", 4.0, 6.0), foretold("columns", 3.0, 5.0), foretold("shards", 1.0, 50.0)],
        "a9a": [foretold("resident", 2.0, 5.0), foretold("columns", 3.0, 4.0)],
        "large": [foretold("columns", 3.0, 4.0)],
    }
    fit = {"solver": "fit and predict", "stages": {"fit": 8.0, "predict": 2.0}, "accuracy": 0.98}
    whole = fit | {"solver": "run", "stages": {"ingest": 2.0, "solve": 10.0}, "busy": 0.8}
    found = {claim.what: claim for claim in claims.all_of({"plans": plans, "end_to_end": {"mnist": [fit, whole]}})}
    off = "plan: seconds of solve and score off by a factor of"
    assert [found[f"{name}, {off}"].holds for name in plans] == [True, False, True]
    assert [found[f"{name}, plan: the faster of resident and columns"].holds for name in ("letter", "a9a")] == [
        True,
        False,
    ]
    assert found["mnist, all stages of a run over fit and predict"].measured == "1.20"
    assert [claim.holds for what, claim in found.items() if what.startswith("mnist")] == [True, False]
    for name, records in plans.items():
        results.Results(tmp_path, "plans", "1").append(name, records)
    results.Results(tmp_path, "end_to_end", "1").append("mnist", [fit, whole])
    text = report.write(tmp_path, tmp_path / "docs").read_text()
    assert "| columns | 5.00 | 7.00 | 0.71 | kernel 1.00, 1.00; solve 3.00, 5.00; score 1.00, 1.00 |" in text
    assert "| run | 12.0 | ingest 2.00, solve 10.0 | 80% | 0.9800 |" in text


def test_the_page_is_written_from_the_records(tmp_path):
    folder, docs = tmp_path / "results", tmp_path / "docs"
    results.Results(folder, "single", "1").append("a9a", [ours(2.0), record("scikit-learn", 30.0)])
    for n in (1000, 2000):
        results.Results(folder, "scaling", "1").append(f"n{n}", [ours(n**2 / 1e6, n=n), record("libsvm", 9.0, n=n)])
    text = report.write(folder, docs).read_text()
    assert "| 15.0× |" in text
    assert "| marginflow | 1.00 | 4.00 | 2.00 |" in text
    for name in ("single", "floors", "scaling"):
        assert f"](images/performance-{name}.svg)" in text
        assert (docs / "images" / f"performance-{name}.svg").read_text().startswith("<?xml")
    before = (docs / "images" / "performance-single.svg").read_bytes()
    report.write(folder, docs)
    assert (docs / "images" / "performance-single.svg").read_bytes() == before
