"""What a certificate sums over all variables: the dual objective, the losses, and what rounding may do to them.

Long sums are kept in eight lanes, v in lane v modulo 8: what rounding does to one is at most m / 8 + 8 times the last
digit of the sum of sizes.
"""

import numpy as np

from svmcore.runtime.compiled import njit

__all__ = ["dual_sums", "losses", "weighted"]

LANES = 8
EPS = 2.0**-52


@njit(makes_arrays=True)
def dual_sums(p, ridge, beta):  # type: ignore[no-untyped-def]
    """(p'beta, sum_v ridge_v beta_v^2, abs(p)'abs(beta))."""
    sums = np.zeros((3, LANES))
    for v in range(len(p)):
        lane, term = v & (LANES - 1), p[v] * beta[v]
        sums[0, lane] += term
        sums[1, lane] += ridge[v] * beta[v] * beta[v]
        sums[2, lane] += abs(term)
    return sums[0].sum(), sums[1].sum(), sums[2].sum()


@njit(makes_arrays=True)
def weighted(weights, errors):  # type: ignore[no-untyped-def]
    """Sum of the errors (n,) with the sizes of their weights; one without a weight may be infinite."""
    sums = np.zeros(LANES)
    for v in range(len(weights)):
        if weights[v] != 0.0:
            sums[v & (LANES - 1)] += abs(weights[v]) * errors[v]
    return sums.sum()


@njit
def _slope(residual, lo, hi, ridge):  # type: ignore[no-untyped-def]
    """h'_v: the t of the box at which r t - ridge t^2 / 2 is largest."""
    t = hi if residual > 0.0 else lo if residual < 0.0 else 0.0
    return min(max(residual / ridge if ridge > 0.0 else t, lo), hi)


@njit(makes_arrays=True)
def losses(p, output, error, lo, hi, ridge, codes, multipliers, scale):  # type: ignore[no-untyped-def]
    """Of the residuals r = p - scale (output + b), b the multiplier (k + 1,) of a variable's group, the last for none.

    Returns
    -------
    (loss, sizes, doubt)
        sum_v h_v(r_v), where variables without bound and ridge have no loss; of the residuals at scale 1 and their
        steepest slopes h' within e, those that are finite: the sums of abs(h' r) and abs(h') e. Here e is the `error`
        (m,) of an output, and what rounding output + b takes.
    """
    sums = np.zeros((3, LANES))
    for v in range(len(p)):
        f, lane, free = output[v] + multipliers[codes[v]], v & (LANES - 1), ridge[v] == 0.0
        r = 0.0 if free and (np.isinf(lo[v]) or np.isinf(hi[v])) else p[v] - scale * f
        t = _slope(r, lo[v], hi[v], ridge[v])
        sums[0, lane] += r * t - 0.5 * ridge[v] * t * t
        r, e = p[v] - f, error[v] + 0.5 * EPS * abs(f)  # f was rounded too, and may be far larger than r
        steepest = max(abs(_slope(r + e, lo[v], hi[v], ridge[v])), abs(_slope(r - e, lo[v], hi[v], ridge[v])))
        if 0.0 < steepest < np.inf:
            sums[1, lane] += steepest * abs(r)
            sums[2, lane] += steepest * e
    return sums[0].sum(), sums[1].sum(), sums[2].sum()
