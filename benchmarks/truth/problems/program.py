"""What a problem asks for in numbers, for the solvers and for the judge alike, without a line of svmcore.

min over beta of 1/2 beta'K beta + 1/2 sum ridge_i beta_i^2 - y'beta, sum beta_i = 0, beta_i between 0 and y_i upper_i.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.truth.problems import tables
from benchmarks.truth.problems.design import Problem

Float = NDArray[np.float64]
DEGREE, COEF0 = 2, 1.0


@dataclass(frozen=True, eq=False)
class Program:
    """`X` (n, p) rows, or (n, n) the matrix where `kernel` is "precomputed"; targets `y` and `weights` (n,)."""

    kernel: str
    gamma: float
    X: Float
    y: Float
    C: float
    loss: str = "hinge"
    weights: Float | None = None

    @property
    def cost(self) -> Float:
        """C_i (n,), rounded once as every solver does."""
        return np.full(len(self.y), self.C) if self.weights is None else self.C * self.weights

    @property
    def upper(self) -> Float:
        """Bounds (n,) of abs(beta)."""
        return self.cost if self.loss == "hinge" else np.full(len(self.y), np.inf)

    @property
    def ridge(self) -> Float:
        """What squared hinge adds to the diagonal (n,): 1 / (2 C_i)."""
        return np.zeros(len(self.y)) if self.loss == "hinge" else 0.5 / self.cost

    @property
    def psd(self) -> bool:
        """Whether K is positive semi-definite by construction."""
        return self.kernel != "sigmoid"

    def digest(self) -> str:
        """Name of the numbers: equal programs have equal names."""
        text = hashlib.sha256(f"{self.kernel} {self.gamma!r} {self.loss}".encode())
        for array in (self.X, self.y, self.cost):
            text.update(np.ascontiguousarray(array))
        return text.hexdigest()[:16]


def program_of(problem: Problem) -> Program:
    """Rows, K, targets and costs of a problem; gamma is 1 / (p var(X)), scikit-learn's "scale", as a number."""
    X, y = tables.rows_of(problem.table, problem.scaling)
    gamma = 1.0 / (X.shape[1] * float(X.var()))
    if problem.gram:
        X = _gram(problem.table, problem.scaling, problem.gram, gamma)
    weights = tables.weights_of(problem.table, len(y)) if problem.weighted else None
    return Program(problem.kernel, gamma, X, y, problem.C, problem.loss, weights)


@lru_cache(maxsize=2)
def _gram(table: str, scaling: str, kernel: str, gamma: float) -> Float:
    """K (n, n) as a user would bring it: float64 products of the rows as they are, symmetric to the last bit."""
    X = tables.rows_of(table, scaling)[0]
    if kernel == "rbf":
        X = X - X.mean(axis=0)
    K = kernel_values(kernel, gamma, X, X)
    return 0.5 * (K + K.T)


def kernel_values(kernel: str, gamma: float, A: NDArray, B: NDArray) -> NDArray:
    """Values k(a_i, b_j) (m, s) for rows A (m, p) and B (s, p), in their precision."""
    K = A @ B.T
    if kernel == "linear":
        return K
    if kernel == "poly":
        return (gamma * K + COEF0) ** DEGREE
    if kernel == "sigmoid":
        return np.tanh(gamma * K)
    K = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1)[None, :] - 2 * K
    return np.exp(-gamma * np.maximum(K, 0))
