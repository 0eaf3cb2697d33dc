"""Decision values without a row, told by one solution, against solutions without that row."""

import numpy as np
import pytest

from svmcore.kernels import RBF
from svmcore.model.left_out import left_out_change
from svmcore.monitor import Monitor
from svmcore.solvers import SMO
from svmcore.sources import ResidentGram
from svmcore.tasks import SVC, NuSVC

TASKS = {"hinge": SVC(), "squared hinge": SVC("squared_hinge"), "no bias": SVC(bias="none"), "nu": NuSVC(0.3)}


def problem(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat([-1.0, 1.0], n // 2)
    return rng.normal(size=(n, 3)) + 0.8 * y[:, None], y


def left_out_decisions(qp, solution, share):
    return solution.decision + left_out_change(qp, solution.beta, share)


def solved(task, K, y, C):
    qp = task.program(ResidentGram(K), y, C)
    solution = SMO(tol=1e-9).solve(qp, monitor=Monitor(warn=False))
    return qp, solution


@pytest.mark.parametrize(
    ("task", "share"), [("hinge", 0.6), ("no bias", 0.6), ("squared hinge", 0.1)], ids=["hinge", "no bias", "squared"]
)
def test_left_out__is_nearly_what_a_solution_without_the_row_says(task, share):
    """Much nearer than the solution with the row; of most rows, and of all that are no support, it is that."""
    X, y = problem()
    K = RBF(0.3)(X, X)
    qp, solution = solved(TASKS[task], K, y, np.ones(len(y)))
    found, truth = left_out_decisions(qp, solution, np.ones(len(y))), np.empty(len(y))
    for i in range(len(y)):
        truth[i] = solved(TASKS[task], K, y, np.where(np.arange(len(y)) == i, 0.0, 1.0))[1].decision[i]
    moved = np.abs(truth - solution.decision)
    np.testing.assert_allclose(found[solution.beta == 0], truth[solution.beta == 0], atol=1e-6)
    assert np.median(np.abs(found - truth)) <= 0.02 * moved.max()
    assert np.abs(found - truth).mean() <= share * moved.mean()


def test_left_out__is_exact_of_a_squared_hinge_where_all_rows_are_support():
    """Then it is the formula of least squares."""
    X, y = problem()
    K = RBF(0.3)(X, X)
    qp, solution = solved(TASKS["squared hinge"], K, y, np.full(len(y), 0.01))
    assert (solution.beta != 0).all()
    found = left_out_decisions(qp, solution, np.ones(len(y)))
    for i in range(0, len(y), 7):
        C = np.full(len(y), 0.01)
        C[i] = 0.0
        _, without = solved(TASKS["squared hinge"], K, y, C)
        assert (np.delete(without.beta, i) != 0).all()
        assert found[i] == pytest.approx(without.decision[i], abs=1e-5)


def test_left_out__of_a_copy_that_a_free_row_does_not_need_changes_nothing():
    X, y = problem()
    qp, solution = solved(TASKS["hinge"], RBF(0.3)(X, X), y, np.full(len(y), 2.0))
    found = left_out_decisions(qp, solution, np.full(len(y), 0.5))
    spare = np.abs(solution.beta) <= 1.0
    np.testing.assert_array_equal(found[spare], solution.decision[spare])
    assert (np.abs(found - solution.decision)[~spare] > 0).all()


@pytest.mark.parametrize("task", TASKS)
def test_left_out__never_favours_a_row(task):
    X, y = problem(seed=1)
    C = np.full(len(y), 0.05)
    qp, solution = solved(TASKS[task], RBF(0.3)(X, X), y, C)
    found = left_out_decisions(qp, solution, np.ones(len(y)))
    assert np.isfinite(found).all()
    assert (y * found <= y * solution.decision + 1e-12).all()
