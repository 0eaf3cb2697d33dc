"""Compiled elementwise passes: inner products in, kernel values out, nothing allocated that is larger than a row."""

from collections.abc import Callable

import numpy as np

from svmcore._numba import njit_fused
from svmcore.points import Floats, Moments

__all__ = ["exp_of_differences", "exp_of_distances", "exp_pass", "float64_pass"]


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


@njit_fused
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
        # one contiguous buffer: over overlapping or strided arrays the middle loop runs as scalars, ten times slower;
        # and copied by loops: numba's slice assignments take longer than the exponentials
        source, target, left = G[i], out[i], G.dtype.type(a[i])
        for j in range(m):
            row[j] = source[j]
        for j in range(m):
            row[j] = _exp(np.float32(row[j] * factor + (left + right[j])))
        for j in range(m):
            target[j] = row[j]


def exp_of_distances(G: Floats, x_norm2: Floats, z_norm2: Floats, gamma: float, out: Floats) -> Floats:
    """Out = exp(-gamma (||x||^2 + ||z||^2 - 2 G)) in float32 of integers: `G` int32, norms integral."""
    _exp_of_distances(G, np.rint(x_norm2).astype(np.int32), np.rint(z_norm2).astype(np.int32), gamma, out)
    return out


@njit_fused
def _exp_of_distances(G, a, b, gamma, out):  # type: ignore[no-untyped-def]
    n, m = G.shape
    factor = np.float32(-gamma)
    row, distances = np.empty(m, np.float32), np.empty(m, np.int32)
    for i in range(n):
        source, target, left = G[i], out[i], a[i]
        for j in range(m):
            distances[j] = source[j]
        for j in range(m):
            distance = np.int32(np.int32(left + b[j]) - np.int32(distances[j] + distances[j]))
            row[j] = _exp(np.float32(distance) * factor)
        for j in range(m):
            target[j] = row[j]


def exp_of_differences(X: Floats, Z: Floats, gamma: float, out: Floats) -> Floats:
    """Out = exp(-gamma sum_f (X_if - Z_jf)^2) in float32 of float32 rows with few features."""
    width = -(-X.shape[1] // 4) * 4
    left, right = np.zeros((len(X), width), np.float32), np.zeros((width, len(Z)), np.float32)
    left[:, : X.shape[1]], right[: X.shape[1]] = X, Z.T
    _exp_of_differences(left, right, gamma, out)
    return out


@njit_fused
def _exp_of_differences(X, Z, gamma, out):  # type: ignore[no-untyped-def]
    """As `exp_of_differences`, of Z transposed (p, m), p a multiple of 4: four features for one load of the sums."""
    n, m = out.shape
    factor = np.float32(-gamma)
    total = np.empty(m, np.float32)
    for i in range(n):
        x, target = X[i], out[i]
        total[:] = np.float32(0.0)
        for f in range(0, len(x), 4):
            x0, x1, x2, x3 = x[f], x[f + 1], x[f + 2], x[f + 3]
            z0, z1, z2, z3 = Z[f], Z[f + 1], Z[f + 2], Z[f + 3]
            for j in range(m):
                a, b, c, d = x0 - z0[j], x1 - z1[j], x2 - z2[j], x3 - z3[j]
                total[j] += (a * a + b * b) + (c * c + d * d)
        for j in range(m):
            total[j] = _exp(total[j] * factor)
        for j in range(m):
            target[j] = total[j]


@njit_fused
def _exp(x):  # type: ignore[no-untyped-def]
    """Return exp(min(0, x)) of one float32."""
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
    bits = np.int32(np.int32(np.int32(k) + np.int32(127)) << np.int32(23))
    return p * bits.view(np.float32)
