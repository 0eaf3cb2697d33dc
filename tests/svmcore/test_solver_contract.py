"""What every solver promises, run over the whole registry by what each declares: a new file is tested unasked."""

import dataclasses
import time
import warnings

import numpy as np
import pytest

from svmcore import Bias, Hinge, Loss, Monitor, Solver, SquaredHinge, Status, certify
from svmcore.errors import InputError, Unsupported
from svmcore.solvers.base import ConvergenceWarning

from .. import problems

RUNS = [
    pytest.param(name, case, loss, bias, id=f"{name}-{case.name}-{loss.name}-{bias}")
    for name, solver in problems.SOLVERS.items()
    for case in problems.cases()
    for loss, bias in problems.admitted(case, solver)
]
CERTIFYING = [run for run in RUNS if problems.SOLVERS[run.values[0]].solves.certifies]
SMALL = [run for run in CERTIFYING if not run.values[1].name.startswith("digits")]
PRIMAL = [run for run in RUNS if run.values[0] in ("gd", "sgd")]


def solved(solver, problem, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solver.solve(problem, **kwargs)


@pytest.mark.parametrize(("name", "case", "loss", "bias"), RUNS)
def test_solver__certificate_holds(name, case, loss, bias):
    solver = problems.tight(name)
    problem = case.problem(solver, loss, bias)
    solution = solved(solver, problem)
    again = certify(problem, solution.beta)
    found = solution.certificate
    assert abs(found.kkt_gap - again.kkt_gap) <= found.uncertainty + again.uncertainty
    assert abs(found.dual - again.dual) <= found.bar + again.bar
    assert found.primal == pytest.approx(again.primal, abs=found.bar + again.bar)
    best = problems.optimum(case.name, loss, bias)
    if solver.solves.bounds:
        assert again.infeasibility <= 1e-9
        assert found.dual <= best * (1 + 1e-6)
        assert found.primal >= best * (1 - 1e-6)
    else:
        assert found.relative_gap is None
    if solution.status is Status.CONVERGED:
        assert found.kkt_gap <= 1.05 * solver.tol
    np.testing.assert_allclose(solution.decision, _decision(problem, solution), rtol=1e-5, atol=1e-5)


def _decision(problem, solution):
    K = problem.source.columns(np.arange(problem.m)).astype(np.float64)
    return K @ solution.beta + solution.bias


@pytest.mark.parametrize(("name", "case", "loss", "bias"), CERTIFYING)
def test_certifying_solver__reaches_tol_and_the_same_objective(name, case, loss, bias):
    solver = problems.tight(name)
    solution = solver.solve(case.problem(solver, loss, bias))
    assert solution.status is Status.CONVERGED
    assert solution.certificate.kkt_gap <= 1.05 * solver.tol
    best = problems.optimum(case.name, loss, bias)
    assert abs(solution.certificate.dual - best) <= 10 * solver.tol * abs(best)


@pytest.mark.parametrize(("name", "case", "loss", "bias"), PRIMAL)
def test_primal_solver__comes_within_one_percent(name, case, loss, bias):
    solver = problems.tight(name)
    solution = solver.solve(case.problem(solver, loss, bias))
    best = problems.optimum(case.name, loss, bias)
    assert solution.certificate.primal <= best * 1.01
    assert solution.certificate.dual >= best * 0.96


@pytest.mark.parametrize(("name", "case", "loss", "bias"), CERTIFYING)
def test_certifying_solver__warm_start_from_the_optimum_takes_no_step(name, case, loss, bias):
    solver = problems.tight(name)
    problem = case.problem(solver, loss, bias)
    first = solver.solve(problem)
    again = solver.solve(problem, first.beta)
    assert again.n_iter == 0
    np.testing.assert_array_equal(again.beta, first.beta)


@pytest.mark.parametrize(("name", "case", "loss", "bias"), SMALL)
def test_certifying_solver__order_of_the_rows_does_not_matter(name, case, loss, bias):
    solver, order = problems.tight(name), np.random.default_rng(1).permutation(len(case.y))
    C = case.C if np.isscalar(case.C) else case.C[order]
    moved = case.problem(solver, loss, bias, X=case.X[order], y=case.y[order], C=C)
    best = problems.optimum(case.name, loss, bias)
    assert abs(solver.solve(moved).certificate.dual - best) <= 10 * solver.tol * abs(best)


@pytest.mark.parametrize(("name", "case", "loss", "bias"), [run for run in SMALL if np.isscalar(run.values[1].C)])
def test_certifying_solver__a_row_three_times_is_a_row_of_weight_three(name, case, loss, bias):
    solver, n = problems.tight(name, tol=1e-5), len(case.y)
    repeats = np.where(np.arange(n) % 3 == 0, 3, 1)
    weighted = case.problem(solver, loss, bias, C=case.C * repeats.astype(float))
    copies = np.repeat(np.arange(n), repeats)
    repeated = case.problem(solver, loss, bias, X=case.X[copies], y=case.y[copies])
    one, many = solver.solve(weighted), solver.solve(repeated)
    assert one.certificate.dual == pytest.approx(many.certificate.dual, rel=1e-4)
    np.testing.assert_allclose(one.decision[copies], many.decision, atol=2e-2)


@pytest.mark.parametrize("name", problems.SOLVERS)
def test_solver__rows_left_out_have_no_say(name):
    case, solver = problems.cases()[1], problems.tight(name)
    loss, bias = problems.admitted(case, solver)[0]
    kept = np.arange(len(case.y)) % 4 != 0
    C = np.where(kept, 1.0, 0.0)
    part = solved(solver, case.problem(solver, loss, bias, X=case.X[kept], y=case.y[kept]))
    box = solved(solver, case.problem(solver, loss, bias, C=C))
    assert not box.alpha[~kept].any()
    if solver.solves.certifies:
        assert box.certificate.dual == pytest.approx(part.certificate.dual, rel=10 * solver.tol)
        np.testing.assert_allclose(box.decision[kept], part.decision, atol=0.05)


@pytest.mark.parametrize("name", problems.SOLVERS)
def test_solver__the_same_answer_twice(name):
    case, solver = problems.cases()[2 if not problems.SOLVERS[name].solves.linear_only else 1], problems.SOLVERS[name]
    loss, bias = problems.admitted(case, solver)[0]
    problem = case.problem(solver, loss, bias)
    np.testing.assert_array_equal(solved(solver, problem).alpha, solved(solver, problem).alpha)


@pytest.mark.parametrize(
    "name", [n for n, s in problems.SOLVERS.items() if any(f.name == "seed" for f in dataclasses.fields(s))]
)
def test_stochastic_solver__another_seed_takes_another_way(name):
    case = problems.cases()[1]
    loss, bias = problems.admitted(case, problems.SOLVERS[name])[0]
    runs = [
        solved(problems.tight(name, seed=seed, max_iter=3), case.problem(problems.SOLVERS[name], loss, bias))
        for seed in (1, 2)
    ]
    assert (runs[0].alpha != runs[1].alpha).any()


@pytest.mark.parametrize("name", problems.SOLVERS)
def test_solver__stops_when_asked_and_keeps_a_feasible_answer(name):
    case, solver = problems.cases()[4], problems.tight(name, tol=1e-9)
    loss, bias = problems.admitted(case, solver)[0]
    problem = case.problem(solver, loss, bias)
    solution = solved(solver, problem, monitor=Monitor(stop=lambda: True))
    assert solution.status is Status.STOPPED
    if solver.solves.bounds:
        assert certify(problem, solution.beta).infeasibility <= 1e-9


@pytest.mark.parametrize("name", problems.SOLVERS)
def test_solver__asks_the_monitor_at_least_every_200_ms(name):
    solver = problems.tight(name, tol=1e-9, time_limit=0.6)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 40))
    case = problems.Case("noise", X, np.where(rng.random(1500) < 0.5, 1.0, -1.0), problems.Linear(), 100.0)
    loss, bias = problems.admitted(case, solver)[0]
    problem = case.problem(solver, loss, bias)
    asked = []

    def stop():
        asked.append((time.perf_counter(), time.process_time()))
        return False

    solved(solver, problem, monitor=Monitor(stop=stop, time_limit=0.6))  # the first solve compiles
    asked.clear()
    stop()
    solved(solver, problem, monitor=Monitor(stop=stop, time_limit=0.6))
    busy = np.diff(asked, axis=0).min(axis=1)  # others may have the processor, and threads add up
    assert busy.max(initial=0.0) < 0.5  # 0.2 s on an idle machine


@pytest.mark.parametrize("name", problems.SOLVERS)
def test_solver__max_iter_zero_takes_no_step(name):
    case, solver = problems.cases()[1], problems.tight(name, max_iter=0)
    loss, bias = problems.admitted(case, solver)[0]
    solution = solved(solver, case.problem(solver, loss, bias))
    assert (solution.status, solution.n_iter, solution.alpha.any()) == (Status.MAX_ITER, 0, False)


@pytest.mark.parametrize("name", problems.SOLVERS)
def test_solver__warns_only_where_it_broke_its_promise(name):
    case, solver = problems.cases()[1], problems.tight(name, max_iter=1)
    loss, bias = problems.admitted(case, solver)[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solver.solve(case.problem(solver, loss, bias))
    assert bool(caught) == solver.solves.certifies


# --- what a solver declares -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", problems.SOLVERS)
@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("bias", list(Bias))
def test_solver__refuses_what_it_does_not_declare_and_names_who_would(name, loss, bias):
    case, solver = problems.cases()[2], problems.SOLVERS[name]
    if (loss, bias) in problems.admitted(case, solver):
        solver.admits(loss, bias, case.kernel)
        return
    with pytest.raises(
        Unsupported, match=rf"solver '{name}' solves .*, not .*; solvers for this problem: .*smo"
    ) as error:
        solver.admits(loss, bias, case.kernel)
    named = str(error.value).split("problem: ")[1].split(", ")
    assert named == [other for other, s in problems.SOLVERS.items() if problems.admits(s, case, loss, bias)]


def test_solver__message_names_the_pairing():
    with pytest.raises(Unsupported, match="'dual-ascent' solves bias=penalised/none, not bias=free"):
        Solver.create("dual-ascent").admits(Hinge(), Bias.FREE)


@pytest.mark.parametrize("name", [n for n, s in problems.SOLVERS.items() if s.solves.linear_only])
def test_linear_solver__needs_the_rows_of_its_columns(name):
    X, y = problems.overlapping()
    K = X @ X.T
    bias = Bias.NONE
    with pytest.raises(Unsupported, match="needs kernel=linear and the rows"):
        Solver.create(name).solve(problems.classification(problems.ResidentGram(K), y, 1.0, bias=bias))
    rows = problems.ComputedColumns(problems.Linear(), problems.Points.prepare(X, None, np.float64), np.float64)
    gram = problems.ResidentGram(K, rows)
    assert solved(Solver.create(name), problems.classification(gram, y, 1.0, bias=bias)).alpha.any()


@pytest.mark.parametrize("name", problems.SOLVERS)
def test_solver__round_trips_through_its_spec(name):
    solver = problems.tight(name)
    assert Solver.create(solver.spec()) == solver


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "smo-mpv"}, "did you mean 'smo-mvp'"),
        ({"name": "sgd", "sed": 1}, "did you mean 'seed'"),
        ({"name": "gd", "tol": 0}, "tol must be a number > 0; given 0"),
        ({"name": "sgd", "seed": -1}, "seed must be an integer >= 0; given -1"),
        ({"name": "smo-simplified", "max_passes": 1.5}, "max_passes must be an integer >= 1; given 1.5"),
        ({"name": "dual-ascent", "shuffle": "no"}, "shuffle must be true or false; given 'no'"),
    ],
)
def test_solver__refuses_a_bad_value(spec, message):
    with pytest.raises((InputError, ValueError), match=message):
        Solver.create(spec)


# --- margins without slack ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", [n for n, s in problems.SOLVERS.items() if s.solves.hard_margin and s.solves.certifies]
)
@pytest.mark.parametrize("kind", ["clouds", "twins", "one inside"])
def test_hard_margin__ends_infeasible_where_nothing_separates(name, kind):
    X, y = _not_separable(kind)
    solver = Solver.create({"name": name, "time_limit": 60})
    case = problems.Case(kind, X, y, problems.Linear(), np.inf)
    loss, bias = problems.admitted(case, solver)[0]
    solution = solved(solver, case.problem(solver, loss, bias))
    assert solution.status is Status.INFEASIBLE


def _not_separable(kind):
    rng = np.random.default_rng(2)
    if kind == "clouds":
        return problems.overlapping()
    if kind == "twins":  # one row under both labels: a pair without curvature and without bound
        return np.array([[1.0, 1.0], [1.0, 1.0], [3.0, 0.0], [-2.0, 1.0]]), np.array([1.0, -1.0, 1.0, -1.0])
    X = np.concatenate([rng.normal(size=(30, 2)) + 4.0, rng.normal(size=(30, 2)) - 4.0, [[4.0, 4.0]]])
    return X, np.concatenate([np.ones(30), -np.ones(31)])


@pytest.mark.parametrize("name", ["smo", "smo-mvp", "smo-platt"])
def test_hard_margin__shifted_rows_are_still_separable(name):
    case = problems.Case("shifted", problems.FIVE + 100.0, problems.FIVE_LABELS, problems.Linear(), np.inf)
    solver = Solver.create({"name": name, "tol": 1e-6})
    loss, bias = problems.admitted(case, solver)[0]
    solution = solver.solve(case.problem(solver, loss, bias))
    assert solution.status is Status.CONVERGED


@pytest.mark.parametrize(
    ("C", "loss", "alpha", "bias"),
    [
        (np.inf, "hinge", (0.25, 0.25, 0, 0, 0), -1.0),
        (0.1, "hinge", (0.1, 0.1, 0, 0.0125, 0.0125), -0.5),
        (0.1, "squared_hinge", (0.104, 0.104, 0, 0.008, 0.008), -0.48),
    ],
)
@pytest.mark.parametrize("name", problems.SOLVERS)
def test_five_points__closed_form(name, C, loss, alpha, bias):
    case = problems.Case("five", problems.FIVE, problems.FIVE_LABELS, problems.Linear(), C)
    solver = problems.tight(name, tol=1e-10)
    if not problems.admits(solver, case, Loss.create(loss), Bias.FREE) or not solver.solves.certifies:
        return
    solution = solver.solve(case.problem(solver, Loss.create(loss), Bias.FREE))
    np.testing.assert_allclose(solution.alpha, alpha, atol=1e-9)
    assert solution.bias == pytest.approx(bias, abs=1e-9)
