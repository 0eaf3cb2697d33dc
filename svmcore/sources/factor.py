"""K = GG' of rows G that are in memory or mapped, and of the rows of a linear kernel as they came."""

import numpy as np

from svmcore.kernels.linear import Linear
from svmcore.passes.proof.compensated import outputs_of_csr, outputs_of_dense, weights_of_csr, weights_of_dense
from svmcore.points import Floats, Moments, Points, Rows
from svmcore.points.taken import taken
from svmcore.runtime.threads import split_range
from svmcore.sources.base import Factor, Source
from svmcore.sources.computed import ComputedColumns
from svmcore.sources.row_map import RowMap

__all__ = ["FactorRows", "LinearRows"]

CHUNK = 1 << 14  # rows that are copied at a time for sums in twice the digits
EPS = float(np.finfo(np.float64).eps)


class FactorRows(ComputedColumns):
    """K = GG' of rows `G` (n, r), dense of either precision, which are what is meant; nothing of them is copied."""

    def __init__(self, G: Floats) -> None:
        self.map = RowMap(G)
        points = Points(self.map.rows, Moments(self.map.square_lengths(), np.zeros(len(G))), np.zeros(G.shape[1]))
        super().__init__(Linear(), points, G.dtype)

    def take(self, rows: Floats) -> "FactorRows":
        """Some of the rows."""
        return FactorRows(taken(self.map.rows, rows))

    def factor(self) -> Factor:
        """The rows."""
        return Factor(self.map.rows, self.map.centre)

    def direct_outputs(self, coef: Floats) -> tuple[Floats, Floats]:
        """K coef (n,) through the weights G'coef, and a bound of the errors."""
        lengths = np.sqrt(self.points.moments.norm2)
        terms = np.count_nonzero(coef) + self.map.rank
        return self.map.times(self.map.weights(coef)), EPS * terms * float(np.abs(coef) @ lengths) * lengths


class LinearRows(Source):
    """K of the linear kernel from rows `X` (n, p) as they came, for solvers that need no columns.

    Nothing of the rows is copied or converted but a block at a time. Outputs are sums in twice the digits.

    Parameters
    ----------
    at
        (m,) the rows of K among those of X; None for all.
    centred
        Take dense rows about their mean.
    """

    def __init__(self, X: Rows, at: Floats | None = None, centred: bool = False, centre: Floats | None = None) -> None:
        self.map = RowMap(X, centre, at)
        if centred and centre is None and not self.map.is_sparse:
            self.map.centre = self.map.mean()
        self.n, self.dtype, self.centred = len(self.map), np.dtype(np.float64), centred
        self._diagonal = self.map.square_lengths()

    def diagonal(self) -> Floats:
        """K_ii (n,)."""
        return self._diagonal

    def columns(self, idx: Floats) -> Floats:
        """G G_idx' transposed, column by column: little of them is meant to be asked for."""
        return np.array([self.map.times(row) for row in self.map.take(idx).dense()]).reshape(len(idx), self.n)

    @property
    def rank(self) -> int:
        """Features."""
        return self.map.rank

    def factor(self) -> Factor:
        """The rows."""
        return Factor(self.map.rows, self.map.centre, self.map.at)

    def offset(self, coef: Floats) -> float:
        """What the centre has added to the bias."""
        return float(self.map.weights(coef) @ self.map.centre)

    def direct_outputs(self, coef: Floats) -> tuple[Floats, Floats]:
        """K coef (n,) through weights in twice the digits, and a bound of the errors."""
        map_, lengths = self.map, np.sqrt(self._diagonal) * (1.0 + 1e-6)
        high, low = self._weights(coef)
        values = np.empty(self.n)

        def part(start: int, stop: int) -> None:
            for lo in range(start, stop, CHUNK):
                some = slice(lo, min(lo + CHUNK, stop))
                X = map_.rows[map_.at[some]]
                if map_.is_sparse:
                    outputs_of_csr(X.data, X.indices, X.indptr, high, low, values[some])
                else:
                    outputs_of_dense(X, map_.centre, high, low, values[some])

        split_range(self.n, part, least=CHUNK, grain=CHUNK)
        digits = (float(self.n + map_.rank + 100) * EPS) ** 2
        return values, EPS * np.abs(values) + digits * float(np.abs(coef) @ lengths) * lengths

    def _weights(self, coef: Floats) -> tuple[Floats, Floats]:
        """G'coef as the sum of two float64 (p,)."""
        map_, support = self.map, np.flatnonzero(coef)
        high, low = np.zeros(map_.rank), np.zeros(map_.rank)
        for start in range(0, len(support), CHUNK):
            some = support[start : start + CHUNK]
            X = map_.rows[map_.at[some]]
            if map_.is_sparse:
                weights_of_csr(X.data, X.indices, X.indptr, coef[some], high, low)
            else:
                weights_of_dense(X, map_.centre, coef[some], high, low)
        return high, low
