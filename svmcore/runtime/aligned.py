"""Arrays that begin with a line of the cache: what lies across two lines takes twice as long to load and to store."""

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from svmcore.runtime.compiled import njit

__all__ = ["LINE", "aligned", "entries_of", "full_lines", "pitch"]

LINE = 64  # bytes


def aligned(shape: int | tuple[int, ...], dtype: DTypeLike) -> Any:
    """As `numpy.empty`, C-contiguous.

    >>> aligned((2, 3), np.float32).ctypes.data % LINE
    0
    """
    kind = np.dtype(dtype)
    size = entries_of(shape) * kind.itemsize
    memory = np.empty(size + LINE, np.uint8)
    first = -memory.ctypes.data % LINE
    return memory[first : first + size].view(kind).reshape(shape)


def entries_of(shape: int | tuple[int, ...]) -> int:
    """How many an array of that shape has.

    >>> entries_of((2, 3)), entries_of(4)
    (6, 4)
    """
    return math.prod(map(int, shape)) if isinstance(shape, tuple) else int(shape)


def pitch(count: int, dtype: DTypeLike) -> int:
    """Entries from one row of so many to the next: whole lines, and an odd number of them.

    Else a column of a square might fall into one set of the cache.

    >>> pitch(2048, np.float32), pitch(2048, np.uint16)
    (2064, 2080)
    """
    entries = LINE // np.dtype(dtype).itemsize
    return (-(-count // entries) | 1) * entries


@njit(makes_arrays=True)
def full_lines(n, m, value):  # type: ignore[no-untyped-def]
    """(n, at least m) of the type of `value`, and full of it: each row begins with a line."""
    entries = LINE // np.full(1, value).itemsize  # to numba a number has no size
    width = (m + entries - 1) // entries * entries
    memory = np.full(n * width + entries, value)
    first = -memory.ctypes.data % LINE // memory.itemsize
    return memory[first : first + n * width].reshape(n, width)
