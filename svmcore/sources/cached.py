"""The most recently used columns of another source, under a byte budget."""

import weakref
from typing import Any, ClassVar

import numpy as np

from svmcore.errors import MemoryLimit
from svmcore.points import Floats
from svmcore.runtime.memory import empty
from svmcore.sources.base import CHUNK, Factor, Lookup, Source, matvec_and_sizes

__all__ = ["CachedColumns", "kept"]

SHARES = 4  # of the memory at most
IDLE = 12  # lookups, two for each round of a solver, after which a column will hardly be asked for again


def kept(source: Source, limit_bytes: int) -> Source:
    """The source itself if it keeps columns, else a cache of at most so many bytes over it."""
    return source if source.keeps else CachedColumns(source, limit_bytes)


class CachedColumns(Source):
    """The most recently used columns of another source, in an arena of at most `limit_bytes`.

    A lookup never evicts a column that it returns. Not for several threads at once.

    Parameters
    ----------
    limit_bytes
        For the columns and `scratch_bytes` together.
    memory
        To use instead of fresh memory.
    scratch_bytes
        Of the limit, left to the square of a solver's working set; None lets that have memory of its own.
    of_one
        Whether only one program asks: then columns that it has left are written over before more memory is touched,
        which takes longer than to compute a column again. Several programs find them again.

    Raises
    ------
    MemoryLimit
        If not even two columns fit.
    """

    keeps: ClassVar[bool] = True

    def __init__(
        self,
        source: Source,
        limit_bytes: int,
        memory: Floats | None = None,
        scratch_bytes: int | None = None,
        of_one: bool = False,
    ) -> None:
        self.source, self.n, self.dtype, self.limit_bytes = source, source.n, source.dtype, int(limit_bytes)
        self.psd, self.is_positive, self.exact = source.psd, source.is_positive, source.exact
        self.can_take = source.can_take  # type: ignore[misc]
        self.computes_anew = source.computes_anew
        self._scratch_bytes, self._of_one = scratch_bytes, of_one
        column_bytes = self.n * self.dtype.itemsize
        self._capacity = min(source.n_columns, (int(limit_bytes) - (scratch_bytes or 0)) // max(1, column_bytes))
        if self._capacity < min(2, source.n_columns):
            raise MemoryLimit(
                f"the column cache needs at least two columns, 2 x {column_bytes / 1e6:.1f} MB; "
                f"the limit is {limit_bytes / 1e6:.1f} MB: raise cache.limit or use fewer rows"
            )
        self._memory = memory
        self.slot_of = np.full(source.n_columns, -1, dtype=np.int64)
        self.column_in = np.full(self.capacity, -1, dtype=np.int64)
        self.used = np.zeros(self.capacity, dtype=np.int64)
        self.clock = 0
        self.n_held = 0
        self._borrower: weakref.ref[CachedColumns] | None = None

    @property
    def arena(self) -> Floats:
        """Memory (capacity, n) for columns, taken when it is first asked for; pages are touched as columns arrive."""
        if self._memory is None:
            self._memory = empty(self._capacity * self.n, self.dtype)
        return self._memory[: self._capacity * self.n].reshape(self._capacity, self.n)

    @property
    def capacity(self) -> int:
        """How many columns fit."""
        return self._capacity

    @property
    def n_columns(self) -> int:
        """As the source's."""
        return self.source.n_columns

    @property
    def scratch_bytes(self) -> int | None:
        """As given."""
        return self._scratch_bytes

    @property
    def rounding(self) -> Any:
        """As the source's."""
        return self.source.rounding

    def finer(self) -> Source | None:
        """The same columns in float64, in as many bytes."""
        finer = self.source.finer()
        if finer is None:
            return None
        return CachedColumns(finer, self.limit_bytes, None, self._scratch_bytes, self._of_one)

    @property
    def rank(self) -> int | None:
        """As the source of the columns."""
        return self.source.rank

    def factor(self) -> Factor | None:
        """As the source's."""
        return self.source.factor()

    def offset(self, coef: Floats) -> float:
        """As the source's."""
        return self.source.offset(coef)

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

    def outputs(self, coef: Floats) -> tuple[Floats, Floats]:
        """K @ coef and abs(K) @ abs(coef), (n,): of columns that are not in the cache none is put there."""
        if self.exact is None:  # the values that are served are the K that is meant: those that were served
            return super().outputs(coef)
        there = self.slot_of >= 0
        found, sizes = matvec_and_sizes(self, np.where(there, coef, 0.0))
        if not coef[~there].any():
            return found, sizes
        more, more_sizes = self.source.outputs(np.where(there, 0.0, coef))
        return found + more, sizes + more_sizes

    def outputs_at(self, coef: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """Of no column in the cache: where some rows alone are asked for, a program on the others has its memory."""
        if self.exact is None or self.shares_passes:
            return super().outputs_at(coef, rows)
        return self.source.outputs_at(coef, rows)

    def by_sign(self, idx: Floats, weights: Floats, most: int = CHUNK) -> tuple[Floats, Floats]:
        """Of columns in the cache, or, where that is as fast, of none."""
        return self.source.by_sign(idx, weights) if self.computes_anew else super().by_sign(idx, weights, most)

    def square(
        self, idx: Floats, others: Floats, out: Floats, at: Floats, shift: float = 0.0, unit: float | None = None
    ) -> None:
        """As the source's."""
        self.source.square(idx, others, out, at, shift, unit)

    def terms(self, count: int) -> float:
        """Of columns that are in the cache, or of those that are not, and their sum."""
        return 1.0 + max(super().terms(count), self.source.terms(count))

    def held(self, idx: Floats) -> Floats:
        """Whether each column of `idx` is in the cache, (len(idx),) bool."""
        return self.slot_of[idx] >= 0

    def missing(self, idx: Floats) -> int:
        """How many of the columns `idx` are not in the cache; all, where they do not fit: each evicts one of them."""
        return len(idx) if len(idx) > self.capacity else int((~self.held(idx)).sum())

    def leave(self, idx: Floats) -> None:
        """Write over these before others, if nobody else asks for them."""
        if self._of_one and self.n_held:
            self.used[self.slot_of[idx][self.held(idx)]] = -IDLE  # idle at the next lookup, and longer than any other

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
        self._reclaim()
        slots = self._free_slots(len(missing))
        evicted = self.column_in[slots]
        self.slot_of[evicted[evicted >= 0]] = -1
        if slots[-1] - slots[0] == len(slots) - 1:
            self.source.fill(missing, self.arena[slots[0] : slots[-1] + 1])
        else:  # slots freed by age lie scattered
            self.source.fill(missing, self.arena, slots)
        self.slot_of[missing], self.column_in[slots], self.used[slots] = slots, missing, self.clock

    def _free_slots(self, count: int) -> Floats:
        """Slots of what only this program had and has left, then fresh ones, then the least recently used."""
        idle = np.flatnonzero(self.used[: self.n_held] < self.clock - IDLE) if self._of_one else self.used[:0]
        if len(idle) > count:
            idle = np.sort(idle[np.argpartition(self.used[idle], count - 1)[:count]])
        fresh = np.arange(self.n_held, min(self.n_held + count - len(idle), self.capacity))
        self.n_held += len(fresh)
        slots, missing = np.concatenate([idle, fresh]), count - len(idle) - len(fresh)
        if not missing:
            return slots
        age = np.where(self.used == self.clock, np.iinfo(np.int64).max, self.used)
        age[slots] = np.iinfo(np.int64).max
        return np.sort(np.concatenate([slots, np.argpartition(age, missing - 1)[:missing]]))

    @property
    def shares(self) -> int:  # type: ignore[override]
        """As many as have room for what a program asks for: half of the columns of a quarter of the rows.

        The number of threads has no say: answers are the same on any.
        """
        wanted = self.n**2 // 32 * self.dtype.itemsize
        return max(1, min(SHARES, self.limit_bytes // max(1, wanted))) if self.source.concurrent else 0

    def take(self, rows: Floats) -> "CachedColumns":
        """A cache of the source on the rows `rows` alone, in the memory of this one while this one is empty."""
        self._reclaim()
        lends = self.n_held == 0
        limit = self.dtype.itemsize * min(self.capacity * self.n, len(rows) ** 2) + (self._scratch_bytes or 0)
        memory = self.arena.reshape(-1) if lends else None
        taken = CachedColumns(self.source.take(rows), limit, memory, self._scratch_bytes, of_one=True)
        self._borrower = weakref.ref(taken) if lends else None
        return taken

    def _reclaim(self) -> None:
        """Memory that was lent is ours again: its borrower has none until it wants a column, and goes on empty."""
        borrower = self._borrower() if self._borrower is not None else None
        self._borrower = None
        if borrower is not None:
            borrower._reclaim()
            borrower._memory = None
            borrower.slot_of[:], borrower.column_in[:], borrower.n_held = -1, -1, 0
