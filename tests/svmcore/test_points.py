"""Rows in the form that kernels take: centred, cast, with norms in float64."""

import numpy as np
import pytest
from scipy import sparse

from svmcore import Points
from svmcore.errors import InvalidProblem
from svmcore.points import inner_products

ROWS = np.random.default_rng(0).normal(size=(200, 7)) * [1, 10, 0.1, 1, 1, 3, 1] + 50.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_points__products_and_offsets_give_inner_products(dtype):
    P = Points.prepare(ROWS, None, dtype)
    Q = Points.prepare(ROWS[:9] + 1.0, P.centre, dtype)
    found = inner_products(P, Q) + P.moments.offset[:, None] + Q.moments.offset
    np.testing.assert_allclose(found, ROWS @ (ROWS[:9] + 1.0).T, rtol=1e-7 if dtype is np.float32 else 1e-13)
    np.testing.assert_allclose(P.moments.square, (ROWS**2).sum(axis=1), rtol=1e-13)


def test_points__norms_are_about_the_centre_in_float64():
    P = Points.prepare(ROWS)
    centred = ROWS - ROWS.mean(axis=0)
    np.testing.assert_allclose(P.moments.norm2, (centred**2).sum(axis=1), rtol=1e-12)
    assert P.moments.norm2.dtype == np.float64
    assert P.dtype == np.float32


def test_points__csr_products_accumulate_in_float64():
    X = sparse.random(150, 300, density=0.05, random_state=1, format="csr", dtype=np.float32)
    P = Points.prepare(X)
    Q = Points.prepare(X[:70].toarray(), P.centre)
    assert P.is_sparse
    found = inner_products(P, Q)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, (X.astype(np.float64) @ X[:70].T.astype(np.float64)).toarray(), rtol=1e-14)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("X", [ROWS, np.hstack([ROWS, np.zeros((200, 300))])], ids=["full", "mostly-zero"])
def test_points__parts_are_the_same_rows_in_either_form(form, X):
    P, idx = Points.prepare(form(X)), np.array([5, 0, 199])
    assert P.is_sparse == (X.shape[1] > 100)
    for part, rows in ((P.take(idx), X[idx]), (P.rows(3, 9), X[3:9])):
        np.testing.assert_allclose(part.origin_values, rows, rtol=1e-6)
        np.testing.assert_allclose(part.moments.square, (rows**2).sum(axis=1), rtol=1e-12)


def test_points__dense_slices_copy_nothing():
    P = Points.prepare(ROWS)
    assert np.shares_memory(P.rows(10, 20).values, P.values)


def test_points__large_and_small_inputs_are_prepared_alike():
    X = np.random.default_rng(1).normal(size=(3000, 400))  # more than one 4 MB part
    whole, part = Points.prepare(X), Points.prepare(X[2500:], X.mean(axis=0))
    np.testing.assert_array_equal(whole.values[2500:], part.values)


@pytest.mark.parametrize("rows", [np.zeros(3), np.zeros((2, 2, 2))])
def test_points__refuses_what_is_no_table(rows):
    with pytest.raises(InvalidProblem, match=r"must be an \(n, p\) array"):
        Points.prepare(rows)


def test_inner_products__refuses_sides_that_do_not_fit():
    P = Points.prepare(ROWS)
    mostly_zero = np.where(np.arange(1400).reshape(200, 7) % 50 == 0, ROWS, 0.0)
    for other in (Points.prepare(ROWS[:, :3]), Points.prepare(mostly_zero)):
        with pytest.raises(InvalidProblem, match="both sides of a kernel block need the same features"):
            inner_products(P, other)
