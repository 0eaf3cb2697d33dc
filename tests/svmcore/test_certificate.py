"""Certify the certifier: against the definitions, LIBSVM's own alpha, and alphas that are wrong on purpose."""

import numpy as np
import pytest
from sklearn.svm import SVC, LinearSVC

from svmcore import RBF, Bias, Hinge, Problem, ResidentGram, SquaredHinge, certify
from svmcore.certificate import evaluate
from svmcore.solvers import Solver

from .. import problems


@pytest.fixture(scope="module")
def libsvm():
    """(problem, alpha) of LIBSVM at tol 1e-3 on digits."""
    X, y = problems.digits()
    K = RBF(gamma=0.05)(X, X)
    model = SVC(C=10.0, kernel="precomputed", tol=1e-3).fit(K, y)
    alpha = np.zeros(len(y))
    alpha[model.support_] = np.abs(model.dual_coef_[0])
    return Problem(ResidentGram(K), y, 10.0), alpha


def test_certify__passes_libsvm(libsvm):
    certificate = certify(*libsvm)
    assert certificate.kkt_gap <= 1.05e-3
    assert certificate.infeasibility <= 1e-9
    assert 0 <= certificate.relative_gap < 1e-3


def test_certify__finds_a_halved_entry(libsvm):
    problem, alpha = libsvm
    wrong = alpha.copy()
    wrong[np.argmax(alpha)] /= 2
    sound, certificate = certify(problem, alpha), certify(problem, wrong)
    assert certificate.kkt_gap > 100 * sound.kkt_gap
    assert certificate.infeasibility == pytest.approx(alpha.max() / 2)
    assert certificate.relative_gap > 10 * sound.relative_gap


def test_certify__finds_a_value_outside_the_box(libsvm):
    problem, alpha = libsvm
    for wrong in (-0.5, 10.5):
        changed = alpha.copy()
        changed[0] = wrong
        assert certify(problem, changed).infeasibility >= 0.5


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("bias", list(Bias))
def test_certify__is_its_definition(loss, bias):
    rng = np.random.default_rng(3)
    X, y = problems.overlapping()
    C = rng.uniform(0.5, 2.0, len(y))
    C[:7] = 0.0
    problem = Problem(ResidentGram(X @ X.T), y, C, loss, bias)
    alpha = rng.uniform(0, 1, len(y)) * C
    if bias is Bias.FREE:
        alpha[y > 0] *= alpha[y < 0].sum() / alpha[y > 0].sum()
        alpha *= min(1.0, (C[C > 0] / np.maximum(alpha[C > 0], 1e-12)).min())
    found = certify(problem, alpha)
    ones = bias is Bias.PENALISED
    Q = np.outer(y, y) * (X @ X.T + ones) + np.diag(problem.ridge)
    assert found.dual == pytest.approx(alpha.sum() - 0.5 * alpha @ Q @ alpha, rel=1e-12)
    assert found.primal == pytest.approx(_smallest_primal(problem, X, alpha), rel=1e-9)
    assert found.infeasibility <= 1e-12
    gradient = Q @ alpha - 1
    if bias is not Bias.FREE:
        up, down = np.where(alpha < problem.upper, -gradient, 0), np.where(alpha > 0, gradient, 0)
        assert found.kkt_gap == pytest.approx(max(up.max(), down.max()), rel=1e-12)


def _smallest_primal(problem, X, alpha):
    """Primal at w of alpha, minimised over b on a dense grid around the breaks of the loss."""
    coef = alpha * problem.y
    w = X.T @ coef
    outputs, norm2, C = X @ w, w @ w, np.asarray(problem.C)
    if problem.bias is Bias.PENALISED:
        outputs, norm2 = outputs + coef.sum(), norm2 + coef.sum() ** 2
    if problem.bias is not Bias.FREE:
        return 0.5 * norm2 + C @ problem.loss(problem.y * outputs)

    def value(b):
        return 0.5 * norm2 + C @ problem.loss(problem.y * (outputs + b))

    breaks = problem.y - outputs
    if isinstance(problem.loss, Hinge):
        return min(value(b) for b in breaks)
    lo, hi = breaks.min(), breaks.max()
    for _ in range(200):  # golden section is more than a convex function needs
        a, b = lo + (hi - lo) / 3, hi - (hi - lo) / 3
        lo, hi = (lo, b) if value(a) < value(b) else (a, hi)
    return value(lo)


def test_certify__accepts_the_optimum_of_a_primal_solver():
    X, y = problems.overlapping()
    model = LinearSVC(C=1.0, loss="squared_hinge", dual=False, tol=1e-10, max_iter=10_000).fit(X, y)  # bias penalised
    margins = y * (X @ model.coef_[0] + model.intercept_[0])
    alpha = 2.0 * np.maximum(0.0, 1.0 - margins)
    certificate = certify(Problem(ResidentGram(X @ X.T), y, 1.0, SquaredHinge(), Bias.PENALISED), alpha)
    assert certificate.relative_gap < 1e-8


def test_certify__hard_margin_bounds_come_from_shrinking_w():
    problem = Problem(ResidentGram(problems.FIVE @ problems.FIVE.T), problems.FIVE_LABELS, np.inf)
    rough = certify(problem, np.array([0.2, 0.2, 0, 0, 0]))
    assert rough.dual <= 0.25 <= rough.primal < np.inf
    nothing = certify(problem, np.zeros(5))
    assert (nothing.primal, nothing.relative_gap) == (np.inf, None)


def test_certify__an_indefinite_kernel_has_no_bound():
    problem = Problem(ResidentGram(np.array([[1.0, 2.0], [2.0, 1.0]])), np.array([1.0, -1.0]), 1.0, psd=False)
    assert certify(problem, np.array([0.5, 0.5])).relative_gap is None


def test_evaluate__bias_is_the_average_over_free_support_vectors(libsvm):
    problem, alpha = libsvm
    found = evaluate(problem, alpha)
    free = (alpha > 0) & (alpha < 10.0)
    outputs = problem.columns.matrix @ (alpha * problem.y)
    assert found.bias == pytest.approx(np.mean(problem.y[free] - outputs[free]), rel=1e-9)
    np.testing.assert_allclose(found.decision, outputs + found.bias, rtol=1e-9, atol=1e-9)


def test_evaluate__norm_is_that_of_the_weights():
    X, y = problems.overlapping()
    problem = Problem(ResidentGram(X @ X.T), y, 1.0)
    alpha = Solver.create("smo").solve(problem).alpha
    w = X.T @ (alpha * y)
    assert evaluate(problem, alpha).norm2 == pytest.approx(w @ w, rel=1e-9)
