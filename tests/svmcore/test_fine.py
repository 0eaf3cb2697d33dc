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
    return given_, Points.refined(X, slice(None), given_)


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
    fine = refine(X, np.arange(len(X)), origin, codes)
    first, second = (digit[:, :p].astype(np.longdouble) - 128 for digit in fine.digits)
    h1, h2 = (np.longdouble(step) for step in fine.steps)
    rows = np.longdouble(codes.step) * codes.bytes[:, :p] + h1 * first + h2 * second
    missed = np.sqrt(((X.astype(np.longdouble) - origin - rows) ** 2).sum(axis=1)).max()
    assert missed <= fine.distance <= fine.loosest.distance
    assert fine.distance < 1e-4 * np.sqrt(p) * codes.deviation + 1e-14
    residue = X.astype(np.longdouble) - origin - np.longdouble(codes.step) * codes.bytes[:, :p]
    assert np.sqrt((residue**2).sum(axis=1)).max() <= fine.distances[0] <= fine.loosest.distances[0]
    assert np.abs(fine.norm2 - (rows**2).sum(axis=1)).max() <= fine.dropped + 1e-15 * fine.norm2.max()


@pytest.mark.parametrize("n", [3, 7, 8, 49, 130])
@pytest.mark.parametrize("digits", [1, 2])
def test_inner_products__of_rows_near_a_lattice_are_right_to_their_digits(n, digits, monkeypatch):
    X = near(n, 70, 255, n)
    _, fine = both(X, monkeypatch)
    fine = fine if digits == 2 else fine.shorter
    assert fine.form == "near a lattice"
    assert fine.dtype == np.float64
    u = X.astype(np.longdouble) - fine.centre
    G = inner_products(fine.rows(0, n), fine)
    bound = fine.values.dropped + 2 * fine.values.distance * float(np.sqrt((u**2).sum(axis=1)).max()) + 1e-13
    assert np.abs(G - (u[:n] @ u.T).astype(float)).max() <= bound < (1e-6, 1e-9)[digits - 1]
    assert np.abs(fine.moments.norm2 - (u**2).sum(axis=1).astype(float)).max() <= bound


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
def test_exact_kernel__values_of_digits_are_within_the_bounds_of_their_rows_and_of_all_rows(monkeypatch, gamma):
    monkeypatch.setattr(prepared, "is_fast", lambda: True)
    X, rng = near(60, 48, 255, seed=3), np.random.default_rng(0)
    exact, every, coef = ExactKernel(RBF(gamma), X), np.arange(len(X)), rng.normal(size=len(X))
    rows = exact.prepared(every)
    assert rows.is_fine
    truth = np.exp(-gamma * cdist(X.astype(np.longdouble), X.astype(np.longdouble), "sqeuclidean"))
    short = exact.rounding(rows.shorter)
    assert 1e-12 < np.abs(exact.block(rows.shorter, rows.shorter) - truth).max() <= short.within(1.0) < 1e-8
    missed, own, all_rows = np.abs(exact.block(every, every) - truth), exact.rounding(rows), exact.unit
    assert (missed <= own.relative * truth + own.absolute).all()
    assert own.within(1.0) <= all_rows.within(1.0) < 1e-11
    assert missed.max() > 0.01 * own.within(1.0)  # not what excuses anything
    np.testing.assert_allclose(exact.symmetric_product(every, coef), truth @ coef, atol=1e-10)


@pytest.mark.parametrize("corner", [0.0, -0.3])
def test_exact_kernel__digits_that_are_kept_are_the_same_bits(corner, monkeypatch):
    """Many problems on one K ask for more rows than there are: those are not refined again."""
    monkeypatch.setattr(prepared, "is_fast", lambda: True)
    X, refined = near(60, 48, 255, seed=3, corner=corner), []
    monkeypatch.setattr(Points, "refined", spied(refined, Points.refined))
    kept, coef = ExactKernel(RBF(0.1), X), np.random.default_rng(0).normal(size=60)
    for seed in range(6):
        rows = np.random.default_rng(seed).permutation(60)[:25]
        fresh = ExactKernel(RBF(0.1), X)
        for exact in (kept, fresh):
            assert exact.prepared(rows).is_fine
        assert kept.rounding(kept.prepared(rows)) == fresh.rounding(fresh.prepared(rows))
        np.testing.assert_array_equal(kept.product(rows, rows, coef[:25]), fresh.product(rows, rows, coef[:25]))
    assert kept._given.centre.any() == (corner != 0.0)
    assert (len(refined) < 6 * 8) == (corner == 0.0)


def spied(calls, real):
    def called(*arguments):
        calls.append(arguments)
        return real(*arguments)

    return called


def test_evaluate__digits_bear_the_bar_of_a_large_C(monkeypatch):
    """At a C of 3,000 a millionth of the objective is a score's ninth digit: the rows' own bound has it."""
    monkeypatch.setattr(prepared, "is_fast", lambda: True)
    monkeypatch.setattr(ExactKernel, "can_refine", lambda self, m: False)  # as where there are many rows
    X, rng = near(80, 32, 255, seed=5), np.random.default_rng(1)
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=80) > 0.5, 1.0, -1.0)
    kernel, wide = RBF(0.5), 3e3
    points = kernel.prepare_gram(X, np.float32)
    source = ComputedColumns(kernel, points, np.float32, ExactKernel(kernel, X, like=points))
    qp = classification(source, y, wide)
    beta = Solver.create("smo").solve(classification(source, y, 10.0)).beta
    found = evaluate(qp, beta, resolution=2e-5).certificate
    assert found.bar <= 1e-6 * max(abs(found.primal), abs(found.dual))
    u = np.exp(-0.5 * cdist(X.astype(np.longdouble), X.astype(np.longdouble), "sqeuclidean")) @ beta
    dual = float(y @ beta - 0.5 * beta @ u)
    assert abs(found.dual - dual) <= found.bar + 1e-12 * abs(dual)


@pytest.mark.parametrize(("wide", "digits"), [(0.1, 1), (3e3, 2)])
def test_evaluate__takes_as_many_digits_as_the_objective_asks_for(wide, digits, monkeypatch):
    monkeypatch.setattr(prepared, "is_fast", lambda: True)
    monkeypatch.setattr(ExactKernel, "can_refine", lambda self, m: False)
    X, rng = near(80, 32, 255, seed=5), np.random.default_rng(1)
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=80) > 0.5, 1.0, -1.0)
    kernel = RBF(0.5)
    points = kernel.prepare_gram(X, np.float32)
    source = ComputedColumns(kernel, points, np.float32, ExactKernel(kernel, X, like=points))
    qp, met = classification(source, y, wide), []
    beta = Solver.create("smo").solve(classification(source, y, min(wide, 10.0))).beta
    beta[np.argsort(np.abs(beta))[: np.count_nonzero(beta == 0) + 3]] = 0.0  # three that decide are no support

    def spied(real):
        def product(self, rows, *rest):
            met.append({len(each.values.digits) for each in (rows, *rest) if isinstance(each, Points)})
            return real(self, rows, *rest)

        return product

    for name in ("symmetric_product", "product"):
        monkeypatch.setattr(ExactKernel, name, spied(getattr(ExactKernel, name)))
    outputs = evaluate(qp, beta, resolution=1e-9 if digits == 2 else 1e-6).outputs
    assert met == [{digits}, {digits}]
    u = np.exp(-0.5 * cdist(X.astype(np.longdouble), X.astype(np.longdouble), "sqeuclidean")) @ beta
    known = np.flatnonzero(beta)
    assert np.abs(outputs - u)[known].max() < (1e-6, 1e-9)[digits - 1]
