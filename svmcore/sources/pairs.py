"""K of two classes at a time, for one-vs-one: the whole K is never built, and nothing of it is computed twice."""

import threading
from collections.abc import Callable

import numpy as np

from svmcore.points import Floats
from svmcore.runtime.memory import empty
from svmcore.runtime.threads import split_range
from svmcore.sources.computed import ComputedColumns
from svmcore.sources.resident import ResidentGram, fill_grams

__all__ = ["PairGrams"]

TILE = 512  # side of what one matrix product fills: it stays in the second-level cache


class PairGrams:
    """K of the rows in any two slices: each slice's own block is kept, the one between the two is not.

    Parameters
    ----------
    source
        Of columns computed from the rows, each class a slice.
    limit_bytes
        What the pairs in use, one a thread, and the kept blocks may take together. Pairs come first; blocks that do not
        fit beside them are computed again when asked for.
    stop
        Asked between tiles whether to give up.

    >>> from svmcore.kernels import Linear
    >>> points = Linear().prepare(np.array([[1.0], [2.0], [3.0]]), None, np.float64)
    >>> grams = PairGrams(ComputedColumns(Linear(), points, np.float64), 1 << 20, lambda: False)
    >>> grams.pair(slice(0, 1), slice(2, 3)).matrix
    array([[1., 3.],
           [3., 9.]])
    """

    def __init__(self, source: ComputedColumns, limit_bytes: int, stop: Callable[[], bool]) -> None:
        self.source, self.dtype, self.stop = source, source.dtype, stop
        self.limit_bytes = self._room = limit_bytes
        self._kept: dict[tuple[int, int], Floats] = {}  # by the first row of a slice and the one after its last
        self._scratch = threading.local()
        self._lock = threading.Lock()  # of several problems on threads: each block is computed and counted once

    def pair(self, i: slice, j: slice) -> ResidentGram | None:
        """K of the rows in `i`, then those in `j`, valid until this thread asks again; None if asked to stop."""
        n, m = i.stop - i.start, j.stop - j.start
        out = self._memory(n + m)
        for rows, place in ((i, slice(0, n)), (j, slice(n, n + m))):
            with self._lock:
                whole = self._own(rows, out[place, place])
            if not whole:
                return None
        self._between(i, j, out[:n, n:], out[n:, :n])
        return None if self.stop() else ResidentGram(out, self.source.take(np.r_[i, j]))

    def at_once(self, q: int) -> int:
        """How many pairs of q rows fit into the limit, at least one."""
        return max(1, self.limit_bytes // (q * q * self.dtype.itemsize))

    def _memory(self, q: int) -> Floats:
        """A (q, q) array in memory that each thread uses again for its next pair."""
        memory = getattr(self._scratch, "memory", np.empty(0, self.dtype))
        if len(memory) < q * q:
            with self._lock:
                self._reserve(q * q * self.dtype.itemsize - memory.nbytes)
            self._scratch.memory = memory = empty(q * q, self.dtype)
        return memory[: q * q].reshape(q, q)

    def _reserve(self, n_bytes: int) -> None:
        """Take bytes for a pair: kept blocks make room."""
        self._room -= n_bytes
        while self._room < 0 and self._kept:
            self._room += self._kept.popitem()[1].nbytes

    def _own(self, rows: slice, out: Floats) -> bool:
        """Write K of the rows in one slice to `out`; False if asked to stop."""
        key = rows.start, rows.stop
        if key in self._kept:
            out[...] = self._kept[key]
            return True
        if not fill_grams([self.source.kernel], self.source.points.take(rows), [out], self.stop):
            return False
        if out.nbytes <= self._room:
            self._room -= out.nbytes
            self._kept[key] = out.copy()
        return True

    def _between(self, i: slice, j: slice, upper: Floats, lower: Floats) -> None:
        """Write K of the rows `i` against the rows `j` to `upper`, and its mirror image to `lower`."""
        left, right = self.source.points.take(i), self.source.points.take(j)

        def part(start: int, end: int) -> None:
            for lo in range(start, end, TILE):
                for first in range(0, len(right), TILE):
                    if self.stop():
                        return
                    rows, columns = slice(lo, min(lo + TILE, end)), slice(first, first + TILE)
                    tile = upper[rows, columns]
                    self.source.kernel.block(left.take(rows), right.take(columns), tile)
                    lower[columns, rows] = tile.T

        split_range(len(left), part, least=TILE, grain=TILE)
