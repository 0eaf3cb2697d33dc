"""What a certificate says of sums in twice the digits, against fractions."""

from fractions import Fraction

import numpy as np
import pytest

from svmcore import Linear, Points, Polynomial, Precomputed
from svmcore.certificate import evaluate
from svmcore.kernels.exact import ExactKernel
from svmcore.kernels.rounding import Rounding
from svmcore.qp import Groups
from svmcore.sources import ComputedColumns

from ..small_programs import Served, program, truth

INF = np.inf
EPS = 2.0**-52


def test_evaluate__values_that_are_the_K_that_is_meant_are_summed_in_twice_the_digits():
    """Sums that cancel: 1e8 - 1e8 + 1 and more, to the last bit."""
    rng = np.random.default_rng(0)
    G = rng.normal(size=(6, 2)) * 1e4
    K, beta = G @ G.T, np.array([1.0, -1.0, 0.5, 0.25, -0.75, 1e-9])
    qp = program(K, G[:, 0], [-1] * 6, [1] * 6, Groups((float(sum(map(Fraction, beta.tolist()))),)))
    rough, fine = (evaluate(qp, beta, resolution) for resolution in (INF, 1e-12))
    true = truth(qp, beta)
    outputs = np.array([float(u) for u in true.outputs])
    assert fine.certificate.exact == 6
    assert rough.certificate.exact == 0
    np.testing.assert_allclose(fine.outputs, outputs, rtol=4 * EPS, atol=0)
    assert fine.certificate.uncertainty < 0.2 * rough.certificate.uncertainty
    assert abs(Fraction(fine.certificate.kkt_gap) - true.gap) <= Fraction(fine.certificate.uncertainty)


def test_evaluate__bounds_of_sums_that_cancel_are_those_of_their_digits():
    """u is nearly 0 and |K| |beta| is not: what is left is the square of a rounding of it, for m terms m times."""
    rng = np.random.default_rng(1)
    G = 1e8 * rng.normal(size=(100, 2))
    null = np.linalg.svd(G.T)[2][2:]
    beta = rng.normal(size=98) @ null
    beta /= np.abs(beta).max()
    K = G @ G.T
    K = np.triu(K) + np.triu(K, 1).T
    sizes = np.abs(K) @ np.abs(beta)
    for p, resolution, exact, unit in (
        (1e12 * beta, INF, 0, 100 / 8 * EPS),
        (np.zeros(100), 0.0, 100, (100 * EPS) ** 2),
    ):
        qp = program(K, p, [-2] * 100, [2] * 100)
        c = evaluate(qp, beta, resolution).certificate
        assert c.exact == exact
        assert abs(Fraction(c.kkt_gap) - truth(qp, beta).gap) <= Fraction(c.uncertainty)
        assert unit * sizes.min() <= c.uncertainty <= 16 * unit * sizes.max()


def test_uncertainty__of_exact_sums_is_by_the_exact_values():
    """Served values of half the size leave sums of the exact ones as uncertain as they are."""
    rng = np.random.default_rng(4)
    G = rng.normal(size=(6, 3))
    K, beta = G @ G.T, np.array([1.0, -1.0, 0.5, 0.25, -0.75, 0.5])
    unit = EPS * ExactKernel(Precomputed(), K).summands(6)
    sizes = np.abs(K) @ np.abs(beta)
    source = Served(K, -0.5 * K, (0.5, 0.0))
    c = evaluate(program(K, G[:, 0], [-2] * 6, [2] * 6, Groups((0.5,)), source), beta).certificate
    assert c.exact == 6
    score = G[:, 0] - K @ beta
    ends = [score.argmax(), score.argmin()]
    assert c.uncertainty >= 0.99 * unit * sizes[ends].sum()


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_evaluate__a_linear_kernel_is_judged_through_its_weights(shift):
    rng = np.random.default_rng(1)
    X = rng.integers(-4, 5, (8, 3)) / 2.0
    P = Points.prepare(X, np.zeros(3), np.float32)
    source = ComputedColumns(Linear(), P, np.float32, ExactKernel(Linear(), X, like=P))
    beta = np.array([0.5, -0.25, 0.0, 0.0, 0.125, 0.0, -0.5, 0.0])
    qp = program(None, rng.integers(-4, 5, 8) / 2.0, [-1] * 8, [1] * 8, source=source, shift=shift)
    found, true = evaluate(qp, beta), truth(qp, beta, X @ X.T)
    np.testing.assert_array_equal(found.outputs, [float(u) for u in true.outputs])
    assert (found.certificate.exact, found.certificate.kkt_gap) == (8, true.gap)
    largest = max(abs(float(u)) for u in true.outputs)
    assert 0 < found.certificate.uncertainty <= 3 * EPS * largest


def test_evaluate__a_quadratic_kernel_far_from_the_origin_is_summed_in_twice_the_digits():
    rng = np.random.default_rng(2)
    X = 100.0 + rng.integers(-8, 9, (7, 2)) / 8.0
    kernel = Polynomial(degree=2, gamma=1.0, coef0=1.0)
    P = Points.prepare(X, np.zeros(2), np.float64)
    source = ComputedColumns(kernel, P, np.float64, ExactKernel(kernel, X, like=P))
    beta = np.array([1.0, -1.0, 0.5, -0.5, 0.0, 0.25, -0.25])
    qp = program(None, rng.normal(size=7), [-1] * 7, [1] * 7, Groups((0.0,)), source)
    K = np.array([[(sum(map(Fraction, x * z)) + 1) ** 2 for z in X] for x in X], dtype=object)
    true = truth_of_fractions(qp, beta, K)
    rough, fine = (evaluate(qp, beta, resolution).certificate for resolution in (1e-3, 1e-13))
    for c in (rough, fine):
        assert abs(Fraction(c.kkt_gap) - true) <= Fraction(c.uncertainty)
    largest = np.abs(evaluate(qp, beta).outputs).max()
    assert fine.uncertainty <= 3 * EPS * largest < 1e-3 * rough.uncertainty


def test_evaluate__of_the_finest_values_counts_what_they_promise():
    """Sizes of 4 and a length of 4: a relative promise of 2^-20 and an absolute one of 2^-22 are 5 x 2^-20 together."""

    class Promising(ExactKernel):
        unit = Rounding(0.0, 1.0)

        def can_refine(self, m):
            return True

        def finest(self, rows, columns, coef):
            return self.product(rows, columns, coef)

        def finest_rounding(self, m):
            return 2.0**-20, 2.0**-22

    K = np.eye(2)
    source = Served(K, np.zeros((2, 2)), (0.0, 1.0))
    source.exact = Promising(Precomputed(), K)
    qp = program(None, [8.0, 1.0], [0.0, 0.0], [9.0, 0.0], source=source)
    c = evaluate(qp, np.array([4.0, 0.0]), 1e-9).certificate
    assert (c.exact, c.kkt_gap) == (1, 4.0)
    sizes = 4.0 + 4.0 * 1.0  # of the served values, and what they may be off: those of the exact ones are no larger
    assert c.uncertainty == pytest.approx(2.0**-20 * sizes + 2.0**-22 * 4.0, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("far", [1024.0, 2.0**22])
def test_evaluate__a_centred_polynomial_cancels_and_says_so(far):
    """About the centre values are a part of those that they are made of, and the uncertainty is still true."""
    rng = np.random.default_rng(3)
    X = far + rng.integers(-8, 9, (7, 2)) / 8.0
    kernel = Polynomial(degree=3, gamma=1.0, coef0=1.0).centred()
    P = kernel.prepare_gram(X, np.float64)
    m = [Fraction(float(v)) for v in P.centre]
    source = ComputedColumns(kernel, P, np.float64, ExactKernel(kernel, X, like=P))
    beta = np.array([1.0, -1.0, 0.5, -0.5, 0.0, 0.25, -0.25])
    qp = program(None, rng.normal(size=7), [-1] * 7, [1] * 7, Groups((0.0,)), source)

    def k(x, z):
        return (sum(a * b for a, b in zip(x, z, strict=True)) + 1) ** 3

    rows = [[Fraction(v) for v in x] for x in X.tolist()]
    K = np.array([[k(x, z) - k(x, m) - k(m, z) + k(m, m) for z in rows] for x in rows], dtype=object)
    found, true = evaluate(qp, beta, 1e-13).certificate, truth_of_fractions(qp, beta, K)
    assert abs(Fraction(found.kkt_gap) - true) <= Fraction(found.uncertainty)
    cancelled = 3.5 * float(k(m, m))  # ||beta||_1 times the values that cancel
    largest = 2 * EPS * float(np.abs(evaluate(qp, beta).outputs).max())
    assert 2 * (7 * EPS) ** 2 * cancelled <= found.uncertainty
    assert found.uncertainty <= 2 * largest + 8 * (115 * EPS) ** 2 * cancelled


def test_evaluate__a_polynomial_of_many_features_counts_them_among_its_sums():
    rng = np.random.default_rng(5)
    X = 1e4 + rng.integers(-8, 9, (5, 900)) / 8.0
    kernel = Polynomial(degree=2, gamma=1.0, coef0=1.0)
    P = Points.prepare(X, np.zeros(900), np.float64)
    source = ComputedColumns(kernel, P, np.float64, ExactKernel(kernel, X, like=P))
    beta = np.array([1.0, -1.0, 2.0**-40, -(2.0**-40), 0.0])
    X[1] = X[0]
    qp = program(None, np.zeros(5), [-1] * 5, [1] * 5, Groups((0.0,)), source)
    c = evaluate(qp, beta, 1e-13).certificate
    assert c.uncertainty >= 2 * (900 * EPS) ** 2 * float((X @ X.T).min() ** 2) * 2.0


def truth_of_fractions(qp, beta, K):
    """The gap with values of K that are fractions."""
    b = [Fraction(v) for v in beta]
    score = [Fraction(qp.p[v]) - sum(k * x for k, x in zip(K[v], b, strict=True)) for v in range(qp.m)]
    up = [s for s, v in zip(score, beta, strict=True) if v < 1]
    return max(up) - min(s for s, v in zip(score, beta, strict=True) if v > -1)
