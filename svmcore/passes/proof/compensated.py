"""Sums of products in twice the digits of float64: what proves a linear kernel on rows of any scale.

Every product is split into its float64 value and what that rounds away (Dekker, Veltkamp), every sum likewise (Knuth).
A weight is kept as the sum of two float64, so w'x is right to float64 whatever cancels in it.

References
----------
Ogita, Rump, Oishi (2005), Accurate sum and dot product, SIAM J. Sci. Comput. 26, algorithms 2.1, 3.1 to 3.5, 5.3.
"""

import math

import numpy as np

from svmcore.passes.proof.exact_sums import two_sum
from svmcore.runtime.compiled import njit

__all__ = [
    "gaussian_outputs",
    "outputs_of_csr",
    "outputs_of_dense",
    "power_outputs",
    "quadratic_moments",
    "quadratic_outputs",
    "tanh_outputs",
    "weights_of_csr",
    "weights_of_dense",
]

SPLITTER = 134217729.0  # 2^27 + 1


@njit
def _product(a, b):  # type: ignore[no-untyped-def]
    """(a b rounded, what that rounds away)."""
    p = a * b
    c, d = SPLITTER * a, SPLITTER * b
    a_high, b_high = c - (c - a), d - (d - b)
    a_low, b_low = a - a_high, b - b_high
    return p, a_low * b_low - (((p - a_high * b_high) - a_low * b_high) - a_high * b_low)


@njit
def weights_of_dense(X, centre, coef, high, low):  # type: ignore[no-untyped-def]
    """(high + low)_f += sum_i coef_i (X_if - centre_f), the centre in float64."""
    for i in range(X.shape[0]):
        c = coef[i]
        for f in range(X.shape[1]):
            u, du = two_sum(np.float64(X[i, f]), -centre[f])
            p, dp = _product(c, u)
            high[f], ds = two_sum(high[f], p)
            low[f] += ds + (dp + c * du)


@njit
def outputs_of_dense(X, centre, high, low, out):  # type: ignore[no-untyped-def]
    """out_i = sum_f (X_if - centre_f) (high + low)_f."""
    for i in range(X.shape[0]):
        total, rest = 0.0, 0.0
        for f in range(X.shape[1]):
            u, du = two_sum(np.float64(X[i, f]), -centre[f])
            p, dp = _product(u, high[f])
            total, ds = two_sum(total, p)
            rest += ds + (dp + (u * low[f] + du * high[f]))
        out[i] = total + rest


@njit
def weights_of_csr(data, indices, indptr, coef, high, low):  # type: ignore[no-untyped-def]
    """As `weights_of_dense`, of CSR rows about 0."""
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            f = indices[k]
            p, dp = _product(coef[i], np.float64(data[k]))
            high[f], ds = two_sum(high[f], p)
            low[f] += ds + dp


@njit
def outputs_of_csr(data, indices, indptr, high, low, out):  # type: ignore[no-untyped-def]
    """As `outputs_of_dense`, of CSR rows about 0."""
    for i in range(len(indptr) - 1):
        total, rest = 0.0, 0.0
        for k in range(indptr[i], indptr[i + 1]):
            p, dp = _product(np.float64(data[k]), high[indices[k]])
            total, ds = two_sum(total, p)
            rest += ds + (dp + np.float64(data[k]) * low[indices[k]])
        out[i] = total + rest


# ---- numbers of twice the digits, (high, low), for the polynomial of degree two
@njit
def _plus(a, b):  # type: ignore[no-untyped-def]
    s, rest = two_sum(a[0], b[0])
    rest += a[1] + b[1]
    high = s + rest
    return high, rest - (high - s)


@njit
def _times(a, b):  # type: ignore[no-untyped-def]
    p, rest = _product(a[0], b[0])
    rest += a[0] * b[1] + a[1] * b[0]
    high = p + rest
    return high, rest - (high - p)


@njit(makes_arrays=True)
def quadratic_moments(X, centre, coef, w, M):  # type: ignore[no-untyped-def]
    """Add to w (2, p) sum_j coef_j u_j and to M (2, p, p) sum_j coef_j u_j u_j', u = x - centre, high and low parts."""
    p = X.shape[1]
    u = np.empty((2, p))
    for j in range(X.shape[0]):
        for f in range(p):
            u[0, f], u[1, f] = two_sum(np.float64(X[j, f]), -centre[f])
        for f in range(p):
            c = _times((coef[j], 0.0), (u[0, f], u[1, f]))
            w[0, f], w[1, f] = _plus((w[0, f], w[1, f]), c)
            for g in range(f + 1):
                M[0, f, g], M[1, f, g] = _plus((M[0, f, g], M[1, f, g]), _times(c, (u[0, g], u[1, g])))


@njit(makes_arrays=True)
def quadratic_outputs(X, centre, gamma, coef0, is_centred, total, w, M, out):  # type: ignore[no-untyped-def]
    """out_i = sum_j coef_j k(x_j, x_i) of k = (gamma x'z + coef0)^2, or of that about the centre, from the moments.

    With u = x - m, A = gamma m'm + coef0, g = gamma u'v, a = gamma u'm, b = gamma v'm the kernel is A^2 + 2 A (a + b) +
    (a + b)^2 + 2 g (A + a + b) + g^2; about the centre it is 2 g (A + a + b) + g^2 + 2 a b. `total` is sum_j coef_j.
    """
    p = X.shape[1]
    u, Mm = np.empty((2, p)), np.zeros((2, p))
    A, wm, mMm = (coef0, 0.0), (0.0, 0.0), (0.0, 0.0)
    for f in range(p):
        m_f = (centre[f], 0.0)
        A = _plus(A, _times((gamma, 0.0), _times(m_f, m_f)))
        wm = _plus(wm, _times((w[0, f], w[1, f]), m_f))
        for g in range(p):
            a, b = max(f, g), min(f, g)
            part = _plus((Mm[0, f], Mm[1, f]), _times((M[0, a, b], M[1, a, b]), (centre[g], 0.0)))
            Mm[0, f], Mm[1, f] = part
        mMm = _plus(mMm, _times((Mm[0, f], Mm[1, f]), m_f))
    twice, square = (2.0 * gamma, 0.0), _times((gamma, 0.0), (gamma, 0.0))
    for i in range(X.shape[0]):
        wv, vm, vMm, vMv = (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)
        for f in range(p):
            u[0, f], u[1, f] = two_sum(np.float64(X[i, f]), -centre[f])
        for f in range(p):
            v = (u[0, f], u[1, f])
            wv, vm = _plus(wv, _times((w[0, f], w[1, f]), v)), _plus(vm, _times((centre[f], 0.0), v))
            vMm = _plus(vMm, _times((Mm[0, f], Mm[1, f]), v))
            row = (0.0, 0.0)
            for g in range(f):
                row = _plus(row, _times((M[0, f, g], M[1, f, g]), (u[0, g], u[1, g])))
            row = _plus((2.0 * row[0], 2.0 * row[1]), _times((M[0, f, f], M[1, f, f]), v))
            vMv = _plus(vMv, _times(row, v))
        base = _plus(A, _times((gamma, 0.0), vm))
        value = _times(_times(twice, wv), base)  # 2 g (A + b), and below 2 g a, 2 a b, g^2
        cross = _plus(vMm, _times(vm, wm))
        value = _plus(value, _times(square, _plus(vMv, (2.0 * cross[0], 2.0 * cross[1]))))
        if not is_centred:  # A^2 + 2 A (a + b) + a^2 + b^2
            b = _times((gamma, 0.0), vm)
            ends = _times((total, 0.0), _plus(_times(A, A), _plus(_times(_plus(A, A), b), _times(b, b))))
            value = _plus(value, _plus(ends, _times(_times(twice, A), wm)))
            value = _plus(value, _times(square, mMm))
        out[i] = value[0] + value[1]


# ---- kernels value by value: x'z or ||x - z||^2 in twice the digits, the function of it, and the sum
# One x meets LANES rows at a time, as columns of a block: a sum over features is a chain, and lanes go side by side.
LANES = 64


@njit
def _turn(Z, start, block):  # type: ignore[no-untyped-def]
    """Write the rows of Z from `start` on as columns of `block` (p, LANES), in float64; returns how many there are."""
    count = min(LANES, Z.shape[0] - start)
    block[:, count:] = 0.0
    for lane in range(count):
        for f in range(Z.shape[1]):
            block[f, lane] = np.float64(Z[start + lane, f])
    return count


@njit
def _distances(x, block, high, low):  # type: ignore[no-untyped-def]
    """(high + low)_l = ||x - z_l||^2."""
    high[:], low[:] = 0.0, 0.0
    for f in range(len(x)):
        x_f = np.float64(x[f])
        for lane in range(LANES):
            u = x_f - block[f, lane]
            high[lane], low[lane] = _plus((high[lane], low[lane]), (u * u, 0.0))


@njit
def _bases(x, block, gamma, coef0, high, low):  # type: ignore[no-untyped-def]
    """(high + low)_l = gamma x'z_l + coef0."""
    high[:], low[:] = 0.0, 0.0
    for f in range(len(x)):
        x_f = np.float64(x[f])
        for lane in range(LANES):
            high[lane], low[lane] = _plus((high[lane], low[lane]), _product(x_f, block[f, lane]))
    for lane in range(LANES):
        high[lane], low[lane] = _plus(_times((gamma, 0.0), (high[lane], low[lane])), (coef0, 0.0))


@njit
def _powers(degree, high, low):  # type: ignore[no-untyped-def]
    """Each to the power of `degree`."""
    for lane in range(LANES):
        base, value = (high[lane], low[lane]), (1.0, 0.0)
        for _ in range(degree):
            value = _times(value, base)
        high[lane], low[lane] = value


@njit(makes_arrays=True)
def gaussian_outputs(X, Z, coef, gamma, out):  # type: ignore[no-untyped-def]
    """out_i = sum_j coef_j exp(-gamma ||x_i - z_j||^2)."""
    block, high, low, rest = np.empty((X.shape[1], LANES)), np.empty(LANES), np.empty(LANES), np.zeros(len(out))
    out[:] = 0.0
    for start in range(0, Z.shape[0], LANES):
        count = _turn(Z, start, block)
        for i in range(X.shape[0]):
            _distances(X[i], block, high, low)
            value = (out[i], rest[i])
            for lane in range(count):
                value = _plus(value, _product(coef[start + lane], math.exp(-gamma * high[lane])))
            out[i], rest[i] = value
    out += rest


@njit(makes_arrays=True)
def tanh_outputs(X, Z, coef, gamma, coef0, out):  # type: ignore[no-untyped-def]
    """out_i = sum_j coef_j tanh(gamma x_i'z_j + coef0)."""
    block, high, low, rest = np.empty((X.shape[1], LANES)), np.empty(LANES), np.empty(LANES), np.zeros(len(out))
    out[:] = 0.0
    for start in range(0, Z.shape[0], LANES):
        count = _turn(Z, start, block)
        for i in range(X.shape[0]):
            _bases(X[i], block, gamma, coef0, high, low)
            value = (out[i], rest[i])
            for lane in range(count):
                value = _plus(value, _product(coef[start + lane], math.tanh(high[lane])))
            out[i], rest[i] = value
    out += rest


@njit(makes_arrays=True)
def power_outputs(X, Z, coef, centre, gamma, coef0, degree, is_centred, total, out):  # type: ignore[no-untyped-def]
    """out_i = sum_j coef_j k(x_i, z_j) of k = (gamma x'z + coef0)^degree, or of that about the centre m.

    About it, k(x, z) - k(x, m) - k(m, z) + k(m, m) is formed as it stands: twice the digits bear what cancels.
    `total` is sum_j coef_j.
    """
    block, high, low, rest = np.empty((X.shape[1], LANES)), np.empty(LANES), np.empty(LANES), np.zeros(len(out))
    out[:], at_centre = 0.0, (0.0, 0.0)
    for start in range(0, Z.shape[0], LANES):
        count = _turn(Z, start, block)
        for i in range(X.shape[0]):
            _bases(X[i], block, gamma, coef0, high, low)
            _powers(degree, high, low)
            out[i], rest[i] = _weighted(coef, start, count, high, low, (out[i], rest[i]))
        _bases(centre, block, gamma, coef0, high, low)
        _powers(degree, high, low)
        at_centre = _weighted(coef, start, count, high, low, at_centre)
    if is_centred:
        _turn(centre.reshape(1, -1), 0, block)
        _bases(centre, block, gamma, coef0, high, low)
        _powers(degree, high, low)
        origin = (high[0], low[0])
        for i in range(X.shape[0]):
            _bases(X[i], block, gamma, coef0, high, low)
            _powers(degree, high, low)
            away = _times((-total, 0.0), _plus((high[0], low[0]), (-origin[0], -origin[1])))
            out[i], rest[i] = _plus(_plus((out[i], rest[i]), (-at_centre[0], -at_centre[1])), away)
    out += rest


@njit
def _weighted(coef, start, count, high, low, value):  # type: ignore[no-untyped-def]
    """`value` + sum_l coef_(start + l) (high + low)_l over the first `count` lanes."""
    for lane in range(count):
        value = _plus(value, _times((coef[start + lane], 0.0), (high[lane], low[lane])))
    return value
