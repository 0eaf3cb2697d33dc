"""What a certificate asks of the scores of all variables: the ends of each group, and the multiplier of its sum."""

import numpy as np

from svmcore.runtime.compiled import njit

__all__ = ["bends", "bent_multiplier", "group_ends", "jump_multiplier"]


@njit
def _ends_of(code, score, error, beta, lo, hi, codes):  # type: ignore[no-untyped-def]
    """A row of `group_ends`: of the variables with this code."""
    up, low, far_up, far_low, total, free = -np.inf, np.inf, -np.inf, np.inf, 0.0, 0.0
    for v in range(len(score)):
        if codes[v] != code:
            continue
        s, e, grows, shrinks = score[v], error[v], beta[v] < hi[v], beta[v] > lo[v]
        if grows:
            up, far_up = max(up, s), max(far_up, s + e)
        if shrinks:
            low, far_low = min(low, s), min(far_low, s - e)
        if grows and shrinks:
            total, free = total + s, free + 1.0
    return up, low, far_up, far_low, total, free


@njit
def group_ends(score, error, beta, lo, hi, codes, ends):  # type: ignore[no-untyped-def]
    """Write to `ends` (k + 1, 6) what decides the gap of each group, last of the variables in none.

    It is the largest score that may grow and the smallest that may shrink; both again where scores are off by `error`,
    as far apart as that allows; sum and number of the scores of free variables.

    Returns
    -------
    (outside, known)
        How far the worst variable is outside its box, and whether all scores are numbers.
    """
    for g in range(len(ends)):
        code = g if g < len(ends) - 1 else -1
        found = _ends_of(code, score, error, beta, lo, hi, codes)  # one by one: a whole row takes numba a second more
        ends[g, 0], ends[g, 1], ends[g, 2], ends[g, 3], ends[g, 4], ends[g, 5] = found
    outside, known = 0.0, True
    for v in range(len(score)):
        outside = max(outside, max(lo[v] - beta[v], beta[v] - hi[v]))
        known &= abs(score[v]) < np.inf
    return outside, known


@njit(makes_arrays=True)
def jump_multiplier(p, output, lo, hi, codes, g, total):  # type: ignore[no-untyped-def]
    """The b at which sum_v h_v(t_v - b) + b total is least over the group `g`, t = p - output; no variable has a ridge.

    Its slope, total - sum_v hi_v before all t_v, jumps by hi_v - lo_v at each: b is where it reaches 0, the last t_v
    where it never does. It is found by parting the t_v at one of them, over and over.
    """
    place, jump, n, slope = np.empty(len(p)), np.empty(len(p)), 0, total
    for v in range(len(p)):
        if codes[v] != g:
            continue
        slope -= hi[v]
        t = p[v] - output[v]
        if hi[v] > lo[v] and abs(t) < np.inf:
            place[n], jump[n], n = t, hi[v] - lo[v], n + 1
    first, end, found, draw = 0, n, 0.0, np.uint64(n)
    while first < end:
        draw = draw * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)  # no order of rows makes it slow
        found = place[first + np.int64((draw >> np.uint64(33)) % np.uint64(end - first))]
        below, above, less, equal = _parted(place, jump, first, end, found)
        if below > first and slope + less >= 0.0:
            end = below
        elif slope + less + equal >= 0.0:
            break
        else:
            first, slope = above, slope + less + equal
    return found


@njit(makes_arrays=True)
def bends(t, lo, hi, ridge, codes, g, total):  # type: ignore[no-untyped-def]
    """Where the slope total - sum_v h'_v(t_v - b) of the group `g` changes in b, if no variable is without any bound.

    Returns
    -------
    (place, jump, bend, value, grade)
        Places (k,), by what the slope jumps there, and by what its own slope changes; what the slope has of variables
        that cannot move, and its own slope before all places.
    """
    place, jump, bend, n, value, grade = np.empty(2 * len(t)), np.zeros(2 * len(t)), np.zeros(2 * len(t)), 0, total, 0.0
    for v in range(len(t)):
        if codes[v] != g:
            continue
        if not hi[v] > lo[v]:
            value -= lo[v]
        elif ridge[v] == 0.0:
            if abs(t[v]) < np.inf:
                place[n], jump[n], n = t[v], hi[v] - lo[v], n + 1
        else:
            for bound, sign in ((hi[v], 1.0), (lo[v], -1.0)):
                at = t[v] - ridge[v] * bound
                if abs(at) < np.inf:
                    place[n], bend[n], n = at, sign / ridge[v], n + 1
                elif at == -np.inf:
                    grade += sign / ridge[v]
    return place[:n], jump[:n], bend[:n], value, grade


@njit
def _slope_before(b, value, t, lo, hi, ridge, codes, g):  # type: ignore[no-untyped-def]
    """The slope of `bends` at b, at or before the first place: without a ridge h'_v is hi there."""
    for v in range(len(t)):
        if codes[v] == g and hi[v] > lo[v]:
            value -= min(max((t[v] - b) / ridge[v], lo[v]), hi[v]) if ridge[v] > 0.0 else hi[v]
    return value


@njit
def bent_multiplier(order, place, jump, bend, value, grade, t, lo, hi, ridge, codes, g):  # type: ignore[no-untyped-def]
    """The b at which the slope of `bends` passes 0; `order` sorts the places."""
    first = place[order[0]] if len(order) else 0.0  # of no places no output is finite, or no variable has a bound
    value = _slope_before(first, value, t, lo, hi, ridge, codes, g)
    if value >= 0.0 or not len(order):
        return first - value / grade if grade > 0.0 else first
    last = first
    for k in order:
        ahead = value + grade * (place[k] - last)
        if ahead > 0.0:
            break
        value, grade, last = ahead + jump[k], grade + bend[k], place[k]
        if value >= 0.0:
            return last
    return last - value / grade if grade > 0.0 else place[order[-1]]  # it never does, but by rounding


@njit
def _parted(place, jump, first, end, at):  # type: ignore[no-untyped-def]
    """Bring places before, at and after `at` together: (first that is not before, first after, jumps before, at)."""
    below, above, v, less, equal = first, end, first, 0.0, 0.0
    while v < above:
        if place[v] < at:
            less += jump[v]
            place[v], place[below] = place[below], place[v]
            jump[v], jump[below] = jump[below], jump[v]
            below, v = below + 1, v + 1
        elif place[v] > at:
            above -= 1
            place[v], place[above] = place[above], place[v]
            jump[v], jump[above] = jump[above], jump[v]
        else:
            equal, v = equal + jump[v], v + 1
    return below, above, less, equal
