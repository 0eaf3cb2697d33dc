"""The loops of SMO as the books have it: one pair of a whole problem at a time, with the steps of `pairs`.

Maxima are taken as there: over order-preserving integers, whose index is looked for in the block that has the largest.
"""

import numpy as np

from svmcore.passes.steps.box import FAR
from svmcore.passes.steps.pairs import pair_step
from svmcore.runtime.compiled import njit

__all__ = ["farthest", "maximal_pass", "next_violator", "pair_extremes", "step_pass", "sweep_pass"]

BLOCK = 256


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
