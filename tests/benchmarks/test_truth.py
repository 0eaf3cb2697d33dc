"""The judge of bench-truth against closed forms, rational arithmetic and LIBSVM; its rules; the run as a whole."""

import collections
import json
import subprocess
import sys
import threading
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from benchmarks import results
from benchmarks.contest import remote
from benchmarks.page import report
from benchmarks.truth import __main__ as command
from benchmarks.truth import machines, run, workers
from benchmarks.truth.judging import judge, verdicts
from benchmarks.truth.problems import design, program, tables
from benchmarks.truth.problems.design import Problem
from benchmarks.truth.told import summary as summaries
from svmcore.certificate import Certificate

X5 = np.array([[0, 0], [2, 2], [-1, -8], [-1, -1], [3, 3]], dtype=np.float64)
Y5 = np.array([-1.0, 1.0, -1.0, -1.0, 1.0])
CLOSED = {
    "wide box": (10.0, "hinge", [0.25, 0.25, 0, 0, 0]),
    "hinge": (0.1, "hinge", [0.1, 0.1, 0, 0.0125, 0.0125]),
    "squared hinge": (0.1, "squared_hinge", [0.104, 0.104, 0, 0.008, 0.008]),
}


def given(kernel, X):
    """As rows, or as the matrix itself."""
    return X @ X.T if kernel == "precomputed" else X


@pytest.mark.parametrize("finest", [False, True], ids=["float64", "finest"])
@pytest.mark.parametrize("kernel", ["linear", "precomputed"])
@pytest.mark.parametrize(("C", "loss", "alpha"), CLOSED.values(), ids=CLOSED)
def test_closed_forms__have_no_gap(C, loss, alpha, kernel, finest):
    one = program.Program(kernel, 1.0, given(kernel, X5), Y5, C, loss)
    truth = judge.judge(one, Y5 * alpha, finest)
    beta = Y5 * alpha
    dual = sum(alpha) - 0.5 * beta @ (X5 @ X5.T + np.diag(one.ridge)) @ beta
    assert truth.dual == pytest.approx(dual, rel=1e-13)
    assert truth.kkt_gap < 1e-14
    assert truth.infeasibility < 1e-15
    assert truth.primal == pytest.approx(dual, rel=1e-13)


def test_a_worse_alpha__has_a_smaller_dual_a_larger_primal_and_an_open_gap():
    one = program.Program("linear", 1.0, X5, Y5, 0.1)
    best, worse = (judge.judge(one, Y5 * alpha) for alpha in (CLOSED["hinge"][2], [0.1, 0.1, 0, 0, 0]))
    assert best.primal == pytest.approx(best.dual, rel=1e-13)
    assert worse.dual < best.dual
    assert worse.primal > best.primal
    assert worse.kkt_gap > 0.1


def test_broken_constraints__are_seen():
    one = program.Program("linear", 1.0, X5, Y5, 0.1)
    assert judge.judge(one, Y5 * [0.25, 0.25, 0, 0, 0]).infeasibility == pytest.approx(0.15)
    assert judge.judge(one, Y5 * [0.1, 0.05, 0, 0, 0]).infeasibility == pytest.approx(0.05)
    assert judge.judge(one, Y5 * [-0.01, -0.01, 0, 0, 0]).infeasibility == pytest.approx(0.01)


def rational(one, beta):
    """KKT gap and dual without rounding: beta's sum is taken away at the mean, as the judge defines it."""
    X = [[Fraction(float(v)) for v in row] for row in one.X]
    m = [Fraction(float(v)) for v in one.X.mean(axis=0)]
    gamma, b = Fraction(one.gamma), [Fraction(float(v)) for v in beta]

    def k(x, z):
        product = sum(p * q for p, q in zip(x, z, strict=True))
        return (gamma * product + 1) ** 2 if one.kernel == "poly" else product

    def centred(x, z):
        return k(x, z) - k(x, m) - k(m, z) + k(m, m)

    f = [sum(c * centred(x, z) for c, z in zip(b, X, strict=True) if c) for x in X]
    score = [Fraction(y) - v for y, v in zip(one.y.tolist(), f, strict=True)]
    upper = [Fraction(y * c) for y, c in zip(one.y.tolist(), one.upper.tolist(), strict=True)]
    rising = max(s for s, c, u in zip(score, b, upper, strict=True) if c < max(u, 0))
    falling = min(s for s, c, u in zip(score, b, upper, strict=True) if c > min(u, 0))
    dual = sum(Fraction(y) * c - c * v / 2 for y, c, v in zip(one.y.tolist(), b, f, strict=True))
    return float(rising - falling), float(dual)


@pytest.mark.parametrize("kernel", ["linear", "poly"])
def test_double_double__is_rational_arithmetic(kernel):
    """Rows at 1e4, coefficients of 1e4 that sum up to 1e-12: in float64 nothing would be left."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(24, 3)) + 1e4, np.where(np.arange(24) % 2, 1.0, -1.0)
    beta = y * np.where(np.arange(24) < 6, 1e4, rng.uniform(0, 1e4, 24))
    beta[-2:] += -beta.sum() / 2
    one = program.Program(kernel, 1.0 / 3, X, y, 1e4)
    truth, (gap, dual) = judge.judge(one, beta), rational(one, beta)
    assert truth.precision == "double-double"
    assert truth.kkt_gap == pytest.approx(gap, rel=1e-14)
    assert truth.dual == pytest.approx(dual, rel=1e-13)
    assert truth.load > 1e4 * truth.load_centred


@pytest.mark.parametrize("kernel", design.KERNELS)
def test_the_finest_judge__agrees_where_float64_does(kernel):
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(150, 5)) + 1, np.where(rng.random(150) < 0.4, 1.0, -1.0)
    beta = y * rng.uniform(0, 2.0, 150) * (rng.random(150) < 0.5)
    one = program.Program(kernel, 0.1, given(kernel, X), y, 2.0)
    quick, finest = judge.judge(one, beta), judge.judge(one, beta, finest=True)
    assert quick.precision == "float64" != finest.precision
    for name in ("kkt_gap", "primal", "dual", "plain_gap", "plain_dual"):
        assert getattr(quick, name) == pytest.approx(getattr(finest, name), rel=1e-11), name


def test_plain_scores__are_those_of_the_kernel_as_it_is():
    """beta that does not sum up to zero: then centring is another program, and both are told."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(40, 2)) + 2, np.where(rng.random(40) < 0.5, 1.0, -1.0)
    beta = y * rng.uniform(0.1, 0.9, 40)
    one = program.Program("poly", 0.5, X, y, 1.0)
    truth, K = judge.judge(one, beta), (0.5 * X @ X.T + 1) ** 2
    score = y - K @ beta
    assert truth.plain_gap == pytest.approx(score.max() - score.min(), rel=1e-12)
    assert truth.plain_dual == pytest.approx(y @ beta - 0.5 * beta @ K @ beta, rel=1e-12)
    assert truth.plain_gap != pytest.approx(truth.kkt_gap, rel=1e-3)


@pytest.mark.parametrize("loss", design.LOSSES)
def test_least_loss__is_the_least_over_a_fine_grid(loss):
    rng = np.random.default_rng(6)
    y = np.where(rng.random(60) < 0.3, 1.0, -1.0)
    one = program.Program("linear", 1.0, np.ones((60, 1)), y, 2.0, loss, rng.uniform(0.1, 2, 60))
    f, power = rng.normal(size=60), 1 if loss == "hinge" else 2
    grid = [one.cost @ np.maximum(0, 1 - y * (f + b)) ** power for b in np.linspace(-3, 3, 6001)]
    assert min(grid) * (1 - 1e-5) <= judge.least_loss(one, f) <= min(grid)


SMALL = [
    Problem("sklearn-iris", "standardised", kernel, "rbf" if kernel == "precomputed" else "", loss, 1.0, weighted)
    for kernel, loss, weighted in [
        ("linear", "hinge", False),
        ("rbf", "hinge", True),
        ("poly", "hinge", False),
        ("sigmoid", "hinge", True),
        ("precomputed", "hinge", False),
        ("rbf", "squared_hinge", True),
        ("linear", "squared_hinge", False),
    ]
]


@pytest.mark.parametrize("problem", SMALL, ids=[problem.key for problem in SMALL])
def test_libsvm__passes_and_tampered_fails(problem):
    answer = workers.Libsvm().fit(problem)
    assert answer["status"] == "converged"
    one, beta = program.program_of(problem), answer["beta"]
    truth = workers.Judge().truth(problem, beta, finest=False)
    assert 0 < truth["kkt_gap"] <= design.TOL * (1 + 1e-3)
    assert verdicts.within(truth, verdicts.PEER_SUM_RTOL)
    free = np.flatnonzero((beta != 0) & (abs(beta) < one.upper))
    moved = beta.copy()
    moved[free[0]] *= 0.5
    assert not verdicts.within(workers.Judge().truth(problem, moved, finest=False))
    moved[free[1]] -= moved.sum()
    assert workers.Judge().truth(problem, moved, finest=False)["kkt_gap"] > 2 * design.TOL


def test_bounded__asks_for_a_box_or_a_convex_program():
    X, y = np.array([[1.0], [-1.0], [2.0]]), np.array([1.0, -1.0, 1.0])
    assert judge.bounded(program.Program("sigmoid", 1.0, X, y, 1e4, "hinge"))
    assert judge.bounded(program.Program("rbf", 1.0, X, y, 1e4, "squared_hinge"))
    assert judge.bounded(program.Program("sigmoid", 1e-3, X, y, 1e-3, "squared_hinge"))
    assert not judge.bounded(program.Program("sigmoid", -1.0, X, y, 1e4, "squared_hinge"))


def test_libsvm__has_not_solved_what_has_no_least_value():
    """Its answer is a stationary point there: another beta has a dual far above, which LIBSVM did not meet."""
    far = {"bounded": False, "truth__dual": 1e40, "truth__primal": 1e41}
    assert not verdicts.peer_solved(record(**far))
    assert verdicts.peer_solved(record(**far, truth__infeasibility=1.0))
    assert verdicts.peer_solved(record(**far | {"bounded": True}))
    assert verdicts.peer_solved(record(bounded=False))


def test_rounding__is_what_a_last_digit_of_the_outputs_costs():
    X, y = np.array([[-1.0], [1.0]]), np.array([-1.0, 1.0])
    truth = judge.judge(program.Program("linear", 1.0, X, y, 10.0), np.array([-0.5, 0.5]))
    assert truth.rounding == pytest.approx(2 * 10.0 * 2.0**-52 / 0.5)
    truth = judge.judge(program.Program("linear", 1.0, X, y, 10.0, "squared_hinge"), np.array([-0.5, 0.5]))
    assert truth.rounding == pytest.approx(2 * 0.5 * 2.0**-52 / truth.primal)


def test_a_runaway__is_no_answer():
    one = program.Program("sigmoid", 1.0, X5, Y5, 1.0, "squared_hinge")
    assert judge.judge(one, np.full(5, 1e200)).kkt_gap == np.inf
    assert judge.judge(one, np.full(5, np.nan)).kkt_gap == np.inf


def test_the_design__is_always_the_same():
    problems = design.design()
    assert [problem.key for problem in problems[:3]] == [
        "satimage/standardised/sigmoid/hinge/C=10000/equal",
        "splice/shifted/rbf/hinge/C=1/weights",
        "crx/shifted/poly/hinge/C=0.01/equal",
    ]
    assert len({problem.key for problem in problems}) == len(problems) >= 4000
    assert 0.45 < np.mean([problem.weighted for problem in problems]) < 0.55


def test_a_selection__keeps_the_order_and_names_what_it_does_not_know():
    found = design.selected(["linear", "rbf", "sklearn-wine", "raw", "equal"])
    assert {(p.kernel, p.table, p.scaling, p.weighted) for p in found} == {
        ("linear", "sklearn-wine", "raw", False),
        ("rbf", "sklearn-wine", "raw", False),
    }
    order = [p.key for p in design.design()]
    assert sorted(found, key=lambda p: order.index(p.key)) == found
    with pytest.raises(SystemExit, match="unknown 'wein'"):
        design.selected(["wein"])


def test_tables__largest_class_against_the_rest_and_shifts():
    raw, y = tables.rows_of("sklearn-wine", "raw")
    assert (y > 0).sum() == 71
    standardised, shifted = (tables.rows_of("sklearn-wine", scaling)[0] for scaling in ("standardised", "shifted"))
    np.testing.assert_allclose(standardised, (raw - raw.mean(axis=0)) / raw.std(axis=0), atol=1e-12)
    np.testing.assert_allclose(shifted - 1e4, standardised, atol=1e-11)
    assert tables.weights_of("sklearn-wine", 178).min() >= 0.1
    np.testing.assert_array_equal(tables.weights_of("sklearn-wine", 5), tables.weights_of("sklearn-wine", 5))


def test_text_columns__become_ranks():
    np.testing.assert_array_equal(tables._numbers(("b", "a ", "b", "c")), [1, 0, 1, 2])
    np.testing.assert_array_equal(tables._numbers(("1.5", "2")), [1.5, 2])


def record(**changes):
    """A problem solved by both, with changes to parts of it: ours__status="stalled"."""
    truth = {"kkt_gap": 9e-4, "plain_gap": 9e-4, "primal": 10.001, "dual": 10.0, "plain_primal": 10.001}
    truth |= {"plain_dual": 10.0, "infeasibility": 0.0, "beta_l1": 20.0, "load": 1e-6, "load_centred": 1e-9}
    claims = {"primal": 10.001, "dual": 10.0, "kkt_gap": 9e-4, "infeasibility": 0.0, "uncertainty": 0.0, "bar": 0.0}
    one = {
        "case": "iris/raw/linear/hinge/C=1/equal",
        "run": "1",
        "n": 150,
        "bounded": True,
        "ours": {"status": "converged", "seconds": 0.01, "cpu_seconds": 0.01},
        "claims": claims,
        "truth": truth | {"precision": "float64"},
        "peer": {"status": "converged", "cpu_seconds": 0.02, "truth": dict(truth)},
    }
    for name, value in changes.items():
        place, *key = name.split("__")
        one[place] = {**one[place], key[0]: value} if key else value
    one["ours"] = {**one["ours"], "claims": one.pop("claims")}
    return one | {"verdicts": verdicts.verdicts_of(one)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"claims__kkt_gap": 9.3e-4}, ["false gap"]),
        ({"claims__kkt_gap": 9.3e-4, "claims__uncertainty": 1.5e-5}, []),
        ({"claims__kkt_gap": 9.3e-4, "truth__plain_gap": 9.3e-4}, []),
        ({"truth__kkt_gap": 1.2e-3, "claims__kkt_gap": 1.2e-3}, ["false converged", "unsolved"]),
        ({"truth__infeasibility": 1e-10}, ["false converged", "unsolved"]),
        ({"claims__dual": 10.0001}, ["objective outside its bar"]),
        ({"claims__dual": 10.00001, "claims__bar": 2e-5}, ["wide claim"]),
        ({"claims__dual": 10.000004, "claims__bar": 5e-6}, []),
        ({"claims__primal": None}, []),
        ({"claims__uncertainty": 3e-5}, ["wide claim"]),
        ({"truth__dual": 9.9999, "claims__dual": 9.9999}, ["dual below LIBSVM"]),
        ({"truth__dual": 9.9999, "claims__dual": 9.9999, "case": "iris/raw/sigmoid/hinge/C=1/equal"}, []),
        ({"ours__status": "stalled"}, ["stalled unjustly", "unsolved"]),
        ({"ours__status": "stalled", "truth__load_centred": 1.0, "peer__truth": None}, ["unsolved"]),
        ({"ours__status": "stalled", "truth__rounding": 2e-6}, ["unsolved"]),
        ({"ours__status": "stalled", "truth__rounding": 5e-7}, ["stalled unjustly", "unsolved"]),
        ({"ours__cpu_seconds": 12.0}, ["unsolved", "late"]),
        ({"truth": None}, ["failed", "unsolved"]),
    ],
    ids=lambda value: None if isinstance(value, list) else " ".join(value) or "right",
)
def test_verdicts(changes, expected):
    assert record(**changes)["verdicts"] == expected


def test_a_profile__counts_who_is_within_a_factor():
    """Twice as fast in one, the other way round in the next, one that we alone solve, one that nobody does."""
    records = [
        record(),
        record(ours__cpu_seconds=0.08),
        record(peer__status="max_iter"),
        record(ours__status="max_iter", peer__status="max_iter"),
    ]
    curve = summaries.profile(records)
    assert curve["problems"] == 3
    at = {factor: shares for factor, *shares in zip(curve["factors"], curve["ours"], curve["libsvm"], strict=True)}
    assert at[1.0] == pytest.approx([2 / 3, 1 / 3])
    assert at[1000.0] == pytest.approx([1.0, 2 / 3])


def test_times__are_told_of_each_group_of_kernels_by_itself():
    cases = {"linear": 0.01, "rbf": 0.02, "poly": 0.03, "sigmoid": 0.04, "precomputed-rbf": 0.05}
    records = [record(case=f"iris/raw/{k}/hinge/C=1/equal", ours__cpu_seconds=s) for k, s in cases.items()]
    found = {row["kernels"]: (row["problems"], row["median"]) for row in summaries.summary(records)["ratios"]}
    assert found == {"all": (5, 1.5), "linear, rbf, poly": (3, 1.0), "rbf, poly, sigmoid": (3, 1.5)}


def test_the_page__is_written_from_the_summary(tmp_path):
    found = summaries.summary([record(), record(claims__kkt_gap=0.0), record(ours__cpu_seconds=0.5)])
    assert found["verdicts"]["false gap"] == 1
    results.Results(tmp_path, "truth", "1").append("truth", [found])
    text = report.write(tmp_path, tmp_path / "docs").read_text()
    assert "| 3 small problems: false gap | none | 1 | **no** |" in text
    assert "3 of 3 (100.0 %)" in text
    assert "](images/performance-truth.svg)" in text
    assert (tmp_path / "docs" / "images" / "performance-truth.svg").read_text().startswith("<?xml")


def test_the_judge__imports_neither_solver_nor_svmcore():
    code = "import sys, benchmarks.truth.judging.judge; print([m for m in sys.modules if m.split('.')[0] == 'svmcore'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_busy_process__is_ended_at_its_limit():
    served = remote.Remote(threading.Event)
    with pytest.raises(remote.WorkerEnded, match="ended after 0 s"):
        served.call("wait", 60, timeout=0.4)
    assert not served.alive


def test_a_process__is_ended_for_its_processor_time_not_for_sleeping():
    served = remote.Remote(threading.Event)
    assert served.call("wait", 1.0, cpu_timeout=0.5, timeout=60) is False
    served.close()
    served = remote.Remote(collections.deque, (), 0)
    with pytest.raises(remote.WorkerEnded, match="ended after 1 s"):
        served.call("extend", range(10**12), cpu_timeout=1.0)


def test_a_run__judges_resumes_and_takes_libsvm_from_the_file(tmp_path, capsys):
    """Three small problems end to end; a second run pays for our fits alone."""
    words = "sklearn-iris,standardised,rbf,hinge,1,100,10000"
    chosen, ours = design.selected(words.split(",")), partial(workers.Ours, warm_rows=(40,))
    first = run.Request(tmp_path, "first", 5, ours=ours, say=lambda _: None)
    assert run.run(chosen, first) == 3
    found = run.lines(tmp_path, "first")
    assert {one["ours"]["status"] for one in found} == {"converged"}
    assert all(one["truth"]["kkt_gap"] <= 1.05e-3 and one["peer"]["truth"]["kkt_gap"] <= 1.05e-3 for one in found)
    peers = tmp_path / "truth-libsvm.jsonl"
    altered = [json.loads(line) | {"seconds": 123.0} for line in peers.read_text().splitlines()]
    peers.write_text("".join(json.dumps(one) + "\n" for one in altered))
    assert run.run(chosen, replace(first, name="again", reuse_peer=True)) == 3
    assert [one["peer"]["seconds"] for one in run.lines(tmp_path, "again")] == [123.0] * 3
    given = ["--only", words, "--lines", str(tmp_path), "--results", str(tmp_path / "kept"), "--resume"]
    assert command.main(given) in (0, 1)  # nothing is left to do
    assert "3 of 5,640 problems" in capsys.readouterr().out
    assert not (tmp_path / "kept").exists()


def test_machines__a_certificate_that_is_off_is_called_false_and_a_right_one_is_not():
    """One-class on the corners of a square with nu = 0.5: every coefficient may be half of its bound."""
    X = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    problem = {"machine": "one-class", "X": X, "y": np.ones(4), "c": np.ones(4), "nu": 0.5}
    problem |= {"kernel": "rbf", "gamma": 0.5, "degree": 2, "coef0": 0.0}
    truth = machines.truth_of(problem, np.full(4, 0.5))
    assert truth.kkt_gap == pytest.approx(0.0, abs=1e-15)
    row = np.exp(-0.5 * np.array([0.0, 4.0, 4.0, 8.0])).sum()
    assert truth.dual == pytest.approx(-0.5 * row, rel=1e-14)  # 1/2 beta'K beta, beta = 1/2
    assert truth.primal == pytest.approx(truth.dual, rel=1e-14)
    right = Certificate(truth.primal, truth.dual, 0.0, 0.0, 0.0)
    assert machines.verdicts_of(right, "converged", truth, doubled=False) == []
    worse = machines.truth_of(problem, np.array([1.0, 1.0, 0.0, 0.0]))
    assert "false converged" in machines.verdicts_of(right, "converged", worse, doubled=False)
    assert "false gap" in machines.verdicts_of(right, "stalled", worse, doubled=False)


def test_machines__the_problems_are_feasible_and_differ():
    problems = machines.design()
    assert len({problem.key for problem in problems}) == len(problems) == 3384
    found = machines.problem_of(machines.Machine("sklearn-wine", "standardised", "rbf", "nu-svc", 0.5, True))
    heavy = [found["weights"][found["y"] == sign].sum() for sign in (1.0, -1.0)]
    assert found["nu"] <= 2 * min(heavy) / sum(heavy)
    assert (
        machines.record_of(machines.Machine("sklearn-wine", "standardised", "rbf", "svr", 0.1, True))["verdicts"] == []
    )
