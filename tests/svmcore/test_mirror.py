"""The mirror image of a tile is its transpose, whatever its shape, its type and where it lies."""

import numpy as np
import pytest

from svmcore.passes.matrix.mirror import write_mirrored
from svmcore.passes.steps.working_set import mirror_rows, widen_rows


@pytest.mark.parametrize("shape", [(1, 1), (16, 16), (15, 17), (33, 100), (64, 48)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint16])
@pytest.mark.parametrize("step", [1, 2])
def test_write_mirrored__writes_the_transpose_and_nothing_else(shape, dtype, step):
    n, m = shape
    tile = np.random.default_rng(0).integers(1, 60_000, (n, m * step)).astype(dtype)[:, ::step]
    whole = np.zeros((m + 4, n + 6), dtype)
    write_mirrored(tile, whole[2 : 2 + m, 3 : 3 + n], lower_only=False)
    np.testing.assert_array_equal(whole[2 : 2 + m, 3 : 3 + n], tile.T)
    assert np.count_nonzero(whole) == np.count_nonzero(tile)


@pytest.mark.parametrize("n", [1, 16, 17, 48])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint16])
def test_write_mirrored__of_a_diagonal_tile_stays_below_the_diagonal(n, dtype):
    tile, out = np.random.default_rng(1).integers(1, 60_000, (n, n)).astype(dtype), np.zeros((n, n), dtype)
    write_mirrored(tile, out, lower_only=True)
    np.testing.assert_array_equal(out, np.tril(tile.T, -1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "places", [[], [0, 1, 2], [37, 38, 39], list(range(20, 40)), [39], [3, 17, 39], [5], [38, 39, 2], [37, 2, 39]]
)
def test_mirror_rows__writes_the_columns_of_rows_wherever_they_are(places, dtype):
    whole = np.random.default_rng(5).normal(size=(40, 40)).astype(dtype)
    K, places = whole + whole.T, np.array(places, dtype=np.int64)
    square = np.full((44, 50), np.nan, dtype)
    square[:40, :40] = K
    square[:40, places] = np.nan
    square[places, :40] = K[places]
    mirror_rows(square, places, 40)
    np.testing.assert_array_equal(square[:40, :40], K)
    assert np.isnan(square[40:]).all()
    assert np.isnan(square[:, 40:]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
@pytest.mark.parametrize(("q", "longer"), [(40, 41), (40, 60), (40, 100), (1, 60)])
def test_widen_rows__keeps_each_row_where_old_and_new_ones_overlap(q, longer, dtype):
    memory = np.zeros(q * longer, dtype)
    narrow, wide = memory[: q * q].reshape(q, q), memory.reshape(q, longer)
    before = np.random.default_rng(q).integers(1, 60_000, (q, q)).astype(dtype)
    narrow[:] = before
    widen_rows(narrow, wide, q)
    np.testing.assert_array_equal(wide[:, :q], before)
