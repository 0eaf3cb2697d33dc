"""Exact products of two tables of bytes, (n, width) times (m, width): an int32 matrix product of 8-bit integers.

The inner loop is the tile of any matrix product: 8 rows by 48 columns of sums stay in registers while the features
pass by. A processor with AVX-512 VNNI multiplies and adds 64 pairs of bytes in one instruction, which takes one side
signed: k - 128 on the left, and 128 times the sum of the right row to start from. Elsewhere the same sums are made in
plain steps, too slow to pay.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from svmcore.runtime.compiled import njit

__all__ = [
    "MOST_FEATURES",
    "PackedRows",
    "byte_products",
    "is_fast",
    "packed_rows",
    "products_size",
    "signed_part",
    "signed_rows",
]

MOST_FEATURES = 1 << 15  # 255^2 times as many < 2^31: every sum fits an int32
ROWS, PANELS, LANES = 8, 3, 16  # of a tile of sums: ROWS x PANELS registers of LANES
COLUMNS = PANELS * LANES
SIGN = 0x80  # k - 128 as a signed byte is k with this bit flipped


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
    return (-(-n // ROWS) * ROWS) * (-(-m // COLUMNS) * COLUMNS)


def signed_rows(left: Any) -> Any:
    """Rows of uint8 as the left side of products: k - 128 as signed bytes, padded to whole tiles."""
    signed = np.zeros((-(-len(left) // ROWS) * ROWS, left.shape[1]), np.uint8)
    np.bitwise_xor(left, np.uint8(SIGN), out=signed[: len(left)])
    return signed


def signed_part(signed: Any, rows: slice) -> Any:
    """Rows from a multiple of ROWS on, of what `signed_rows` gives, in whole tiles."""
    return signed[rows.start : -(-rows.stop // ROWS) * ROWS]


class PackedRows(NamedTuple):
    """Rows of uint8 as the right side of products."""

    panels: Any  # (columns / 16, width / 4, 16) words of four bytes, on a cache line; zeros up to whole tiles
    start: Any  # 128 sum_f k_f (columns,), what the left side's sign took away

    def take(self, rows: slice) -> "PackedRows":
        """Rows from a multiple of COLUMNS on, in whole tiles."""
        last = -(-rows.stop // COLUMNS) * COLUMNS
        return PackedRows(self.panels[rows.start // LANES : last // LANES], self.start[rows.start : last])


def packed_rows(right: Any) -> PackedRows:
    """Rows of uint8, their width a multiple of 4, as the right side of products."""
    columns, width = -(-len(right) // COLUMNS) * COLUMNS, right.shape[1]
    memory = np.empty(columns * width // 4 + LANES, np.uint32)
    first = -memory.ctypes.data % 64 // 4
    panels = memory[first : first + columns * width // 4].reshape(columns // LANES, width // 4, LANES)
    start = np.empty(columns, np.int32)
    _pack(right.view(np.uint32), panels, start)
    return PackedRows(panels, start)


def byte_products(left: Any, right: PackedRows, memory: Any) -> Any:
    """Sum_f left[i, f] right[j, f] in whole tiles: int32, a view of `memory`; padding gives what lies beyond."""
    out = memory[: len(left) * len(right.start)].reshape(len(left), len(right.start))
    _products(left, right.panels, right.start, out)
    return out


@njit
def _pack(right, panels, start):  # type: ignore[no-untyped-def]
    for block in range(panels.shape[0]):
        panel = panels[block]
        for lane in range(LANES):
            j = block * LANES + lane
            total = np.uint32(0)
            if j < right.shape[0]:
                row = right[j]
                for f in range(len(row)):
                    word = row[f]
                    panel[f, lane] = word
                    pair = (word & np.uint32(0xFF00FF)) + ((word >> np.uint32(8)) & np.uint32(0xFF00FF))
                    total += (pair & np.uint32(0xFFFF)) + (pair >> np.uint32(16))
            else:
                panel[:, lane] = np.uint32(0)
            start[j] = np.int32(total) * np.int32(128)


_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_SUMS, _BYTES = ir.VectorType(_I32, LANES), ir.VectorType(_I8, 4 * LANES)


@intrinsic
def _tile(typing_context, left, stride, panel, panel_stride, steps, start, out, out_stride):  # type: ignore[no-untyped-def]
    """Sums (ROWS, COLUMNS) of a tile over all features; all arguments are addresses, distances in bytes, or counts.

    As LLVM's intermediate code, because no loop of numba keeps 24 sums in registers.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        left, stride, panel, panel_stride, steps, start, out, out_stride = arguments

        def at(base, distance, times, plus, kind):  # type: ignore[no-untyped-def]
            offset = builder.mul(distance, ir.Constant(_I64, times)) if times else ir.Constant(_I64, 0)
            return builder.inttoptr(builder.add(builder.add(base, offset), plus), kind.as_pointer())

        def load(address, align):  # type: ignore[no-untyped-def]
            value = builder.load(address)
            value.align = align
            return value

        zero, one = ir.Constant(_I64, 0), ir.Constant(_I64, 1)
        first = [load(at(start, one, 64 * c, zero, _SUMS), 4) for c in range(PANELS)]
        entry, loop, end = builder.block, builder.append_basic_block("features"), builder.append_basic_block("end")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(_I64)
        sums = [[builder.phi(_SUMS) for _ in range(PANELS)] for _ in range(ROWS)]
        across, down = builder.mul(k, ir.Constant(_I64, 64)), builder.mul(k, ir.Constant(_I64, 4))
        columns = [load(at(panel, panel_stride, c, across, _SUMS), 64) for c in range(PANELS)]
        added = []
        for r in range(ROWS):
            word = _broadcast(builder, load(at(left, stride, r, down, _I32), 4))
            added.append([_add_products(builder, sums[r][c], columns[c], word) for c in range(PANELS)])
        following = builder.add(k, one)
        k.add_incoming(zero, entry)
        k.add_incoming(following, loop)
        for r in range(ROWS):
            for c in range(PANELS):
                sums[r][c].add_incoming(first[c], entry)
                sums[r][c].add_incoming(added[r][c], loop)
        builder.cbranch(builder.icmp_signed("<", following, steps), loop, end)
        builder.position_at_end(end)
        for r in range(ROWS):
            for c in range(PANELS):
                builder.store(added[r][c], at(out, out_stride, r, ir.Constant(_I64, 64 * c), _SUMS)).align = 4
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8), generate


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


@njit
def _products(left, panels, start, out):  # type: ignore[no-untyped-def]
    """Write left panels' + start, tile by tile: a panel stays in the first-level cache, `left` in the second."""
    steps = panels.shape[1]
    for c in range(0, panels.shape[0], PANELS):
        for r in range(0, left.shape[0], ROWS):
            _tile(
                left[r:].ctypes.data,
                left.strides[0],
                panels[c:].ctypes.data,
                panels.strides[0],
                steps,
                start[c * LANES :].ctypes.data,
                out[r:, c * LANES :].ctypes.data,
                out.strides[0],
            )
