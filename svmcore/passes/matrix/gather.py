"""Chosen entries of chosen rows of a matrix that is larger than any cache, gathered into a square that fits one.

Entries that lie apart come from memory one by one, and a processor waits for each: it does not see them coming. So the
entries of the next row are asked for while those of one are copied, which takes a third of the time.
"""

import numpy as np

from svmcore.points import Floats
from svmcore.runtime.compiled import njit
from svmcore.runtime.memory import empty
from svmcore.runtime.prefetch import ask_for
from svmcore.runtime.threads import split_range

__all__ = ["MOST", "gather_each", "gather_square", "is_plain", "part_of"]

ENTRIES = 1 << 18  # of a square that are worth a thread of their own
MOST = 65535  # units that 16 bits hold


def gather_square(
    matrix: Floats,
    rows: Floats,
    columns: Floats,
    out: Floats,
    at: Floats | None = None,
    to: Floats | None = None,
    shift: float = 0.0,
    unit: float | None = None,
) -> None:
    """out[at[r], to[c]] = matrix[rows[r], columns[c]] + shift in the type of `out`; without `at` or `to` one by one.

    With a `unit`, of entries that are not below 0, the nearest whole number of units, in 16 bits.
    """
    at = np.arange(len(rows)) if at is None else at
    to = np.arange(len(columns)) if to is None else to
    amount = out.dtype.type(shift) if unit is None else np.float32(1.0 / unit)
    of, least = (columns, amount, unit is not None), ENTRIES // max(1, len(columns))
    split_range(len(rows), lambda lo, hi: _gather(matrix, rows[lo:hi], *of, at[lo:hi], to, out), least=least)


def is_plain(matrix: Floats) -> bool:
    """Whether it is float32 or float64 in the order and form that compiled loops are made for."""
    native = matrix.dtype.char in "fd" and matrix.dtype.isnative
    return native and matrix.flags.c_contiguous and matrix.flags.aligned


def part_of(matrix: Floats, rows: Floats, columns: Floats) -> Floats:
    """matrix[rows[r], columns[c]] (len(rows), len(columns)) of a dense matrix of any type.

    >>> part_of(np.arange(9.0).reshape(3, 3), np.array([2, 0]), np.array([1]))
    array([[7.],
           [1.]])
    """
    if not is_plain(matrix):
        return matrix[np.ix_(rows, columns)]
    out = empty((len(rows), len(columns)), matrix.dtype)
    gather_square(matrix, rows, columns, out)
    return np.asarray(out)


@njit
def _gather(matrix, rows, columns, amount, rounds, at, to, out):  # type: ignore[no-untyped-def]
    """Entries plus an `amount`; where it `rounds`, entries times it, of which the largest has rounding of its own."""
    size = matrix.itemsize
    for r in range(len(rows)):
        source, target = matrix[rows[r]], out[at[r]]
        following = matrix[rows[min(r + 1, len(rows) - 1)]].ctypes.data
        for c in range(len(columns)):
            if rounds:
                target[to[c]] = min(np.int32(source[columns[c]] * amount + np.float32(0.5)), np.int32(MOST))
            else:
                target[to[c]] = source[columns[c]] + amount
            ask_for(following + size * columns[c])


@njit(makes_arrays=True)
def gather_each(matrix, rows, ends, squares):  # type: ignore[no-untyped-def]
    """Squares of several sets of rows, to `squares`, one after the other; set k is rows[ends[k] : ends[k + 1]]."""
    at = 0
    for k in range(len(ends) - 1):
        members = rows[ends[k] : ends[k + 1]]
        q = len(members)
        places, square = np.arange(q), squares[at : at + q * q].reshape(q, q)
        _gather(matrix, members, members, squares.dtype.type(0), False, places, places, square)
        at += q * q
