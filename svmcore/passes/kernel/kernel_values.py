"""Compiled elementwise passes: products in, kernel values or their sums out, nothing larger than a row is kept."""

from collections.abc import Callable

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from svmcore.passes.kernel.exp2 import LOG2E, exp2
from svmcore.passes.kernel.kernel_sums import values_of_distances, values_of_products
from svmcore.passes.kernel.lines import fence, is_spread, write
from svmcore.points import Floats, Moments
from svmcore.runtime.compiled import njit_fused, njit_sums

__all__ = [
    "LARGEST_FLOAT32",
    "QUAD",
    "TERMS",
    "add_quad",
    "exp_of_distances",
    "exp_pass",
    "float64_pass",
    "sums_of_values",
]

LARGEST_FLOAT32 = 1e37  # of a factor that may still be cast to float32 and multiplied
TERMS = 128  # of a sum in float32
QUAD = 4  # rows of values that are added at a time


def float64_pass(G: Floats, x: Moments, z: Moments, out: Floats | None, function: Callable[[Floats], object]) -> Floats:
    """Apply `function` (in place, float64) to x'z = G + o_x + o_z, a few rows at a time, into `out` or G."""
    out = G if out is None else out
    step = max(1, (1 << 17) // max(1, G.shape[1]))
    left, right = x.offset[:, None], z.offset
    for start in range(0, G.shape[0], step):
        part = slice(start, start + step)
        products = G[part].astype(np.float64)
        products += left[part]
        products += right
        function(products)
        out[part] = products
    return out


def exp_pass(G: Floats, x_norm2: Floats, z_norm2: Floats, gamma: float, out: Floats | None) -> Floats:
    """Out = exp(-gamma max(0, ||x||^2 + ||z||^2 - 2 G)), in place if `out` is None."""
    out = G if out is None else out
    if out.dtype == np.float32:
        scale = gamma * LOG2E
        _exp2_float32(G, -scale * x_norm2, -scale * z_norm2, 2.0 * scale, out, out is not G and is_spread(out))
    else:
        values_of_products(G, gamma * x_norm2, gamma * z_norm2, 2.0 * gamma, out)
    return out


@njit_fused(makes_arrays=True)
def _exp2_float32(G, a, b, scale, out, past_caches):  # type: ignore[no-untyped-def]
    """out[i, j] = 2^min(0, scale G[i, j] + a[i] + b[j]) in float32, relative error below 1e-7 + that of the sum."""
    row, values = np.empty(G.shape[1], G.dtype), np.empty(G.shape[1], np.float32)
    _rows_of_products(G, a, b.astype(G.dtype), G.dtype.type(scale), row, values, out, past_caches)


@njit_fused
def _rows_of_products(G, a, right, factor, row, values, out, past_caches):  # type: ignore[no-untyped-def]
    m = len(row)
    for i in range(len(G)):
        # contiguous buffers: over overlapping or strided arrays the middle loop runs as scalars, ten times slower;
        # and copied by loops: numba's slice assignments take longer than the exponentials
        source, target, left = G[i], out[i], G.dtype.type(a[i])
        for j in range(m):
            row[j] = source[j]
        for j in range(m):
            values[j] = exp2(np.float32(row[j] * factor + (left + right[j])))
        write(values, target, past_caches)
    fence()


def exp_of_distances(G: Floats, unit: float, x_norm2: Floats, z_norm2: Floats, gamma: float, out: Floats) -> Floats:
    """Out = exp(-gamma (||x||^2 + ||z||^2 - 2 unit G)): rows of int32 `G` contiguous, norms multiples of `unit`."""
    a, b = x_norm2 / unit, z_norm2 / unit
    if out.dtype == np.float32 and gamma * unit <= LARGEST_FLOAT32:
        _exp_of_distances(G, a, b, gamma * unit * LOG2E, out, is_spread(out))
    else:
        values_of_distances(G, np.rint(a).astype(np.int32), np.rint(b).astype(np.int32), gamma * unit, out)
    return out


@njit_fused(makes_arrays=True)
def _exp_of_distances(G, a, b, scale, out, past_caches):  # type: ignore[no-untyped-def]
    n, m = G.shape
    factor = np.float32(-scale)
    row, right = np.empty(m, np.float32), np.empty(m, np.int32)
    for j in range(m):
        right[j] = np.int32(np.rint(b[j]))
    for i in range(n):
        source, target, left = numba.carray(_int32_at(G[i].ctypes.data), m), out[i], np.int32(np.rint(a[i]))
        for j in range(m):  # of a row that is known to be contiguous: else this runs as scalars
            distance = np.int32(np.int32(left + right[j]) - np.int32(source[j] + source[j]))
            row[j] = exp2(np.float32(distance) * factor)
        write(row, target, past_caches)
    fence()


@intrinsic
def _int32_at(typing_context, address):  # type: ignore[no-untyped-def]
    """An address as a pointer to int32."""
    pointer = types.CPointer(types.int32)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(types.intp), generate


def sums_of_values(K: Floats, weights: Floats, absolute: bool, out: Floats) -> None:
    """Out (n, k) float64 += K weights', with float32 `K` (n, m) and weights (k, m), in float32 sums of TERMS of them.

    If `absolute`, the last weights are of abs(K).
    """
    plain = len(weights) - absolute
    _sums_of_values(K, weights[:plain], out[:, :plain])
    if absolute:
        _sums_of_values(np.abs(K), weights[plain:], out[:, plain:])


@njit_sums
def _sums_of_values(K, weights, out):  # type: ignore[no-untyped-def]
    for first in range(0, len(out), QUAD):
        add_quad(K, first, weights, 0, out[first : first + QUAD])


@njit_sums
def add_quad(values, first, weights, start, out):  # type: ignore[no-untyped-def]
    """Add the sums of up to four rows of values from `first`, which meet the weights from `start` on."""
    m, last = values.shape[1], len(values) - 1
    second, third, fourth = min(first + 1, last), min(first + 2, last), min(first + 3, last)
    for k in range(len(weights)):
        for lo in range(0, m, TERMS):
            hi = min(lo + TERMS, m)
            row = weights[k][start + lo : start + hi]
            v0, v1, v2, v3 = values[first][lo:hi], values[second][lo:hi], values[third][lo:hi], values[fourth][lo:hi]
            s0, s1, s2, s3 = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for j in range(len(row)):
                w = row[j]
                s0 += v0[j] * w
                s1 += v1[j] * w
                s2 += v2[j] * w
                s3 += v3[j] * w
            sums = s0, s1, s2, s3
            for i in range(len(out)):
                out[i, k] += sums[i]
