"""Rows near a lattice: two more digits give float64's products from products of bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svmcore import RBF, Points
from svmcore.errors import InvalidProblem
from svmcore.points import inner_products, prepared
from svmcore.points.fine import refine
from svmcore.points.lattice import encode


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
