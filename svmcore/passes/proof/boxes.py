"""What a program asks of the boxes of all variables, in one loop each."""

import numpy as np

from svmcore.runtime.compiled import njit

__all__ = ["box_of_labels", "boxes", "clipped", "costs_of_labels", "no_more_than", "widened"]


@njit
def boxes(lo, hi, ridge, codes, least, most):  # type: ignore[no-untyped-def]
    """Write sums of the bounds of each group to `least` and `most` (k,).

    Returns
    -------
    (valid, hard, soft, steepest)
        Whether lo <= hi and ridge >= 0 throughout, whether a variable has neither a bound on some side nor a ridge,
        whether one has a ridge, and the sum of the largest sizes that the boxes allow.
    """
    valid, hard, soft, steepest = True, False, False, 0.0
    for v in range(len(lo)):
        valid &= (lo[v] <= hi[v]) & (ridge[v] >= 0.0)
        hard |= (ridge[v] == 0.0) & (np.isinf(lo[v]) | np.isinf(hi[v]))
        soft |= ridge[v] != 0.0
        steepest += max(abs(lo[v]), abs(hi[v]))
        if codes[v] >= 0:
            least[codes[v]] += lo[v]
            most[codes[v]] += hi[v]
    return valid, hard, soft, steepest


@njit
def no_more_than(values, largest):  # type: ignore[no-untyped-def]
    """Whether all `values` are numbers up to `largest`."""
    found = True
    for v in range(len(values)):
        found &= -np.inf < values[v] <= largest
    return found


@njit
def costs_of_labels(y, C):  # type: ignore[no-untyped-def]
    """(whether labels are -1, +1 or 0, whether no cost is negative and one is positive); C of a 0 becomes 0."""
    signs, negative, positive = True, False, False
    for v in range(len(y)):
        signs &= (abs(y[v]) == 1.0) | (y[v] == 0.0)
        negative |= not C[v] >= 0.0  # nor is a NaN
        positive |= C[v] > 0.0
        C[v] = C[v] if y[v] != 0.0 else 0.0
    return signs, positive and not negative


@njit
def box_of_labels(y, upper, p, lo, hi):  # type: ignore[no-untyped-def]
    """The box of each label: [0, upper] for +1, [-upper, 0] for -1, nothing for 0; p is the label, or -1."""
    for v in range(len(y)):
        p[v] = y[v] if y[v] != 0.0 else -1.0
        lo[v] = -upper[v] if y[v] < 0.0 and upper[v] != 0.0 else 0.0  # no negative zeros
        hi[v] = upper[v] if y[v] > 0.0 else 0.0


@njit(makes_arrays=True)
def clipped(beta, lo, hi, codes, sums, sizes):  # type: ignore[no-untyped-def]
    """The `beta` (m,) of the box that is nearest to a given one; sums and sizes of its groups go to (k,) each."""
    found = np.empty(len(beta))
    for v in range(len(beta)):
        found[v] = b = min(max(beta[v], lo[v]), hi[v])
        if codes[v] >= 0:
            sums[codes[v]] += b
            sizes[codes[v]] += abs(b)
    return found


@njit
def widened(beta, lo, hi, new_lo, new_hi):  # type: ignore[no-untyped-def]
    """How many times as wide the widest box has become; 0 where one shrank, or `beta` is at a bound that has moved."""
    wider = 1.0
    for v in range(len(beta)):
        if not (new_lo[v] <= lo[v] and new_hi[v] >= hi[v]):
            return 0.0
        if (beta[v] == lo[v] and lo[v] != new_lo[v]) or (beta[v] == hi[v] and hi[v] != new_hi[v]):
            return 0.0
        if hi[v] > lo[v]:
            wider = max(wider, (new_hi[v] - new_lo[v]) / (hi[v] - lo[v]))
    return wider
