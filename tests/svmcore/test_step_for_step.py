"""The compiled solvers take the very steps of their pseudo-code, given the same draws."""

import warnings

import numpy as np
import pytest

from svmcore import Bias, Hinge, Solver
from svmcore.solvers.textbook.smo_simplified import partners

from .. import problems
from ..reference import textbook


@pytest.fixture(scope="module")
def case():
    """32 rows in 64ths: their mean and all their products are exact, so every processor gives the same K."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(32, 3)) + 0.6 * np.repeat([[1.0], [-1.0]], 16, axis=0)
    return problems.Case("small", (64.0 * X).round() / 64.0, np.repeat([1.0, -1.0], 16), problems.Linear(), 0.7)


def run(case, bias, **spec):
    solver = Solver.create({"tol": 1e-8, **spec})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return solver.solve(case.problem(solver, Hinge(), bias))


def test_case__is_exact(case):
    integers = (64 * case.X).astype(int)
    columns = case.problem(Solver.create("smo-simplified"), Hinge(), Bias.FREE).source
    K = columns.columns(np.arange(32))
    np.testing.assert_array_equal(K, integers @ integers.T / 4096)
    np.testing.assert_array_equal(K, case.X @ case.X.T)


@pytest.mark.parametrize("steps", [1, 2, 7, 60])
def test_simplified_smo__takes_the_textbooks_steps(case, steps):
    found = run(case, Bias.FREE, name="smo-simplified", seed=3, max_iter=steps)
    K = (case.X @ case.X.T).tolist()
    alpha, _ = textbook.simplified_smo(K, case.y.tolist(), 0.7, 0.5e-8, partners(32, 3), steps, 1e-5)
    assert found.n_iter == steps
    np.testing.assert_allclose(found.alpha, alpha, atol=1e-9)


@pytest.mark.parametrize("bias", [Bias.PENALISED, Bias.NONE])
@pytest.mark.parametrize("shuffle", [True, False])
def test_dual_ascent__takes_the_textbooks_steps(case, bias, shuffle):
    found = run(case, bias, name="dual-ascent", seed=3, max_iter=6, shuffle=shuffle)
    rng = np.random.default_rng(3)
    orders = [rng.permutation(32) if shuffle else np.arange(32) for _ in range(6)]
    K = (case.X @ case.X.T + (bias is Bias.PENALISED)).tolist()
    np.testing.assert_allclose(found.alpha, textbook.dual_ascent(K, case.y.tolist(), 0.7, orders), atol=1e-10)


@pytest.mark.parametrize("bias", [Bias.PENALISED, Bias.NONE])
def test_perceptron__takes_the_textbooks_steps(case, bias):
    found = run(case, bias, name="perceptron", max_iter=4)
    X = np.column_stack([case.X, np.ones(32)]) if bias is Bias.PENALISED else case.X
    w, wrong = textbook.perceptron(X.tolist(), case.y.tolist(), found.n_iter)
    np.testing.assert_array_equal(found.alpha, wrong)
    np.testing.assert_allclose(found.decision, X @ w, atol=1e-9)


@pytest.mark.parametrize("bias", [Bias.PENALISED, Bias.NONE])
def test_sgd__takes_the_textbooks_steps(case, bias):
    found = run(case, bias, name="sgd", seed=3, max_iter=9)
    X = np.column_stack([case.X, np.ones(32)]) if bias is Bias.PENALISED else case.X
    rng = np.random.default_rng(3)
    history = textbook.sgd(X.tolist(), case.y.tolist(), 0.7, [rng.permutation(32) for _ in range(9)])
    primal = [0.5 * np.dot(w, w) + 0.7 * np.maximum(0, 1 - case.y * (X @ w)).sum() for w in history]
    best = history[int(np.argmin(primal))]  # the answer is the epoch with the smallest primal
    np.testing.assert_allclose(found.decision, X @ best, atol=1e-9)
    assert found.certificate.primal == pytest.approx(min(primal), rel=1e-9)


def test_gd__alpha_and_w_are_the_same_point(case):
    found = run(case, Bias.PENALISED, name="gd", max_iter=50)
    w = np.column_stack([case.X, np.ones(32)]).T @ (found.alpha * case.y)
    np.testing.assert_allclose(found.decision, np.column_stack([case.X, np.ones(32)]) @ w, atol=1e-9)
    assert found.certificate.infeasibility == 0.0
