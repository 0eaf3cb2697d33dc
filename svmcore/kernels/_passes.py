"""Compiled elementwise passes: inner products in, kernel values out, nothing allocated that is larger than a row."""

from collections.abc import Callable

import numpy as np

from svmcore._numba import njit
from svmcore.points import Floats, Moments

__all__ = ["exp_pass", "float64_pass"]


def float64_pass(G: Floats, x: Moments, z: Moments, out: Floats | None, function: Callable[[Floats], object]) -> Floats:
    """Apply `function` (in place, float64) to x'z = G + o_x + o_z, a few rows at a time, into `out` or G."""
    out = G if out is None else out
    step = max(1, (1 << 17) // max(1, G.shape[1]))
    for start in range(0, G.shape[0], step):
        part = slice(start, start + step)
        products = G[part].astype(np.float64)
        products += x.offset[part, None]
        products += z.offset
        function(products)
        out[part] = products
    return out


def exp_pass(G: Floats, x_norm2: Floats, z_norm2: Floats, gamma: float, out: Floats | None) -> Floats:
    """Out = exp(-gamma max(0, ||x||^2 + ||z||^2 - 2 G)), in place if `out` is None."""
    out = G if out is None else out
    if out.dtype == np.float32:
        _exp_float32(G, -gamma * x_norm2, -gamma * z_norm2, 2.0 * gamma, out)
        return out
    step = max(1, (1 << 17) // max(1, G.shape[1]))
    for start in range(0, G.shape[0], step):
        part = slice(start, start + step)
        exponent = np.multiply(G[part], 2.0 * gamma, out=out[part])
        exponent -= gamma * x_norm2[part, None]
        exponent -= gamma * z_norm2
        np.minimum(exponent, 0.0, out=exponent)
        np.exp(exponent, out=exponent)
    return out


@njit
def _exp_float32(G, a, b, scale, out):  # type: ignore[no-untyped-def]
    """out[i, j] = exp(min(0, scale G[i, j] + a[i] + b[j])) in float32, relative error below 1e-7 + that of G.

    Cephes' expf: x = k ln 2 + r, exp(r) by a degree-5 polynomial, 2^k through the exponent bits. Numba's own exp is a
    scalar call; this loop vectorises.
    """
    n, m = G.shape
    right = b.astype(G.dtype)
    factor = G.dtype.type(scale)
    row = np.empty(m, G.dtype)
    for i in range(n):
        # one contiguous buffer: over overlapping or strided arrays the loop below runs as scalars, ten times slower
        row[:] = G[i]
        left = G.dtype.type(a[i])
        for j in range(m):
            x = np.float32(row[j] * factor + (left + right[j]))
            x = min(max(x, np.float32(-87.0)), np.float32(0.0))
            k = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
            r = x - k * np.float32(0.693359375) + k * np.float32(2.12194440e-4)
            p = np.float32(1.9875691500e-4)
            p = p * r + np.float32(1.3981999507e-3)
            p = p * r + np.float32(8.3334519073e-3)
            p = p * r + np.float32(4.1665795894e-2)
            p = p * r + np.float32(1.6666665459e-1)
            p = p * r + np.float32(5.0000001201e-1)
            p = p * r * r + r + np.float32(1.0)
            bits = (np.int32(k) + np.int32(127)) << np.int32(23)
            row[j] = p * np.int32(bits).view(np.float32)
        out[i] = row
