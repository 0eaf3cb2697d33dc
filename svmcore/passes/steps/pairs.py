r"""Steps on two variables, and the loops around them that solve a working set, or several small problems.

Everything is in the signed variables of `svmcore.qp` with lo_i <= beta_i <= hi_i and the scores
s_i = p_i - (K beta)_i - ridge_i beta_i. A pair step grows beta_i and shrinks beta_j of the same group by the same t:
I_up = {beta < hi}, I_low = {beta > lo}, the KKT gap is max_up s - min_low s.

The scans vectorise because of three habits. Maxima are taken without asking whether a score is a number
(`svmcore.passes.steps.ends`), and of gains over the bits of a float, whose order is theirs. Who is not in I_up or I_low
is barred: he counts as the least, or the most, that there is. The index of a maximum is looked for in the block that
has it: as the least of all that match, because a loop that ends at the first is left scalar. Indices are without a
sign, which spares the question whether they count from the end, and arrays are read in place: to begin a view for each
block took as long as its scan. Integers are of 32 bits at each turn of an expression, as numba makes 64 of them, so
that a scan has twice the lanes.
"""

import numpy as np

from svmcore.passes.steps.box import far_step
from svmcore.passes.steps.ends import larger, smaller
from svmcore.passes.steps.entries import difference
from svmcore.runtime.aligned import full_lines
from svmcore.runtime.compiled import njit, njit_fused
from svmcore.runtime.prefetch import ask_for

__all__ = ["pair_step", "solve_each", "solve_pairs"]

SHORT = 128  # members up to which one scan finds keys and indices together, in lanes of 64 bits
LAST = np.int64(0x7FFFFFFF)
LEAST, MOST = np.int32(-0x80000000), np.int32(0x7FFFFFFF)  # keys that no score or gain has
KEYS, SCORES = (LEAST, MOST), (np.float32(-np.inf), np.float32(np.inf))  # what bars are of
BLOCK = 256
ASKED = 8  # steps of a long set after which the gap is asked for: the scan for what may shrink is an eighth of all, and
# up to seven steps more than were asked for gain what any do
AHEAD = 1024  # entries of a row that are asked for before the scan comes to them,
NEAR = 1536  # where a scan is longer than that: a shorter one is of what the second-level cache holds
LINE = 64  # bytes
NOWHERE = np.int32(BLOCK)  # in a block
FURTHER = 1.3  # the others take some of a step back: 2 to 26 % fewer steps. Any factor below 2 lowers the objective
TAU = 1e-12  # curvature below this times the diagonal counts as none, as duplicate points give


@njit(inside=True)
def _key32(x):  # type: ignore[no-untyped-def]
    bits = np.float32(x).view(np.int32)
    return np.int32(bits ^ np.int32(np.int32(bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(inside=True)
def _ask_ahead(K, i, start, q):  # type: ignore[no-untyped-def]
    """Have of row i what a long scan comes to next brought near, while the block at `start` is scanned."""
    if q > NEAR:
        there = K.ctypes.data + K.itemsize * (np.int64(i) * K.shape[1] + start + AHEAD)
        for c in range(0, BLOCK * K.itemsize, LINE):
            ask_for(there + c)


@njit(inside=True)
def _set_bars(i, g, own, beta, lo, hi, bars, ends):  # type: ignore[no-untyped-def]
    """Keep row i of group g out of scans for what may grow, or shrink, where it is at that bound.

    `bars` are the most that it may count for among those that grow, the least among those that shrink, of the two
    `ends`, and its diagonal as a partner that shrinks: the gain of an infinite one is next to nothing.
    """
    up, low, partners = bars
    shrinks = beta[i] > lo[i]
    up[g, i] = ends[1] if beta[i] < hi[i] else ends[0]
    low[g, i] = ends[0] if shrinks else ends[1]
    partners[g, i] = own[i] if shrinks else np.inf


@njit(makes_arrays=True)
def _bars(codes, n_groups, own, beta, lo, hi, ends):  # type: ignore[no-untyped-def]
    """`bars` (n_groups, at least q) of all rows: none counts in another group than its own."""
    shape, inf = (n_groups, len(beta)), own.dtype.type(np.inf)
    bars = full_lines(*shape, ends[0]), full_lines(*shape, ends[1]), full_lines(*shape, inf)
    for t in range(len(beta)):
        _set_bars(t, codes[t], own, beta, lo, hi, bars, ends)
    return bars


@njit_fused(inside=True)
def _step_and_extremes(s, t, K, i, j, g, bars, starts):  # type: ignore[no-untyped-def]
    """S -= t (K_i - K_j); in group g (the largest s that may grow, the start of its block, the least that may shrink).

    They are -inf and inf where there is none.
    """
    (up, low, _), inf = bars, type(t)(np.inf)
    top, block, bottom = -inf, 0, inf
    for start in starts:
        most, least, first = -inf, inf, np.uintp(start)
        _ask_ahead(K, j, start, len(s))
        for b in range(min(BLOCK, len(s) - start)):
            c = first + np.uintp(b)
            x = s[c] - t * difference(K[i, c], K[j, c], t)
            s[c] = x
            most = larger(most, smaller(x, type(t)(up[g, c])))
            least = smaller(least, larger(x, type(t)(low[g, c])))
        block = start if most > top else block
        top, bottom = larger(top, most), smaller(bottom, least)
    return top, block, bottom


@njit_fused(inside=True)
def _step_and_largest(s, t, K, i, j, up, starts):  # type: ignore[no-untyped-def]
    """S -= t (K_i - K_j), of one group; the first index of the largest s that may grow."""
    inf = type(t)(np.inf)
    top, block = -inf, 0
    for start in starts:
        most, first = -inf, np.uintp(start)
        _ask_ahead(K, j, start, len(s))
        for b in range(min(BLOCK, len(s) - start)):
            c = first + np.uintp(b)
            x = s[c] - t * difference(K[i, c], K[j, c], t)
            s[c] = x
            most = larger(most, smaller(x, type(t)(up[0, c])))
        block, top = start if most > top else block, larger(top, most)
    return _first(s, up, 0, block, top)


@njit(inside=True)
def _first(s, up, g, start, top):  # type: ignore[no-untyped-def]
    """Index of the score `top` that may grow, in the block at `start`."""
    first, found = np.uintp(start), NOWHERE
    for b in range(min(BLOCK, len(s) - start)):
        c = first + np.uintp(b)
        found = min(found, np.int32(b) if smaller(s[c], type(top)(up[g, c])) == top else NOWHERE)
    return start + found % BLOCK


@njit_fused(inside=True)
def _gain_key(s_i, eta_i, s_t, eta_t, K_it, twice):  # type: ignore[no-untyped-def]
    """Half the logarithm of (s_i - s_t)^2 / (K_ii + K_tt - 2 K_it), low where t is not behind i.

    It is read off the bits of a float32, which are its logarithm to base 2 within 0.09, in units of the last one: to
    divide takes longer, and a gain that is a sixth below the largest does as well.
    """
    kind = type(s_i)
    gap = np.float32(max(s_i - s_t, kind(0))).view(np.int32)
    eta = np.float32(max(eta_i + eta_t - twice * kind(K_it), kind(TAU))).view(np.int32)
    return np.int32(gap - np.int32(eta >> np.int32(1)))


@njit_fused(inside=True)
def _best_gain(K, i, s, diagonal, g, partners, twice, starts):  # type: ignore[no-untyped-def]
    """Second index (Fan, Chen, Lin 2005, WSS 2): the largest (s_i - s_t)^2 / (K_ii + K_tt - 2 K_it) over I_low, nearly.

    `twice` is the 2 before an entry of K, in its unit.
    """
    top, winner, s_i, eta_i = LEAST, 0, s[i], diagonal[i]
    for start in starts:
        largest, first = LEAST, np.uintp(start)
        _ask_ahead(K, i, start, len(s))
        for b in range(min(BLOCK, len(s) - start)):
            c = first + np.uintp(b)
            largest = max(largest, _gain_key(s_i, eta_i, s[c], partners[g, c], K[i, c], twice))
        winner, top = start if largest > top else winner, max(top, largest)
    first, found = np.uintp(winner), NOWHERE
    for b in range(min(BLOCK, len(s) - winner)):
        c = first + np.uintp(b)
        key = _gain_key(s_i, eta_i, s[c], partners[g, c], K[i, c], twice)
        found = min(found, np.int32(b) if key == top else NOWHERE)
    return _or_lowest(winner + found % BLOCK, s, partners[g])  # of scores that are no numbers none matches


@njit(inside=True)
def _or_lowest(j, s, partners):  # type: ignore[no-untyped-def]
    """The partner j if it may shrink, else the one of the least score: next to an eta of 1e38 a barred one is taken."""
    if partners[j] < np.inf:
        return j
    for t in range(len(s)):
        if partners[t] < np.inf and (partners[j] == np.inf or s[t] < s[j]):
            j = t
    return j


@njit(inside=True)
def pair_step(i, j, scale, K_ij, ridge, difference, beta, lo, hi, factor=1.0):  # type: ignore[no-untyped-def]
    """beta_i += t, beta_j -= t by the best t, which is returned; inf, after a far step, where nothing ends it.

    `scale` is K_ii + K_jj, `ridge` the sum of both, `difference` s_i - s_j. Without curvature the better end of the
    segment is the best; with it t may be the best one times a `factor`. A variable that reaches its bound is put on it
    exactly.
    """
    grow_i, shrink_i, grow_j, shrink_j = hi[i] - beta[i], beta[i] - lo[i], hi[j] - beta[j], beta[j] - lo[j]
    ahead, behind = min(grow_i, shrink_j), min(shrink_i, grow_j)
    eta = scale - 2.0 * K_ij
    eta = (0.0 if abs(eta) <= TAU * abs(scale) else eta) + ridge
    most = factor * difference
    t = min(max(most / eta, -behind), ahead) if eta > 0.0 else _better_end(ahead, behind, eta, difference)
    if abs(t) == np.inf:
        far = far_step(beta)
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
def _better_end(ahead, behind, eta, difference):  # type: ignore[no-untyped-def]
    """The end of -behind <= t <= ahead at which eta t^2 / 2 - difference t, eta <= 0, is less."""
    if difference == 0.0 and eta == 0.0:
        return 0.0
    downhill, uphill = (ahead, -behind) if difference > 0.0 else (-behind, ahead)
    if eta == 0.0 or np.isinf(downhill):
        return downhill
    rise = 0.5 * eta * (uphill * uphill - downhill * downhill) - difference * (uphill - downhill)
    return uphill if rise < 0.0 else downhill


@njit(inside=True)
def _step_and_worst(s, t, K, i, j, bars, starts):  # type: ignore[no-untyped-def]
    """S -= t (K_i - K_j); of the group whose extremes are furthest apart: (group, i of the largest, gap).

    The gap is -inf where nobody may grow, or shrink.
    """
    top, block, bottom = _step_and_extremes(s, t, K, i, j, 0, bars, starts)
    worst, gap = 0, np.float64(top) - np.float64(bottom)
    for g in range(1, len(bars[0])):
        most, there, least = _step_and_extremes(s, type(t)(0), K, i, j, g, bars, starts)
        between = np.float64(most) - np.float64(least)
        if between > gap:
            worst, gap, top, block = g, between, most, there
    return worst, _first(s, bars[0], worst, block, top), gap


@njit(inside=True)
def _move(i, j, K_ij, own, ridge, s, beta, lo, hi, factor):  # type: ignore[no-untyped-def]
    """`pair_step` on i and j, and what the ridge does to their scores; returns the step, inf for one without an end.

    `own` (q,) is the diagonal of K, read from here: a row of K that will be read is not waited for.
    """
    kind, difference = s.dtype.type, np.float64(s[i]) - np.float64(s[j])
    scale, both = own[i] + own[j], ridge[i] + ridge[j]
    step = pair_step(i, j, scale, np.float64(K_ij), both, difference, beta, lo, hi, factor)
    if both != 0.0 and step != np.inf:
        s[i] -= kind(step * ridge[i])
        s[j] += kind(step * ridge[j])
    return step


@njit(makes_arrays=True)
def solve_pairs(K, ridge, s, beta, lo, hi, codes, n_groups, tol, max_iter, unit=1.0, own=None):  # type: ignore[no-untyped-def]
    """SMO on one working set whose groups keep their sums; changes `s` (type of K) and `beta` (float64).

    `K` is C-contiguous and may be larger than the set: its first q rows and columns are the square. It may be of whole
    numbers of a `unit`, with `s` of float32: see `svmcore.squares`. `own` (q,) is its diagonal, where that is known: in
    a large K each entry of it is in a page of its own. `codes` (q,) are groups 0 ... n_groups - 1. A step in a long set
    is `FURTHER` times the best one of its pair. Mangasarian, Musicant (1999), Successive overrelaxation for support
    vector machines, IEEE Transactions on Neural Networks 10, do so with single variables.

    Returns
    -------
    (n_iter, gap, unbounded)
        `gap` is the KKT gap within the set at the end, which is no number where a score is none; `unbounded` says that
        a step without curvature met no bound.
    """
    q = len(s)
    diagonal, alone = np.empty_like(s), np.empty(q)
    for t in range(q):
        alone[t] = unit * K[t, t] if own is None else own[t]
        diagonal[t] = alone[t] + ridge[t]
    if q <= SHORT:
        bars = _bars(codes, n_groups, diagonal, beta, lo, hi, KEYS)
        return _solve_short(K, ridge, s, beta, lo, hi, diagonal, alone, bars, tol, max_iter, unit)
    bars, starts = _bars(codes, n_groups, diagonal, beta, lo, hi, SCORES), _blocks_that_move(lo, hi)
    near = full_lines(1, q, s[0])[0, :q]  # each step reads and writes all of it
    near[:] = s
    found = _solve_long(
        K, ridge, near, beta, lo, hi, diagonal, alone, bars, tol, max_iter, unit, FURTHER, ASKED, starts
    )
    s[:] = near
    return found


@njit(makes_arrays=True)
def _blocks_that_move(lo, hi):  # type: ignore[no-untyped-def]
    """Starts of the blocks in which any variable may move, at least one: of the others no score is asked for."""
    starts, n = np.empty(len(lo) // BLOCK + 1, np.int64), 0
    for start in range(0, len(lo), BLOCK):
        starts[n] = start
        for c in range(start, min(start + BLOCK, len(lo))):
            if hi[c] > lo[c]:
                n += 1
                break
    return starts[: max(n, 1)]


@njit
def _solve_long(K, ridge, s, beta, lo, hi, diagonal, own, bars, tol, max_iter, unit, factor, asked, starts):  # type: ignore[no-untyped-def]
    """The steps of `solve_pairs`, block by block; of one group the gap is asked for after every `asked` of them."""
    kind, n_iter = s.dtype.type, 0
    g, i, gap = _step_and_worst(s, kind(0), K, 0, 0, bars, starts)
    while gap > tol and n_iter < max_iter:
        j = _best_gain(K, i, s, diagonal, g, bars[2], kind(2.0 * unit), starts)
        if not abs(s[i] - s[j]) < np.inf:  # what overflowed is no number, which no maximum tells
            return n_iter, np.nan, False
        step = _move(i, j, unit * K[i, j], own, ridge, s, beta, lo, hi, factor)
        if step == np.inf:
            return n_iter, gap, True
        _set_bars(i, g, diagonal, beta, lo, hi, bars, SCORES)
        _set_bars(j, g, diagonal, beta, lo, hi, bars, SCORES)
        n_iter += 1
        if len(bars[0]) == 1 and n_iter % asked and n_iter < max_iter:
            i = _step_and_largest(s, kind(unit * step), K, i, j, bars[0], starts)
        else:
            g, i, gap = _step_and_worst(s, kind(unit * step), K, i, j, bars, starts)
    return n_iter, max(gap, 0.0), False


# ---- the same steps on a set so short that what costs is to begin: one scan finds keys and indices together ---------
# The loop stands twice: one that asks which scan it is takes 0.1 microseconds a step more, 0.27 in place of 0.18.
@njit_fused(inside=True)
def _step_and_pair(s, t, K, i, j, g, bars):  # type: ignore[no-untyped-def]
    """S -= t (K_i - K_j); in group g the first of the largest s that may grow, of the smallest that may shrink."""
    up, low, _ = bars
    top, bottom = np.int64(-0x7FFFFFFFFFFFFFFF), np.int64(0x7FFFFFFFFFFFFFFF)
    for c in range(len(s)):
        x = s[c] - t * difference(K[i, c], K[j, c], t)
        s[c] = x
        key = _key32(x)
        top = max(top, (np.int64(min(key, up[g, c])) << np.int64(32)) | np.int64(LAST - c))
        bottom = min(bottom, (np.int64(max(key, low[g, c])) << np.int64(32)) | np.int64(c))
    return LAST - (top & LAST), bottom & LAST


@njit_fused(inside=True)
def _best_partner(K, i, s, diagonal, g, partners, twice):  # type: ignore[no-untyped-def]
    """As `_best_gain`."""
    top, s_i, eta_i = np.int64(-0x7FFFFFFFFFFFFFFF), s[i], diagonal[i]
    for c in range(len(s)):
        key = _gain_key(s_i, eta_i, s[c], partners[g, c], K[i, c], twice)
        top = max(top, (np.int64(key) << np.int64(32)) | np.int64(LAST - c))
    return _or_lowest(LAST - (top & LAST), s, partners[g])


@njit(inside=True)
def _step_and_worst_pair(s, t, K, i, j, bars):  # type: ignore[no-untyped-def]
    """As `_step_and_worst`."""
    worst, first, gap = 0, 0, -np.inf
    for g in range(len(bars[0])):
        grows, shrinks = _step_and_pair(s, t if g == 0 else type(t)(0), K, i, j, g, bars)
        between = np.float64(s[grows]) - np.float64(s[shrinks])
        if bars[0][g, grows] == MOST and bars[1][g, shrinks] == LEAST and between > gap:
            worst, first, gap = g, grows, between
    return worst, first, gap


@njit
def _solve_short(K, ridge, s, beta, lo, hi, diagonal, own, bars, tol, max_iter, unit):  # type: ignore[no-untyped-def]
    """The steps of `solve_pairs`."""
    kind, n_iter = s.dtype.type, 0
    g, i, gap = _step_and_worst_pair(s, kind(0), K, 0, 0, bars)
    while gap > tol and n_iter < max_iter:
        j = _best_partner(K, i, s, diagonal, g, bars[2], kind(2.0 * unit))
        step = _move(i, j, unit * K[i, j], own, ridge, s, beta, lo, hi, 1.0)
        if step == np.inf:
            return n_iter, gap, True
        _set_bars(i, g, diagonal, beta, lo, hi, bars, KEYS)
        _set_bars(j, g, diagonal, beta, lo, hi, bars, KEYS)
        g, i, gap = _step_and_worst_pair(s, kind(unit * step), K, i, j, bars)
        n_iter += 1
    return n_iter, max(gap, 0.0), False


@njit(makes_arrays=True)
def solve_each(squares, ends, p, lo, hi, codes, groups, tol, most, work, beta, steps):  # type: ignore[no-untyped-def]
    """`solve_pairs` on several programs of so many `groups`, each from its `beta`: one call for many small ones.

    Program k has the variables ends[k] ... ends[k + 1] - 1 of all (m,), `codes` (m,) their groups. K of the variables
    of each is in `squares`, one after the other. It takes at most `most` steps for each variable, and no more than
    change `work` scores. Changes `beta` (m,), writes steps (k,).
    """
    at = 0
    for k in range(len(steps)):
        first, stop = ends[k], ends[k + 1]
        q, s = stop - first, p[first:stop].astype(squares.dtype)
        square, ridge = squares[at : at + q * q].reshape(q, q), np.zeros(q)
        at += q * q
        for r in range(q):
            if beta[first + r] != 0.0:
                s -= beta[first + r] * square[r]
        within = beta[first:stop], lo[first:stop], hi[first:stop], codes[first:stop]
        steps[k] = solve_pairs(square, ridge, s, *within, groups, tol, min(most * q, work // (q + 256)), 1.0)[0]
