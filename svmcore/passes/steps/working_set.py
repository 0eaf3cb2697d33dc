"""Between all rows and the square K of one working set: extremes over all, who may move, and rows mirrored in it.

Those over all rows have no branch: which rows may move changes from round to round, and a processor that guesses wrong
waits for four times as long as the loop takes.
"""

import numpy as np

from svmcore.passes.matrix.mirror import write_mirrored
from svmcore.points import Floats
from svmcore.runtime.compiled import njit
from svmcore.runtime.threads import split_range

__all__ = [
    "count_free",
    "count_wanting",
    "extremes",
    "hidden",
    "how_far",
    "mirror_rows",
    "moving",
    "violators",
    "widen_rows",
]

ENTRIES = 1 << 18  # of a square that are worth a thread of their own
HELD = 32  # rows of a square that are mirrored while a line of each newcomer is near: of 16 bits it has so many entries


@njit
def extremes(s, beta, lo, hi):  # type: ignore[no-untyped-def]
    """Return m = max of s over I_up and M = min of s over I_low."""
    m, low = -np.inf, np.inf
    for t in range(len(s)):
        i = np.uintp(t)
        x = s[i]
        grows = x if beta[i] < hi[i] else -np.inf
        shrinks = x if beta[i] > lo[i] else np.inf
        m = grows if grows > m else m
        low = shrinks if shrinks < low else low
    return m, low


@njit(makes_arrays=True)
def violators(s, beta, lo, hi, outside, m, low):  # type: ignore[no-untyped-def]
    """Indices of the mask `outside` that may grow and are above the least of I_low; that may shrink and are below m."""
    grow, shrink = np.empty(len(s), np.int64), np.empty(len(s), np.int64)
    up, down = np.uintp(0), np.uintp(0)
    for t in range(len(s)):
        i = np.uintp(t)
        grow[up], shrink[down] = t, t
        up += np.uintp(outside[i] & (beta[i] < hi[i]) & (s[i] > low))
        down += np.uintp(outside[i] & (beta[i] > lo[i]) & (s[i] < m))
    return grow[:up], shrink[:down]


@njit(makes_arrays=True)
def how_far(s, beta, lo, hi, codes, centres):  # type: ignore[no-untyped-def]
    """How far (n,) each variable is from moving away from the centre of its group; see `svmcore.state.behind`."""
    far = np.empty(len(s))
    for t in range(len(s)):
        i = np.uintp(t)
        x, grows, shrinks = s[i] - centres[codes[i]], beta[i] < hi[i], beta[i] > lo[i]
        at_bound = -x if grows else (x if shrinks else np.inf)
        far[i] = -np.inf if grows & shrinks else at_bound
    return far


@njit(makes_arrays=True)
def hidden(s, beta, lo, hi, codes, ends):  # type: ignore[no-untyped-def]
    """The violation (n,) that a bound hides, by the two `ends` (k, 2) of each group; infinite without a bound."""
    worth = np.empty(len(s))
    for t in range(len(s)):
        i = np.uintp(t)
        x, grows, shrinks = s[i], beta[i] < hi[i], beta[i] > lo[i]
        most, least = ends[codes[i], 0], ends[codes[i], 1]
        at_bound = x - least if grows else (most - x if shrinks else -np.inf)
        worth[i] = np.inf if grows & shrinks else at_bound
    return worth


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
    first, entries = q - len(places), ENTRIES // max(1, len(places))
    if np.array_equal(places, np.arange(first, q)):  # the last ones, in order: turned in registers, a fifth of the time
        rows, columns = square[first:q], square[:first, first:q]
        split_range(first, lambda lo, hi: write_mirrored(rows[:, lo:hi], columns[lo:hi], False), least=entries)
        return
    others = np.ones(q, dtype=bool)
    others[places] = False  # among themselves they have both already: no thread writes what another one reads
    split_range(q, lambda lo, hi: _mirror_rows(square, places, others, lo, hi), least=entries, grain=HELD)


@njit
def _mirror_rows(square, places, others, lo, hi):  # type: ignore[no-untyped-def]
    """Row after row, so that each of its lines is written to once; a line of each of the places' rows is held."""
    for start in range(lo, hi, HELD):
        for c in range(start, min(start + HELD, hi)):
            if others[c]:
                row = square[c]
                for place in places:
                    row[place] = square[place, c]
