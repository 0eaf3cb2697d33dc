"""The whole kernel matrix in memory: each symmetric pair of tiles computed once, by as many threads as BLAS has."""

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from svmcore._threads import split_range
from svmcore.columns import ResidentGram
from svmcore.kernels.base import Kernel
from svmcore.points import Floats, Points

__all__ = ["resident_gram"]

TILE = 512  # rows of a tile: a float32 tile and its mirror stay in the second-level cache


def resident_gram(
    kernel: Kernel, points: Points, dtype: DTypeLike = np.float32, stop: Callable[[], bool] | None = None
) -> ResidentGram | None:
    """K (n, n) of prepared rows, exactly symmetric; None if `stop` asked to stop before it was complete.

    >>> from svmcore.kernels import Linear
    >>> resident_gram(Linear(), Linear().prepare(np.array([[1.0], [2.0]]), None, np.float64), np.float64).matrix
    array([[1., 2.],
           [2., 4.]])
    """
    n = len(points)
    K = np.empty((n, n), dtype)
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
    return None if stopped else ResidentGram(K)


def _fill_pair(kernel: Kernel, points: Points, i: int, j: int, K: Floats, scratch: Floats) -> None:
    """Tile (i, j) and its mirror image; a diagonal tile is made symmetric from its upper half."""
    left, right = points.rows(i, min(i + TILE, len(points))), points.rows(j, min(j + TILE, len(points)))
    tile = scratch.reshape(-1)[: len(left) * len(right)].reshape(len(left), len(right))
    kernel.block(left, right, tile)
    if i == j:
        lower = np.tril_indices(len(left), -1)
        tile[lower] = tile.T[lower]
    else:
        K[j : j + len(right), i : i + len(left)] = tile.T
    K[i : i + len(left), j : j + len(right)] = tile
