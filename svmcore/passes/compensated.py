"""Sums of products in twice the digits of float64: what proves a linear kernel on rows of any scale.

Every product is split into its float64 value and what that rounds away (Dekker, Veltkamp), every sum likewise (Knuth).
A weight is kept as the sum of two float64, so w'x is right to float64 whatever cancels in it.

References
----------
Ogita, Rump, Oishi (2005), Accurate sum and dot product, SIAM J. Sci. Comput. 26, algorithms 2.1, 3.1 to 3.5, 5.3.
"""

from svmcore._numba import njit

__all__ = ["outputs_of_csr", "outputs_of_dense", "weights_of_csr", "weights_of_dense"]

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
def _sum(a, b):  # type: ignore[no-untyped-def]
    """(a + b rounded, what that rounds away)."""
    s = a + b
    part = s - a
    return s, (a - (s - part)) + (b - part)


@njit
def weights_of_dense(X, centre, coef, high, low):  # type: ignore[no-untyped-def]
    """(high + low)_f += sum_i coef_i (X_if - centre_f), the centre in float64."""
    for i in range(X.shape[0]):
        c = coef[i]
        for f in range(X.shape[1]):
            u, du = _sum(float(X[i, f]), -centre[f])
            p, dp = _product(c, u)
            high[f], ds = _sum(high[f], p)
            low[f] += ds + (dp + c * du)


@njit
def outputs_of_dense(X, centre, high, low, out):  # type: ignore[no-untyped-def]
    """out_i = sum_f (X_if - centre_f) (high + low)_f."""
    for i in range(X.shape[0]):
        total, rest = 0.0, 0.0
        for f in range(X.shape[1]):
            u, du = _sum(float(X[i, f]), -centre[f])
            p, dp = _product(u, high[f])
            total, ds = _sum(total, p)
            rest += ds + (dp + (u * low[f] + du * high[f]))
        out[i] = total + rest


@njit
def weights_of_csr(data, indices, indptr, coef, high, low):  # type: ignore[no-untyped-def]
    """As `weights_of_dense`, of CSR rows about 0."""
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            f = indices[k]
            p, dp = _product(coef[i], float(data[k]))
            high[f], ds = _sum(high[f], p)
            low[f] += ds + dp


@njit
def outputs_of_csr(data, indices, indptr, high, low, out):  # type: ignore[no-untyped-def]
    """As `outputs_of_dense`, of CSR rows about 0."""
    for i in range(len(indptr) - 1):
        total, rest = 0.0, 0.0
        for k in range(indptr[i], indptr[i + 1]):
            p, dp = _product(float(data[k]), high[indices[k]])
            total, ds = _sum(total, p)
            rest += ds + (dp + float(data[k]) * low[indices[k]])
        out[i] = total + rest
