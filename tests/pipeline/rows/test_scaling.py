"""Rows scaled as scikit-learn scales them, and in a precision that loses nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from pipeline.rows.dataset import Scaling
from pipeline.rows.scaling import ColumnStats, fit_scaling
from svmcore.errors import InputError
from svmcore.points import Points
from svmcore.points.lattice import encode

from .ingested_rows import LABELS, ROWS, N, P, dense, make


@pytest.mark.parametrize(
    ("kind", "reference"), [("standard", StandardScaler()), ("minmax", MinMaxScaler()), ("maxabs", MaxAbsScaler())]
)
def test_scaling_is_scikit_learns_fitted_on_training_rows(tmp_path, kind, reference):
    d = make(tmp_path, f"data.scale={kind}", test=0.3)
    kept, held_out = (
        np.sort(part) for part in train_test_split(np.arange(N), test_size=0.3, stratify=LABELS, random_state=0)
    )
    reference.fit(ROWS[kept])
    assert np.allclose(d.X()[d.inverse()], reference.transform(ROWS[kept]), rtol=1e-6, atol=1e-6)
    ((X, _),) = d.test_blocks()
    assert np.allclose(X, reference.transform(ROWS[held_out]), rtol=1e-6, atol=1e-6)
    assert np.allclose(d.scaling.apply(ROWS[held_out]), reference.transform(ROWS[held_out]), rtol=1e-13, atol=1e-13)
    assert np.allclose(d.scaling.undo(d.scaling.apply(ROWS)), ROWS, rtol=1e-12)
    assert d.variance == pytest.approx(reference.transform(ROWS[kept]).var(), rel=1e-12)


@pytest.mark.parametrize("kind", ["none", "maxabs", "16"])
def test_sparse_scaling_equals_dense_scaling(tmp_path, kind):
    X = np.where(np.abs(ROWS) > 2, ROWS, 0)
    a = make(tmp_path, f"data.scale={kind}", X=X, test=(X, LABELS))
    b = make(tmp_path, f"data.scale={kind}", X=X, test=(X, LABELS), name="rows.svm")
    assert b.sparse
    assert np.array_equal(a.X(), b.X().toarray())
    assert a.variance == pytest.approx(b.variance, rel=1e-12)
    assert b.variance == pytest.approx(b.scaling.apply(X).var(), rel=1e-12)
    assert np.array_equal(next(a.test_blocks())[0], next(b.test_blocks())[0].toarray())
    S = sparse.csr_array(X)
    assert np.allclose(b.scaling.undo(b.scaling.apply(S)).toarray(), X)
    assert np.array_equal(S.toarray(), X)  # the given rows are not touched


def test_a_constant_column_is_not_divided_by_zero(tmp_path):
    for kind, value in (("standard", 0), ("minmax", 0), ("maxabs", 1)):
        d = make(tmp_path, f"data.scale={kind}")
        assert (d.X()[:, 5] == value).all()


def test_rows_of_another_width_are_refused(tmp_path):
    d = make(tmp_path)
    with pytest.raises(InputError, match="rows with 7 features were given, the training data has 6"):
        d.scaling.apply(np.ones((2, 7)))


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 30), min_size=1, max_size=5))
@settings(max_examples=40)
def test_column_statistics_do_not_depend_on_the_blocks(seed, sizes):
    random = np.random.default_rng(seed)
    X = random.normal(size=(sum(sizes) + 1, 3)) * [1, 1e-3, 1e6] + [1e4, 0, 1e9]
    X[random.random(X.shape) < 0.5] = 0
    for kind in (np.asarray, sparse.csr_array):
        stats = ColumnStats(3)
        for part in np.split(X, np.cumsum(sizes)):
            stats.add(kind(part))
        assert stats.n == len(X)
        assert np.allclose(stats.mean, X.mean(axis=0), rtol=1e-12)
        assert np.allclose(stats.variance, X.var(axis=0), rtol=1e-9, atol=1e-30)
        assert np.array_equal(stats.least, X.min(axis=0))
        assert np.array_equal(stats.largest, X.max(axis=0))


def test_scaling_none_keeps_values():
    stats = ColumnStats(2)
    stats.add(np.array([[1.0, 2.0], [3.0, 2.0]]))
    scaling = fit_scaling("none", stats, False)
    assert isinstance(scaling, Scaling)
    assert np.array_equal(scaling.apply(np.array([[1, 2]])), [[1.0, 2.0]])


# ---- precision ----
@pytest.mark.parametrize("name", ["rows.npz", "rows.svm"])
@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        (ROWS, np.float32),
        (ROWS + 1e4, np.float64),
        (np.round(ROWS * 10) + 1e4, np.float32),  # whole numbers that float32 holds exactly
        (ROWS * 1e40, np.float64),
        (np.where(np.arange(P) == 5, 0.1 + 1e7, ROWS), np.float32),  # a constant column has nothing to lose
    ],
    ids=["near zero", "shifted", "whole", "beyond float32", "constant"],
)
def test_float64_is_kept_where_float32_would_lose(tmp_path, rows, dtype, name):
    d = make(tmp_path, X=rows, name=name)
    assert d.dtype == dtype
    X = dense(d.X())[d.inverse()]
    assert X.dtype == dtype
    spread = np.maximum(rows.max(axis=0) - rows.min(axis=0), 1e-3)
    assert (np.abs(X - rows)[:, :5] <= 1e-6 * spread[:5]).all()


BYTES = np.random.default_rng(5).integers(0, 256, (N, P)).astype(float)
BYTES[:2] = [[0.0] * P, [255.0] * P]


@pytest.mark.parametrize("name", ["rows.npz", "rows.svm"])
@pytest.mark.parametrize(
    ("rows", "scale", "dtype"),
    [
        (BYTES, 255.0, np.float64),
        (BYTES, 256.0, np.float32),  # of which float32 holds every level
        (BYTES, "none", np.float32),
        (BYTES, "maxabs", np.float64),
        (BYTES * np.arange(1, P + 1), 255.0, np.float32),  # beyond a byte
        (np.minimum(BYTES, 100.0 + np.arange(P)), "maxabs", np.float32),  # each column has a factor of its own
        (BYTES + 0.25, 255.0, np.float32),
    ],
    ids=["pixels", "dyadic", "none", "one factor", "wide", "many factors", "fractions"],
)
def test_rows_of_bytes_stay_whole_numbers_times_one_step(tmp_path, rows, scale, dtype, name):
    d = make(tmp_path, f"data.scale={scale}", X=rows, name=name)
    assert d.dtype == dtype
    if dtype == np.float64:
        _, codes = encode(dense(d.X()))
        assert codes.exact  # so that proofs have products of bytes
        assert np.array_equal(np.rint(dense(d.X())[d.inverse()] * 255), rows)


def test_rows_of_bytes_are_stored_as_bytes_and_are_the_same_numbers(tmp_path):
    d = make(tmp_path, "data.scale=255", X=BYTES)
    stored = d.sealed.read("train/X")
    assert stored.dtype == np.uint8
    assert np.array_equal(d.bytes(), stored)
    assert d.step == 1 / 255
    assert np.array_equal(d.X()[d.inverse()], BYTES * (1 / 255))
    assert np.array_equal(d.X(3, 9), d.X()[3:9])
    assert np.array_equal(d.take(np.array([7, 2, 2])), d.X()[[7, 2, 2]])
    assert np.array_equal(d.take(np.array([4, 0]), 3, 9), d.X()[[7, 3]])
    direct, found = Points.of_bytes(d.bytes(), d.step), encode(d.X())
    assert found is not None
    if direct is not None:  # where products of bytes pay
        assert np.array_equal(direct.values.bytes, found[1].bytes)
        assert direct.values.step == pytest.approx(found[1].step, rel=1e-15)
        assert np.array_equal(direct.centre, found[0])
        assert direct.moments.norm2 == pytest.approx((d.X() ** 2).sum(axis=1), rel=1e-12)


def test_rows_of_equal_bytes_and_another_scale_are_others(tmp_path):
    a, b, c = (make(tmp_path, f"data.scale={scale}", X=BYTES) for scale in (255, 254, "none"))
    assert np.array_equal(np.sort(a.bytes(), axis=0), np.sort(b.bytes(), axis=0))
    assert len({d.rows_fingerprint for d in (a, b, c)}) == 3
    assert c.bytes() is None


def test_rows_below_zero_are_no_bytes(tmp_path):
    d = make(tmp_path, "data.scale=255", X=BYTES - 100.0)
    assert (d.dtype, d.bytes(), d.step) == (np.float64, None, None)
    assert np.array_equal(d.X()[d.inverse()], (BYTES - 100.0) * (1 / 255))
