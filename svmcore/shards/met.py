"""Rows that a process has met, by their number: as they came, and as they are served."""

import threading
from typing import Any

import numpy as np
from scipy import sparse

from svmcore.points import Floats, Moments, Points, Rows
from svmcore.points.lattice import Codes

__all__ = ["Met"]


class _Grown:
    """Rows that others are appended to, in memory that doubles; CSR rows are stacked."""

    def __init__(self) -> None:
        self.memory: Any = None
        self.n = 0

    def append(self, rows: Any) -> None:
        if sparse.issparse(rows):
            self.memory = rows if self.memory is None else sparse.vstack([self.memory, rows], format="csr")
        else:
            self._reserve(rows)
            self.memory[self.n : self.n + len(rows)] = rows
        self.n += rows.shape[0]

    def _reserve(self, rows: Floats) -> None:
        if self.memory is None:
            self.memory = np.empty((0, *rows.shape[1:]), rows.dtype)
        if self.n + len(rows) > len(self.memory):
            grown = np.empty((max(2 * len(self.memory), self.n + len(rows)), *rows.shape[1:]), rows.dtype)
            grown[: self.n] = self.memory[: self.n]
            self.memory = grown

    @property
    def rows(self) -> Any:
        return self.memory[: self.n]


class Met:
    """Some of n rows.

    Parameters
    ----------
    pattern
        How they are prepared.
    """

    def __init__(self, n: int, pattern: Points) -> None:
        self.pattern = pattern
        self.place = np.full(n, -1, np.int64)
        self._lock = threading.Lock()
        self._rows, self._values, self._norm2, self._along = _Grown(), _Grown(), _Grown(), _Grown()

    def missing(self, numbers: Floats) -> Floats:
        """Those of the rows `numbers` that were not met, each once, ascending."""
        return np.unique(numbers[self.place[numbers] < 0])

    def add(self, numbers: Floats, X: Rows) -> None:
        """Meet the rows `numbers`, `X` (len(numbers), p) as they came."""
        with self._lock:
            fresh = np.flatnonzero(self.place[numbers] < 0)
            if len(fresh):
                self._append(numbers[fresh], X[fresh])

    def _append(self, numbers: Floats, X: Rows) -> None:
        points = self.pattern.alike(X)
        assert points is not None, "rows of a shard are in the form of all"
        first = self._rows.n
        self._rows.append(X)
        self._values.append(points.values.bytes if points.on_lattice else points.values)
        self._norm2.append(points.moments.norm2)
        self._along.append(points.moments.along)
        self.place[numbers] = first + np.arange(len(numbers))  # last: readers need no lock

    def points(self, numbers: Floats | None = None) -> Points:
        """The rows `numbers`, or all in the order in which they were met, as they are served."""
        if self._rows.n == 0:
            return self.pattern
        values, given = self._values.rows, self.pattern.values
        if isinstance(given, Codes):
            # not binary: rows of other shards may be what those of this one are not
            values = Codes(values, given.n_features, given.step, given.deviation, given.exact)
        moments = Moments(self._norm2.rows, self._along.rows, self.pattern.moments.half)
        every = Points(values, moments, self.pattern.centre, self.pattern.whole)
        return every if numbers is None else every.take(self.place[numbers])

    def rows(self, numbers: Floats | None = None) -> Rows:
        """The same as they came."""
        return self._rows.rows if numbers is None else self._rows.rows[self.place[numbers]]
