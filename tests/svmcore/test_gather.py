"""Entries of a matrix gathered into a square, against NumPy's own indexing."""

import numpy as np
import pytest

from svmcore.passes.matrix.gather import MOST, gather_each, gather_square, part_of


@pytest.mark.parametrize("count", [0, 1, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gather__writes_chosen_entries_to_chosen_places_and_no_others(dtype, count):
    rng = np.random.default_rng(count)
    matrix, out = rng.normal(size=(40, 50)).astype(np.float32), np.full((12, 14), 7.0, dtype)
    rows, columns = rng.choice(40, count), rng.choice(50, 11)
    at, to = rng.permutation(12)[:count], rng.permutation(14)[:11]
    wanted = out.copy()
    wanted[np.ix_(at, to)] = matrix[np.ix_(rows, columns)].astype(dtype) + dtype(0.5)
    gather_square(matrix, rows, columns, out, at, to, 0.5)
    np.testing.assert_array_equal(out, wanted)


def test_gather__without_places_fills_from_the_first_row_and_column():
    matrix, out = np.arange(12.0).reshape(3, 4), np.zeros((2, 3))
    matrix.flags.writeable = False  # as one that is mapped
    gather_square(matrix, np.array([2, 0]), np.array([3, 1, 1]), out)
    np.testing.assert_array_equal(out, [[11.0, 9.0, 9.0], [3.0, 1.0, 1.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ">f8", np.int32, np.float16])
@pytest.mark.parametrize("form", ["plain", "transposed", "mapped"])
def test_part_of__is_that_of_numpy_for_any_type_and_layout(dtype, form):
    matrix = np.random.default_rng(1).normal(scale=9.0, size=(30, 20)).astype(dtype)
    matrix = np.asfortranarray(matrix) if form == "transposed" else matrix
    matrix.flags.writeable = form != "mapped"
    rows, columns = np.array([7, 0, 29, 7]), np.array([19, 3])
    part = part_of(matrix, rows, columns)
    assert part.dtype == matrix.dtype
    np.testing.assert_array_equal(part, matrix[np.ix_(rows, columns)])


def test_gather__in_units_is_the_nearest_whole_number():
    rng = np.random.default_rng(3)
    matrix, out = rng.random((40, 50)).astype(np.float32), np.full((12, 14), 7, np.uint16)
    matrix[0, 0] = np.nextafter(np.float32(1.0), np.float32(2.0))  # K_ii, rounded up
    rows, columns, at, to = np.array([3, 0, 9]), np.arange(11), np.array([2, 4, 0]), 3 + np.arange(11)
    gather_square(matrix, rows, columns, out, at, to, unit=1.0 / MOST)
    taken = out[np.ix_(at, to)]
    assert np.abs(taken - matrix[np.ix_(rows, columns)] * np.float64(MOST)).max() <= 0.502
    assert taken[1, 0] == MOST
    out[np.ix_(at, to)] = 7
    assert (out == 7).all()


def test_gather_each__is_the_square_of_every_set_of_rows():
    rng = np.random.default_rng(2)
    K, sets = rng.normal(size=(9, 9)), [np.array([4, 0, 7]), np.array([2]), np.array([], np.int64), np.arange(9)]
    ends = np.cumsum([0, *map(len, sets)])
    squares = np.full(ends[1] ** 2 + 1 + 81 + 1, np.nan)
    gather_each(K, np.concatenate(sets), ends, squares)
    np.testing.assert_array_equal(squares[:-1], np.concatenate([K[np.ix_(rows, rows)].ravel() for rows in sets]))
    assert np.isnan(squares[-1])
