"""Bounds of rounding hold: values served in either type against the kernel's definition in extended precision."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svmcore import RBF, Conformal, Linear, Points, Polynomial, Product, Scaled, Sum, Tanh
from svmcore.errors import InputError, InvalidProblem
from svmcore.kernels import Kernel, Precomputed
from svmcore.kernels.base import NOTHING, blocks
from svmcore.kernels.precomputed import is_psd
from svmcore.kernels.rounding import Rounding
from svmcore.points import inner_products, prepared

from ..exact_values import FORMS, KERNELS, exact, rows


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(KERNELS)),
    form=st.sampled_from(FORMS),
    dtype=st.sampled_from([np.float32, np.float64]),
    p=st.sampled_from([1, 3, 16, 17, 60]),
    seed=st.integers(0, 10**6),
    shift=st.sampled_from([0.0, 1.0, -1e4]),
    spread=st.sampled_from([1.0, 10.0, 1e-3]),
    gamma=st.sampled_from([1e-6, 1e-2, 0.5, 30.0, 1e4]),
)
def test_rounding__holds_for_every_pair(name, form, dtype, p, seed, shift, spread, gamma):
    kernel, X = KERNELS[name](gamma), rows(form, 24, p, seed, shift, spread)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "is_fast", lambda: True)
        P = Points.for_gram(X, dtype)
    Q = P.take(np.arange(0, 24, 2))
    bound = kernel.rounding(P, Q, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        served = kernel.block(P, Q, np.empty((24, 12), dtype)).astype(np.longdouble)
        K = exact(kernel, X)[:, ::2]
        limit = bound.relative * np.abs(K) + bound.absolute
        held = np.abs(served - K) <= limit + 1e-18 * np.abs(K).max()
    assert held.all() or not np.isfinite(limit).all()


@pytest.mark.parametrize(
    ("X", "kernel", "dtype", "expected"),
    [
        (np.eye(30)[np.arange(200) % 30], RBF(0.3), np.float32, 3e-7),
        (np.random.default_rng(0).normal(size=(200, 12)), RBF(0.05), np.float32, 2e-6),
        (np.random.default_rng(0).normal(size=(200, 12)), RBF(0.05), np.float64, 1e-13),
        (1e4 + np.random.default_rng(0).normal(size=(200, 5)), RBF(0.05), np.float32, 2e-6),
        (np.random.default_rng(0).normal(size=(200, 50)), RBF(0.01), np.float32, 3e-5),
    ],
    ids=["lattice", "differences", "float64", "shifted", "products"],
)
def test_rounding__is_close_to_what_can_be_promised(monkeypatch, X, kernel, dtype, expected):
    monkeypatch.setattr(prepared, "is_fast", lambda: True)
    assert kernel.rounding(Points.for_gram(X, dtype), dtype=dtype).within(1.0) <= expected


def test_rounding__of_an_extent_is_that_of_rows_that_reach_as_far():
    P = Points.prepare(np.random.default_rng(0).normal(size=(50, 30)))
    for kernel in (RBF(0.1), Linear(), Polynomial(2, 0.1, 1.0)):
        assert kernel.rounding(P, P.extent) == kernel.rounding(P, P) == kernel.rounding(P.rows(3, 9))


def test_block__values_do_not_depend_on_the_rows_asked_with_them():
    X = np.random.default_rng(0).normal(size=(60, 60)) * np.r_[np.ones(59), 30.0][:, None].repeat(60, 1)[:60] * 1.0
    P, kernel = Points.prepare(X), RBF(0.1)  # the last row is far: float64 products for all, or for none
    np.testing.assert_array_equal(kernel.block(P.rows(0, 9), P.rows(0, 60)), kernel.block(P, P)[:9])
    np.testing.assert_array_equal(kernel.block(P.rows(0, 9), P.rows(0, 20)), kernel.block(P, P)[:9, :20])


def test_rounding__a_kernel_of_values_alone_promises_only_of_exact_rows():
    class Absolute(Kernel):
        def __call__(self, X, Z):
            return np.exp(-np.abs(X[:, None] - Z).sum(axis=-1))

    X = 1e4 + np.random.default_rng(0).normal(size=(20, 3))
    kernel = Absolute()
    assert kernel.rounding(Points.prepare(X)) == NOTHING
    P = kernel.prepare_gram(X)
    assert kernel.rounding(P, dtype=np.float64).relative < 1e-13
    np.testing.assert_array_equal(kernel.block(P, P), kernel(X, X))


def test_rounding__of_given_values_is_that_of_their_store():
    K = np.eye(4)
    assert Precomputed().rounding(Precomputed().prepare_gram(K), dtype=np.float64) == Rounding(0.0, 0.0)
    assert Precomputed().rounding(Precomputed().prepare_gram(K.astype(np.float32))) == Rounding(0.0, 0.0)
    assert Precomputed().rounding(Precomputed().prepare_gram(K)).relative == 2.0**-24


# --- what is positive semi-definite ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kernel", "psd"),
    [
        (Polynomial(degree=2, gamma=1.0, coef0=1.0), True),
        (Polynomial(degree=2, gamma=1.0, coef0=-1.0), False),
        (Polynomial(degree=0, gamma=1.0, coef0=-1.0), True),
        (Tanh(gamma=1.0), False),
        (Scaled(Tanh(gamma=1.0), 2.0), False),
        (Sum(Linear(), Tanh(gamma=1.0)), False),
        (Product(Polynomial(degree=1, gamma=1.0, coef0=-3.0), RBF(1.0)), False),
        (Conformal(Tanh(gamma=1.0)), False),
        (Conformal(Product(RBF(1.0), Linear())), True),
        (Precomputed(), False),
    ],
    ids=str,
)
def test_psd__is_that_of_the_kernel_with_its_parameters(kernel, psd):
    assert kernel.psd is psd


def test_is_psd__tells_matrices_apart():
    X = np.random.default_rng(0).normal(size=(80, 5))
    K = X @ X.T  # of rank 5: the other eigenvalues are rounding
    assert is_psd(K)
    assert is_psd(K.astype(np.float32))
    assert not is_psd(K - 0.01 * np.eye(80))
    assert not is_psd(-K)
    assert not is_psd(np.full((2, 2), np.nan))
    assert is_psd(np.zeros((3, 3)))
    assert not is_psd(np.array([[1.0, 0.5], [0.4, 1.0]]))


@pytest.mark.parametrize("kernel", [RBF(), Polynomial(), Tanh(gamma="auto"), Sum(Linear(), RBF())], ids=str)
def test_kernel__says_what_to_do_about_a_gamma_without_a_value(kernel):
    with pytest.raises(InputError, match=r"give a number, or take kernel\.resolved"):
        kernel(np.ones((3, 2)), np.ones((3, 2)))


def test_inner_products__refuses_other_centres_and_lattice_steps(monkeypatch):
    monkeypatch.setattr(prepared, "is_fast", lambda: True)
    X = np.random.default_rng(0).normal(size=(40, 20))
    P, Q = Points.prepare(X), Points.prepare(X + 1.0)
    A, B = (Points.for_gram(step * np.eye(20)) for step in (1.0, 2.0))
    for left, right, message in ((P, Q, "same centre"), (A, B, "same lattice; given steps 1.0 and 2.0")):
        for kernel in (RBF(0.1), Linear()):
            with pytest.raises(InvalidProblem, match=message):
                kernel.block(left, right)
            with pytest.raises(InvalidProblem, match=message):
                blocks([kernel], left, right, [np.empty((len(left), len(right)), np.float32)])
        with pytest.raises(InvalidProblem, match=message):
            inner_products(left, right)
    few = [Points.prepare(X[:, :3] + shift) for shift in (0.0, 1.0)]  # rbf takes differences there
    with pytest.raises(InvalidProblem, match="same centre"):
        RBF(0.1).block(*few)
    same = Points(P.values, P.moments, P.centre.copy())
    assert inner_products(P, same).shape == (40, 40)
