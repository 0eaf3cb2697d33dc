"""Copies of rows share the coefficient of one: the certificate holds for them too, judged by rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from svmcore import Status
from svmcore.estimator import SVC

GAMMA = 2.0**-27


def far_rows_with_copies(seed):
    """X (60, 3) on whole numbers about 1e4, y and weights: every row about four times, C w_i not sums of each other."""
    rng = np.random.default_rng(seed)
    X = 1e4 + rng.integers(0, 4, size=(15, 3)).astype(float)
    at = rng.integers(0, len(X), 60)
    y = np.where(X[at].sum(axis=1) + rng.normal(size=60) > X.sum(axis=1).mean(), 1.0, -1.0)
    return X[at], y, rng.uniform(0.1, 2.0, 60)


def judged(kernel, X, y, cost, beta):
    """(KKT gap, primal at its best bias, dual) of hinge, in fractions; rows are whole numbers."""
    products = (X @ X.T).astype(np.int64).tolist()
    power = [[(Fraction(GAMMA) * v + 1) ** 2 if kernel == "poly" else Fraction(v) for v in row] for row in products]
    b, y, cost = ([Fraction(v) for v in values.tolist()] for values in (beta, y, cost))
    support = [j for j in range(len(b)) if b[j]]
    u = [sum(row[j] * b[j] for j in support) for row in power]
    s = [target - v for target, v in zip(y, u, strict=True)]
    grows = [v for v, x, t, c in zip(s, b, y, cost, strict=True) if x < max(0, t * c)]
    shrinks = [v for v, x, t, c in zip(s, b, y, cost, strict=True) if x > min(0, t * c)]
    norm2 = sum(b[j] * u[j] for j in support)
    losses = min(sum(c * max(0, t * (v - bias)) for v, t, c in zip(s, y, cost, strict=True)) for bias in s)
    dual = sum(t * x for t, x in zip(y, b, strict=True)) - norm2 / 2
    return float(max(grows) - min(shrinks)), float(norm2 / 2 + losses), float(dual)


@pytest.mark.parametrize("kernel", ["precomputed", "poly"])
@pytest.mark.parametrize("seed", range(6))
def test_certificate__holds_for_the_copies_where_kernel_values_are_huge(seed, kernel):
    """4e8 times the last digit of a coefficient is 1e-6 of the objective: a bound by that alone proved nothing."""
    X, y, weights = far_rows_with_copies(seed)
    given = X @ X.T if kernel == "precomputed" else X
    model = SVC(kernel=kernel, C=1.0, gamma=GAMMA, degree=2, coef0=1.0, solver="smo").fit(given, y, weights)
    found = model.certificate_[0]
    assert model.status_[0] is Status.CONVERGED
    beta = np.zeros(len(y))
    beta[model.support_] = model.dual_coef_[0]
    gap, primal, dual = judged(kernel, X, y, weights, beta)
    assert abs(found.kkt_gap - gap) <= found.uncertainty + 2e-5
    assert abs(found.primal - primal) <= found.bar + 1e-12 * primal
    assert abs(found.dual - dual) <= found.bar + 1e-12 * primal
    assert found.bar <= 1e-6 * primal
