"""Certify the certifier: against the definitions, LIBSVM's own alpha, and alphas that are wrong on purpose."""

import numpy as np
import pytest
from sklearn.svm import SVC, LinearSVC

from svmcore import (
    RBF,
    Bias,
    CachedColumns,
    ComputedColumns,
    Hinge,
    Linear,
    Points,
    Polynomial,
    ResidentGram,
    SquaredHinge,
    Tanh,
    certify,
    classification,
)
from svmcore.certificate import evaluate
from svmcore.kernels.exact import ExactKernel
from svmcore.outputs import BoundedOutputs
from svmcore.solvers import Solver

from .. import problems


@pytest.fixture(scope="module")
def libsvm():
    """(program, beta) of LIBSVM at tol 1e-3 on digits."""
    X, y = problems.digits()
    K = RBF(gamma=0.05)(X, X)
    model = SVC(C=10.0, kernel="precomputed", tol=1e-3).fit(K, y)
    beta = np.zeros(len(y))
    beta[model.support_] = model.dual_coef_[0]
    return classification(ResidentGram(K), y, 10.0), beta


def test_certify__passes_libsvm(libsvm):
    certificate = certify(*libsvm)
    assert certificate.kkt_gap <= 1.05e-3
    assert certificate.infeasibility <= 1e-9
    assert 0 <= certificate.relative_gap < 1e-3


def test_certify__finds_a_halved_entry(libsvm):
    qp, beta = libsvm
    wrong = beta.copy()
    wrong[np.argmax(np.abs(beta))] /= 2
    sound, certificate = certify(qp, beta), certify(qp, wrong)
    assert certificate.kkt_gap > 100 * sound.kkt_gap
    assert certificate.infeasibility == pytest.approx(np.abs(beta).max() / 2)
    assert certificate.relative_gap > 10 * sound.relative_gap


def test_certify__finds_a_value_outside_the_box(libsvm):
    qp, beta = libsvm
    for wrong in (-0.5, 10.5):
        changed = beta.copy()
        changed[0] = qp.p[0] * wrong
        assert certify(qp, changed).infeasibility >= 0.5


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("bias", list(Bias))
def test_certify__is_its_definition(loss, bias):
    rng = np.random.default_rng(3)
    X, y = problems.overlapping()
    C = rng.uniform(0.5, 2.0, len(y))
    C[:7] = 0.0
    qp = classification(ResidentGram(X @ X.T), y, C, loss, bias)
    alpha = rng.uniform(0, 1, len(y)) * C
    if bias is Bias.FREE:
        alpha[y > 0] *= alpha[y < 0].sum() / alpha[y > 0].sum()
        alpha *= min(1.0, (C[C > 0] / np.maximum(alpha[C > 0], 1e-12)).min())
    found = certify(qp, y * alpha)
    ones = bias is Bias.PENALISED
    Q = np.outer(y, y) * (X @ X.T + ones) + np.diag(qp.ridge)
    assert found.dual == pytest.approx(alpha.sum() - 0.5 * alpha @ Q @ alpha, rel=1e-12)
    assert found.primal == pytest.approx(_smallest_primal(loss, bias, C, X, y, alpha), rel=1e-9)
    assert found.infeasibility <= 1e-12
    gradient = Q @ alpha - 1
    upper = np.abs(qp.hi + qp.lo)
    if bias is not Bias.FREE:
        up, down = np.where(alpha < upper, -gradient, 0), np.where(alpha > 0, gradient, 0)
        assert found.kkt_gap == pytest.approx(max(up.max(), down.max()), rel=1e-12)
    else:
        score, up, down = (
            -y * gradient,
            np.where(y > 0, alpha < upper, alpha > 0),
            np.where(y > 0, alpha > 0, alpha < upper),
        )
        assert found.kkt_gap == pytest.approx(score[up].max() - score[down].min(), rel=1e-12)


def _smallest_primal(loss, bias, C, X, y, alpha):
    """Primal at w of alpha, minimised over b on a dense grid around the breaks of the loss."""
    coef = alpha * y
    w = X.T @ coef
    outputs, norm2 = X @ w, w @ w
    if bias is Bias.PENALISED:
        outputs, norm2 = outputs + coef.sum(), norm2 + coef.sum() ** 2
    if bias is not Bias.FREE:
        return 0.5 * norm2 + C @ loss(y * outputs)

    def value(b):
        return 0.5 * norm2 + C @ loss(y * (outputs + b))

    breaks = y - outputs
    if isinstance(loss, Hinge):
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
    beta = y * 2.0 * np.maximum(0.0, 1.0 - margins)
    certificate = certify(classification(ResidentGram(X @ X.T), y, 1.0, SquaredHinge(), Bias.PENALISED), beta)
    assert certificate.relative_gap < 1e-8


def test_certify__hard_margin_bounds_come_from_shrinking_w():
    qp = classification(ResidentGram(problems.FIVE @ problems.FIVE.T), problems.FIVE_LABELS, np.inf)
    rough = certify(qp, np.array([-0.2, 0.2, 0, 0, 0]))
    assert rough.dual <= 0.25 <= rough.primal < np.inf
    nothing = certify(qp, np.zeros(5))
    assert (nothing.primal, nothing.relative_gap) == (np.inf, None)


def test_certify__an_indefinite_kernel_has_no_bound():
    K = np.array([[1.0, 2.0], [2.0, 1.0]])
    qp = classification(ResidentGram(K, psd=False), np.array([1.0, -1.0]), 1.0)
    assert certify(qp, np.array([0.5, -0.5])).relative_gap is None


def test_solution__bias_is_the_average_over_free_support_vectors(libsvm):
    qp, beta = libsvm
    found = evaluate(qp, beta)
    free = (beta != 0) & (np.abs(beta) < 10.0)
    outputs = qp.source.matrix @ beta
    assert found.multipliers[0] == pytest.approx(np.mean(qp.p[free] - outputs[free]), rel=1e-9)
    np.testing.assert_allclose(found.outputs, outputs, rtol=1e-9, atol=1e-9)


def test_evaluate__norm_is_that_of_the_weights():
    X, y = problems.overlapping()
    qp = classification(ResidentGram(X @ X.T), y, 1.0)
    beta = Solver.create("smo").solve(qp).beta
    w = X.T @ beta
    assert evaluate(qp, beta).norm2 == pytest.approx(w @ w, rel=1e-9)


@pytest.mark.parametrize("size", [np.inf, np.nan, 1e308])
def test_certify__of_a_beta_that_has_overflowed_claims_nothing(size):
    """Squared hinge has no box: with a kernel that is not positive semi-definite beta may grow for ever."""
    K = np.array([[-1.0, 0.5], [0.5, -1.0]])
    qp = classification(ResidentGram(K, psd=False), np.array([1.0, -1.0]), 1.0, SquaredHinge())
    with np.errstate(all="ignore"):
        found = certify(qp, np.array([size, -size]))
    assert found.kkt_gap == found.primal == found.infeasibility == found.uncertainty == np.inf
    assert found.dual == -np.inf
    assert found.relative_gap is None
    assert not found.proves(1e-3)


def test_evaluate__objectives_are_known_where_no_row_has_a_loss():
    """Kernel values of 1.6e9 and an objective of 0.72: the norm alone asks for sums in twice the digits."""
    X = np.array([[4e4, 1.0], [4e4, -1.0]])
    qp = classification(ResidentGram(X @ X.T), np.array([1.0, -1.0]), 1.0, SquaredHinge(), Bias.NONE)
    found = evaluate(qp, np.array([0.6, -0.6]), resolution=2e-5).certificate
    assert found.bar <= 1e-6 * found.primal
    assert found.primal == pytest.approx(0.5 * 1.2**2, rel=1e-6)
    assert found.dual == pytest.approx(
        1.2 - 0.5 * 1.2**2 - 2 * 0.6**2 / 4, rel=1e-6
    )  # sum |beta|, ||w||^2, beta^2 / 4 C


def lost(monkeypatch, kernel, share, kept):
    """(program whose cache has `kept` of the columns of the support, that of the true K, beta, columns met, K)."""
    rng = np.random.default_rng(5)
    X = np.pad(rng.normal(size=(300, 4)), [(0, 0), (0, 32)])  # so many features that columns are worth keeping
    y = np.tile([1.0, -1.0], 150)
    beta = y * np.where(np.arange(300) < 300 * share, rng.uniform(0.1, 1.0, 300), 0.0)
    source = ComputedColumns(kernel, Points.prepare(X, None, np.float32), np.float32, ExactKernel(kernel, X))
    columns = CachedColumns(source, kept * 300 * 4)
    columns.lookup(np.flatnonzero(beta)[:kept])
    asked, lookup = [], CachedColumns.lookup
    monkeypatch.setattr(CachedColumns, "lookup", lambda self, idx: asked.extend(idx) or lookup(self, idx))
    of = ComputedColumns.outputs
    monkeypatch.setattr(
        ComputedColumns, "outputs", lambda self, coef: asked.extend(np.flatnonzero(coef)) or of(self, coef)
    )
    K = kernel(X, X)
    return classification(columns, y, 1.0), classification(ResidentGram(K), y, 1.0), beta, asked, K


SMALL = Polynomial(gamma=0.05, degree=2, coef0=0.1)  # some of its values are below 1, some above


@pytest.mark.parametrize("kernel", [RBF(gamma=0.4), SMALL], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize(("share", "kept", "served"), [(0.9, 30, 0), (0.9, 300, 270), (0.1, 30, 30), (0.1, 20, 30)])
def test_certify__computes_no_columns_that_the_cache_has_lost(monkeypatch, kernel, share, kept, served):
    """Where more values would be served than are missing for all rows, these come from the rows."""
    qp, true, beta, asked, K = lost(monkeypatch, kernel, share, kept)
    found, truth = evaluate(qp, beta, 1e-5), evaluate(true, beta).certificate
    assert len(set(asked)) == served
    claims, digits = found.certificate, 1e-6 if served else 1e-13
    np.testing.assert_allclose(found.outputs, K @ beta, rtol=0.0, atol=digits * np.abs(beta).sum() * K.max())
    assert abs(claims.kkt_gap - truth.kkt_gap) <= claims.uncertainty + 1e-11
    assert abs(claims.primal - truth.primal) <= claims.bar + 1e-11 * truth.primal
    assert not claims.is_wide(1e-3)
    assert claims.exact == 300 or served


@pytest.mark.parametrize("kernel", [RBF(gamma=0.4), SMALL], ids=lambda kernel: kernel.name)
def test_certify__bounds_values_that_nobody_served_by_the_diagonal(monkeypatch, kernel):
    """By Cauchy and Schwarz, |K_ij| is at most the root of K_ii K_jj."""
    qp, _, beta, asked, K = lost(monkeypatch, kernel, 0.9, 30)
    root = np.sqrt(np.diag(K))
    sizes = BoundedOutputs(qp, beta).sizes
    np.testing.assert_allclose(sizes, root * (np.abs(beta) @ root), rtol=1e-9, atol=0.0)
    assert not asked
    assert (sizes >= np.abs(K) @ np.abs(beta)).all()


@pytest.mark.parametrize(
    ("kernel", "served"), [(Tanh(gamma=0.1, coef0=-1.0), 270), (Linear(), 0)], ids=["tanh", "linear"]
)
def test_certify__takes_other_ways_where_that_bound_is_none_or_not_needed(monkeypatch, kernel, served):
    qp, true, beta, asked, _ = lost(monkeypatch, kernel, 0.9, 30)
    claims, truth = evaluate(qp, beta, 1e-5).certificate, evaluate(true, beta).certificate
    assert len(set(asked)) == served
    assert abs(claims.kkt_gap - truth.kkt_gap) <= claims.uncertainty + 1e-11
    assert BoundedOutputs(qp, beta).errors.max() < (1e-2 if served else 1e-13)
