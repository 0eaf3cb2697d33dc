"""Kernels about the centre in feature space: the same program, smaller numbers, no cancellation."""

from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svmcore import RBF, Kernel, Linear, Points, Polynomial, Product, Scaled, Sum, Tanh
from svmcore.kernels import Precomputed
from svmcore.kernels.exact import ExactKernel
from svmcore.points import prepared

from ..exact_values import FORMS, rows

KERNELS = {
    "linear": lambda g: Linear(),
    "degree 1": lambda g: Polynomial(degree=1, gamma=g, coef0=-2.0),
    "degree 2": lambda g: Polynomial(degree=2, gamma=g, coef0=1.0),
    "degree 3": lambda g: Polynomial(degree=3, gamma=g),
    "degree 5": lambda g: Polynomial(degree=5, gamma=g, coef0=-0.5),
    "scaled": lambda g: Scaled(Linear(), 0.3),
    "sum": lambda g: Sum(Scaled(Polynomial(degree=2, gamma=g, coef0=1.0), 0.1), Linear()),
}
RNG = np.random.default_rng(0)


def dense(X):
    return (X.toarray() if hasattr(X, "toarray") else np.asarray(X)).astype(np.longdouble)


def exact(kernel, X, centre):
    """k(x, z) - k(x, m) - k(m, z) + k(m, m) (n, n), by the definition, in extended precision, and k(x, m) (n,).

    Of polynomials the four terms are expanded about m, so that they do not cancel here either.
    """
    X, m = dense(X), dense(centre if centre.size else np.zeros(X.shape[1]))
    if isinstance(kernel, Scaled):
        K, c = exact(kernel.kernel, X, m)
        return kernel.scale * K, kernel.scale * c
    if isinstance(kernel, Sum):
        (K, c), (L, d) = exact(kernel.left, X, m), exact(kernel.right, X, m)
        return K + L, c + d
    gamma, coef0, degree = (np.longdouble(1), 0, 1)
    if isinstance(kernel, Polynomial):
        gamma, coef0, degree = np.longdouble(kernel.gamma), kernel.coef0, kernel.degree
    U, A = X - m, gamma * (m @ m) + coef0
    a, g = (gamma * (U @ m))[:, None], gamma * (U @ U.T)
    K = sum(_term(degree, i, j, n) * a**i * a.T**j * g**n * A ** (degree - i - j - n) for i, j, n in _powers(degree))
    return K, (A + a[:, 0]) ** degree


def _powers(degree):
    """Exponents of a, b and g in the multinomial expansion that k(x, m), k(m, z) and k(m, m) do not have."""
    every = [(i, j, n) for i in range(degree + 1) for j in range(degree + 1 - i) for n in range(degree + 1 - i - j)]
    return [(i, j, n) for i, j, n in every if n > 0 or (i > 0 and j > 0)]


def _term(degree, i, j, n):
    return factorial(degree) // (factorial(i) * factorial(j) * factorial(n) * factorial(degree - i - j - n))


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(KERNELS)),
    form=st.sampled_from(FORMS),
    dtype=st.sampled_from([np.float32, np.float64]),
    p=st.sampled_from([1, 3, 17, 60]),
    seed=st.integers(0, 10**6),
    shift=st.sampled_from([0.0, 1.0, -1e4]),
    gamma=st.sampled_from([1e-6, 1e-2, 0.5]),
)
def test_centred__values_are_within_their_rounding(name, form, dtype, p, seed, shift, gamma):
    kernel, X = KERNELS[name](gamma).centred(), rows(form, 24, p, seed, shift, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "is_fast", lambda: True)
        P = Points.for_gram(X, dtype)
    Q = P.take(np.arange(0, 24, 2))
    K, c = exact(KERNELS[name](gamma), X, P.centre)
    bound = kernel.rounding(P, Q, dtype)
    if not np.isfinite(bound).all():
        assert dtype == np.float32
        assert np.abs(K).max() > 1e30  # values that float32 may not hold
        return
    slack = 1e-17 * np.abs(K).max()
    error = np.abs(kernel.block(P, Q, np.empty((24, 12), dtype)).astype(np.longdouble) - K[:, ::2])
    assert (error <= bound.relative * np.abs(K[:, ::2]) + bound.absolute + slack).all()
    tight = kernel.rounding(P, dtype=np.float64).within(float(np.abs(K).max())) + slack
    assert (np.abs(kernel.diagonal_of(P) - np.diag(K)) <= tight + bound.absolute * P.on_lattice).all()
    found, spread = kernel.at_centre(P), float(np.abs(c - c[0]).max())
    np.testing.assert_allclose(found - found[0], (c - c[0]).astype(float), atol=1e-6 * spread + 1e-12 * np.abs(c).max())


@pytest.mark.parametrize("kernel", [make(0.1) for make in KERNELS.values()], ids=KERNELS)
def test_centred__is_the_same_program_where_coefficients_sum_to_zero(kernel):
    X, beta = RNG.normal(size=(60, 4)) + 1.0, RNG.normal(size=60)
    beta -= beta.mean()
    centred = kernel.centred()
    P = Points.prepare(X, None, np.float64)
    K, K_c = kernel(X, X), centred.block(P, P)
    assert centred.is_centred
    assert beta @ K_c @ beta == pytest.approx(beta @ K @ beta, rel=1e-9)
    difference = K @ beta - K_c @ beta  # what b must take back, the same for every row
    np.testing.assert_allclose(difference, centred.at_centre(P) @ beta, atol=1e-8)
    assert np.linalg.eigvalsh(K_c).min() > -1e-8 or not centred.psd


@pytest.mark.parametrize("shift", [1e4, 1e6])
def test_centred__a_shift_costs_nothing(shift):
    X = RNG.normal(size=(50, 5))
    P = Points.prepare(X + shift)
    U = X + shift - (X + shift).mean(axis=0)
    np.testing.assert_allclose(Linear().centred().block(P, P), U @ U.T, atol=3e-6)
    assert Linear().centred().rounding(P).within(0.0) < 3e-5
    assert np.abs(Linear().block(P, P) - (X + shift) @ (X + shift).T).max() > 10


@pytest.mark.parametrize("kernel", [RBF(0.1), Tanh(0.1), Product(RBF(0.1), Linear()), Precomputed()], ids=str)
def test_centred__a_kernel_that_gains_nothing_is_its_own(kernel):
    assert kernel.centred() is kernel
    assert not kernel.is_centred
    assert not kernel.at_centre(Points.prepare(RNG.normal(size=(5, 2)))).any()


def test_centred__kernels_have_an_identity_and_no_name_in_a_configuration():
    kernel = Polynomial(3, 0.5, 1.0).centred()
    assert kernel == Polynomial(3, 0.5, 1.0).centred() != Polynomial(3, 0.5, 2.0).centred()
    assert kernel.spec() == {"name": "centred-polynomial", "degree": 3, "gamma": 0.5, "coef0": 1.0}
    assert not any("centred" in name for name in Kernel.names())
    assert Sum(Linear(), RBF(0.1)).centred() == Sum(Linear().centred(), RBF(0.1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kernel", [Linear(), Polynomial(2, 0.1, 1.0), Sum(Linear(), RBF(0.1))], ids=str)
def test_centred__exact_values_are_about_the_centre_of_the_served_ones(form, kernel, monkeypatch):
    monkeypatch.setattr(prepared, "is_fast", lambda: True)
    X = rows(form, 80, 6, 0, 3.0, 1.0)
    P = Points.for_gram(X)
    E = ExactKernel(kernel, X, centred=True, like=P)
    served, beta = E.kernel.block(P, P).astype(float), RNG.normal(size=80)
    found = E.block(np.arange(80), np.arange(80))
    np.testing.assert_allclose(found, served, rtol=1e-5, atol=1e-5 * np.abs(served).max())
    np.testing.assert_allclose(E.product(np.arange(80), np.arange(80), beta), found @ beta, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(E.symmetric_product(np.arange(9), beta[:9]), found[:9, :9] @ beta[:9], rtol=1e-9)
