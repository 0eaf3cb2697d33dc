"""The proofs of many small programs in one call."""

import numpy as np

from svmcore.passes.proof.exact_sums import MENDING_STEPS, ROUNDED_SUM, exact_sum, mend
from svmcore.passes.proof.multipliers import group_ends, jump_multiplier
from svmcore.passes.proof.objectives import dual_sums, losses, weighted
from svmcore.runtime.compiled import njit, njit_sums

__all__ = ["prove_each"]

EPS = 2.0**-52


@njit
def prove_each(squares, ends, p, lo, hi, codes, sums, relative, absolute, beta, outputs, found):  # type: ignore[no-untyped-def]
    """What `svmcore.certificate.evaluate` finds, of programs whose variables are all in groups, on K in float64.

    Program k has the variables ends[k] ... ends[k + 1] - 1 of all (m,), and the sums `sums` (k, groups); none has a
    ridge. K of the variables of each is in `squares`, one after the other; its values are off by at most
    relative abs(K) + absolute. Mends `beta` (m,), writes `outputs` (m,) and to `found` (k, 7 + groups): primal, dual,
    KKT gap, infeasibility, uncertainty, bar, squared norm of w, multipliers.
    """
    done = 0
    for k in range(len(found)):
        at, q = slice(ends[k], ends[k + 1]), ends[k + 1] - ends[k]
        K = squares[done : done + q * q].reshape(q, q)
        done += q * q
        box, off = (p[at], lo[at], hi[at], codes[at], sums[k]), (relative, absolute)
        _prove(K, *box, *off, beta[at], outputs[at], found[k])


@njit(makes_arrays=True)
def _prove(K, p, lo, hi, codes, sums, relative, absolute, beta, output, found):  # type: ignore[no-untyped-def]
    m, none, missed, worst = len(p), np.zeros(len(p)), 0.0, 0.0
    for g in range(len(sums)):
        left = _mended(g, beta, lo, hi, codes, sums[g])
        missed, worst = missed + left, max(worst, left)
    error, length = np.empty(m), np.abs(beta).sum()
    _outputs_within(K, beta, relative, absolute, output, error)
    error += min(missed, ROUNDED_SUM * length) * _largest_of_diagonal(K)
    ends, score = np.empty((len(sums) + 1, 6)), p - output
    error += EPS * (np.abs(p) + np.abs(output))  # of that difference
    outside, known = group_ends(score, error, beta, lo, hi, codes, ends)
    best, gap, far, shift = np.zeros(len(sums) + 1), 0.0, 0.0, 0.0
    for g in range(len(sums)):
        best[g] = jump_multiplier(p, output, lo, hi, codes, g, sums[g])
        gap, far = max(gap, ends[g, 0] - ends[g, 1]), max(far, ends[g, 2] - ends[g, 3])
        shift += best[g] * sums[g]
        found[7 + g] = _multiplier(ends[g], best[g])
    norm2 = (beta * output).sum()
    loss, sizes, doubt = losses(p, output, error, lo, hi, none, codes, best, 1.0)
    linear, _, linear_sizes = dual_sums(p, none, beta)
    found[0], found[1], found[2] = 0.5 * norm2 + loss + shift, linear - 0.5 * norm2, gap if known else np.inf
    found[3], found[4] = max(outside, worst), far - gap
    found[5] = 0.5 * weighted(beta, error) + doubt + EPS * (m / 8.0 + 8.0) * (sizes + linear_sizes)
    found[6] = norm2


@njit(makes_arrays=True)
def _mended(g, beta, lo, hi, codes, total):  # type: ignore[no-untyped-def]
    """Mend the variables of group `g`: how far their sum is off then."""
    at = np.flatnonzero(codes == g)
    part = beta[at]
    mend(part, lo[at], hi[at], total, MENDING_STEPS)
    beta[at] = part
    return abs(exact_sum(part, -total))


@njit(makes_arrays=True)
def _outputs_within(K, beta, relative, absolute, output, error):  # type: ignore[no-untyped-def]
    """K beta (m,), and a bound (m,) of its error: of the values and of the sums."""
    support = np.flatnonzero(beta)
    weights = beta[support]
    length, rounded = np.abs(weights).sum(), EPS * (len(support) + 1.0)
    for v in range(len(K)):
        output[v], size = _weighted_row(K[v], support, weights)
        error[v] = rounded * size + (relative * size + absolute * length) / (1.0 - relative)


@njit_sums
def _weighted_row(row, columns, weights):  # type: ignore[no-untyped-def]
    """(sum_j row_(columns j) weights_j, the same of sizes)."""
    total, size = 0.0, 0.0
    for at in range(len(columns)):
        term = row[columns[at]] * weights[at]
        total += term
        size += abs(term)
    return total, size


@njit
def _largest_of_diagonal(K):  # type: ignore[no-untyped-def]
    largest = 0.0
    for v in range(len(K)):
        largest = max(largest, abs(K[v, v]))
    return largest


@njit
def _multiplier(ends, best):  # type: ignore[no-untyped-def]
    """As `svmcore.outputs.multipliers_of`: the mean of free scores, else the middle of the ends, else the best."""
    if ends[5] > 0.0:
        return ends[4] / ends[5]
    return 0.5 * (ends[0] + ends[1]) if ends[0] > -np.inf and ends[1] < np.inf else best
