"""Chosen entries of chosen rows of a matrix that is larger than any cache, gathered into a square that fits one.

Entries that lie apart come from memory one by one, and a processor waits for each: it does not see them coming. So the
entries of the next row are asked for while those of one are copied, which takes a third of the time.
"""

import numpy as np

from svmcore.points import Floats
from svmcore.runtime.compiled import njit
from svmcore.runtime.prefetch import ask_for
from svmcore.runtime.threads import split_range

__all__ = ["MOST", "gather_each", "gather_square"]

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
    gather, least = (_gather if unit is None else _gather_rounded), ENTRIES // max(1, len(columns))
    of = columns, out.dtype.type(shift) if unit is None else np.float32(1.0 / unit)
    split_range(len(rows), lambda lo, hi: gather(matrix, rows[lo:hi], *of, at[lo:hi], to, out), least=least)


@njit
def _gather(matrix, rows, columns, shift, at, to, out):  # type: ignore[no-untyped-def]
    size = matrix.itemsize
    for r in range(len(rows)):
        source, target = matrix[rows[r]], out[at[r]]
        following = matrix[rows[min(r + 1, len(rows) - 1)]].ctypes.data
        for c in range(len(columns)):
            target[to[c]] = source[columns[c]] + shift
            ask_for(following + size * columns[c])


@njit
def _gather_rounded(matrix, rows, columns, per_unit, at, to, out):  # type: ignore[no-untyped-def]
    """As `_gather`; the largest entry has rounding of its own, and is no more than the largest whole number."""
    size = matrix.itemsize
    for r in range(len(rows)):
        source, target = matrix[rows[r]], out[at[r]]
        following = matrix[rows[min(r + 1, len(rows) - 1)]].ctypes.data
        for c in range(len(columns)):
            units = np.int32(source[columns[c]] * per_unit + np.float32(0.5))
            target[to[c]] = np.uint16(min(units, np.int32(MOST)))
            ask_for(following + size * columns[c])


@njit(makes_arrays=True)
def gather_each(matrix, rows, ends, squares):  # type: ignore[no-untyped-def]
    """Squares of several sets of rows, to `squares`, one after the other; set k is rows[ends[k] : ends[k + 1]]."""
    at = 0
    for k in range(len(ends) - 1):
        members = rows[ends[k] : ends[k + 1]]
        q = len(members)
        places, square = np.arange(q), squares[at : at + q * q].reshape(q, q)
        _gather(matrix, members, members, squares.dtype.type(0), places, places, square)
        at += q * q
