"""Rows in plain files, written once and read in order: the staging area of an ingest, dense or CSR.

Files are read with ordinary reads, not mapped, so that memory stays what the block takes.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

__all__ = ["RowFiles", "as_dense", "as_sparse"]


def as_dense(X: Any) -> NDArray[Any]:
    """Return rows as an array."""
    return X.toarray() if sparse.issparse(X) else X


def as_sparse(X: Any) -> Any:
    """Return rows as CSR."""
    return X if sparse.issparse(X) else sparse.csr_array(X)


class RowFiles:
    """Rows of one set in files under `folder`, named after `name`; `n_features` may grow while CSR rows come.

    Attributes
    ----------
    kept
        Type of dense values in the file, which must hold them exactly; rows come and go as `dtype`.
    """

    def __init__(self, folder: Path, name: str, is_sparse: bool, dtype: DTypeLike = np.float64) -> None:
        self.is_sparse = is_sparse
        self.dtype = self.kept = np.dtype(dtype)
        self.n_features = 0
        self.n = 0
        self.first_column = 0  # the file's number of the first feature, subtracted on read
        self._values = folder / f"{name}.values"
        self._indices = folder / f"{name}.indices"
        self._lengths: list[NDArray[np.int64]] = []
        self._starts: NDArray[np.int64] | None = None

    def append(self, X: Any) -> None:
        """Add rows (n, p)."""
        self._starts = None
        self.n_features = max(self.n_features, X.shape[1])
        self.n += X.shape[0]
        if not self.is_sparse:
            with self._values.open("ab") as file:
                np.ascontiguousarray(as_dense(X), self.kept).tofile(file)
            return
        X = as_sparse(X)
        self._lengths.append(np.diff(X.indptr).astype(np.int64))
        with self._values.open("ab") as values, self._indices.open("ab") as indices:
            X.data.astype(self.dtype, copy=False).tofile(values)
            X.indices.astype(np.int32, copy=False).tofile(indices)

    @property
    def _indptr(self) -> NDArray[np.int64]:
        if self._starts is None:
            lengths = np.concatenate(self._lengths) if self._lengths else np.empty(0, np.int64)
            self._starts = np.concatenate([[0], np.cumsum(lengths)])
        return self._starts

    @property
    def n_bytes(self) -> int:
        """Bytes of all values and indices."""
        entries = int(self._indptr[-1]) * (self.dtype.itemsize + 4) if self.is_sparse else 0
        return entries or self.n * self.n_features * self.dtype.itemsize

    def read(self, lo: int, hi: int) -> Any:
        """Return rows lo ... hi - 1, shape (hi - lo, n_features - first_column)."""
        if hi <= lo:
            empty = np.empty((0, self.n_features - self.first_column), self.dtype)
            return sparse.csr_array(empty) if self.is_sparse else empty
        if not self.is_sparse:
            row_bytes = self.n_features * self.kept.itemsize
            flat = np.fromfile(self._values, self.kept, (hi - lo) * self.n_features, offset=lo * row_bytes)
            return flat.reshape(hi - lo, self.n_features).astype(self.dtype, copy=False)
        a, b = int(self._indptr[lo]), int(self._indptr[hi])
        values = np.fromfile(self._values, self.dtype, b - a, offset=a * self.dtype.itemsize) if b > a else np.empty(0)
        indices = np.fromfile(self._indices, np.int32, b - a, offset=4 * a) if b > a else np.empty(0, np.int32)
        shape = (hi - lo, self.n_features - self.first_column)
        indptr = (self._indptr[lo : hi + 1] - a).astype(np.int32)
        return sparse.csr_array((values.astype(self.dtype), indices - np.int32(self.first_column), indptr), shape=shape)

    def blocks(self, block_bytes: int) -> Iterator[tuple[int, Any]]:
        """Yield (first row, rows) in order, in blocks of about `block_bytes`, always cut in the same places."""
        if self.is_sparse:
            weight = self._indptr + np.arange(self.n + 1)  # an empty row is not free either
            cuts = np.searchsorted(weight, np.arange(0, weight[-1], max(1, block_bytes // 12)))
            edges = np.unique([*cuts, self.n]).tolist()
        else:
            step = max(1, block_bytes // max(1, self.n_features * self.dtype.itemsize))
            edges = [*range(0, self.n, step), self.n]
        for lo, hi in itertools.pairwise(edges):
            yield lo, self.read(lo, hi)

    def remove(self) -> None:
        """Delete the files."""
        self._values.unlink(missing_ok=True)
        self._indices.unlink(missing_ok=True)
