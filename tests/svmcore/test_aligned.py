"""Arrays that begin with a line of the cache, and rows that each do."""

import numpy as np
import pytest

from svmcore.runtime.aligned import LINE, aligned, full_lines, pitch
from svmcore.runtime.memory import LEAST, empty

SIZES = [0, 1, 15, 16, 17, 1000]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("make", [aligned, empty])
def test_arrays__begin_with_a_line_whatever_their_shape(make, dtype):
    for shape in [3, (5,), (2, 7), (3, 2, 5), (LEAST // 2, 3)]:
        found = make(shape, dtype)
        assert found.ctypes.data % LINE == 0
        assert found.shape == (shape if isinstance(shape, tuple) else (shape,))
        assert found.dtype == dtype
        assert found.flags["C_CONTIGUOUS"]
        assert found.flags["WRITEABLE"]


@pytest.mark.parametrize("dtype", [np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 2048, 3071])
def test_pitch__is_of_whole_lines_and_their_number_is_odd(count, dtype):
    n_bytes = pitch(count, dtype) * np.dtype(dtype).itemsize
    assert n_bytes % (2 * LINE) == LINE
    assert 0 <= n_bytes - count * np.dtype(dtype).itemsize < 2 * LINE


@pytest.mark.parametrize("value", [np.float32(-np.inf), np.float64(2.5), np.int32(-7)])
@pytest.mark.parametrize("m", SIZES)
def test_full_lines__of_one_value_and_each_row_begins_with_a_line(m, value):
    for n in (1, 3):
        found = full_lines(n, m, value)
        assert found.dtype == value.dtype
        assert (found == value).all()
        assert len(found) == n
        assert m <= found.shape[1] < m + LINE
        assert found.flags["C_CONTIGUOUS"]
        assert all(row.ctypes.data % LINE == 0 for row in found if row.size)
