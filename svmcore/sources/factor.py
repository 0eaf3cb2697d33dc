"""K = GG' of rows G that are in memory or mapped, and products with such rows."""

from functools import cached_property

import numpy as np
from scipy import sparse

from svmcore.kernels.linear import Linear
from svmcore.passes.coordinates import dense_outputs, dense_weights
from svmcore.points import Floats, Moments, Points, Rows
from svmcore.runtime.threads import split_range
from svmcore.sources.base import Factor
from svmcore.sources.computed import ComputedColumns

__all__ = ["FactorRows", "LinearMap"]

GRAIN = 1024
EPS = float(np.finfo(np.float64).eps)


class LinearMap:
    """Products with rows (n, r), dense or CSR, in float64 whatever their type."""

    def __init__(self, rows: Rows) -> None:
        self.rows: Rows = sparse.csr_matrix(rows) if sparse.issparse(rows) else np.ascontiguousarray(rows)

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are CSR."""
        return bool(sparse.issparse(self.rows))

    @cached_property
    def entries(self) -> float:
        """Mean number of entries of a row."""
        size = self.rows.nnz if self.is_sparse else self.rows.size
        return size / max(1, self.rows.shape[0])

    def times(self, w: Floats) -> Floats:
        """g_i'w (n,)."""
        if self.is_sparse:
            return np.asarray(self.rows @ w)
        out = np.empty(len(self.rows))
        split_range(len(out), lambda lo, hi: dense_outputs(self.rows[lo:hi], w, out[lo:hi]), least=GRAIN, grain=GRAIN)
        return out

    def weights(self, beta: Floats) -> Floats:
        """Sum beta_i g_i (r,)."""
        if self.is_sparse:
            return np.asarray(self.rows.T @ beta)
        support, w = np.flatnonzero(beta), np.zeros(self.rows.shape[1])
        dense_weights(self.rows, support, beta[support], w)
        return w

    def mean(self) -> Floats:
        """Mean of the rows (r,)."""
        if self.is_sparse:
            return np.asarray(self.rows.mean(axis=0, dtype=np.float64)).ravel()
        return np.asarray(self.rows.mean(axis=0, dtype=np.float64))


class FactorRows(ComputedColumns):
    """K = GG' of rows `G` (n, r), dense of either precision, which are what is meant; nothing of them is copied."""

    def __init__(self, G: Floats) -> None:
        norm2 = np.einsum("ij,ij->i", G, G, dtype=np.float64)
        points = Points(G, Moments(norm2, np.zeros(len(G))), np.zeros(G.shape[1]))
        super().__init__(Linear(), points, G.dtype)
        self.map = LinearMap(G)

    def take(self, rows: Floats) -> "FactorRows":
        """Some of the rows."""
        return FactorRows(self.map.rows[rows])

    def factor(self) -> Factor:
        """The rows."""
        return Factor(self.map.rows, np.zeros(self.map.rows.shape[1]))

    def outputs(self, coef: Floats) -> tuple[Floats, Floats]:
        """K coef (n,) through the weights G'coef, and a bound of the errors."""
        lengths = np.sqrt(self.points.moments.norm2)
        terms = np.count_nonzero(coef) + self.map.rows.shape[1]
        return self.map.times(self.map.weights(coef)), EPS * terms * float(np.abs(coef) @ lengths) * lengths
