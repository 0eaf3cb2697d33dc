"""The whole kernel matrix in memory: each symmetric pair of tiles computed once, by as many threads as BLAS has."""

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from svmcore._numba import njit
from svmcore._threads import split_range
from svmcore.columns import ResidentGram
from svmcore.kernels.base import Kernel
from svmcore.points import Floats, Points

__all__ = ["fill_gram", "resident_gram"]

TILE = 512  # rows of a tile: a float32 tile and its mirror stay in the second-level cache
SQUARE = 16  # side of what is turned at once


def resident_gram(
    kernel: Kernel, points: Points, dtype: DTypeLike = np.float32, stop: Callable[[], bool] | None = None
) -> ResidentGram | None:
    """K (n, n) of prepared rows, exactly symmetric; None if `stop` asked to stop before it was complete.

    >>> from svmcore.kernels import Linear
    >>> resident_gram(Linear(), Linear().prepare(np.array([[1.0], [2.0]]), None, np.float64), np.float64).matrix
    array([[1., 2.],
           [2., 4.]])
    """
    K = np.empty((len(points), len(points)), dtype)
    return ResidentGram(K) if fill_gram(kernel, points, K, stop) else None


def fill_gram(kernel: Kernel, points: Points, K: Floats, stop: Callable[[], bool] | None = None) -> bool:
    """As `resident_gram`, into `K` (n, n), which may be part of a larger matrix; False if stopped before the end."""
    n = len(points)
    edges = list(range(0, n, TILE))
    tiles = [(i, j) for i in edges for j in edges if j >= i]
    stopped: list[bool] = []

    def part(start: int, end: int) -> None:
        scratch = np.empty((min(TILE, n), min(TILE, n)), K.dtype)
        for i, j in tiles[start:end]:
            if stop is not None and stop():
                stopped.append(True)
                return
            _fill_pair(kernel, points, i, j, K, scratch)

    split_range(len(tiles), part)
    return not stopped


def _fill_pair(kernel: Kernel, points: Points, i: int, j: int, K: Floats, scratch: Floats) -> None:
    """Tile (i, j) and its mirror image; the lower half of a diagonal tile is the mirror of its upper half."""
    left, right = points.rows(i, min(i + TILE, len(points))), points.rows(j, min(j + TILE, len(points)))
    tile = scratch.reshape(-1)[: len(left) * len(right)].reshape(len(left), len(right))
    half = len(left) // 2 if i == j else 0  # in two halves: NumPy's path for A @ A.T is several times slower
    for lo, hi in ((0, half), (half, len(left))):
        if hi > lo:
            kernel.block(left.rows(lo, hi), right, tile[lo:hi])
    K[i : i + len(left), j : j + len(right)] = tile
    _mirror(tile, K[j : j + len(right), i : i + len(left)], i == j)


@njit
def _mirror(tile, out, lower_only):  # type: ignore[no-untyped-def]
    """out[c, r] = tile[r, c], or only below the diagonal, in squares that stay in the first-level cache."""
    n, m = tile.shape
    for r0 in range(0, n, SQUARE):
        for c0 in range(r0 if lower_only else 0, m, SQUARE):
            source, target = tile[r0 : r0 + SQUARE, c0 : c0 + SQUARE], out[c0 : c0 + SQUARE, r0 : r0 + SQUARE]
            for c in range(source.shape[1]):
                for r in range(c if lower_only and r0 == c0 else source.shape[0]):
                    target[c, r] = source[r, c]
