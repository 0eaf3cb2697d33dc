"""Explicit feature maps phi with phi(x)'phi(z) = k(x, z): for weight vectors, and to see what a kernel does."""

import numpy as np

from svmcore.points import Floats

__all__ = ["product_map", "quadratic_map", "sum_map", "weights"]


def quadratic_map(X: Floats, gamma: float = 1.0, coef0: float = 0.0) -> Floats:
    r"""Map (n, d) of `X` (n, p) for k(x, z) = (gamma x'z + coef0)^2, d = p + p (p - 1) / 2 + p + 1.

    The columns are gamma x_i^2, then sqrt(2) gamma x_i x_j for i < j, then sqrt(2 gamma coef0) x_i, then coef0.

    >>> quadratic_map(np.array([[1.0, 2.0]]), coef0=1.0).round(3)
    array([[1.   , 4.   , 2.828, 1.414, 2.828, 1.   ]])
    """
    X = np.asarray(X, dtype=np.float64)
    i, j = np.triu_indices(X.shape[1], k=1)
    constant = np.full((len(X), 1), coef0)
    return np.hstack(
        [gamma * X**2, np.sqrt(2.0) * gamma * X[:, i] * X[:, j], np.sqrt(2.0 * gamma * coef0) * X, constant]
    )


def sum_map(left: Floats, right: Floats) -> Floats:
    """Map (n, d + e) of a sum of kernels from the maps (n, d) and (n, e) of its parts: side by side."""
    return np.hstack([left, right])


def product_map(left: Floats, right: Floats) -> Floats:
    """Map (n, d e) of a product of kernels from the maps (n, d) and (n, e) of its parts: all products of coordinates.

    >>> product_map(np.array([[1.0, 2.0]]), np.array([[3.0, 5.0]]))
    array([[ 3.,  5.,  6., 10.]])
    """
    return np.einsum("ni,nj->nij", left, right).reshape(len(left), -1)


def weights(features: Floats, coef: Floats) -> Floats:
    """W = sum_i coef_i phi(x_i), (d,), from the mapped support vectors (m, d) and their coef (m,)."""
    return np.asarray(coef @ features)
