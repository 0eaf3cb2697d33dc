"""Between all rows and the square K of one working set: extremes over all, who may move, and rows mirrored in it."""

import numpy as np

from svmcore.passes.matrix.mirror import write_mirrored
from svmcore.points import Floats
from svmcore.runtime.compiled import njit
from svmcore.runtime.threads import split_range

__all__ = ["count_free", "count_wanting", "extremes", "mirror_rows", "moving", "violators", "widen_rows"]

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


@njit(makes_arrays=True)
def violators(s, beta, lo, hi, outside, m, low):  # type: ignore[no-untyped-def]
    """Indices of the mask `outside` that may grow and are above the least of I_low; that may shrink and are below m."""
    grow, shrink, up, down = np.empty(len(s), np.int64), np.empty(len(s), np.int64), 0, 0
    for i in range(len(s)):
        grow[up], shrink[down] = i, i
        up += outside[i] and beta[i] < hi[i] and s[i] > low
        down += outside[i] and beta[i] > lo[i] and s[i] < m
    return grow[:up], shrink[:down]


@njit
def count_free(beta, lo, hi):  # type: ignore[no-untyped-def]
    """How many variables are at no bound."""
    free = 0
    for i in range(len(beta)):
        free += lo[i] < beta[i] < hi[i]
    return free


@njit
def count_wanting(s, beta, lo, hi, codes, centres):  # type: ignore[no-untyped-def]
    """How many variables are not 0, and how many others want to move: away from the centre of their group.

    As `svmcore.state.behind` tells of each, in a fifth of its time: it is asked of all rows, and often.
    """
    moved, wanted = 0, 0
    for i in range(len(s)):
        x = s[i] - centres[codes[i]]
        if beta[i] != 0.0:
            moved += 1
        elif (beta[i] < hi[i] and x > 0.0) or (beta[i] > lo[i] and x < 0.0):
            wanted += 1
    return moved, wanted


@njit(makes_arrays=True)
def moving(s, beta, lo, hi, reach):  # type: ignore[no-untyped-def]
    """Indices of those who may move: all but those at a bound with a score that is over `reach` behind."""
    found, n = np.empty(len(s), np.int64), 0
    for i in range(len(s)):
        found[n] = i
        n += (beta[i] < hi[i] and s[i] > -reach) or (beta[i] > lo[i] and s[i] < reach)
    return found[:n]


@njit(makes_arrays=True)
def widen_rows(narrow, wide, q):  # type: ignore[no-untyped-def]
    """wide[r, c] = narrow[r, c] for r, c < q, in one memory, the rows of `wide` being longer: the last one first."""
    row = np.empty(q, narrow.dtype)
    for r in range(q - 1, 0, -1):
        row[:] = narrow[r, :q]
        wide[r, :q] = row


def mirror_rows(square: Floats, places: Floats, q: int) -> None:
    """square[c, v] = square[v, c] for each v of `places` and each other c < q, on several threads."""
    first, least = q - len(places), ENTRIES // max(1, q)
    if np.array_equal(places, np.arange(first, q)):  # the last ones, in order: turned in registers, a fifth of the time
        rows, columns = square[first:q], square[:first, first:q]
        split_range(first, lambda lo, hi: write_mirrored(rows[:, lo:hi], columns[lo:hi], False), least=least)
        return
    others = np.ones(q, dtype=bool)
    others[places] = False  # among themselves they have both already: no thread writes what another one reads
    split_range(len(places), lambda lo, hi: _mirror_rows(square, places[lo:hi], others), least=least)


@njit
def _mirror_rows(square, places, others):  # type: ignore[no-untyped-def]
    """Tile by tile, so that a line of the square is written while it is near."""
    for start in range(0, len(others), 64):
        for place in places:
            row = square[place]
            for c in range(start, min(start + 64, len(others))):
                if others[c]:
                    square[c, place] = row[c]
