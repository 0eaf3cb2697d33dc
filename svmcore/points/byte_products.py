"""Exact products of two tables of bytes, (n, width) times (m, width): an int32 matrix product of 8-bit integers.

The inner loop is the tile of any matrix product: 8 rows by 48 columns of sums stay in registers while the features
pass by, but for those that are 0 in all rows of the tile: of pictures that is half of them. A processor with AVX-512
VNNI multiplies and adds 64 pairs of bytes in one instruction, of which one has a sign. Where there are tile registers,
products are made on these (`tile_products`), faster by a quarter where most is 0 and up to four times where nothing is.
Elsewhere the same sums are made in plain steps, too slow to pay. All three are exact, so their bits are the same.

Rows of nothing but 0 and 1 are packed, 32 features in a word: a product is the number of bits that two words have in
common, in an eighth of the words. They are a form of their own on both sides, `left_bits` and `right_bits`.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from svmcore.points.tile_products import (
    BYTES,
    LINE,
    PANELS,
    TILE,
    LeftTiles,
    add_on_tiles,
    aligned,
    has_tiles,
    left_tiles,
    set_on_tiles,
)
from svmcore.runtime.compiled import njit

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
ROWS, LANES = 8, 16  # of a tile of sums: ROWS x PANELS registers of LANES
COLUMNS = PANELS * LANES
HEIGHT = max(ROWS, TILE)  # rows of a tile, whatever makes it
UNSIGNED, SIGNED, BITS = 0, 1, 2
SIGN = 0x80808080  # four bytes k - 128 with a sign are those of k with these bits flipped


@lru_cache(maxsize=1)
def is_fast() -> bool:
    """Whether numba compiles for a processor with the instruction that makes integer products pay."""
    if numba.config.CPU_FEATURES is not None:
        return "+avx512vnni" in numba.config.CPU_FEATURES
    try:
        return numba.config.CPU_NAME is None and bool(llvm.get_host_cpu_features().get("avx512vnni", False))
    except RuntimeError:  # a processor of which LLVM tells nothing
        return False


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
    sums
        128 sum_f k_f (rows,) int32 of bytes without a sign: what the sign of the right side takes away.
    form
        What a word is: four bytes of UNSIGNED or SIGNED integers, or 32 BITS.
    """

    words: Any
    at: Any
    first: Any
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
        """Rows from a multiple of HEIGHT on, in whole tiles."""
        start, stop = rows.start // ROWS, -(-rows.stop // ROWS)
        return self._replace(first=self.first[start : stop + 1], sums=self.sums[start * ROWS : stop * ROWS])


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
    panels = aligned((-(-len(rows) // COLUMNS) * PANELS, packed.shape[1] // 4, LANES), np.uint32)
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
    _arrange(rows.view(np.uint32), np.uint32(SIGN if signed else 0), words, at, first, sums)
    return LeftRows(words[: first[-1]], at[: first[-1]], first, sums, SIGNED if signed else UNSIGNED)


def right_rows(rows: Any, signed: bool = False) -> RightRows:
    """Rows of uint8, their width a multiple of 4, as the right side; if `signed`, a byte k stands for k - 128."""
    columns, steps = -(-len(rows) // COLUMNS) * COLUMNS, rows.shape[1] // 4
    whole = -(-rows.shape[1] // BYTES) * (BYTES // 4) if has_tiles() else steps
    panels = aligned((columns // LANES, whole, LANES), np.uint32)
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
    _set_products(*left, right.panels, out)
    return out


def add_byte_products(left: LeftSide, right: RightRows, out: Any) -> None:
    """Out += the products of rows with and without a sign, in this order: `out` is what `byte_products` gave."""
    if isinstance(left, LeftTiles):
        add_on_tiles(left, right.panels, out)
    else:
        _add_tiles(left.words, left.at, left.first, left.form, right.panels, out)


@njit
def _arrange(rows, sign, words, at, first, sums):  # type: ignore[no-untyped-def]
    n, steps = rows.shape
    found = 0
    for tile in range(len(first) - 1):
        top = tile * ROWS
        last = min(top + ROWS, n)
        some = np.zeros(steps, np.uint32)
        for i in range(top, last):
            sums[i] = np.int32(_sum_of_bytes(rows[i]) << np.uint32(7))
            for f in range(steps):
                some[f] |= rows[i, f] ^ sign
        for f in range(steps):
            if some[f]:
                for r in range(ROWS):
                    words[found, r] = rows[top + r, f] ^ sign if top + r < n else np.uint32(0)
                at[found] = f
                found += 1
        first[tile + 1] = found


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


@njit
def _start(sums, out):  # type: ignore[no-untyped-def]
    for i in range(len(sums)):
        out[i, :] = sums[i]


_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_SUMS, _BYTES = ir.VectorType(_I32, LANES), ir.VectorType(_I8, 4 * LANES)


def _tile(add: Any) -> Any:
    """A function that adds to a tile (ROWS, COLUMNS) of sums; it takes addresses, distances in bytes, and counts.

    `add(builder, sums, word, column)` is what a word of the left side and one of the right add to a line of sums. As
    LLVM's intermediate code, because no loop of numba keeps 24 sums in registers.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        words, places, steps, panel, panel_stride, out, out_stride = arguments

        def at(base, distance, times, plus, kind):  # type: ignore[no-untyped-def]
            offset = builder.mul(distance, ir.Constant(_I64, times)) if times else ir.Constant(_I64, 0)
            return builder.inttoptr(builder.add(builder.add(base, offset), plus), kind.as_pointer())

        def load(address, align):  # type: ignore[no-untyped-def]
            value = builder.load(address)
            value.align = align
            return value

        zero, one = ir.Constant(_I64, 0), ir.Constant(_I64, 1)
        targets = [
            [at(out, out_stride, r, ir.Constant(_I64, 64 * c), _SUMS) for c in range(PANELS)] for r in range(ROWS)
        ]
        before = [[load(target, 4) for target in row] for row in targets]
        entry, loop, end = builder.block, builder.append_basic_block("features"), builder.append_basic_block("end")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(_I64)
        sums = [[builder.phi(_SUMS) for _ in range(PANELS)] for _ in range(ROWS)]
        place = builder.zext(load(at(places, one, 0, builder.mul(k, ir.Constant(_I64, 4)), _I32), 4), _I64)
        across, down = builder.mul(place, ir.Constant(_I64, 64)), builder.mul(k, ir.Constant(_I64, 4 * ROWS))
        columns = [load(at(panel, panel_stride, c, across, _SUMS), 64) for c in range(PANELS)]
        added = []
        for r in range(ROWS):
            word = _broadcast(builder, load(at(words, ir.Constant(_I64, 4), r, down, _I32), 4))
            added.append([add(builder, sums[r][c], word, columns[c]) for c in range(PANELS)])
        following = builder.add(k, one)
        k.add_incoming(zero, entry)
        k.add_incoming(following, loop)
        for r in range(ROWS):
            for c in range(PANELS):
                sums[r][c].add_incoming(before[r][c], entry)
                sums[r][c].add_incoming(added[r][c], loop)
        builder.cbranch(builder.icmp_signed("<", following, steps), loop, end)
        builder.position_at_end(end)
        for r in range(ROWS):
            for c in range(PANELS):
                builder.store(added[r][c], targets[r][c]).align = 4
        return context.get_dummy_value()

    @intrinsic
    def tile(typing_context, words, places, steps, panel, panel_stride, out, out_stride):  # type: ignore[no-untyped-def]
        return types.void(*[types.int64] * 7), generate

    return tile


def _broadcast(builder, word):  # type: ignore[no-untyped-def]
    """The same four bytes in every lane."""
    nothing = ir.Constant(_SUMS, ir.Undefined)
    single = builder.insert_element(nothing, word, ir.Constant(_I32, 0))
    return builder.shuffle_vector(single, nothing, ir.Constant(_SUMS, [0] * LANES))


def _add_products(builder, sums, unsigned, signed):  # type: ignore[no-untyped-def]
    """sums[l] + the four products of lane l: one instruction where there is one, the same in plain steps elsewhere."""
    if is_fast():
        name = "llvm.x86.avx512.vpdpbusd.512"
        function = builder.module.globals.get(name)
        function = function or ir.Function(builder.module, ir.FunctionType(_SUMS, [_SUMS] * 3), name)
        return builder.call(function, [sums, unsigned, signed])
    wide = ir.VectorType(_I32, 4 * LANES)
    products = builder.mul(
        builder.zext(builder.bitcast(unsigned, _BYTES), wide), builder.sext(builder.bitcast(signed, _BYTES), wide)
    )
    for byte in range(4):
        lanes = ir.Constant(_SUMS, [4 * lane + byte for lane in range(LANES)])
        sums = builder.add(sums, builder.shuffle_vector(products, ir.Constant(wide, ir.Undefined), lanes))
    return sums


def _add_signed(builder, sums, signed, unsigned):  # type: ignore[no-untyped-def]
    """As `_add_products`, the other way round."""
    return _add_products(builder, sums, unsigned, signed)


def _add_common_bits(builder, sums, left, right):  # type: ignore[no-untyped-def]
    """sums[l] + the number of bits that lane l has in both: one instruction, or a table of half bytes."""
    name = f"llvm.ctpop.v{LANES}i32"
    function = builder.module.globals.get(name)
    function = function or ir.Function(builder.module, ir.FunctionType(_SUMS, [_SUMS]), name)
    return builder.add(sums, builder.call(function, [builder.and_(left, right)]))


_unsigned_tile = _tile(_add_products)
_signed_tile = _tile(_add_signed)
_bits_tile = _tile(_add_common_bits)


@njit
def _add_tiles(words, at, first, form, panels, out):  # type: ignore[no-untyped-def]
    """Tile by tile: a panel stays in the first-level cache, the left side in the second."""
    stride = panels.strides[0]
    for c in range(0, panels.shape[0], PANELS):
        panel = panels[c:].ctypes.data
        for r in range(len(first) - 1):
            steps = first[r + 1] - first[r]
            left, places = words[first[r] :].ctypes.data, at[first[r] :].ctypes.data
            target = out[r * ROWS :, c * LANES :].ctypes.data
            if steps > 0 and form == BITS:
                _bits_tile(left, places, steps, panel, stride, target, out.strides[0])
            elif steps > 0 and form == SIGNED:
                _signed_tile(left, places, steps, panel, stride, target, out.strides[0])
            elif steps > 0:
                _unsigned_tile(left, places, steps, panel, stride, target, out.strides[0])


@njit
def _set_products(words, at, first, sums, form, panels, out):  # type: ignore[no-untyped-def]
    """One call: threads that come and go wait for the interpreter."""
    _start(sums, out)
    _add_tiles(words, at, first, form, panels, out)
