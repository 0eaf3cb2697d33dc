r"""The compiled inner loops of `smo`, on the square K of one working set.

Everything is in the signed variables beta_i = y_i alpha_i with bounds lo_i <= beta_i <= hi_i and the scores
s_i = -y_i g_i = y_i - (K beta)_i - ridge_i beta_i. A pair step grows beta_i and shrinks beta_j by the same t, so no
label appears: I_up = {beta < hi}, I_low = {beta > lo}, the KKT gap is max_up s - min_low s.

The scans vectorise because of three habits. Membership of I_up and I_low is a penalty of 0 or 1e30. Maxima are taken
over order-preserving integers (numba leaves float maxima scalar): of a float's bits, the low ones flip when it is
negative. Maxima are kept per block, and the index is looked for in the winning block alone.
"""

import numpy as np

from svmcore._numba import njit
from svmcore._threads import split_range
from svmcore.points import Floats

__all__ = ["extremes", "gather_square", "place_strip", "solve_box", "solve_pairs"]

BLOCK = 128
ENTRIES = 1 << 18  # of a square that are worth a thread of their own
FAR = 1e30  # keeps a row out of a scan
TAU = 1e-12  # curvature below this counts as none: the step goes to the end of the box


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


@njit
def _key32(x):  # type: ignore[no-untyped-def]
    bits = np.float32(x).view(np.int32)
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit
def _step_and_extremes(s, t, k_i, k_j, up_penalty, low_penalty, best_up, best_low):  # type: ignore[no-untyped-def]
    """S -= t (k_i - k_j); per block the largest key of s on I_up and the smallest on I_low."""
    q = len(s)
    for block in range(len(best_up)):
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, q)
        score, a, b = s[lo:hi], k_i[lo:hi], k_j[lo:hi]
        p, r = up_penalty[lo:hi], low_penalty[lo:hi]
        largest, smallest = np.int32(-0x7FFFFFFF), np.int32(0x7FFFFFFF)
        for c in range(hi - lo):
            x = score[c] - t * (a[c] - b[c])
            score[c] = x
            largest = max(largest, _key32(x - p[c]))
            smallest = min(smallest, _key32(x + r[c]))
        best_up[block], best_low[block] = largest, smallest


@njit
def _find_up(s, penalty, best):  # type: ignore[no-untyped-def]
    """Index of the largest s - penalty, from the block maxima."""
    block = np.argmax(best)
    for i in range(block * BLOCK, min((block + 1) * BLOCK, len(s))):
        if _key32(s[i] - penalty[i]) == best[block]:
            return i
    return 0


@njit
def _find_low(s, penalty, best):  # type: ignore[no-untyped-def]
    """Index of the smallest s + penalty, from the block minima."""
    block = np.argmin(best)
    for i in range(block * BLOCK, min((block + 1) * BLOCK, len(s))):
        if _key32(s[i] + penalty[i]) == best[block]:
            return i
    return 0


@njit
def _best_gain(s_i, eta_i, k_i, s, diagonal, low_penalty, best):  # type: ignore[no-untyped-def]
    """Second index (Fan, Chen, Lin 2005, WSS 2): the largest (s_i - s_t)^2 / (K_ii + K_tt - 2 K_it) over I_low."""
    q = len(s)
    top, winner = np.int32(-1), 0
    zero, two, tau = s.dtype.type(0), s.dtype.type(2), s.dtype.type(TAU)
    for block in range(len(best)):
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, q)
        score, k, d, r = s[lo:hi], k_i[lo:hi], diagonal[lo:hi], low_penalty[lo:hi]
        largest = np.int32(0)
        for c in range(hi - lo):
            gap = max(s_i - score[c] - r[c], zero)
            eta = max(eta_i + d[c] - two * k[c], tau)
            largest = max(largest, np.float32(gap * gap / eta).view(np.int32))
        best[block] = largest
        if largest > top:
            top, winner = largest, block
    for t in range(winner * BLOCK, min((winner + 1) * BLOCK, q)):
        gap = max(s_i - s[t] - low_penalty[t], zero)
        eta = max(eta_i + diagonal[t] - two * k_i[t], tau)
        if np.float32(gap * gap / eta).view(np.int32) == top:
            return t
    return 0


@njit
def _set_penalties(i, beta, lo, hi, up_penalty, low_penalty):  # type: ignore[no-untyped-def]
    up_penalty[i] = 0.0 if beta[i] < hi[i] else FAR
    low_penalty[i] = 0.0 if beta[i] > lo[i] else FAR


@njit
def solve_pairs(K, ridge, s, beta, lo, hi, tol, max_iter):  # type: ignore[no-untyped-def]
    """SMO on one working set with the equality sum beta = const; changes `s` (type of K) and `beta` (float64).

    `K` is C-contiguous and may be larger than the set: its first q rows and columns are the square.

    Returns
    -------
    (n_iter, gap, unbounded)
        `gap` is the KKT gap within the set at the end; `unbounded` says that a step without curvature met no bound.
    """
    q = len(s)
    kind = s.dtype.type
    n_blocks = (q + BLOCK - 1) // BLOCK
    best_up, best_low = np.empty(n_blocks, np.int32), np.empty(n_blocks, np.int32)
    up_penalty, low_penalty, diagonal = np.empty_like(s), np.empty_like(s), np.empty_like(s)
    for t in range(q):
        diagonal[t] = K[t, t] + ridge[t]
        _set_penalties(t, beta, lo, hi, up_penalty, low_penalty)
    _step_and_extremes(s, kind(0), K[0][:q], K[0][:q], up_penalty, low_penalty, best_up, best_low)
    n_iter, gap = 0, 0.0
    while True:
        i, worst = _find_up(s, up_penalty, best_up), _find_low(s, low_penalty, best_low)
        gap = np.float64(s[i]) - np.float64(s[worst])
        if up_penalty[i] > 0 or low_penalty[worst] > 0 or gap <= tol or n_iter >= max_iter:
            break
        j = _best_gain(s[i], diagonal[i], K[i][:q], s, diagonal, low_penalty, best_low)
        room = min(hi[i] - beta[i], beta[j] - lo[j])
        eta = np.float64(diagonal[i]) + np.float64(diagonal[j]) - 2.0 * np.float64(K[i, j])
        step = min((np.float64(s[i]) - np.float64(s[j])) / eta, room) if eta > TAU else room
        if step == np.inf:
            return n_iter, gap, True
        beta[i] = hi[i] if step >= hi[i] - beta[i] else beta[i] + step
        beta[j] = lo[j] if step >= beta[j] - lo[j] else beta[j] - step
        s[i] -= kind(step * ridge[i])
        s[j] += kind(step * ridge[j])
        _set_penalties(i, beta, lo, hi, up_penalty, low_penalty)
        _set_penalties(j, beta, lo, hi, up_penalty, low_penalty)
        _step_and_extremes(s, kind(step), K[i][:q], K[j][:q], up_penalty, low_penalty, best_up, best_low)
        n_iter += 1
    return n_iter, max(gap, 0.0) if q > 0 else 0.0, False


@njit
def _step_and_gain(s, t, k_i, diagonal, up_penalty, low_penalty, best):  # type: ignore[no-untyped-def]
    """S -= t k_i; per block the key of the largest gain violation^2 / K_cc of a step; returns the worst violation."""
    q = len(s)
    zero, worst = s.dtype.type(0), np.int32(0)
    for block in range(len(best)):
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, q)
        score, k, d = s[lo:hi], k_i[lo:hi], diagonal[lo:hi]
        p, r = up_penalty[lo:hi], low_penalty[lo:hi]
        largest = np.int32(0)
        for c in range(hi - lo):
            x = score[c] - t * k[c]
            score[c] = x
            violation = max(max(x - p[c], -x - r[c]), zero)
            worst = max(worst, np.float32(violation).view(np.int32))
            largest = max(largest, np.float32(violation * violation / d[c]).view(np.int32))
        best[block] = largest
    return np.float64(np.int32(worst).view(np.float32))


@njit
def solve_box(K, ridge, s, beta, lo, hi, tol, max_iter):  # type: ignore[no-untyped-def]
    """Greedy coordinate steps on one working set with the box alone (penalised or no bias); as `solve_pairs`."""
    q = len(s)
    kind = s.dtype.type
    best = np.empty((q + BLOCK - 1) // BLOCK, np.int32)
    up_penalty, low_penalty, diagonal = np.empty_like(s), np.empty_like(s), np.empty_like(s)
    for t in range(q):
        diagonal[t] = max(K[t, t] + ridge[t], TAU)
        _set_penalties(t, beta, lo, hi, up_penalty, low_penalty)
    gap = _step_and_gain(s, kind(0), K[0][:q], diagonal, up_penalty, low_penalty, best)
    n_iter = 0
    while gap > tol and n_iter < max_iter:
        block = np.argmax(best)
        i = block * BLOCK
        for c in range(block * BLOCK, min((block + 1) * BLOCK, q)):
            violation = max(max(s[c] - up_penalty[c], -s[c] - low_penalty[c]), kind(0))
            if np.float32(violation * violation / diagonal[c]).view(np.int32) == best[block]:
                i = c
                break
        step = np.float64(s[i]) / np.float64(diagonal[i])
        if diagonal[i] <= TAU:
            step = np.inf if s[i] > 0 else -np.inf
        step = min(max(step, lo[i] - beta[i]), hi[i] - beta[i])
        if np.isinf(step):
            return n_iter, gap, True
        beta[i] += step
        if beta[i] <= lo[i] or beta[i] >= hi[i]:
            beta[i] = min(max(beta[i], lo[i]), hi[i])
        s[i] -= kind(step * ridge[i])
        _set_penalties(i, beta, lo, hi, up_penalty, low_penalty)
        gap = _step_and_gain(s, kind(step), K[i][:q], diagonal, up_penalty, low_penalty, best)
        n_iter += 1
    return n_iter, gap, False
