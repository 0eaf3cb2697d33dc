"""Sources of columns: all of them equal the dense Gram matrix, whatever was asked before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from svmcore import RBF, CachedColumns, ComputedColumns, Linear, Points, ResidentGram, Source
from svmcore.errors import InvalidProblem, MemoryLimit
from svmcore.passes.matrix.columns import add_columns_by_sign
from svmcore.solvers import rounds
from svmcore.solvers.smo import SMO
from svmcore.sources import cached, matvec
from svmcore.sources.base import matvec_and_sizes
from svmcore.sources.cached import IDLE
from svmcore.sources.resident import fill_grams
from svmcore.tasks import classification

from .. import problems

ROWS = np.random.default_rng(0).normal(size=(90, 4))
WIDE = np.hstack([ROWS, np.zeros((90, 300))])  # mostly zero: CSR
KERNEL = RBF(gamma=0.4)
K = KERNEL(ROWS, ROWS)


def source(kind, dtype):
    computed = ComputedColumns(KERNEL, Points.prepare(ROWS, None, dtype), dtype)
    column = 90 * np.dtype(dtype).itemsize
    return {
        "resident": lambda: ResidentGram(K.astype(dtype)),
        "computed": lambda: computed,
        "csr": lambda: ComputedColumns(KERNEL, Points.prepare(sparse.csr_matrix(WIDE), None, dtype), dtype),
        "cached-all": lambda: CachedColumns(computed, 100 * column),
        "cached-few": lambda: CachedColumns(computed, 7 * column),
        "cached-resident": lambda: CachedColumns(ResidentGram(K.astype(dtype)), 7 * column),
    }[kind]()


KINDS = ["resident", "computed", "csr", "cached-all", "cached-few", "cached-resident"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns__equal_the_dense_gram(kind, dtype):
    columns, tol = source(kind, dtype), 1e-5 if dtype == np.float32 else 1e-12
    assert isinstance(columns, Source)
    assert (columns.n, columns.dtype) == (90, dtype)
    np.testing.assert_allclose(columns.diagonal(), np.diag(K), atol=tol)
    idx = np.array([3, 89, 3, 0])
    found = columns.columns(idx)
    assert found.flags.c_contiguous
    assert found.dtype == dtype
    np.testing.assert_allclose(found, K[idx], atol=tol)
    np.testing.assert_allclose(columns.columns(np.arange(90)), K, atol=tol)
    coef = np.where(np.arange(90) % 3 == 0, 1.5, 0.0)
    np.testing.assert_allclose(matvec(columns, coef), K @ coef, atol=50 * tol)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 89), min_size=1, max_size=7, unique=True), max_size=25), st.integers(7, 30))
def test_cached_columns__are_right_whatever_was_asked_before(requests, capacity):
    cached = CachedColumns(ResidentGram(K), capacity * 90 * 8)
    check_requests(cached, requests, capacity)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 89), min_size=1, max_size=7, unique=True), max_size=60), st.integers(7, 90))
def test_cached_columns__of_one_program_are_right_whatever_was_asked_before(requests, capacity):
    check_requests(CachedColumns(ResidentGram(K), capacity * 90 * 8, of_one=True), requests, capacity)


def check_requests(cached, requests, capacity):
    for request in requests:
        matrix, rows = cached.lookup(np.array(request))
        np.testing.assert_array_equal(matrix[rows], K[request])
        assert cached.held(np.array(request)).all()
        assert cached.held(np.arange(90)).sum() <= capacity


def test_cached_columns__keeps_what_was_used_last(monkeypatch):
    computed, fill = [], ComputedColumns.fill
    monkeypatch.setattr(ComputedColumns, "fill", lambda self, idx, *of: computed.extend(idx) or fill(self, idx, *of))
    cached = CachedColumns(ComputedColumns(KERNEL, Points.prepare(ROWS), np.float32), 4 * 90 * 4)
    for idx in ([0, 1], [2, 3], [0, 1], [4]):
        cached.lookup(np.array(idx))
    cached.lookup(np.array([0, 1]))
    assert computed == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("of_one", [False, True])
def test_cached_columns__of_one_program_touches_no_more_memory_for_what_it_has_left(of_one):
    cached = CachedColumns(ResidentGram(K), 90 * 90 * 8, of_one=of_one)
    stays = np.arange(10)
    for step in range(2 * IDLE):  # ten columns stay in use, one more is asked for and left each time
        cached.lookup(np.append(stays, 10 + step))
    assert cached.n_held == (10 + IDLE + 1 if of_one else 10 + 2 * IDLE)
    assert cached.held(stays).all()
    assert cached.held(np.array([10])) == [not of_one]


@pytest.mark.parametrize("of_one", [False, True])
def test_cached_columns__left_by_their_variables_are_written_over_at_once_where_nobody_else_asks(of_one):
    cached = CachedColumns(ResidentGram(K), 90 * 90 * 8, of_one=of_one)
    cached.lookup(np.arange(10))
    cached.leave(np.array([3, 7, 50]))  # one of them is not there
    matrix, rows = cached.lookup(np.array([20, 21, 22]))
    np.testing.assert_array_equal(matrix[rows], K[[20, 21, 22]])
    assert cached.n_held == (11 if of_one else 13)
    assert cached.held(np.array([3, 7])).tolist() == [not of_one] * 2
    assert cached.held(np.delete(np.arange(10), [3, 7])).all()


def test_smo__writes_over_the_columns_of_variables_at_0_and_finds_the_same(monkeypatch):
    X, y = problems.overlapping()
    X = np.pad(X, [(0, 0), (0, 32)])  # so many features that columns are worth keeping
    monkeypatch.setattr(rounds, "WHOLE", 0)
    monkeypatch.setattr("svmcore.solvers.row_steps.MOST", 0)
    held, betas = [], []
    for of_one in (False, True):
        cached = CachedColumns(ComputedColumns(RBF(2.0), Points.prepare(X)), 1 << 30, of_one=of_one)
        found = SMO(newcomers=8, working_set=80).solve(classification(cached, y, C=1.0))
        held.append(cached.n_held)
        betas.append(found.beta)
    assert held[1] < held[0]
    np.testing.assert_array_equal(*betas)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["computed", "resident", "csr"])
def test_fill__writes_to_the_rows_that_are_named(kind, dtype):
    columns, rows = source(kind, dtype), np.array([5, 0, 3])
    out = np.full((7, 90), np.nan, dtype)
    columns.fill(np.array([40, 2, 89]), out, rows)
    np.testing.assert_array_equal(out[rows], columns.fill(np.array([40, 2, 89]), np.empty((3, 90), dtype)))
    assert np.isnan(np.delete(out, rows, axis=0)).all()


def test_cached_columns__refuses_less_than_two_columns_with_both_numbers():
    with pytest.raises(MemoryLimit, match=r"at least two columns, 2 x .* MB; the limit is .* MB"):
        CachedColumns(ResidentGram(K), 90 * 8)


def test_cached_columns__a_lookup_larger_than_the_cache_is_refused():
    with pytest.raises(MemoryLimit, match="8 columns were asked for at once; the cache holds 7"):
        source("cached-few", np.float64).lookup(np.arange(8))


def test_lookup__copies_nothing_of_a_resident_gram():
    gram = ResidentGram(K)
    assert gram.lookup(np.array([5])).matrix is gram.matrix


def test_take__lends_memory_that_its_owner_may_want_back():
    whole, rows = source("cached-all", np.float64), np.arange(0, 90, 2)
    part = whole.take(rows)
    assert np.allclose(part.columns(np.arange(20)), K[np.ix_(rows[:20], rows)])
    inner = part.take(np.arange(5))  # `part` holds columns by now: it lends nothing
    assert np.allclose(whole.columns(np.arange(60)), K[:60])
    for _ in range(2):
        assert np.allclose(part.columns(np.arange(20)), K[np.ix_(rows[:20], rows)])
        assert np.allclose(inner.columns(np.arange(5)), K[np.ix_(rows[:5], rows[:5])])


def test_take__has_no_memory_that_it_does_not_use(monkeypatch):
    """Whose memory its owner has taken back asks for some when it wants a column again, not before."""
    asked = []
    monkeypatch.setattr(cached, "empty", lambda *of: asked.append(of) or np.empty(*of))
    whole, rows = source("cached-all", np.float64), np.arange(0, 90, 2)
    part = whole.take(rows)
    part.columns(np.arange(20))
    whole.columns(np.arange(60))
    assert len(asked) == 1
    assert np.allclose(part.columns(np.arange(20)), K[np.ix_(rows[:20], rows)])
    assert len(asked) == 2


def test_take__of_what_was_lent_is_lent_with_it():
    whole, rows = source("cached-all", np.float64), np.arange(0, 90, 2)
    part = whole.take(rows)
    inner = part.take(np.arange(9))
    assert np.allclose(inner.columns(np.arange(9)), K[np.ix_(rows[:9], rows[:9])])
    whole.lookup(np.arange(60))
    assert np.allclose(inner.columns(np.arange(9)), K[np.ix_(rows[:9], rows[:9])])


@pytest.mark.parametrize("kind", KINDS)
def test_take__is_the_source_of_those_rows_alone(kind):
    rows = np.array([7, 1, 50])
    part = source(kind, np.float64).take(rows)
    np.testing.assert_allclose(part.columns(np.arange(3)), K[np.ix_(rows, rows)], atol=1e-12)


def test_resident_gram__keeps_the_rows_of_a_linear_kernel():
    points = Points.prepare(ROWS, None, np.float64)
    rows = ComputedColumns(Linear(), points, np.float64)
    gram = ResidentGram(Linear()(ROWS, ROWS), rows).take(np.array([4, 2]))
    np.testing.assert_allclose(gram.factor().rows, ROWS[[4, 2]])


def test_resident_gram__must_be_square():
    with pytest.raises(InvalidProblem, match="square"):
        ResidentGram(np.zeros((3, 4)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 8, 21])
def test_add_columns_by_sign__are_two_sums_that_cancel_nothing(m, dtype):
    """Whole numbers, so that any order of the terms gives the very sums."""
    rng = np.random.default_rng(m)
    matrix, rows = rng.integers(0, 9, (30, 5000)).astype(dtype), rng.permutation(30)[:m]
    weights, (up, down) = rng.integers(-4, 5, m).astype(float), np.ones((2, 5000))
    add_columns_by_sign(matrix, rows, weights, up, down)
    grows = weights > 0
    np.testing.assert_array_equal(up, 1.0 + weights[grows] @ matrix[rows[grows]])
    np.testing.assert_array_equal(down, 1.0 - weights[~grows] @ matrix[rows[~grows]])


@pytest.mark.parametrize("kind", KINDS)
def test_matvec_and_sizes__of_any_source(kind):
    columns, coef = source(kind, np.float64), np.where(np.arange(90) % 2, 1.0, -0.5) * (np.arange(90) % 3 > 0)
    product, sizes = matvec_and_sizes(columns, coef)
    np.testing.assert_allclose(product, K @ coef, atol=1e-12)
    np.testing.assert_allclose(sizes, np.abs(K) @ np.abs(coef), atol=1e-12)


@pytest.mark.parametrize("kernels", [[RBF(0.4)], [RBF(0.4), Linear()]])
@pytest.mark.parametrize("n", [1, 2, 90])
def test_fill_grams__in_place_and_into_a_part_of_more_are_the_same_bits(kernels, n):
    """One tile is written where it belongs; its lower half is the mirror of its upper one."""
    points = Points.prepare(ROWS[:n], None, np.float64)
    outs, parts = np.full((2, len(kernels), n, n), np.nan), np.full((len(kernels), n + 3, n + 3), np.nan)
    fill_grams(kernels, points, list(outs[0]))
    fill_grams(kernels, points, [part[:n, :n] for part in parts])
    for kernel, K_, part in zip(kernels, outs[0], parts, strict=True):
        np.testing.assert_array_equal(K_, K_.T)
        np.testing.assert_array_equal(K_, part[:n, :n])
        np.testing.assert_allclose(K_, kernel(ROWS[:n], ROWS[:n]), atol=1e-12)
        assert np.isnan(part[n:]).all()
        assert np.isnan(part[:, n:]).all()
