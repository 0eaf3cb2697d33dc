"""The whole kernel matrix in memory: given, mapped, or computed, each symmetric pair of tiles once."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from svmcore.errors import InvalidProblem
from svmcore.kernels.base import Kernel, blocks
from svmcore.passes.matrix.gather import gather_square, is_plain
from svmcore.passes.matrix.mirror import write_mirrored
from svmcore.points import Floats, Points
from svmcore.points.byte_products import COLUMNS
from svmcore.runtime.memory import empty
from svmcore.runtime.threads import n_threads, split_range
from svmcore.sources.base import Factor, Lookup, Source
from svmcore.sources.cached import CachedColumns
from svmcore.sources.computed import ComputedColumns

__all__ = ["ResidentGram", "fill_grams", "resident_gram"]

TILE = 512  # rows of a tile: a float32 tile and its mirror stay in the second-level cache
FEW = 256  # rows of a tile that is computed at once even where it is on the diagonal
FINER_BYTES = 1 << 30  # a K in float64 up to this size is computed whole, a larger one by columns


class ResidentGram(Source):
    """The whole K, in memory or mapped from a file.

    Parameters
    ----------
    K
        (n, n), float32 or float64.
    rows
        What K was computed from, if anything: the source of its columns, which knows the exact values, the rounding
        and, for a linear kernel, the rows. Without it K itself is what is meant.
    psd
        Whether K is positive semi-definite; default what `rows` says, else True.
    as_served
        Take the values as they are for the K that is meant, though there are rows: proofs are of those values.

    >>> ResidentGram(np.eye(3, dtype=np.float32)).columns(np.array([1]))
    array([[0., 1., 0.]], dtype=float32)
    """

    keeps: ClassVar[bool] = True
    can_take: ClassVar[bool] = True

    def __init__(
        self, K: Floats, rows: ComputedColumns | None = None, psd: bool | None = None, as_served: bool = False
    ) -> None:
        if K.ndim != 2 or K.shape[0] != K.shape[1]:
            raise InvalidProblem(f"a Gram matrix is square; given {K.shape}")
        K = np.asarray(K)  # a plain view: numba compiles one signature for memory maps and arrays
        kind = K.dtype if K.dtype == np.float32 else np.float64
        self.matrix = K if is_plain(K) else np.require(K, dtype=kind, requirements=["C", "A"])
        self.n, self.dtype, self.at_once = len(K), self.matrix.dtype, n_threads()
        self.rows = rows
        self.psd = psd if psd is not None else rows is None or rows.psd
        self.as_served = as_served
        self.exact = None if rows is None or as_served else rows.exact
        self.is_positive = rows is not None and rows.is_positive

    @property
    def whole(self) -> Floats:
        """K itself."""
        return self.matrix

    @property
    def rounding(self) -> Any:
        """Of the values as they were computed."""
        return None if self.rows is None else self.rows.stored

    def diagonal(self) -> Floats:
        """K_ii (n,)."""
        return self._diagonal

    @cached_property
    def _diagonal(self) -> Floats:
        """Of the rows, where these are meant: of K each entry is in a page of its own."""
        of_rows = self.rows if self.exact is not None else None
        found = np.array(self.matrix.diagonal() if of_rows is None else of_rows.diagonal(), np.float64)
        found.flags.writeable = False
        return found

    def columns(self, idx: Floats) -> Floats:
        """Copies of the rows `idx`, which are the columns: K is symmetric."""
        return self.matrix[idx]

    def lookup(self, idx: Floats) -> Lookup:
        """The matrix itself."""
        return Lookup(self.matrix, np.asarray(idx, dtype=np.int64))

    def take(self, rows: Floats) -> "ResidentGram":
        """K of the rows `rows` alone."""
        part = None if self.rows is None else self.rows.take(rows)
        K = empty((len(rows), len(rows)), self.dtype)
        gather_square(self.matrix, rows, rows, K)
        return ResidentGram(K, part, self.psd, self.as_served)

    def finer(self) -> Source | None:
        """K in float64: whole, or its columns in as many bytes as K takes."""
        finer = None if self.rows is None or self.dtype == np.float64 else self.rows.finer()
        if finer is None:
            return None
        if 8 * self.n**2 > FINER_BYTES:
            return CachedColumns(finer, self.matrix.nbytes)
        return resident_gram(finer)

    @property
    def rank(self) -> int | None:
        """As the source of the columns."""
        return None if self.rows is None else self.rows.rank

    def factor(self) -> Factor | None:
        """The rows of a linear K, where they are known."""
        return None if self.rows is None else self.rows.factor()

    def offset(self, coef: Floats) -> float:
        """As the source of the rows."""
        return 0.0 if self.rows is None else self.rows.offset(coef)


def resident_gram(source: ComputedColumns, stop: Callable[[], bool] | None = None) -> ResidentGram | None:
    """K (n, n) of a source that computes, exactly symmetric; None if `stop` asked to stop before it was complete.

    >>> from svmcore.kernels import Linear
    >>> points = Linear().prepare(np.array([[1.0], [2.0]]), None, np.float64)
    >>> resident_gram(ComputedColumns(Linear(), points, np.float64)).matrix
    array([[1., 2.],
           [2., 4.]])
    """
    K = empty((source.n, source.n), source.dtype)
    return ResidentGram(K, source) if fill_grams([source.kernel], source.points, [K], stop) else None


def fill_grams(
    kernels: Sequence[Kernel], points: Points, outs: Sequence[Floats], stop: Callable[[], bool] | None = None
) -> bool:
    """K of prepared rows under each kernel into `outs` (n, n) of one type, which may be parts of larger matrices.

    All kernels share the inner products. False if stopped before the end.
    """
    n = len(points)
    parts = [(i, points.rows(i, min(i + TILE, n))) for i in range(0, n, TILE)]  # what they prepare serves many tiles
    tiles = [(left, right) for at, left in enumerate(parts) for right in parts[at:]]
    stopped: list[bool] = []
    in_place = n <= TILE and all(K.flags.c_contiguous for K in outs)  # one tile is all there is: no copy is needed

    def part(start: int, end: int) -> None:
        scratch = [] if in_place else [np.empty((min(TILE, n), min(TILE, n)), outs[0].dtype) for _ in outs]
        for left, right in tiles[start:end]:
            if stop is not None and stop():
                stopped.append(True)
                return
            _fill_pair(kernels, left, right, outs, scratch)

    split_range(len(tiles), part)
    return not stopped


def _fill_pair(
    kernels: Sequence[Kernel],
    down: tuple[int, Points],
    across: tuple[int, Points],
    outs: Sequence[Floats],
    scratch: Sequence[Floats],
) -> None:
    """Tile (i, j) and its mirror image; the lower half of a diagonal tile is the mirror of its upper half."""
    (i, left), (j, right) = down, across
    tiles = [_part_of(memory, len(left), len(right)) for memory in scratch] or list(outs)
    for rows, first in _strips(len(left), i == j):
        P, Q = left.rows(rows.start, rows.stop), right.rows(first, len(right))
        if len(kernels) == 1:
            kernels[0].block(P, Q, tiles[0][rows, first:])
        else:
            blocks(kernels, P, Q, [tile[rows, first:] for tile in tiles])
    for K, tile in zip(outs, tiles, strict=True):
        if scratch:
            K[i : i + len(left), j : j + len(right)] = tile
        write_mirrored(tile, K[j : j + len(right), i : i + len(left)], i == j)


def _strips(n: int, on_diagonal: bool) -> list[tuple[slice, int]]:
    """Rows of a tile that are computed at a time, and from which column on: two strips on the diagonal.

    The second one leaves out what is the mirror of the first, but for a few columns: NumPy has a way of its own for
    A @ A.T, which is far slower where rows are powers of two long.

    >>> _strips(512, True)
    [(slice(0, 288, None), 0), (slice(288, 512, None), 192)]
    """
    half = round(n / (2 * COLUMNS)) * COLUMNS  # packed rows are taken from there on without packing them again
    if not on_diagonal or n <= FEW:
        return [(slice(0, n), 0)]
    return [(slice(0, half), 0), (slice(half, n), half - COLUMNS)]


def _part_of(memory: Floats, rows: int, columns: int) -> Floats:
    """A contiguous (rows, columns) array in its first entries."""
    return memory.reshape(-1)[: rows * columns].reshape(rows, columns)
