"""G (m, r) as rows that are somewhere, less a centre, in some order: products with it copy no more than a block.

Sums over rows are made in parts that depend on the number of rows alone, on all threads, and added in a fixed order.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from svmcore.passes.kernel.row_products import (
    ROWS,
    csr_outputs,
    csr_weights,
    dense_outputs,
    dense_weights,
    square_lengths,
)
from svmcore.points import Floats, Rows
from svmcore.points.taken import taken
from svmcore.runtime.threads import split_range

__all__ = ["RowMap"]

PARTS = 16  # of a sum over rows at most
BLOCK = 4096  # rows of a block of the normal matrix: small enough for the caches, large enough for BLAS
PACKED = 2  # one row of so many is worth a copy
LEAST = 1 << 14  # numbers that are worth a thread


class RowMap:
    """G = (X[at] - c, constant): `rows` X (n, p), dense of either precision or CSR (which has no centre), as they came.

    Parameters
    ----------
    at
        (m,) the rows, in the order of G; None for all as they are.
    constant
        A last column of G that is the same for all rows; 0 for none.
    """

    def __init__(
        self, rows: Rows, centre: Floats | None = None, at: Floats | None = None, constant: float = 0.0
    ) -> None:
        self.rows: Rows = sparse.csr_matrix(rows) if sparse.issparse(rows) else np.ascontiguousarray(rows)
        self.at = np.arange(self.rows.shape[0]) if at is None else at
        self.centre = np.zeros(self.rows.shape[1]) if centre is None else centre
        self.constant = constant

    def __len__(self) -> int:
        return len(self.at)

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are CSR."""
        return bool(sparse.issparse(self.rows))

    @property
    def rank(self) -> int:
        """Number of columns r."""
        return len(self.centre) + (self.constant != 0.0)

    @property
    def entries(self) -> float:
        """Mean number of entries of a row."""
        size = self.rows.nnz if self.is_sparse else self.rows.size
        return float(size / max(1, self.rows.shape[0]))

    @cached_property
    def _csr(self) -> tuple[Any, ...]:
        return self.rows.data, self.rows.indices, self.rows.indptr

    def take(self, rows: Any) -> "RowMap":
        """Some of the rows of G, given as a mask or as indices."""
        return RowMap(self.rows, self.centre, self.at[rows], self.constant)

    def taken(self, rows: Any) -> "RowMap":
        """As `take`, and side by side in memory where they are few, for those who go over them many times."""
        at = self.at[rows]
        few = PACKED * len(at) <= self.rows.shape[0]
        return RowMap(taken(self.rows, at), self.centre, None, self.constant) if few else self.take(rows)

    def dense(self, start: int = 0, stop: int | None = None) -> Floats:
        """Rows start ... stop - 1 of G, (stop - start, r) float64."""
        found = self.rows[self.at[start:stop]]
        found = found.toarray() if self.is_sparse else found
        out = np.empty((len(found), self.rank))
        np.subtract(found, self.centre, out=out[:, : len(self.centre)])
        out[:, len(self.centre) :] = self.constant
        return out

    def times(self, w: Floats) -> Floats:
        """G w (m,)."""
        out, p = np.empty(len(self)), len(self.centre)
        weights = np.ascontiguousarray(w[:p], dtype=np.float64)

        def part(start: int, stop: int) -> None:
            at, some = self.at[start:stop], out[start:stop]
            if self.is_sparse:
                csr_outputs(*self._csr, at, weights, some)
            else:
                dense_outputs(self.rows, at, self.centre, weights, some)

        self._on_rows(part)
        if self.constant:
            out += self.constant * w[p]
        return out

    def weights(self, coef: Floats) -> Floats:
        """G'coef (r,)."""
        coef = np.ascontiguousarray(coef, dtype=np.float64)

        def part(start: int, stop: int, total: Floats) -> None:
            at, some = self.at[start:stop], coef[start:stop]
            if self.is_sparse:
                csr_weights(*self._csr, at, some, total)
            else:
                dense_weights(self.rows, at, self.centre, some, total)

        found = self._summed(part, (len(self.centre),))
        return np.append(found, self.constant * float(coef.sum())) if self.constant else found

    def normal_matrix(self, weights: Floats) -> Floats:
        """G' diag(weights) G (r, r) for `weights` (m,) that are not negative."""
        root = np.sqrt(weights)

        def part(start: int, stop: int, total: Floats) -> None:
            for lo in range(start, stop, BLOCK):
                block = self.dense(lo, min(lo + BLOCK, stop))
                block *= root[lo : lo + len(block), None]
                total += block.T @ block  # a syrk that lets other threads go on, as SciPy's does not

        return self._summed(part, (self.rank, self.rank))

    def square_lengths(self) -> Floats:
        """||g_i||^2 (m,)."""
        out = np.empty(len(self))
        if self.is_sparse:
            squares = np.asarray(self.rows.multiply(self.rows).sum(axis=1), dtype=np.float64).ravel()
            return squares[self.at] + self.constant**2
        self._on_rows(lambda lo, hi: square_lengths(self.rows, self.at[lo:hi], self.centre, out[lo:hi]))
        return out + self.constant**2

    def mean(self) -> Floats:
        """Mean of the rows X[at] (p,), before the centre is taken off."""
        ones = RowMap(self.rows, None, self.at)
        return ones.weights(np.full(len(self), 1.0 / max(1, len(self))))

    def _on_rows(self, part: Callable[[int, int], None]) -> None:
        split_range(len(self), part, least=max(ROWS, int(LEAST / max(1.0, self.entries))), grain=ROWS)

    def _summed(self, part: Callable[[int, int, Floats], None], shape: tuple[int, ...]) -> Floats:
        """The sum of what `part` adds to its totals, over ranges of rows."""
        parts = min(PARTS, 1 + len(self) // BLOCK)
        edges = [len(self) * k // parts for k in range(parts + 1)]
        totals = np.zeros((parts, *shape))

        def some(first: int, last: int) -> None:
            for k in range(first, last):
                part(edges[k], edges[k + 1], totals[k])

        split_range(parts, some)
        return np.asarray(totals.sum(axis=0))
