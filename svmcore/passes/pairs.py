r"""Steps on two variables, and the loops of the SMO family around them: one engine for all.

Everything is in the signed variables of `svmcore.qp` with lo_i <= beta_i <= hi_i and the scores
s_i = p_i - (K beta)_i - ridge_i beta_i. A pair step grows beta_i and shrinks beta_j of the same group by the same t:
I_up = {beta < hi}, I_low = {beta > lo}, the KKT gap is max_up s - min_low s.

The scans vectorise because of three habits. Membership of I_up and I_low is a penalty of 0 or 1e30. Maxima are taken
over order-preserving integers (numba leaves float maxima scalar): of a float's bits, the low ones flip when it is
negative. Maxima are kept per block, and the index is looked for in the winning block alone: as the least of all that
match, because a loop that ends at the first is left scalar.
"""

import numpy as np

from svmcore.runtime.compiled import njit

__all__ = [
    "FAR",
    "farthest",
    "maximal_pass",
    "next_violator",
    "pair_extremes",
    "solve_pairs",
    "step_pass",
    "sweep_pass",
]

SHORT = 512  # members up to which one scan finds keys and indices together, in lanes of 64 bits
LAST = np.int64(0x7FFFFFFF)
BLOCK = 128
NOWHERE = np.int32(BLOCK)  # in a block
FAR = 1e30  # keeps a row out of a scan
TAU = 1e-12  # curvature below this times the diagonal counts as none, as duplicate points give


@njit
def _key32(x):  # type: ignore[no-untyped-def]
    bits = np.float32(x).view(np.int32)
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit
def _step_and_extremes(s, t, k_i, k_j, up_penalty, low_penalty, best_up, best_low):  # type: ignore[no-untyped-def]
    """S -= t (k_i - k_j); per group and block the largest key of s that may grow and the smallest that may shrink."""
    q = len(s)
    for block in range(best_up.shape[1]):
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, q)
        score, a, b = s[lo:hi], k_i[lo:hi], k_j[lo:hi]
        p, r = up_penalty[0, lo:hi], low_penalty[0, lo:hi]
        largest, smallest = np.int32(-0x7FFFFFFF), np.int32(0x7FFFFFFF)
        for c in range(hi - lo):
            x = score[c] - t * (a[c] - b[c])
            score[c] = x
            largest = max(largest, _key32(x - p[c]))
            smallest = min(smallest, _key32(x + r[c]))
        best_up[0, block], best_low[0, block] = largest, smallest
        for g in range(1, len(best_up)):
            p, r = up_penalty[g, lo:hi], low_penalty[g, lo:hi]
            largest, smallest = np.int32(-0x7FFFFFFF), np.int32(0x7FFFFFFF)
            for c in range(hi - lo):
                largest = max(largest, _key32(score[c] - p[c]))
                smallest = min(smallest, _key32(score[c] + r[c]))
            best_up[g, block], best_low[g, block] = largest, smallest


@njit
def _find_up(s, penalty, best):  # type: ignore[no-untyped-def]
    """Index of the largest s - penalty, from the block maxima."""
    block = np.argmax(best)
    lo, hi = block * BLOCK, min((block + 1) * BLOCK, len(s))
    score, far, first = s[lo:hi], penalty[lo:hi], NOWHERE
    for c in range(hi - lo):
        first = min(first, np.int32(c) if _key32(score[c] - far[c]) == best[block] else NOWHERE)
    return lo + first % BLOCK  # of scores that are no numbers none matches


@njit
def _find_low(s, penalty, best):  # type: ignore[no-untyped-def]
    """Index of the smallest s + penalty, from the block minima."""
    block = np.argmin(best)
    lo, hi = block * BLOCK, min((block + 1) * BLOCK, len(s))
    score, far, first = s[lo:hi], penalty[lo:hi], NOWHERE
    for c in range(hi - lo):
        first = min(first, np.int32(c) if _key32(score[c] + far[c]) == best[block] else NOWHERE)
    return lo + first % BLOCK  # of scores that are no numbers none matches


@njit
def _gain_key(s_i, eta_i, s_t, penalty, eta_t, K_it):  # type: ignore[no-untyped-def]
    """Bits of (s_i - s_t)^2 / (K_ii + K_tt - 2 K_it): 0 where t is not behind i, in the order of the gains above."""
    kind = type(s_i)
    gap = max(s_i - s_t - penalty, kind(0))
    return np.float32(gap * gap / max(eta_i + eta_t - kind(2) * K_it, kind(TAU))).view(np.int32)


@njit
def _best_gain(s_i, eta_i, k_i, s, diagonal, low_penalty, best):  # type: ignore[no-untyped-def]
    """Second index (Fan, Chen, Lin 2005, WSS 2): the largest (s_i - s_t)^2 / (K_ii + K_tt - 2 K_it) over I_low."""
    top, winner = np.int32(-1), 0
    for block in range(len(best)):
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, len(s))
        score, k, d, r = s[lo:hi], k_i[lo:hi], diagonal[lo:hi], low_penalty[lo:hi]
        largest = np.int32(0)
        for c in range(hi - lo):
            largest = max(largest, _gain_key(s_i, eta_i, score[c], r[c], d[c], k[c]))
        best[block] = largest
        if largest > top:
            top, winner = largest, block
    lo, hi = winner * BLOCK, min((winner + 1) * BLOCK, len(s))
    score, k, d, r = s[lo:hi], k_i[lo:hi], diagonal[lo:hi], low_penalty[lo:hi]
    first = NOWHERE
    for c in range(hi - lo):
        key = _gain_key(s_i, eta_i, score[c], r[c], d[c], k[c])
        first = min(first, np.int32(c) if key == top else NOWHERE)
    return lo + first % BLOCK  # of scores that are no numbers none matches


@njit
def _set_penalties(i, g, beta, lo, hi, up_penalty, low_penalty):  # type: ignore[no-untyped-def]
    up_penalty[g, i] = 0.0 if beta[i] < hi[i] else FAR
    low_penalty[g, i] = 0.0 if beta[i] > lo[i] else FAR


@njit
def pair_step(i, j, scale, K_ij, ridge, difference, beta, lo, hi):  # type: ignore[no-untyped-def]
    """beta_i += t, beta_j -= t by the best t, which is returned; inf, after a far step, where nothing ends it.

    `scale` is K_ii + K_jj, `ridge` the sum of both, `difference` s_i - s_j. Without curvature the better end of the
    segment is the best. A variable that reaches its bound is put on it exactly.
    """
    grow_i, shrink_i, grow_j, shrink_j = hi[i] - beta[i], beta[i] - lo[i], hi[j] - beta[j], beta[j] - lo[j]
    ahead, behind = min(grow_i, shrink_j), min(shrink_i, grow_j)
    eta = scale - 2.0 * K_ij
    eta = (0.0 if abs(eta) <= TAU * abs(scale) else eta) + ridge
    t = min(max(difference / eta, -behind), ahead) if eta > 0.0 else _better_end(ahead, behind, eta, difference)
    if abs(t) == np.inf:
        far = _far(beta)
        beta[i] += far if t > 0.0 else -far
        beta[j] -= far if t > 0.0 else -far
        return np.inf
    if t > 0.0:
        beta[i] = hi[i] if t >= grow_i else beta[i] + t
        beta[j] = lo[j] if t >= shrink_j else beta[j] - t
    elif t < 0.0:
        beta[i] = lo[i] if -t >= shrink_i else beta[i] + t
        beta[j] = hi[j] if -t >= grow_j else beta[j] - t
    return t


@njit
def _far(beta):  # type: ignore[no-untyped-def]
    """How far a step without an end goes: so far that beta shows that there is none."""
    length = 1.0
    for v in range(len(beta)):
        length += abs(beta[v])
    return 1e6 * length


@njit
def _better_end(ahead, behind, eta, difference):  # type: ignore[no-untyped-def]
    """The end of -behind <= t <= ahead at which eta t^2 / 2 - difference t, eta <= 0, is less."""
    if difference == 0.0 and eta == 0.0:
        return 0.0
    downhill, uphill = (ahead, -behind) if difference > 0.0 else (-behind, ahead)
    if eta == 0.0 or np.isinf(downhill):
        return downhill
    rise = 0.5 * eta * (uphill * uphill - downhill * downhill) - difference * (uphill - downhill)
    return uphill if rise < 0.0 else downhill


@njit
def _worst_group(s, up_penalty, low_penalty, best_up, best_low):  # type: ignore[no-untyped-def]
    """(group, i, j, gap) of the group whose scores s_i that may grow and s_j that may shrink are furthest apart."""
    worst, gap, first, second = 0, -np.inf, 0, 0
    for g in range(len(best_up)):
        i, j = _find_up(s, up_penalty[g], best_up[g]), _find_low(s, low_penalty[g], best_low[g])
        between = np.float64(s[i]) - np.float64(s[j])
        if up_penalty[g, i] == 0 and low_penalty[g, j] == 0 and between > gap:
            worst, gap, first, second = g, between, i, j
    return worst, first, second, gap


@njit
def _move(i, j, K, ridge, s, beta, lo, hi):  # type: ignore[no-untyped-def]
    """`pair_step` on i and j, and what the ridge does to their scores; returns the step, inf for one without an end."""
    kind = s.dtype.type
    scale, K_ij = np.float64(K[i, i]) + np.float64(K[j, j]), np.float64(K[i, j])
    difference = np.float64(s[i]) - np.float64(s[j])
    step = pair_step(i, j, scale, K_ij, ridge[i] + ridge[j], difference, beta, lo, hi)
    if step != np.inf:
        s[i] -= kind(step * ridge[i])
        s[j] += kind(step * ridge[j])
    return step


@njit
def solve_pairs(K, ridge, s, beta, lo, hi, codes, n_groups, tol, max_iter):  # type: ignore[no-untyped-def]
    """SMO on one working set whose groups keep their sums; changes `s` (type of K) and `beta` (float64).

    `K` is C-contiguous and may be larger than the set: its first q rows and columns are the square. `codes` (q,) are
    groups 0 ... n_groups - 1.

    Returns
    -------
    (n_iter, gap, unbounded)
        `gap` is the KKT gap within the set at the end; `unbounded` says that a step without curvature met no bound.
    """
    q = len(s)
    kind = s.dtype.type
    up_penalty, low_penalty = np.full((n_groups, q), kind(FAR)), np.full((n_groups, q), kind(FAR))
    diagonal = np.empty_like(s)
    for t in range(q):
        diagonal[t] = K[t, t] + ridge[t]
        _set_penalties(t, codes[t], beta, lo, hi, up_penalty, low_penalty)
    if q <= SHORT:
        return _solve_short(K, ridge, s, beta, lo, hi, diagonal, up_penalty, low_penalty, tol, max_iter)
    return _solve_long(K, ridge, s, beta, lo, hi, diagonal, up_penalty, low_penalty, tol, max_iter)


@njit
def _solve_long(K, ridge, s, beta, lo, hi, diagonal, up_penalty, low_penalty, tol, max_iter):  # type: ignore[no-untyped-def]
    """The steps of `solve_pairs`, with extremes of blocks."""
    n_groups, q = up_penalty.shape
    kind, n_blocks = s.dtype.type, (q + BLOCK - 1) // BLOCK
    best_up, best_low = np.empty((n_groups, n_blocks), np.int32), np.empty((n_groups, n_blocks), np.int32)
    _step_and_extremes(s, kind(0), K[0][:q], K[0][:q], up_penalty, low_penalty, best_up, best_low)
    n_iter, gap = 0, 0.0
    while True:
        g, i, _, gap = _worst_group(s, up_penalty, low_penalty, best_up, best_low)
        if gap <= tol or n_iter >= max_iter:
            break
        j = _best_gain(s[i], diagonal[i], K[i][:q], s, diagonal, low_penalty[g], best_low[g])
        step = _move(i, j, K, ridge, s, beta, lo, hi)
        if step == np.inf:
            return n_iter, gap, True
        _set_penalties(i, g, beta, lo, hi, up_penalty, low_penalty)
        _set_penalties(j, g, beta, lo, hi, up_penalty, low_penalty)
        _step_and_extremes(s, kind(step), K[i][:q], K[j][:q], up_penalty, low_penalty, best_up, best_low)
        n_iter += 1
    return n_iter, max(gap, 0.0), False


# ---- the same steps on a set so short that what costs is to begin: one scan for each, and no view of any array ------
@njit
def _step_and_pair(s, t, K, i, j, g, up_penalty, low_penalty):  # type: ignore[no-untyped-def]
    """S -= t (K_i - K_j); in group g the first of the largest s that may grow, of the smallest that may shrink."""
    top, bottom = np.int64(-0x7FFFFFFFFFFFFFFF), np.int64(0x7FFFFFFFFFFFFFFF)
    for c in range(len(s)):
        x = s[c] - t * (K[i, c] - K[j, c])
        s[c] = x
        top = max(top, (np.int64(_key32(x - up_penalty[g, c])) << np.int64(32)) | np.int64(LAST - c))
        bottom = min(bottom, (np.int64(_key32(x + low_penalty[g, c])) << np.int64(32)) | np.int64(c))
    return LAST - (top & LAST), bottom & LAST


@njit
def _best_partner(K, i, s, diagonal, g, low_penalty):  # type: ignore[no-untyped-def]
    """As `_best_gain`."""
    top, s_i, eta_i = np.int64(-1), s[i], diagonal[i]
    for c in range(len(s)):
        key = _gain_key(s_i, eta_i, s[c], low_penalty[g, c], diagonal[c], K[i, c])
        top = max(top, (np.int64(key) << np.int64(32)) | np.int64(LAST - c))
    return LAST - (top & LAST)


@njit
def _step_and_worst(s, t, K, i, j, up_penalty, low_penalty):  # type: ignore[no-untyped-def]
    """As `_step_and_extremes` and `_worst_group`: (group, i, gap)."""
    worst, first, gap = 0, 0, -np.inf
    for g in range(len(up_penalty)):
        grows, shrinks = _step_and_pair(s, t if g == 0 else type(t)(0), K, i, j, g, up_penalty, low_penalty)
        between = np.float64(s[grows]) - np.float64(s[shrinks])
        if up_penalty[g, grows] == 0 and low_penalty[g, shrinks] == 0 and between > gap:
            worst, first, gap = g, grows, between
    return worst, first, gap


@njit
def _solve_short(K, ridge, s, beta, lo, hi, diagonal, up_penalty, low_penalty, tol, max_iter):  # type: ignore[no-untyped-def]
    """The steps of `solve_pairs`."""
    kind, n_iter = s.dtype.type, 0
    g, i, gap = _step_and_worst(s, kind(0), K, 0, 0, up_penalty, low_penalty)
    while gap > tol and n_iter < max_iter:
        j = _best_partner(K, i, s, diagonal, g, low_penalty)
        step = _move(i, j, K, ridge, s, beta, lo, hi)
        if step == np.inf:
            return n_iter, gap, True
        _set_penalties(i, g, beta, lo, hi, up_penalty, low_penalty)
        _set_penalties(j, g, beta, lo, hi, up_penalty, low_penalty)
        g, i, gap = _step_and_worst(s, kind(step), K, i, j, up_penalty, low_penalty)
        n_iter += 1
    return n_iter, max(gap, 0.0), False


# ---- the textbook's solvers, on all rows of K -----------------------------------------------------------------------
@njit
def _key64(x):  # type: ignore[no-untyped-def]
    bits = np.float64(x).view(np.int64)
    return bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFFFFFFFFFFFFFF))


@njit
def _argmax(sign, s, penalty):  # type: ignore[no-untyped-def]
    """Index of the largest sign s - penalty; the index is looked for in the winning block alone."""
    best, winner = np.int64(-0x7FFFFFFFFFFFFFFF), 0
    for block in range(0, len(s), BLOCK):
        score, far = s[block : block + BLOCK], penalty[block : block + BLOCK]
        largest = np.int64(-0x7FFFFFFFFFFFFFFF)
        for c in range(len(score)):
            largest = max(largest, _key64(sign * score[c] - far[c]))
        if largest > best:
            best, winner = largest, block
    for t in range(winner, min(winner + BLOCK, len(s))):
        if _key64(sign * s[t] - penalty[t]) == best:
            return t
    return 0


@njit
def pair_extremes(arrays):  # type: ignore[no-untyped-def]
    """(index of the largest score that may grow, of the smallest that may shrink)."""
    return _argmax(1.0, arrays.score, arrays.up), _argmax(-1.0, arrays.score, arrays.low)


@njit
def _change(i, j, K_ij, shift, min_change, arrays):  # type: ignore[no-untyped-def]
    """`pair_step` unless it is below `min_change`, and what belongs to the two variables alone; 0 for no step."""
    scale, ridge = arrays.diagonal[i] + arrays.diagonal[j], arrays.ridge[i] + arrays.ridge[j]
    beta, s = arrays.beta, arrays.score
    before_i, before_j = beta[i], beta[j]
    t = pair_step(i, j, scale, np.float64(K_ij) + shift, ridge, s[i] - s[j], beta, arrays.lo, arrays.hi)
    if t == np.inf:
        return t
    if abs(t) < min_change or t == 0.0:
        beta[i], beta[j] = before_i, before_j
        return 0.0
    s[i] -= t * arrays.ridge[i]
    s[j] += t * arrays.ridge[j]
    for v in (i, j):
        arrays.up[v] = 0.0 if beta[v] < arrays.hi[v] else FAR
        arrays.low[v] = 0.0 if beta[v] > arrays.lo[v] else FAR
    return t


@njit
def _threshold(i, j, arrays):  # type: ignore[no-untyped-def]
    """Value of b that makes b - s_i = 0 if variable i is free, else b - s_j = 0 if j is, else their mean."""
    s = arrays.score
    if arrays.up[i] + arrays.low[i] == 0.0:
        return s[i]
    return s[j] if arrays.up[j] + arrays.low[j] == 0.0 else 0.5 * (s[i] + s[j])


@njit
def step_pass(i, j, k_i, k_j, shift, min_change, arrays):  # type: ignore[no-untyped-def]
    """One step, and the scores of all rows from two columns of K; returns (t, threshold after it)."""
    t = _change(i, j, k_i[j], shift, min_change, arrays)
    if t == 0.0 or t == np.inf:
        return t, 0.0
    s = arrays.score
    for r in range(len(s)):
        s[r] -= t * (np.float64(k_i[r]) - np.float64(k_j[r]))
    return t, _threshold(i, j, arrays)


@njit
def maximal_pass(K, shift, tol, limit, arrays):  # type: ignore[no-untyped-def]
    """At most `limit` steps on the maximal violating pair; returns (steps, whether one was unbounded)."""
    for steps in range(limit):
        i, j = pair_extremes(arrays)
        if arrays.up[i] > 0.0 or arrays.low[j] > 0.0 or arrays.score[i] - arrays.score[j] <= tol:
            return steps, False
        t, _ = step_pass(i, j, K[i], K[j], shift, 0.0, arrays)
        if t == 0.0 or t == np.inf:
            return steps, t == np.inf
    return limit, False


@njit
def next_violator(start, b, tau, examine_all, arrays):  # type: ignore[no-untyped-def]
    """First row >= start whose score is above b + tau and may grow, or below b - tau and may shrink; else n."""
    s, up, low = arrays.score, arrays.up, arrays.low
    for i in range(start, len(s)):
        if ((s[i] > b + tau and up[i] == 0.0) or (s[i] < b - tau and low[i] == 0.0)) and (
            examine_all or up[i] + low[i] == 0.0
        ):
            return i
    return len(s)


@njit
def farthest(i, b, arrays):  # type: ignore[no-untyped-def]
    """Row whose score is furthest from that of the violator i and that can move with it, or -1."""
    s, up, low = arrays.score, arrays.up, arrays.low
    if s[i] > b:
        j = _argmax(-1.0, s, low)
        return j if low[j] == 0.0 and s[j] < s[i] else -1
    j = _argmax(1.0, s, up)
    return j if up[j] == 0.0 and s[j] > s[i] else -1


@njit
def sweep_pass(K, shift, start, b, tau, examine_all, limit, arrays):  # type: ignore[no-untyped-def]
    """At most `limit` steps with the violators from `start` on; returns (steps, next row, threshold, unbounded)."""
    steps = 0
    i = next_violator(start, b, tau, examine_all, arrays)
    while i < len(arrays.score) and steps < limit:
        j = farthest(i, b, arrays)
        if j >= 0:
            t, threshold = step_pass(i, j, K[i], K[j], shift, 0.0, arrays)
            if t == np.inf:
                return steps, i, b, True
            if t != 0.0:
                b = threshold
                steps += 1
        i = next_violator(i + 1, b, tau, examine_all, arrays)
    return steps, i, b, False
