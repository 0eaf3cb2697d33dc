"""Between all rows and the square K of one working set: extremes over all, rows gathered in, strips put in place."""

import numpy as np

from svmcore.points import Floats
from svmcore.runtime.compiled import njit
from svmcore.runtime.threads import split_range

__all__ = ["extremes", "gather_square", "place_strip"]

ENTRIES = 1 << 18  # of a square that are worth a thread of their own


@njit
def extremes(s, beta, lo, hi):  # type: ignore[no-untyped-def]
    """Return m = max of s over I_up and M = min of s over I_low."""
    m, low = -np.inf, np.inf
    for i in range(len(s)):
        if beta[i] < hi[i] and s[i] > m:
            m = s[i]
        if beta[i] > lo[i] and s[i] < low:
            low = s[i]
    return m, low


def gather_square(matrix: Floats, rows: Floats, columns: Floats, out: Floats) -> None:
    """out[r, c] = matrix[rows[r], columns[c]], cast to the type of `out`, on several threads."""
    order = np.argsort(columns)  # a row is read from left to right: it comes from memory, `out` stays in cache
    columns, least = columns[order], ENTRIES // max(1, len(columns))
    split_range(len(rows), lambda lo, hi: _gather_rows(matrix, rows[lo:hi], columns, order, out[lo:hi]), least=least)


@njit
def _gather_rows(matrix, rows, columns, order, out):  # type: ignore[no-untyped-def]
    """out[r, order[c]] = matrix[rows[r], columns[c]]."""
    for r in range(len(rows)):
        source, target = matrix[rows[r]], out[r]
        for c in range(len(columns)):
            target[order[c]] = source[columns[c]]


def place_strip(strip: Floats, places: Floats, square: Floats) -> None:
    """Write strip[r, c] to square[places[r], c] and to square[c, places[r]], on several threads."""
    rows, columns = strip.shape
    square[places, :columns] = strip
    split_range(rows, lambda lo, hi: _place_columns(strip[lo:hi], places[lo:hi], square), least=ENTRIES // columns)


@njit
def _place_columns(strip, places, square):  # type: ignore[no-untyped-def]
    """square[c, places[r]] = strip[r, c], tile by tile."""
    rows, columns = strip.shape
    for start in range(0, columns, 64):
        for r in range(rows):
            place = places[r]
            for c in range(start, min(start + 64, columns)):
                square[c, place] = strip[r, c]
