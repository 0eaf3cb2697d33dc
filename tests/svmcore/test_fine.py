"""Rows near a lattice: two more digits give float64's products from products of bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from svmcore import RBF, Points, classification
from svmcore.certificate import evaluate
from svmcore.errors import InvalidProblem
from svmcore.kernels.exact import ExactKernel
from svmcore.points import inner_products, prepared
from svmcore.points.fine import refine
from svmcore.points.lattice import encode
from svmcore.solvers import Solver
from svmcore.sources import ComputedColumns


def near(n, p, levels, seed, corner=0.0):
    """Integers over `levels` in float32, shifted: each off by its own rounding."""
    k = np.random.default_rng(seed).integers(0, levels + 1, (n, p))
    k[0], k[1] = 0, levels
    return (k / np.float32(levels) + np.float32(corner)).astype(np.float32)


def both(X, monkeypatch):
    monkeypatch.setattr(prepared, "is_fast", lambda: True)
    given_ = Points.for_gram(X)
    assert given_.on_lattice
    return given_, Points.refined(X, given_)


@settings(max_examples=50, deadline=None)
@given(
    levels=st.sampled_from([3, 10, 100, 255]),
    p=st.sampled_from([1, 5, 48]),
    seed=st.integers(0, 10**6),
    corner=st.sampled_from([0.0, -0.3, 2.0]),
)
def test_refine__two_digits_are_within_the_deviation(levels, p, seed, corner):
    X = near(20, p, levels, seed, corner)
    found = encode(X)
    if found is None or found[1].exact:
        return
    origin, codes = found
    fine = refine(X, origin, codes)
    first, second = (digit[:, :p].astype(np.longdouble) - 128 for digit in fine.digits)
    h1, h2 = (np.longdouble(step) for step in fine.steps)
    rows = np.longdouble(codes.step) * codes.bytes[:, :p] + h1 * first + h2 * second
    missed = np.abs(X.astype(np.longdouble) - origin - rows).max()
    assert missed <= fine.deviation
    assert fine.deviation < 1e-4 * codes.deviation + 1e-14


@pytest.mark.parametrize("n", [3, 7, 8, 49, 130])
def test_inner_products__of_rows_near_a_lattice_are_right_in_float64(n, monkeypatch):
    X = near(n, 70, 255, n)
    _, fine = both(X, monkeypatch)
    assert fine.form == "near a lattice"
    assert fine.dtype == np.float64
    u = X.astype(np.longdouble) - fine.centre
    G = inner_products(fine.rows(0, n), fine)
    bound = fine.values.dropped + 2 * 70 * fine.values.deviation * float(np.abs(u).max()) + 1e-13
    assert np.abs(G - (u[:n] @ u.T).astype(float)).max() <= bound < 1e-9
    np.testing.assert_allclose(fine.moments.norm2, (u**2).sum(axis=1).astype(float), rtol=1e-13)


def test_refined__an_exact_lattice_stays_what_it_is(monkeypatch):
    X = np.random.default_rng(0).integers(0, 4, (30, 5)).astype(np.float64)
    given_, same = both(X, monkeypatch)
    assert same is given_


def test_refined__too_many_features_become_float64(monkeypatch):
    X = near(10, 6, 255, 0)
    monkeypatch.setattr(prepared, "FINE_FEATURES", 5)
    assert both(X, monkeypatch)[1].form == "dense"


def test_refined__does_not_meet_other_forms(monkeypatch):
    given_, fine = both(near(10, 6, 255, 0), monkeypatch)
    with pytest.raises(InvalidProblem, match="near a lattice"):
        RBF(0.5).block(given_, fine)


@pytest.mark.parametrize("gamma", [0.02, 0.5])
def test_in_float64__has_the_same_values_to_more_digits(monkeypatch, gamma):
    monkeypatch.setattr(prepared, "is_fast", lambda: True)
    X, rng = near(60, 48, 255, seed=3), np.random.default_rng(0)
    byte_digits = ExactKernel(RBF(gamma), X)
    finer, every, coef = byte_digits.in_float64, np.arange(len(X)), rng.normal(size=len(X))
    assert byte_digits.prepared(every).is_fine
    assert finer.prepared(every).form == "dense"
    assert finer.unit.relative < 0.2 * byte_digits.unit.relative
    truth = np.exp(-gamma * cdist(X.astype(np.longdouble), X.astype(np.longdouble), "sqeuclidean"))
    for exact in (byte_digits, finer, byte_digits.take(every).in_float64):
        values = exact.block(every, every)
        assert (np.abs(values - truth) <= exact.unit.relative * truth + exact.unit.absolute + 1e-15).all()
        np.testing.assert_allclose(exact.symmetric_product(every, coef), truth @ coef, atol=1e-9)
    assert finer.in_float64 is finer


def test_evaluate__a_bar_that_digits_leave_too_wide_is_made_of_float64(monkeypatch):
    """At a C of 1e6 the digits of pixels leave more doubt than a millionth of the objective, and float64 does not."""
    monkeypatch.setattr(prepared, "is_fast", lambda: True)
    monkeypatch.setattr(ExactKernel, "can_refine", lambda self, m: False)  # as where there are many rows
    X, rng = near(80, 32, 255, seed=5), np.random.default_rng(1)
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=80) > 0.5, 1.0, -1.0)
    kernel, wide = RBF(0.5), 1e6
    points = kernel.prepare_gram(X, np.float32)
    source = ComputedColumns(kernel, points, np.float32, ExactKernel(kernel, X, like=points))
    qp = classification(source, y, wide)
    beta = Solver.create("smo").solve(classification(source, y, 10.0)).beta
    found = evaluate(qp, beta, resolution=2e-5).certificate
    assert found.bar <= 1e-6 * max(abs(found.primal), abs(found.dual))
    monkeypatch.setattr(ExactKernel, "in_float64", property(lambda self: self))
    coarse = evaluate(qp, beta, resolution=2e-5).certificate
    assert coarse.bar > 5.0 * found.bar
    assert abs(coarse.primal - found.primal) <= coarse.bar
