"""The state of a working-set solve where K = GG': w is kept beside the scores, and no column of K is ever made.

A square of K costs the rows of its variables, and a round one product with the rows of all, however many have moved.
"""

from typing import Any

import numpy as np

from svmcore.errors import Unsupported
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.runtime.memory import empty
from svmcore.sources import RowMap, Source
from svmcore.state import MemoryState

__all__ = ["RowsOfFactor"]


class RowsOfFactor(Source):
    """K = GG' for solvers that ask a state, and no columns.

    Parameters
    ----------
    rows
        G (n, r), dense.
    diagonal
        K_ii (n,).
    """

    def __init__(self, rows: RowMap, diagonal: Floats) -> None:
        self.n, self.map, self._diagonal = len(rows), rows, diagonal
        self.dtype = np.dtype(np.float32 if rows.rows.dtype == np.float32 else np.float64)

    def diagonal(self) -> Floats:
        """K_ii (n,)."""
        return self._diagonal

    def columns(self, idx: Floats) -> Floats:
        """Refused."""
        raise Unsupported("columns of this K are not made: its rows are enough")

    def state(self, qp: SignedQP, beta: Floats, score: Floats | None) -> Any:
        """With w beside the scores."""
        return _RowsState(qp, beta, self.map, score)


class _RowsState(MemoryState):
    """Where the sum of beta is fixed, squares are of rows about their mean: steps are the same, with more digits."""

    def __init__(self, qp: SignedQP, beta: Floats, rows: RowMap, score: Floats | None) -> None:
        self.map, self.w, kind = rows, rows.weights(beta), qp.source.dtype
        self.mean = rows.mean().astype(kind) if qp.groups.sums else np.zeros(rows.rank, kind)
        self.kept, self.places = np.empty((0, rows.rank), kind), np.empty(0, np.int64)
        super().__init__(qp, beta, score)

    def _first_scores(self) -> Floats:
        qp = self.qp
        return qp.p - self.map.times(self.w) - qp.shift * float(self.beta.sum()) - qp.ridge * self.beta

    def square(self, idx: Floats, members: Floats, out: Floats, at: Floats) -> None:
        """From the rows of both, in their digits."""
        right = self._members(members)
        left = right if np.array_equal(idx, members) else self._rows(idx)
        strip = np.matmul(left, right.T, out=empty((len(left), len(right)), left.dtype))
        if self.qp.shift and not self.qp.groups.sums:
            strip += strip.dtype.type(self.qp.shift)
        out[at, : len(members)] = strip

    def _members(self, members: Floats) -> Floats:
        """The rows of a working set (q, r): those whose places in it have changed are copied."""
        q = len(members)
        if len(self.places) < q:  # the set grows by a quarter or less
            self.kept, self.places = np.empty((2 * q, self.map.rank), self.kept.dtype), np.full(2 * q, -1)
        fresh = np.flatnonzero(self.places[:q] != members)
        self.kept[fresh], self.places[fresh] = self._rows(members[fresh]), members[fresh]
        return self.kept[:q]

    def _rows(self, idx: Floats) -> Floats:
        """Copies of rows about the mean (q, r)."""
        return np.subtract(self.map.rows[self.map.at[idx]], self.mean, dtype=self.kept.dtype)

    def apply(self, idx: Floats, beta: Floats) -> None:
        """One product with the rows that have moved, and one with all."""
        moved = np.flatnonzero(beta != self.beta[idx])
        self.w += self.map.take(idx[moved]).weights(beta[moved] - self.beta[idx[moved]])
        self.beta[idx], self._ends = beta, None
        self.score = self._first_scores()
