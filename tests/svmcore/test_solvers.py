"""What single solvers promise beyond the contract: Newton's few steps, sources, agreement on real data."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.svm import SVC, LinearSVC

from benchmarks.suites.estimators.solvers import svmguide1
from svmcore import RBF, Bias, CachedColumns, Hinge, ResidentGram, Solver, SquaredHinge, Status, classification
from svmcore.solvers import primal_newton

from .. import problems


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(y == 1, 1.0, -1.0)


@pytest.mark.parametrize("bias", list(Bias))
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_primal_newton__reaches_rounding_error_in_a_few_steps(cancer, bias, C):
    X, y = cancer
    solver = Solver.create({"name": "primal-newton", "tol": 1e-10})
    solution = solver.solve(classification(ResidentGram(RBF(gamma=0.05)(X, X)), y, C, SquaredHinge(), bias))
    assert solution.status is Status.CONVERGED
    assert solution.certificate.kkt_gap <= 1e-10
    assert solution.certificate.relative_gap <= 1e-10
    assert solution.n_iter <= 15


def test_primal_newton__equations_without_a_number_end():
    assert np.isnan(primal_newton._solve(np.full((2, 2), np.nan), np.ones(2))).all()


@pytest.mark.parametrize("bias", list(Bias))
def test_primal_newton__linear_and_kernel_form_take_the_same_steps(cancer, bias):
    X, y = cancer
    solver, case = (
        Solver.create({"name": "primal-newton", "tol": 1e-8}),
        problems.Case("", X, y, problems.Linear(), 1.0),
    )
    linear = solver.solve(case.problem(solver, SquaredHinge(), bias))
    kernel = solver.solve(classification(ResidentGram(X @ X.T), y, 1.0, SquaredHinge(), bias))
    assert linear.n_iter == kernel.n_iter
    np.testing.assert_allclose(linear.decision, kernel.decision, atol=1e-6)


def test_primal_newton__weights_are_liblinears(cancer):
    X, y = cancer
    solver, case = (
        Solver.create({"name": "primal-newton", "tol": 1e-8}),
        problems.Case("", X, y, problems.Linear(), 1.0),
    )
    solution = solver.solve(case.problem(solver, SquaredHinge(), Bias.PENALISED))
    reference = LinearSVC(C=1.0, dual=False, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(X.T @ solution.beta, reference.coef_[0], atol=1e-5)
    assert solution.bias == pytest.approx(reference.intercept_[0], abs=1e-5)


@pytest.mark.parametrize("name", ["smo", "smo-mvp", "smo-platt"])
def test_smo__dual_value_is_libsvms(cancer, name):
    X, y = cancer
    K = RBF(gamma=0.05)(X, X)
    solver = Solver.create({"name": name, "tol": 1e-5})
    dual = solver.solve(classification(ResidentGram(K), y, 10.0)).certificate.dual
    coef = np.zeros(len(y))
    model = SVC(C=10.0, kernel="precomputed", tol=1e-5).fit(K, y)
    coef[model.support_] = model.dual_coef_[0]
    assert dual == pytest.approx(np.abs(coef).sum() - 0.5 * coef @ K @ coef, rel=1e-6)


@pytest.mark.parametrize("name", ["smo-mvp", "smo-platt", "smo-simplified", "dual-ascent", "primal-newton"])
def test_solver__takes_the_same_steps_on_cached_columns(cancer, name):
    X, y = cancer
    gram = ResidentGram(RBF(gamma=0.05)(X, X))
    solver = problems.tight(name)
    loss, bias = problems.admitted(problems.Case("", X, y, RBF(gamma=0.05), 1.0), solver)[0]
    runs = [
        solver.solve(classification(columns, y, 1.0, loss, bias))
        for columns in (gram, CachedColumns(gram, 40 * len(y) * 8))
    ]
    assert runs[0].n_iter == runs[1].n_iter
    np.testing.assert_allclose(runs[0].alpha, runs[1].alpha, atol=1e-9)


def test_perceptron__ends_with_no_mistake_on_separable_rows_alone():
    X = np.array([[1.0, 2.0], [2.0, 1.0], [-1.0, -1.5], [-2.0, -0.5]])
    y = np.array([1.0, 1.0, -1.0, -1.0])
    solver = Solver.create({"name": "perceptron", "max_iter": 50})
    case = problems.Case("", X, y, problems.Linear(), 1.0)
    solution = solver.solve(case.problem(solver, Hinge(), Bias.NONE))
    assert (y * solution.decision > 0).all()
    assert solution.status is not Status.CONVERGED  # of the SVM's conditions it knows nothing
    crossed = case.problem(solver, Hinge(), Bias.NONE, y=np.array([1.0, -1.0, -1.0, 1.0]))
    assert solver.solve(crossed).status in (Status.MAX_ITER, Status.STALLED)


def test_stationary_pairs__duplicate_rows_under_both_labels_end():
    X = np.repeat(np.array([[3.0, 0.0], [0.0, 3.0], [3.0, 3.0]]), 4, axis=0)  # about their mean they are integers
    y = np.tile([1.0, -1.0], 6)
    for name in ("smo", "smo-mvp", "smo-platt", "smo-simplified"):
        solver = problems.tight(name, tol=1e-6)
        case = problems.Case("", X, y, problems.Linear(), 2.0)
        solution = solver.solve(case.problem(solver, Hinge(), Bias.FREE))
        assert solution.certificate.dual == pytest.approx(24.0, rel=1e-6), name  # every row at its bound, w = 0


@pytest.fixture(scope="module")
def data():
    folder = os.environ.get("MARGINFLOW_DATA") or pytest.skip("MARGINFLOW_DATA names the folder of the data files")
    return svmguide1(Path(folder))


@pytest.mark.parametrize(
    ("loss", "bias"), [(Hinge(), Bias.FREE), (Hinge(), Bias.PENALISED), (SquaredHinge(), Bias.FREE)]
)
def test_svmguide1__solvers_that_promise_tol_agree(data, loss, bias):
    X, y = data
    case, duals = problems.Case("svmguide1", X, y, RBF(gamma=0.25), 1.0), {}
    for name, solver in problems.SOLVERS.items():
        if solver.solves.certifies and problems.admits(solver, case, loss, bias):
            duals[name] = solver.solve(case.problem(solver, loss, bias)).certificate.dual
    assert len(duals) >= 2
    assert np.ptp(list(duals.values())) <= 10 * 1e-3 * max(duals.values())


@pytest.mark.parametrize("bias", list(Bias))
def test_svmguide1__newton_takes_at_most_15_steps(data, bias):
    X, y = data
    solver = Solver.create({"name": "primal-newton", "tol": 1e-10})
    solution = solver.solve(classification(ResidentGram(RBF(gamma=0.25)(X, X)), y, 10.0, SquaredHinge(), bias))
    assert (solution.status, solution.n_iter <= 15) == (Status.CONVERGED, True)
