"""Columns of one symmetric kernel matrix K (n, n), without labels: in memory, computed on demand, or cached.

A solver asks for `lookup(idx)`, rows of some matrix that hold the columns, and copies nothing; `columns(idx)` is the
plain form of the same. K is served, never LIBSVM's y_i y_j K_ij, so that every class, fold and C shares one source.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from svmcore._numba import njit
from svmcore._threads import split_range
from svmcore.errors import InvalidProblem, MemoryLimit
from svmcore.kernels.base import Kernel
from svmcore.points import Floats, Points

__all__ = ["CachedColumns", "ComputedColumns", "KernelColumns", "Lookup", "ResidentGram", "lookup", "matvec"]

CHUNK = 256  # columns fetched together where nobody else says how many
BLOCK = 1536  # most rows of one matrix product
RUN = 4096  # entries of a column that are added at once: they stay in the second-level cache


@runtime_checkable
class KernelColumns(Protocol):
    """Columns of one symmetric K (n, n); label-free."""

    @property
    def n(self) -> int:
        """Number of rows and columns."""

    @property
    def dtype(self) -> np.dtype:
        """float32, or float64 where the solver's tol asks for it."""

    def diagonal(self) -> Floats:
        """K_ii (n,), float64."""

    def columns(self, idx: Floats) -> Floats:
        """(len(idx), n), C-contiguous; row r is column idx[r]."""


class Lookup(NamedTuple):
    """Columns where they are: column idx[r] is row `rows[r]` of `matrix`, valid until the next lookup."""

    matrix: Floats
    rows: Floats


class ResidentGram:
    """The whole K, in memory or mapped from a file; `points` are the rows of a linear K, for solvers that need them.

    >>> ResidentGram(np.eye(3, dtype=np.float32)).columns(np.array([1]))
    array([[0., 1., 0.]], dtype=float32)
    """

    def __init__(self, K: Floats, points: Points | None = None) -> None:
        if K.ndim != 2 or K.shape[0] != K.shape[1]:
            raise InvalidProblem(f"a Gram matrix is square; given {K.shape}")
        K = np.asarray(K)  # a plain view: numba compiles one signature for memory maps and arrays
        self.matrix = np.require(K, dtype=K.dtype if K.dtype == np.float32 else np.float64, requirements=["C", "A"])
        self.n = len(K)
        self.dtype = self.matrix.dtype
        self.points = points

    def diagonal(self) -> Floats:
        """K_ii (n,)."""
        return self.matrix.diagonal().astype(np.float64)

    def columns(self, idx: Floats) -> Floats:
        """Copies of the rows `idx`, which are the columns: K is symmetric."""
        return self.matrix[idx]

    def lookup(self, idx: Floats) -> Lookup:
        """The matrix itself."""
        return Lookup(self.matrix, np.asarray(idx, dtype=np.int64))

    def take(self, rows: Floats) -> "ResidentGram":
        """K of the rows `rows` alone."""
        points = None if self.points is None else self.points.take(rows)
        return ResidentGram(self.matrix[np.ix_(rows, rows)], points)


class ComputedColumns:
    """Columns computed from the rows when asked for, never kept.

    Parameters
    ----------
    kernel, points
        A kernel with numeric parameters and the rows in the form of `kernel.prepare`.
    dtype
        Of the columns: float32 or float64.
    """

    def __init__(self, kernel: Kernel, points: Points, dtype: DTypeLike = np.float32) -> None:
        self.kernel, self.points = kernel, points
        self.n, self.dtype = len(points), np.dtype(dtype)
        self.n_computed = 0  # columns, for the metrics

    def diagonal(self) -> Floats:
        """k(x_i, x_i) (n,)."""
        return self.kernel.diagonal_of(self.points)

    def columns(self, idx: Floats) -> Floats:
        """Columns `idx`, one matrix product."""
        return self.fill(idx, np.empty((len(idx), self.n), self.dtype))

    def fill(self, idx: Floats, out: Floats) -> Floats:
        """Write columns `idx` to `out` (len(idx), n), by row ranges on as many threads as BLAS has."""
        left, block = self.points.take(np.asarray(idx)), _block_rows(self.n)

        def part(start: int, stop: int) -> None:
            for lo in range(start, stop, block):
                hi = min(lo + block, stop)
                self.kernel.block(left, self.points.rows(lo, hi), out[:, lo:hi])

        split_range(self.n, part, least=max(block, 3 * CHUNK), grain=block)
        self.n_computed += len(idx)
        return out

    def take(self, rows: Floats) -> "ComputedColumns":
        """The same kernel on the rows `rows` alone."""
        return ComputedColumns(self.kernel, self.points.take(rows), self.dtype)


def _block_rows(n: int) -> int:
    """Rows of one matrix product of n: at most BLOCK, and a number of blocks that 2, 4 or 8 threads can share alike.

    >>> _block_rows(32_000), _block_rows(6_000), _block_rows(100)
    (1344, 768, 256)
    """
    count = 8 * -(-n // (8 * BLOCK))
    return max(CHUNK, -(-n // (64 * max(1, count))) * 64)


class CachedColumns:
    """The most recently used columns of another source, in an arena of at most `limit_bytes`.

    A lookup never evicts a column that it returns. Not for several threads at once.

    Raises
    ------
    MemoryLimit
        If not even two columns fit.
    """

    def __init__(self, source: Any, limit_bytes: int, memory: Floats | None = None) -> None:
        self.source, self.n, self.dtype, self.limit_bytes = source, source.n, source.dtype, int(limit_bytes)
        column_bytes = self.n * self.dtype.itemsize
        self.capacity = min(self.n, int(limit_bytes) // max(1, column_bytes))
        if self.capacity < min(2, self.n):
            raise MemoryLimit(
                f"the column cache needs at least two columns, 2 x {column_bytes / 1e6:.1f} MB; "
                f"the limit is {limit_bytes / 1e6:.1f} MB: raise cache.limit or use fewer rows"
            )
        if memory is None:  # pages are touched only as columns arrive
            memory = np.empty((self.capacity * self.n,), self.dtype)
        self.arena = memory[: self.capacity * self.n].reshape(self.capacity, self.n)
        self.slot_of = np.full(self.n, -1, dtype=np.int64)
        self.column_in = np.full(self.capacity, -1, dtype=np.int64)
        self.used = np.zeros(self.capacity, dtype=np.int64)
        self.clock = 0
        self.n_held = 0
        self._strip: Floats | None = None

    def diagonal(self) -> Floats:
        """K_ii (n,)."""
        return self.source.diagonal()

    def columns(self, idx: Floats) -> Floats:
        """Copies of the columns `idx`, which may be more than the cache holds."""
        out = np.empty((len(idx), self.n), self.dtype)
        for start in range(0, len(idx), self.capacity):
            part = slice(start, start + self.capacity)
            matrix, rows = self.lookup(np.asarray(idx)[part])
            out[part] = matrix[rows]  # before the next lookup may evict them
        return out

    def held(self, idx: Floats) -> Floats:
        """Whether each column of `idx` is in the cache, (len(idx),) bool."""
        return self.slot_of[idx] >= 0

    def lookup(self, idx: Floats) -> Lookup:
        """Slots of the arena that hold the columns `idx`, at most `capacity` of them; missing ones are computed."""
        idx = np.asarray(idx, dtype=np.int64)
        if len(idx) > self.capacity:
            raise MemoryLimit(f"{len(idx)} columns were asked for at once; the cache holds {self.capacity}")
        self.clock += 1
        self.used[self.slot_of[idx][self.held(idx)]] = self.clock
        missing = np.unique(idx[~self.held(idx)])
        for start in range(0, len(missing), CHUNK):
            self._fetch(missing[start : start + CHUNK])
        return Lookup(self.arena, self.slot_of[idx])

    def _fetch(self, missing: Floats) -> None:
        """Compute columns into free slots, or over the least recently used ones."""
        slots = self._free_slots(len(missing))
        evicted = self.column_in[slots]
        self.slot_of[evicted[evicted >= 0]] = -1
        if slots[-1] - slots[0] == len(slots) - 1:
            self._fill(missing, self.arena[slots[0] : slots[-1] + 1])
        else:  # one matrix product for all of them, then to their places: slots freed by age lie scattered
            self.arena[slots] = self._fill(missing, self._scratch(len(slots)))
        self.slot_of[missing], self.column_in[slots], self.used[slots] = slots, missing, self.clock

    def _fill(self, idx: Floats, out: Floats) -> Floats:
        if hasattr(self.source, "fill"):
            return self.source.fill(idx, out)
        out[:] = self.source.columns(idx)
        return out

    def _scratch(self, count: int) -> Floats:
        """(count, n) that the next call writes over."""
        if self._strip is None:
            self._strip = np.empty((min(CHUNK, self.capacity), self.n), self.dtype)
        return self._strip[:count]

    def _free_slots(self, count: int) -> Floats:
        fresh = np.arange(self.n_held, min(self.n_held + count, self.capacity))
        self.n_held += len(fresh)
        if len(fresh) == count:
            return fresh
        age = np.where(self.used == self.clock, np.iinfo(np.int64).max, self.used)
        age[fresh] = np.iinfo(np.int64).max
        oldest = np.argpartition(age, count - len(fresh) - 1)[: count - len(fresh)]
        return np.sort(np.concatenate([fresh, oldest]))

    def take(self, rows: Floats) -> "CachedColumns":
        """A cache of the source on the rows `rows` alone, in the memory of this one while this one is empty."""
        memory = self.arena.reshape(-1) if self.n_held == 0 else None
        limit = min(self.limit_bytes, self.arena.nbytes, len(rows) ** 2 * self.dtype.itemsize)
        return CachedColumns(self.source.take(rows), limit, memory)


def lookup(source: Any, idx: Floats) -> Lookup:
    """Columns `idx` of any source without copying where the source can do so."""
    if hasattr(source, "lookup"):
        return source.lookup(idx)
    return Lookup(source.columns(np.asarray(idx)), np.arange(len(idx)))


def matvec(source: KernelColumns, coef: Floats) -> Floats:
    """K @ coef (n,), accumulated in float64 over the columns where coef is not zero."""
    out = np.zeros(source.n)
    support = np.flatnonzero(coef)
    step = min(CHUNK, getattr(source, "capacity", CHUNK))
    for start in range(0, len(support), step):
        idx = support[start : start + step]
        matrix, rows = lookup(source, idx)
        add_columns(matrix, rows, coef[idx], out)
    return out


def add_columns(matrix: Floats, rows: Floats, weights: Floats, out: Floats) -> None:
    """Out += sum_r weights[r] matrix[rows[r]] in float64, by ranges on several threads."""
    split_range(len(out), lambda lo, hi: _add_columns(matrix, rows, weights, out, lo, hi), least=2 * RUN, grain=RUN)


@njit
def _add_columns(matrix, rows, weights, out, lo, hi):  # type: ignore[no-untyped-def]
    """Eight columns at a time over ranges that stay in the second-level cache: long enough runs for the prefetcher."""
    m = len(rows)
    for start in range(lo, hi, RUN):
        target = out[start : min(start + RUN, hi)]
        k = len(target)
        for r in range(0, m - m % 8, 8):
            a, w_a = matrix[rows[r], start : start + k], weights[r]
            b, w_b = matrix[rows[r + 1], start : start + k], weights[r + 1]
            c, w_c = matrix[rows[r + 2], start : start + k], weights[r + 2]
            d, w_d = matrix[rows[r + 3], start : start + k], weights[r + 3]
            e, w_e = matrix[rows[r + 4], start : start + k], weights[r + 4]
            f, w_f = matrix[rows[r + 5], start : start + k], weights[r + 5]
            g, w_g = matrix[rows[r + 6], start : start + k], weights[r + 6]
            h, w_h = matrix[rows[r + 7], start : start + k], weights[r + 7]
            for j in range(k):
                left = (w_a * a[j] + w_b * b[j]) + (w_c * c[j] + w_d * d[j])
                right = (w_e * e[j] + w_f * f[j]) + (w_g * g[j] + w_h * h[j])
                target[j] += left + right
        for r in range(m - m % 8, m):
            a = matrix[rows[r], start : start + k]
            for j in range(k):
                target[j] += weights[r] * a[j]
