"""Merging identical rows: exact, and in an order that depends on content alone."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from svmcore import merge_rows
from svmcore.points.identical import row_hash
from svmcore.train.posing.distinct import shared

tables = arrays(
    np.float64, st.tuples(st.integers(1, 30), st.integers(1, 3)), elements=st.sampled_from([0.0, -0.0, 1.0, 2.5])
)


@settings(max_examples=60, deadline=None)
@given(tables, st.integers(0, 2**32 - 1), st.booleans())
def test_merge_rows__every_row_finds_itself(X, seed, as_csr):
    rng = np.random.default_rng(seed)
    codes = rng.integers(2, size=len(X))
    merged = merge_rows(sparse.csr_matrix(X) if as_csr else X, codes)
    np.testing.assert_array_equal(X[merged.first][merged.inverse], X)
    np.testing.assert_array_equal(codes[merged.first][merged.inverse], codes)
    np.testing.assert_array_equal(np.bincount(merged.inverse), merged.counts)
    distinct = {(tuple(x + 0.0), c) for x, c in zip(X, codes, strict=True)}
    assert len(merged.first) == len(distinct)


@settings(max_examples=60, deadline=None)
@given(tables, st.integers(0, 2**32 - 1))
def test_merge_rows__order_is_the_contents_alone(X, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(3, size=len(X))
    order = rng.permutation(len(X))
    one, two = merge_rows(X, codes), merge_rows(sparse.csr_matrix(X[order]), codes[order])
    np.testing.assert_array_equal(X[one.first], X[order][two.first])
    np.testing.assert_array_equal(codes[one.first], codes[order][two.first])
    np.testing.assert_array_equal(one.counts, two.counts)


def test_merge_rows__hash_is_the_sort_key():
    X = np.random.default_rng(0).integers(4, size=(500, 3)).astype(float)
    merged = merge_rows(X, np.zeros(500, dtype=int))
    key = row_hash(X)[merged.first, 0]
    assert (key[1:] >= key[:-1]).all()


def test_row_hash__tells_neighbours_apart():
    x = np.array([1.0, 0.0, 2.0])
    rows = np.array([x, x[::-1], np.nextafter(x, 9), x + np.array([0, 1e-300, 0]), [1.0, 2.0, 0.0]])
    assert len(np.unique(row_hash(rows), axis=0)) == len(rows)


def test_row_hash__csr_with_stored_zeros_and_duplicates_is_the_same_row():
    dense = np.array([[0.0, 3.0, 0.0]])
    data, cols, ptr = np.array([1.0, 0.0, 2.0]), np.array([1, 0, 1]), np.array([0, 3])
    odd = sparse.csr_matrix((data, cols, ptr), shape=(1, 3))
    np.testing.assert_array_equal(row_hash(odd), row_hash(dense))
    assert odd.nnz == 3  # the input is left as it came


@pytest.mark.parametrize("n", [0, 1])
def test_merge_rows__few_rows(n):
    merged = merge_rows(np.ones((n, 2)), np.zeros(n, dtype=int))
    assert (len(merged.first), len(merged.inverse)) == (n, n)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_shared__parts_of_copies_add_up_to_the_last_bit(seed, n):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=5) * 10.0 ** rng.integers(-8, 9, 5) * rng.integers(0, 2, 5)
    of, weights = rng.integers(0, 5, n), rng.uniform(0.01, 2.0, n)
    parts = shared(values, of, weights)
    for k in np.unique(of):
        assert sum(map(Fraction, parts[of == k])) == Fraction(values[k])
        np.testing.assert_allclose(parts[of == k], values[k] * weights[of == k] / weights[of == k].sum(), rtol=1e-12)
