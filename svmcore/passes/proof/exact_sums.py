"""Sums that are rounded once, and coefficients that are moved until they sum to what they should.

References
----------
Shewchuk (1997), Adaptive precision floating-point arithmetic and fast robust geometric predicates, section 2.5: sums
as numbers whose digits do not overlap, as in Python's `math.fsum`.
"""

import numpy as np

from svmcore.runtime.compiled import njit

__all__ = ["MENDING_STEPS", "ROUNDED_SUM", "beyond_bounds", "exact_sum", "mend", "two_sum"]

MENDING_STEPS = 8  # each leaves a rounding error of what the one before has left
ROUNDED_SUM = 1e-12  # of ||beta||_1: what rounding may leave of a sum


@njit
def two_sum(a, b):  # type: ignore[no-untyped-def]
    """(a + b rounded, what that rounds away), exactly (Knuth)."""
    total = a + b
    moved = total - a
    return total, (a - (total - moved)) + (b - moved)


@njit
def _rounded(partials, n):  # type: ignore[no-untyped-def]
    """Sum of numbers that do not overlap, the smallest first, rounded to even once."""
    if n == 0:
        return 0.0
    n -= 1
    total, rest = partials[n], 0.0
    while n > 0 and rest == 0.0:
        n -= 1
        total, rest = two_sum(total, partials[n])
    if n > 0 and rest * np.sign(partials[n - 1]) > 0.0:  # it may be half a digit, and what is below it decides
        up, lost = two_sum(total, 2.0 * rest)
        if lost == 0.0:
            return up
    return total


@njit
def _without_overlap(values, n):  # type: ignore[no-untyped-def]
    """Turn the first n of `values` into numbers with the same sum that do not overlap, the smallest first: how many."""
    kept = 0
    for v in range(n):
        x, before, kept = values[v], kept, 0
        for i in range(before):
            x, rest = two_sum(x, values[i])
            if rest != 0.0:
                values[kept], kept = rest, kept + 1
        values[kept], kept = x, kept + 1
    return kept


@njit(makes_arrays=True)
def exact_sum(values, last):  # type: ignore[no-untyped-def]
    """Sum of the float64 `values` (n,) and of `last`, rounded once.

    What an addition loses is added to a second sum, what that loses to a third; few sums lose anything there.
    """
    total, second, third, left, n = last, 0.0, 0.0, np.empty(len(values) + 3), 0
    for v in range(len(values)):
        total, rest = two_sum(total, values[v])
        second, rest = two_sum(second, rest)
        third, rest = two_sum(third, rest)
        if rest != 0.0:
            left[n], n = rest, n + 1
    left[n], left[n + 1], left[n + 2] = third, second, total
    return _rounded(left, _without_overlap(left, n + 3))


@njit(makes_arrays=True)
def beyond_bounds(parts, of, bounds):  # type: ignore[no-untyped-def]
    """What the `parts` (n,) of number `of` (n,) come to beyond each of the bounds (m,), rounded once; 0 of one part."""
    found, ends, sorted_parts = np.zeros(len(bounds)), np.zeros(len(bounds) + 1, np.int64), np.empty(len(parts))
    for c in range(len(parts)):
        ends[of[c] + 1] += 1
    for v in range(len(bounds)):
        ends[v + 1] += ends[v]
    places = ends[:-1].copy()
    for c in range(len(parts)):
        sorted_parts[places[of[c]]] = parts[c]
        places[of[c]] += 1
    for v in range(len(bounds)):
        if ends[v + 1] - ends[v] > 1 and abs(bounds[v]) < np.inf:
            found[v] = exact_sum(sorted_parts[ends[v] : ends[v + 1]], -bounds[v])
    return found


@njit
def mend(beta, lo, hi, total, most):  # type: ignore[no-untyped-def]
    """Move free variables of `beta` (m,), at most `most` times, until it sums to `total`: exactly, if digits allow.

    A variable of the size of the largest takes most of what is missing, one with finer digits the rest; of equal ones
    that with most room.
    """
    for _ in range(most):
        missing = -exact_sum(beta, -total)
        best, left, widest = -1, abs(missing), 0.0
        for v in range(len(beta)):
            room = min(beta[v] - lo[v], hi[v] - beta[v])
            lost = abs(two_sum(beta[v], missing)[1])
            if room > abs(missing) and (lost < left or (lost == left and best >= 0 and room > widest)):
                best, left, widest = v, lost, room
        if best < 0:
            break
        beta[best] += missing
