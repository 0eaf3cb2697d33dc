"""Compiled passes of the Gaussian in float64: its values, or their weighted sums, of which no value is ever stored.

A tile of products stays in the second-level cache, a row of its values in the first; every tile starts where the data
says, so that sums have the same bits on any number of threads.
"""

from typing import Any

import numpy as np

from svmcore.points import Floats
from svmcore.runtime.compiled import njit_fused, njit_sums

__all__ = ["sums_of_distances", "sums_of_products", "values_of_distances", "values_of_products"]

ROWS = 4  # of values at a time: one load and store of the sums over columns for all of them
LOG2E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10
SHIFTER = 1.5 * 2.0**52  # t + SHIFTER has the integer nearest to t in its last bits
LEAST = -707.0  # exp of less is below 1e-307 and is taken for 0: so rows without a neighbour are told the bias alone


def sums_of_distances(G: Floats, a: Floats, b: Floats, factor: float, right: Floats, left: Floats, out: Any) -> None:
    """out[0] += V right and, if out[1] has entries, out[1] += V' left, of V_ij = exp(-factor (a_i + b_j - 2 G_ij)).

    `G` is an int32 tile with at least len(a) rows and len(b) columns, `a` and `b` are int32.
    """
    _sums_of_distances(G, a, b, -factor, right, left, out[0], out[1])


def sums_of_products(G: Floats, a: Floats, b: Floats, factor: float, right: Floats, left: Floats, out: Any) -> None:
    """As `sums_of_distances`, of V_ij = exp(min(0, factor G_ij - a_i - b_j)) and a float64 tile."""
    _sums_of_products(G, a, b, factor, right, left, out[0], out[1])


def values_of_distances(G: Floats, a: Floats, b: Floats, factor: float, out: Floats) -> None:
    """Write V_ij = exp(-factor (a_i + b_j - 2 G_ij)) of an int32 `G` (n, m), int32 `a` (n,) and `b` (m,) to `out`."""
    _values_of_distances(G, a, b, -factor, out)


def values_of_products(G: Floats, a: Floats, b: Floats, factor: float, out: Floats) -> None:
    """Write V_ij = exp(min(0, factor G_ij - a_i - b_j)) of `G` (n, m) to `out`, which may be `G`."""
    _values_of_products(G, a, b, factor, out)


@njit_fused(makes_arrays=True)
def _values_of_distances(G, a, b, factor, out):  # type: ignore[no-untyped-def]
    n, m = out.shape
    row, distances = np.empty(m, np.float64), np.empty(m, np.int32)
    for i in range(n):
        source, target, x = G[i], out[i], a[i]
        for j in range(m):
            distances[j] = np.int32(np.int32(x + b[j]) - np.int32(source[j] + source[j]))
        for j in range(m):
            row[j] = _exp(distances[j] * factor)
        for j in range(m):
            target[j] = row[j]


@njit_fused(makes_arrays=True)
def _values_of_products(G, a, b, factor, out):  # type: ignore[no-untyped-def]
    n, m = out.shape
    row, values = np.empty(m, np.float64), np.empty(m, np.float64)
    for i in range(n):
        source, target, x = G[i], out[i], a[i]
        for j in range(m):
            row[j] = source[j]
        for j in range(m):
            values[j] = _exp(min(row[j] * factor - (x + b[j]), 0.0))
        for j in range(m):
            target[j] = values[j]


@njit_fused(makes_arrays=True)
def _sums_of_distances(G, a, b, factor, right, left, out_right, out_left):  # type: ignore[no-untyped-def]
    m = len(b)
    rows, distances = np.empty((ROWS, m), np.float64), np.empty(m, np.int32)
    for first in range(0, len(a), ROWS):
        last = min(first + ROWS, len(a))
        for i in range(first, last):
            source, row, x = G[i], rows[i - first], a[i]
            for j in range(m):
                distances[j] = np.int32(np.int32(x + b[j]) - np.int32(source[j] + source[j]))
            for j in range(m):
                row[j] = _exp(distances[j] * factor)
        _fold(rows, right, left[first:last], out_right[first:last], out_left)


@njit_fused(makes_arrays=True)
def _sums_of_products(G, a, b, factor, right, left, out_right, out_left):  # type: ignore[no-untyped-def]
    m = len(b)
    rows = np.empty((ROWS, m), np.float64)
    for first in range(0, len(a), ROWS):
        last = min(first + ROWS, len(a))
        for i in range(first, last):
            source, row, x = G[i], rows[i - first], a[i]
            for j in range(m):
                row[j] = _exp(min(source[j] * factor - (x + b[j]), 0.0))
        _fold(rows, right, left[first:last], out_right[first:last], out_left)


@njit_fused
def _fold(rows, right, left, out_right, out_left):  # type: ignore[no-untyped-def]
    """Add a few rows of values, weighted, to both sums."""
    for i in range(len(out_right)):
        out_right[i] += _dot(rows[i], right)
    if len(out_left) == 0:
        return
    if len(out_right) == ROWS:
        r0, r1, r2, r3 = rows[0], rows[1], rows[2], rows[3]
        w0, w1, w2, w3 = left[0], left[1], left[2], left[3]
        for j in range(len(out_left)):
            out_left[j] += (w0 * r0[j] + w1 * r1[j]) + (w2 * r2[j] + w3 * r3[j])
        return
    for i in range(len(out_right)):
        row, weight = rows[i], left[i]
        for j in range(len(out_left)):
            out_left[j] += weight * row[j]


@njit_fused
def _exp(x):  # type: ignore[no-untyped-def]
    """Return exp(x) of one float64 from -707 to 0, below 2^-52 relative, and 0 below -707.

    x = k ln 2 + r, exp(r) = 1 + r + r^2 q(r) with the q of degree 9 whose largest relative error is least (4e-17), 2^k
    through the exponent bits; numba's own exp is a scalar call.
    """
    vanishes, x = x < LEAST, max(x, LEAST)
    t = x * LOG2E + SHIFTER
    k = t - SHIFTER
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    q = 2.469604286539312748e-8
    q = q * r + 2.7619847038793381359e-7
    q = q * r + 2.7558366140717221114e-6
    q = q * r + 0.000024801520512404825431
    q = q * r + 0.00019841268845342783375
    q = q * r + 0.001388888891924319915
    q = q * r + 0.0083333333336977872161
    q = q * r + 0.041666666666612905062
    q = q * r + 0.16666666666666259578
    q = q * r + 0.50000000000000024088
    p = (r * r) * q + r + 1.0
    power = np.int64(np.float64(t).view(np.int64) << np.int64(52))
    value = np.int64(np.float64(p).view(np.int64) + power).view(np.float64)
    return 0.0 if vanishes else value


@njit_sums
def _dot(row, weights):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(len(row)):
        total += row[j] * weights[j]
    return total
