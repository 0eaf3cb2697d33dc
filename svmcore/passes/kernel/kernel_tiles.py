"""Sums of weighted float64 kernel values over rows and columns, tile by tile; none is larger than a cache.

`Tiles.add` serves one part of the pairs (row range, column range) for both ways to weigh it: K right, and K' left for
the pairs' mirror images. Ranges start at multiples of `GRAIN`, whoever computes them: sums always have the same bits.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from svmcore.passes.kernel.kernel_sums import (
    sums_of_distances,
    sums_of_products,
    values_of_distances,
    values_of_products,
)
from svmcore.points import Floats, Points, inner_products
from svmcore.points.byte_products import COLUMNS, byte_products, products_size
from svmcore.points.fine import products_of, scales_of
from svmcore.points.lattice import sides
from svmcore.points.word_products import WINDOW

__all__ = ["GRAIN", "Blocks", "Distances", "FineProducts", "Products", "Tiles"]

ROWS, WIDTH = 3 * WINDOW, 5 * COLUMNS  # of a tile of numbers, 1.5 MB of float64: whole tiles of byte products
GRAIN = ROWS  # of a range: to ask for tiles of fewer took a third of the time


class Tiles(ABC):
    """Values of rows `P` against columns `Q`."""

    def __init__(self, P: Points, Q: Points) -> None:
        self.P, self.Q = P, Q

    def memory(self) -> Floats:
        """What `add` needs as scratch, one for every thread."""
        return np.empty(ROWS * WIDTH)

    def add(self, rows: slice, columns: slice, right: Floats, left: Floats, out: Any, memory: Floats) -> None:
        """out[0] (rows) += K right and, unless out[1] is empty, out[1] (columns) += K' left."""
        for j in range(columns.start, columns.stop, WIDTH):
            column = slice(j, min(j + WIDTH, columns.stop))
            for i in range(rows.start, rows.stop, ROWS):
                row = slice(i, min(i + ROWS, rows.stop))
                here, there = _within(row, rows), _within(column, columns)
                sums = (out[0][here], out[1][there] if len(out[1]) else out[1])
                self._add(row, column, right[there], left[here] if len(left) else left, sums, memory)

    @abstractmethod
    def _add(self, row: slice, column: slice, right: Floats, left: Floats, out: Any, memory: Floats) -> None:
        """As `add`, of one tile."""


class Blocks(Tiles):
    """Of any kernel: the values of a tile, then two matrix products."""

    def __init__(self, P: Points, Q: Points, kernel: Any) -> None:
        super().__init__(P, Q)
        self.kernel = kernel

    def _add(self, row: slice, column: slice, right: Floats, left: Floats, out: Any, memory: Floats) -> None:
        K = _tile(memory, row, column)
        self.kernel.block(self.P.take(row), self.Q.take(column), K)
        _add_products(K, right, left, out)


class Products(Tiles):
    """Of exp(-gamma ||x - z||^2), from inner products."""

    def __init__(self, P: Points, Q: Points, gamma: float) -> None:
        super().__init__(P, Q)
        self.gamma = gamma
        self.a, self.b = gamma * P.moments.norm2, gamma * Q.moments.norm2

    def _add(self, row: slice, column: slice, right: Floats, left: Floats, out: Any, memory: Floats) -> None:
        G = inner_products(self.P.take(row), self.Q.take(column), _tile(memory, row, column))
        _sums_of_products(G, self.a[row], self.b[column], 2.0 * self.gamma, right, left, out)


class FineProducts(Tiles):
    """The same of rows near a lattice, from five products of bytes."""

    def __init__(self, P: Points, Q: Points, gamma: float) -> None:
        super().__init__(P, Q)
        self.gamma, self.scales = gamma, scales_of(P.values)
        self.a, self.b = gamma * P.moments.norm2, gamma * Q.moments.norm2
        self.left, self.right = P.values.left, Q.values.right

    def memory(self) -> Floats:
        """Of a tile, and of integers."""
        return np.empty(ROWS * WIDTH + products_size(ROWS, WIDTH) // 2)

    def _add(self, row: slice, column: slice, right: Floats, left: Floats, out: Any, memory: Floats) -> None:
        G, integers = _tile(memory, row, column), memory[ROWS * WIDTH :].view(np.int32)
        products_of(self.left.take(row), self.right.take(column), self.scales, integers, G)
        _sums_of_products(G, self.a[row], self.b[column], 2.0 * self.gamma, right, left, out)


class Distances(Tiles):
    """The same of rows on a lattice, from exact products of bytes."""

    def __init__(self, P: Points, Q: Points, gamma: float) -> None:
        super().__init__(P, Q)
        unit = P.values.step**2
        self.factor = gamma * unit
        self.a, self.b = (np.rint(side.moments.norm2 / unit).astype(np.int32) for side in (P, Q))
        self.left, self.right = sides(P.values, Q.values)

    def memory(self) -> Floats:
        """Of a tile, and of integers."""
        return np.empty(ROWS * WIDTH + products_size(ROWS, WIDTH) // 2)

    def _add(self, row: slice, column: slice, right: Floats, left: Floats, out: Any, memory: Floats) -> None:
        G = byte_products(self.left.take(row), self.right.take(column), memory[ROWS * WIDTH :].view(np.int32))
        a, b = self.a[row], self.b[column]
        if right.ndim == 1:
            sums_of_distances(G, a, b, self.factor, right, left, out)
            return
        V = _tile(memory, row, column)
        values_of_distances(G, a, b, self.factor, V)
        _add_products(V, right, left, out)


def _sums_of_products(G: Floats, a: Floats, b: Floats, factor: float, right: Floats, left: Floats, out: Any) -> None:
    """Of one set of weights (n,), or of several (n, k), for which the values take the place of `G`."""
    if right.ndim == 1:
        sums_of_products(G, a, b, factor, right, left, out)
        return
    values_of_products(G, a, b, factor, G)
    _add_products(G, right, left, out)


def _add_products(V: Floats, right: Floats, left: Floats, out: Any) -> None:
    """out[0] += V right and, unless out[1] is empty, out[1] += V' left, of values `V`."""
    out[0][...] += V @ right
    if len(out[1]):
        out[1][...] += V.T @ left


def _tile(memory: Floats, row: slice, column: slice) -> Floats:
    """A contiguous (rows, columns) view."""
    n, m = row.stop - row.start, column.stop - column.start
    return memory[: n * m].reshape(n, m)


def _within(part: slice, whole: slice) -> slice:
    return slice(part.start - whole.start, part.stop - whole.start)
