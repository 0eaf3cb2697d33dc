"""Sums in twice the digits against rational arithmetic."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import sparse

from svmcore.kernels import RBF, Linear, Polynomial, Tanh
from svmcore.kernels.exact import ExactKernel
from svmcore.sources import ResidentGram
from svmcore.sources.base import matvec_compensated


def nasty(n=25, p=4, seed=0):
    """Rows far from the origin, of scales from 1 to 1e4, and coefficients whose sum is nearly 0."""
    rng = np.random.default_rng(seed)
    X = 1e4 + rng.normal(size=(n, p)) * 10.0 ** rng.integers(0, 4, size=p)
    coef = rng.normal(size=n) * 1e4
    coef[-1] -= coef.sum()
    return X, coef


def exactly(values, coef):
    """sum_j coef_j values_ij, rounded once."""
    return np.array([float(sum(Fraction(v) * Fraction(c) for v, c in zip(row, coef, strict=True))) for row in values])


def inner(X, Z):
    return [[sum(Fraction(a) * Fraction(b) for a, b in zip(x, z, strict=True)) for z in Z] for x in X]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
def test_linear__product_is_right_to_the_last_rounding(form):
    X, coef = nasty()
    wanted = np.array([float(sum(v * Fraction(c) for v, c in zip(row, coef, strict=True))) for row in inner(X, X)])
    found = ExactKernel(Linear(), form(X)).product(np.arange(25), np.arange(25), coef)
    np.testing.assert_allclose(found, wanted, rtol=4e-16, atol=1e-14)


@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_matrix], ids=["dense", "float32", "csr"])
@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("centred", [False, True])
def test_polynomial__finest_is_right_to_the_last_rounding(form, degree, centred):
    X, coef = nasty()
    kernel = Polynomial(degree=degree, gamma=0.37, coef0=1.25)
    X = form(X)
    exact = ExactKernel(kernel, X, centred=centred)
    gamma, coef0, m = Fraction(0.37), Fraction(1.25), [Fraction(v) for v in exact.about]

    def k(x, z):
        return (gamma * sum(a * b for a, b in zip(x, z, strict=True)) + coef0) ** degree

    rows = [[Fraction(float(v)) for v in row] for row in (X.toarray() if sparse.issparse(X) else X)]
    at_m = [k(x, m) for x in rows]
    wanted = []
    for i, z in enumerate(rows):
        values = [k(x, z) - (at_m[j] + at_m[i] - k(m, m) if centred else 0) for j, x in enumerate(rows)]
        wanted.append(float(sum(v * Fraction(c) for v, c in zip(values, coef, strict=True))))
    assert exact.can_refine(25)
    found = exact.finest(np.arange(25), np.arange(25), coef)
    relative, absolute = exact.finest_rounding(25)
    sizes = np.abs(np.array([[float(k(x, z)) for z in rows] for x in rows])) @ np.abs(coef)
    allowed = relative * sizes + absolute * np.abs(coef).sum() + 2e-16 * np.abs(wanted)
    assert (np.abs(found - wanted) <= allowed).all()
    assert (allowed < 1e-9 * sizes).all()


@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_matrix], ids=["dense", "float32", "csr"])
@pytest.mark.parametrize("kernel", [RBF(gamma=3e-8), RBF(gamma=2.0), Tanh(gamma=1e-9, coef0=-0.3)], ids=repr)
def test_finest__is_within_its_bound_however_far_the_rows_are(form, kernel):
    X, coef = nasty()
    X = form(X)
    mpmath.mp.dps = 60
    rows = [[mpmath.mpf(float(v)) for v in row] for row in (X.toarray() if sparse.issparse(X) else X)]

    def k(x, z):
        if kernel.name == "rbf":
            return mpmath.exp(-mpmath.mpf(kernel.gamma) * sum((a - b) ** 2 for a, b in zip(x, z, strict=True)))
        inner = sum(a * b for a, b in zip(x, z, strict=True))
        return mpmath.tanh(mpmath.mpf(kernel.gamma) * inner + mpmath.mpf(kernel.coef0))

    K = [[k(x, z) for z in rows] for x in rows]
    wanted = np.array([float(sum(v * mpmath.mpf(c) for v, c in zip(row, coef, strict=True))) for row in K])
    exact = ExactKernel(kernel, X)
    relative, absolute = exact.finest_rounding(25)
    sizes = np.abs(np.array(K, dtype=float)) @ np.abs(coef)
    allowed = relative * sizes + absolute * np.abs(coef).sum() + 2e-16 * np.abs(wanted)
    assert (np.abs(exact.finest(np.arange(25), np.arange(25), coef) - wanted) <= allowed).all()
    assert (allowed <= 3e-15 * np.abs(coef).sum()).all()


@pytest.mark.parametrize("m", [1, 63, 64, 65, 130])
@pytest.mark.parametrize(
    "kernel", [RBF(gamma=0.3), Tanh(gamma=1e-2, coef0=-0.3), Polynomial(degree=3, gamma=0.1, coef0=1.0)], ids=repr
)
def test_finest__takes_any_number_of_columns(kernel, m):
    """They are met in blocks, of which the last one is seldom full."""
    rng = np.random.default_rng(m)
    X, coef = rng.normal(size=(m, 3)), rng.normal(size=m)
    mpmath.mp.dps = 40
    rows, ends = [[mpmath.mpf(v) for v in row] for row in X.tolist()], [0, m - 1]

    def k(x, z):
        if kernel.name == "rbf":
            return mpmath.exp(-mpmath.mpf(kernel.gamma) * sum((a - b) ** 2 for a, b in zip(x, z, strict=True)))
        base = mpmath.mpf(kernel.gamma) * sum(a * b for a, b in zip(x, z, strict=True)) + mpmath.mpf(kernel.coef0)
        return mpmath.tanh(base) if kernel.name == "tanh" else base**3

    wanted = [sum(k(rows[i], z) * mpmath.mpf(c) for z, c in zip(rows, coef.tolist(), strict=True)) for i in ends]
    found = ExactKernel(kernel, X).finest(ends, np.arange(m), coef)
    np.testing.assert_allclose(found, np.array(wanted, float), rtol=0, atol=2e-14 * np.abs(coef).sum())


def test_matrix__compensated_product_is_right_to_the_last_rounding():
    X, coef = nasty(seed=3)
    K = X @ X.T
    np.testing.assert_allclose(matvec_compensated(ResidentGram(K), coef), exactly(K, coef), rtol=4e-16, atol=1e-14)
