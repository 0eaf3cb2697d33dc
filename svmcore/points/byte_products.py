"""Exact products of two tables of bytes, (n, width) times (m, width): an int32 matrix product of 8-bit integers.

The inner loop is the tile of any matrix product: 4 rows by 96 columns of sums stay in registers while the features
pass by, but for those that are 0 in all rows of the tile (`word_products`): of pictures that is three fifths, as rows
that are alike share a tile (`alike`). Where there are tile registers, products are made on these (`tile_products`),
faster by a quarter where most is 0 and up to four times where nothing is. Both are exact, so their bits are the same.

Rows of nothing but 0 and 1 are packed, 32 features in a word: a product is the number of bits that two words have in
common, in an eighth of the words. They are a form of their own on both sides, `left_bits` and `right_bits`.
"""

from typing import Any, NamedTuple

import numpy as np

from svmcore.points.alike import alike
from svmcore.points.tile_products import (
    BYTES,
    TILE,
    LeftTiles,
    add_on_tiles,
    has_tiles,
    left_tiles,
    set_on_tiles,
)
from svmcore.points.word_products import (
    BITS,
    LANES,
    PANELS,
    ROWS,
    SIGNED,
    UNSIGNED,
    WINDOW,
    add_on_words,
    instruction,
    set_on_words,
)
from svmcore.runtime.aligned import LINE
from svmcore.runtime.compiled import njit
from svmcore.runtime.memory import empty

__all__ = [
    "COLUMNS",
    "HEIGHT",
    "MOST_FEATURES",
    "LeftRows",
    "LeftSide",
    "RightRows",
    "add_byte_products",
    "byte_products",
    "is_fast",
    "left_bits",
    "left_rows",
    "products_size",
    "right_bits",
    "right_rows",
]

MOST_FEATURES = 1 << 15  # 255^2 times as many < 2^31: every sum fits an int32
COLUMNS = PANELS * LANES
HEIGHT = max(ROWS, TILE)  # rows of a tile, whatever makes it
SIGN = 0x80808080  # four bytes k - 128 with a sign are those of k with these bits flipped


def is_fast() -> bool:
    """Whether numba compiles for a processor with an instruction that makes integer products pay."""
    return instruction() is not None


def products_size(n: int, m: int) -> int:
    """Entries of the memory that the products of n and m rows need."""
    return (-(-n // HEIGHT) * HEIGHT) * (-(-m // COLUMNS) * COLUMNS) + LINE // 4


class LeftRows(NamedTuple):
    """Rows of bytes as the left side of products, in tiles of ROWS: what is 0 in all rows of a tile is left out.

    Attributes
    ----------
    words
        (steps, ROWS) uint32: four bytes of every row of a tile.
    at
        (steps,) int32: which four features they are.
    first
        (tiles + 1,): where the steps of each tile begin.
    places
        (rows,) uint8: which rows of a window each tile has, those that are `alike`.
    sums
        128 sum_f k_f (rows,) int32 of bytes without a sign: what the sign of the right side takes away.
    form
        What a word is: four bytes of UNSIGNED or SIGNED integers, or 32 BITS.
    """

    words: Any
    at: Any
    first: Any
    places: Any
    sums: Any
    form: int

    @property
    def height(self) -> int:
        """Rows, and what fills up the last tile."""
        return len(self.sums)

    @property
    def plain(self) -> "LeftRows":
        """The same, for a right side that has a sign of its own: nothing to make up for."""
        return self._replace(sums=np.zeros_like(self.sums))

    def take(self, rows: slice) -> "LeftRows":
        """Rows from a multiple of WINDOW on, to another or to the last: a tile has rows of a whole window."""
        start, stop = rows.start // ROWS, -(-rows.stop // ROWS)
        if rows.start % WINDOW or (rows.stop % WINDOW and stop * ROWS < self.height):
            raise ValueError(f"parts are whole windows of {WINDOW} rows; given {rows.start} to {rows.stop}")
        some = slice(start * ROWS, stop * ROWS)
        return self._replace(first=self.first[start : stop + 1], places=self.places[some], sums=self.sums[some])


LeftSide = LeftRows | LeftTiles


class RightRows(NamedTuple):
    """Rows of bytes as the right side of products."""

    panels: Any  # (columns / 16, steps, 16) words of four bytes or 32 bits, on a cache line; up to whole tiles

    @property
    def columns(self) -> int:
        """Rows, and what fills up the last tile."""
        return len(self.panels) * LANES

    def take(self, rows: slice) -> "RightRows":
        """Rows from a multiple of COLUMNS on, in whole tiles."""
        last = -(-rows.stop // COLUMNS) * COLUMNS
        return RightRows(self.panels[rows.start // LANES : last // LANES])


def left_rows(rows: Any, signed: bool = False) -> LeftSide:
    """Rows of uint8, their width a multiple of 4, as the left side; if `signed`, a byte k stands for k - 128."""
    return left_tiles(rows, SIGN & 0xFF if signed else 0) if has_tiles() else _left_words(rows, signed)


def left_bits(rows: Any) -> LeftRows:
    """Rows of uint8 that are 0 or 1 as the left side, for a right side of bits."""
    left = _left_words(_packed(rows), signed=False)
    return left._replace(sums=np.zeros_like(left.sums), form=BITS)


def right_bits(rows: Any) -> RightRows:
    """Rows of uint8 that are 0 or 1 as the right side, for a left side of bits."""
    packed = _packed(rows)
    panels = empty((-(-len(rows) // COLUMNS) * PANELS, packed.shape[1] // 4, LANES), np.uint32)
    _pack(packed.view(np.uint32), np.uint32(0), panels)
    return RightRows(panels)


def _packed(rows: Any) -> Any:
    """(n, width) uint8 with eight features in a byte, the width a multiple of 4."""
    bits = np.packbits(rows, axis=1)
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, -bits.shape[1] % 4))))


def _left_words(rows: Any, signed: bool) -> LeftRows:
    n, width = rows.shape
    tiles = -(-n // ROWS)
    words, at = np.empty((tiles * (width // 4), ROWS), np.uint32), np.empty(tiles * (width // 4), np.int32)
    first, sums = np.zeros(tiles + 1, np.int64), np.zeros(tiles * ROWS, np.int32)
    given, zero = rows.view(np.uint32), np.uint32(SIGN if signed else 0)
    places = alike(given, zero)
    _arrange(given, zero, places, words, at, first, sums)
    return LeftRows(words[: first[-1]], at[: first[-1]], first, places, sums, SIGNED if signed else UNSIGNED)


def right_rows(rows: Any, signed: bool = False) -> RightRows:
    """Rows of uint8, their width a multiple of 4, as the right side; if `signed`, a byte k stands for k - 128."""
    columns, steps = -(-len(rows) // COLUMNS) * COLUMNS, rows.shape[1] // 4
    whole = -(-rows.shape[1] // BYTES) * (BYTES // 4) if has_tiles() else steps
    panels = empty((columns // LANES, whole, LANES), np.uint32)
    _pack(rows.view(np.uint32), np.uint32(SIGN if signed else 0), panels)
    return RightRows(panels)


def byte_products(left: LeftSide, right: RightRows, memory: Any) -> Any:
    """Sum_f left[i, f] right[j, f] in whole tiles, of rows without and with a sign, in this order.

    Bytes k without a sign on both sides are given as k - 128 on the right, which is made up for; bits are given on both
    sides. Returns int32, a view of `memory`; padding gives what lies beyond.
    """
    first = -memory.ctypes.data % LINE // 4
    out = memory[first : first + left.height * right.columns].reshape(left.height, right.columns)
    if isinstance(left, LeftTiles):
        set_on_tiles(left, right.panels, out)
        return out
    set_on_words(*left, right.panels, out)
    return out


def add_byte_products(left: LeftSide, right: RightRows, out: Any) -> None:
    """Out += the products of rows with and without a sign, in this order: `out` is what `byte_products` gave."""
    if isinstance(left, LeftTiles):
        add_on_tiles(left, right.panels, out)
    else:
        add_on_words(left.words, left.at, left.first, left.places, left.form, right.panels, out)


@njit(makes_arrays=True)
def _arrange(rows, zero, places, words, at, first, sums):  # type: ignore[no-untyped-def]
    n, steps = rows.shape
    found, some = 0, np.empty(steps, np.uint32)
    for i in range(n):
        sums[i] = np.int32(_sum_of_bytes(rows[i]) << np.uint32(7))
    for tile in range(len(first) - 1):
        top, own = tile * ROWS // WINDOW * WINDOW, places[tile * ROWS : (tile + 1) * ROWS]
        some[:] = np.uint32(0)
        for r in range(ROWS):
            if top + own[r] < n:
                _add_bits(rows[top + own[r]], zero, some)
        for f in range(steps):
            if some[f]:
                for r in range(ROWS):
                    words[found, r] = rows[top + own[r], f] ^ zero if top + own[r] < n else np.uint32(0)
                at[found] = f
                found += 1
        first[tile + 1] = found


@njit
def _add_bits(row, zero, some):  # type: ignore[no-untyped-def]
    for f in range(len(row)):
        some[f] |= row[f] ^ zero


@njit
def _sum_of_bytes(row):  # type: ignore[no-untyped-def]
    total = np.uint32(0)
    for f in range(len(row)):
        pair = (row[f] & np.uint32(0xFF00FF)) + ((row[f] >> np.uint32(8)) & np.uint32(0xFF00FF))
        total += (pair & np.uint32(0xFFFF)) + (pair >> np.uint32(16))
    return total


@njit
def _pack(right, sign, panels):  # type: ignore[no-untyped-def]
    for block in range(panels.shape[0]):
        panel, rows = panels[block], right[block * LANES : (block + 1) * LANES]
        if len(rows) < LANES:
            panel[:] = np.uint32(0)
        panel[right.shape[1] :] = np.uint32(0)
        for f in range(right.shape[1]):
            for lane in range(len(rows)):
                panel[f, lane] = rows[lane, f] ^ sign
