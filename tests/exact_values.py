"""Kernels, rows that are hard on rounding, and kernel matrices by their definition in extended precision."""

import numpy as np
from scipy import sparse

from svmcore import RBF, Conformal, Linear, Polynomial, Product, Scaled, Sum, Tanh
from svmcore.kernels.compose import Gaussian

KERNELS = {
    "linear": lambda g: Linear(),
    "rbf": RBF,
    "polynomial": lambda g: Polynomial(degree=3, gamma=g, coef0=-0.5),
    "constant": lambda g: Polynomial(degree=0, gamma=g),
    "tanh": lambda g: Tanh(gamma=g, coef0=0.3),
    "scaled": lambda g: Scaled(RBF(g), 0.3),
    "sum": lambda g: Sum(RBF(g), Scaled(Linear(), 0.1)),
    "product": lambda g: Product(Polynomial(degree=2, gamma=g, coef0=1.0), RBF(2 * g)),
    "gaussian": lambda g: Conformal(Sum(RBF(g), Linear()), Gaussian(g)),
    "normalise": lambda g: Conformal(Polynomial(degree=2, gamma=g, coef0=1.0)),
}
FORMS = ("dense", "lattice", "rough lattice", "CSR")


def rows(form, n, p, seed, shift, spread):
    """Rows (n, p), some of them nearly twice, of columns of very different scales."""
    rng = np.random.default_rng(seed)
    if form == "lattice":
        return rng.integers(0, 9, (n, p)) * spread + np.round(shift)
    if form == "rough lattice":
        return (rng.integers(0, 256, (n, p)) / np.float32(255)).astype(np.float32)
    X = rng.normal(size=(n, p)) * spread ** rng.uniform(-1, 1, p) + shift
    X[1::4] = X[::4][: len(X[1::4])] * (1 + 1e-7 * rng.normal(size=p))
    if form == "CSR":
        X = X * (rng.random((n, p)) < 0.1)
        return sparse.hstack([sparse.csr_matrix(X), sparse.csr_matrix((n, 20 * p))], "csr")
    return X


def exact(kernel, X):
    """Kernel matrix (n, n) by the definition, in extended precision."""
    X = (X.toarray() if sparse.issparse(X) else np.asarray(X)).astype(np.longdouble)
    return value(kernel, X @ X.T, ((X[:, None] - X) ** 2).sum(axis=-1), (X**2).sum(axis=1))


def value(kernel, G, distances, square):
    if isinstance(kernel, Linear):
        return G
    if isinstance(kernel, Polynomial):
        return (np.longdouble(kernel.gamma) * G + kernel.coef0) ** kernel.degree
    if isinstance(kernel, Tanh):
        return np.tanh(np.longdouble(kernel.gamma) * G + kernel.coef0)
    if isinstance(kernel, RBF):
        return np.exp(-np.longdouble(kernel.gamma) * distances)
    if isinstance(kernel, Scaled):
        return kernel.scale * value(kernel.kernel, G, distances, square)
    if isinstance(kernel, Conformal):
        K = value(kernel.kernel, G, distances, square)
        gaussian = isinstance(kernel.factor, Gaussian)
        c = np.exp(-np.longdouble(kernel.factor.gamma) * square) if gaussian else 1 / np.sqrt(np.diag(K))
        return c[:, None] * K * c
    left, right = (value(part, G, distances, square) for part in (kernel.left, kernel.right))
    return left + right if isinstance(kernel, Sum) else left * right
