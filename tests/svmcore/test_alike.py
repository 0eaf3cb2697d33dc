"""Rows that are 0 in the same features share tiles of products and are summed together; every row has one place."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svmcore import RBF, ComputedColumns, Polynomial
from svmcore.kernels.exact import ExactKernel
from svmcore.points import lattice, prepared
from svmcore.points.alike import alike, ranked
from svmcore.points.word_products import ROWS, WINDOW, ones
from svmcore.runtime import threads
from svmcore.runtime.compiled import njit
from svmcore.sources import computed


def tiles(words, zero=0):
    """The rows (tiles, ROWS) of each tile."""
    places = alike(words, zero)
    return (places + np.arange(len(places)) // WINDOW * WINDOW).reshape(-1, ROWS)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 3 * WINDOW),
    steps=st.integers(1, 150),
    share=st.floats(0.0, 1.0),
    zero=st.sampled_from([0, 0x80808080]),
    seed=st.integers(0, 99),
)
def test_alike__every_row_has_one_place_in_its_window(n, steps, share, zero, seed):
    rng = np.random.default_rng(seed)
    words = np.where(rng.random((n, steps)) < share, np.uint32(7), np.uint32(zero))
    rows = tiles(words, zero)
    np.testing.assert_array_equal(np.sort(rows, axis=None), np.arange(-(-n // ROWS) * ROWS))
    for start in range(0, rows.size, WINDOW):
        window = rows.ravel()[start : start + WINDOW]
        assert window.min() == start
        assert window.max() < start + WINDOW


def test_alike__rows_of_a_kind_share_tiles():
    """Four kinds in any order, each with words of its own; `zero` is what counts as none."""
    rng = np.random.default_rng(0)
    kinds = rng.permutation(np.repeat(np.arange(4), WINDOW // 4))
    for zero in (0, 0x80808080):
        words = np.full((WINDOW, 80), zero, np.uint32)
        for kind in range(4):
            words[np.ix_(kinds == kind, np.arange(20 * kind, 20 * kind + 20))] = 5
        assert (np.ptp(kinds[tiles(words, zero)], axis=1) == 0).all()
        assert (np.ptp(kinds.reshape(-1, ROWS), axis=1) > 0).any()


def test_alike__is_by_content_alone_and_keeps_the_order_where_nothing_is_won():
    rng = np.random.default_rng(1)
    words = (rng.random((2 * WINDOW, 40)) < 0.3).astype(np.uint32)
    np.testing.assert_array_equal(alike(words, 0), alike(words * np.uint32(9), 0))
    assert (alike(words, 0) != np.arange(2 * WINDOW) % WINDOW).any()
    for dense in (words + 1, words[:, :15], words[:ROWS]):
        np.testing.assert_array_equal(alike(dense, 0), np.arange(len(dense)) % WINDOW)


def _ones(word):
    return ones(word)


def test_ones__are_those_of_the_word():
    count = njit(_ones)
    for word in (0, 1, 2**63, 2**64 - 1, 0x0F0F):
        assert count(np.uint64(word)) == word.bit_count()


# ---- kinds
def kinds_of(n=3000, steps=40, seed=0):
    """Rows of four kinds in any order, each with words of its own and some of all; and the kind of each."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 4, n)
    words = (rng.random((n, steps)) < 0.1).astype(np.uint32)
    for kind in range(4):
        words[np.ix_(kinds == kind, np.arange(10 * kind, 10 * kind + 10))] = 5
    return words, kinds


def test_ranked__rows_of_a_kind_are_beside_each_other():
    words, kinds = kinds_of()
    ranks = ranked(words)
    np.testing.assert_array_equal(np.sort(ranks), np.arange(len(words)))
    found = np.empty_like(kinds)
    found[ranks] = kinds
    assert np.count_nonzero(np.diff(found)) < 100 < 2000 < np.count_nonzero(np.diff(kinds))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ranked__are_the_same_on_any_number_of_threads(count, monkeypatch):
    words, _ = kinds_of(seed=1)
    expected = ranked(words)
    monkeypatch.setattr(threads, "n_threads", lambda: count)
    np.testing.assert_array_equal(ranked(words), expected)


def test_ranked__is_none_where_nothing_is_won():
    words, _ = kinds_of(n=100)
    assert ranked(words) is not None
    assert ranked(words + 1) is None  # no word is 0
    assert ranked(np.ascontiguousarray(words[:, :15])) is None


@pytest.mark.parametrize("kernel", [RBF(1e-3), Polynomial(degree=2, gamma=0.01, coef0=1.0)], ids=lambda each: each.name)
def test_ranked__columns_in_another_order_have_the_same_sums(kernel, monkeypatch):
    """Within what float32 promises; those of one alone have the bits that they have among others."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 20, (600, 100)) * (rng.random((600, 100)) < 0.3)
    coefs = [np.where(rng.random(600) < share, rng.normal(size=600), 0.0) for share in (0.4, 0.8)]
    monkeypatch.setattr(prepared, "is_fast", lambda: True)
    monkeypatch.setattr(computed, "MANY", 1)
    monkeypatch.setattr(lattice, "has_tiles", lambda: False)
    points = kernel.prepare_gram(X.astype(np.float32), np.float32)
    source = ComputedColumns(kernel, points, np.float32, ExactKernel(kernel, X, like=points))
    ranks = source._ranks
    np.testing.assert_array_equal(np.sort(ranks), np.arange(600))
    assert (np.diff(ranks) < 0).any()
    both = source.outputs_of(coefs)
    for coef, (sums, sizes) in zip(coefs, both, strict=True):
        np.testing.assert_array_equal(source.outputs(coef)[0], sums)
        K = kernel(X, X)
        assert np.all(np.abs(sums - K @ coef) <= 1e-5 * sizes)
        np.testing.assert_allclose(sizes, np.abs(K) @ np.abs(coef), rtol=1e-5)
