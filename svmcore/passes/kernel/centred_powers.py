"""The compiled pass of centred polynomials: inner products in, kernel values out."""

import numpy as np

from svmcore.points import Floats
from svmcore.runtime.compiled import njit_fused

__all__ = ["centred_powers"]


def centred_powers(G: Floats, gamma: float, a: Floats, b: Floats, A: float, degree: int, out: Floats) -> None:
    """Write the centred polynomial of products `G`: g h(T, S) + a D of `svmcore.kernels.centred`."""
    _centred_powers(G, gamma, a, b, A, degree, out, _complete(b + A, A, degree), _complete(a + A, A, degree))


def _complete(x: Floats, A: float, degree: int) -> Floats:
    """h_n(x, A) (degree, m) for n = 0 ... degree - 1."""
    h, power = np.ones((max(1, degree), len(x))), 1.0
    for n in range(1, degree):
        power *= A
        h[n] = x * h[n - 1] + power
    return h


@njit_fused(makes_arrays=True)
def _centred_powers(G, gamma, a, b, A, degree, out, h_t, h_s):  # type: ignore[no-untyped-def]
    n, m = G.shape
    row, S, T = np.empty(m, np.float64), np.empty(m, np.float64), np.empty(m, np.float64)
    H, D, power = np.empty(m, np.float64), np.empty(m, np.float64), np.empty(m, np.float64)
    for i in range(n):
        source, target, s, x = G[i], out[i], A + a[i], a[i]
        for j in range(m):
            row[j] = gamma * source[j]
        for j in range(m):
            S[j] = s + b[j]
            T[j] = S[j] + row[j]
            H[j], D[j], power[j] = 1.0, 0.0, 1.0
        for k in range(1, degree):
            h, first = h_t[k - 1], h_s[k - 1, i]
            for j in range(m):
                power[j] *= S[j]
                H[j] = T[j] * H[j] + power[j]
                D[j] = S[j] * D[j] + b[j] * (first + h[j])
        for j in range(m):
            row[j] = row[j] * H[j] + x * D[j]
        for j in range(m):
            target[j] = row[j]
