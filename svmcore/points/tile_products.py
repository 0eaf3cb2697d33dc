"""Products of bytes on tile registers (Intel AMX): 16 rows by 64 bytes times 64 bytes by 16 columns in one instruction.

A processor has eight such registers. Three hold sums, of 16 rows and 48 columns; one takes the left side, three the
right side. A process asks the system once whether it may use them; where it may not, `byte_products` does without.
"""

import ctypes
import platform
import sys
from functools import lru_cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from svmcore.errors import Unsupported
from svmcore.runtime.aligned import aligned
from svmcore.runtime.compiled import njit

__all__ = [
    "BYTES",
    "PANELS",
    "TILE",
    "LeftTiles",
    "add_on_tiles",
    "has_tiles",
    "left_tiles",
    "set_on_tiles",
]

TILE = 16  # rows of a register, and columns of its 32-bit sums
BYTES = 64  # of a row of a register
PANELS = 3  # registers of sums beside each other
LEFT, RIGHT = PANELS, PANELS + 1  # the first register of each side
FEATURES = {"amx-tile", "amx-int8"}
ARCH_PRCTL, REQUEST, TILE_DATA = 158, 0x1023, 18  # Linux: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)


@lru_cache(maxsize=1)
def has_tiles() -> bool:
    """Whether numba compiles for a processor with tile registers, and the system lets this process use them."""
    chosen = numba.config.CPU_NAME is not None or numba.config.CPU_FEATURES is not None
    if chosen or sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # a processor of which LLVM tells nothing
        return False
    return all(features.get(name, False) for name in FEATURES) and _permitted()


def _permitted() -> bool:
    """Ask for the registers, once for all threads of the process."""
    arguments = (ctypes.c_long(number) for number in (ARCH_PRCTL, REQUEST, TILE_DATA))
    return bool(ctypes.CDLL(None).syscall(*arguments) == 0)


def _configuration() -> Any:
    """All eight registers whole: palette 1, bytes of a row at 16, and rows at 48."""
    found = np.zeros(64, np.uint8)
    found[0], found[16:32:2], found[48:56] = 1, BYTES, TILE
    return found


CONFIGURATION = _configuration()


class LeftTiles(NamedTuple):
    """Rows of bytes as the left side of products.

    Attributes
    ----------
    rows
        (16 tiles, width) uint8, on cache lines, padded with zeros.
    starts
        (tiles, 16, 16) int32 that sums begin at: 128 sum_f k_f in row i, what the sign of the right side takes away.
    """

    rows: Any
    starts: Any

    @property
    def height(self) -> int:
        """Rows, and what fills up the last tile."""
        return len(self.rows)

    @property
    def plain(self) -> "LeftTiles":
        """The same, for a right side that has a sign of its own: nothing to make up for."""
        return self._replace(starts=np.zeros_like(self.starts))

    def take(self, rows: slice) -> "LeftTiles":
        """Rows from a multiple of 16 on, in whole tiles."""
        start, stop = rows.start // TILE, -(-rows.stop // TILE)
        return LeftTiles(self.rows[start * TILE : stop * TILE], self.starts[start:stop])


def left_tiles(rows: Any, sign: int) -> LeftTiles:
    """Rows (n, width) of uint8 as the left side, with the bits of `sign` flipped in each byte."""
    n, width = rows.shape
    tiles = -(-n // TILE)
    laid = aligned((tiles * TILE, -(-width // BYTES) * BYTES), np.uint8)
    starts = aligned((tiles, TILE, TILE), np.int32)
    _lay(rows, np.uint8(sign), laid, starts)
    return LeftTiles(laid, starts)


def set_on_tiles(left: LeftTiles, panels: Any, out: Any) -> None:
    """Set `out` (16 tiles, columns) to the products with rows that have a sign, `panels` as `RightRows` has them."""
    _check()
    _set_tiles(CONFIGURATION, left.rows, left.starts, panels, out)


def add_on_tiles(left: LeftTiles, panels: Any, out: Any) -> None:
    """Add to `out` the products of a left side with a sign and `panels` without."""
    _check()
    _add_tiles(CONFIGURATION, left.rows, panels, out)


def _check() -> None:
    """Tiles may have been arranged in another process: without the registers' permit the system would end this one."""
    if not has_tiles():
        raise Unsupported("these rows were arranged for tile registers, which this process has not: prepare them again")


@njit
def _lay(rows, sign, laid, starts):  # type: ignore[no-untyped-def]
    n, width = rows.shape
    for i in range(laid.shape[0]):
        total = np.int32(0)
        laid[i, :] = np.uint8(0)
        if i < n:
            for f in range(width):
                total += np.int32(rows[i, f])
                laid[i, f] = rows[i, f] ^ sign
        starts[i // TILE, i % TILE, :] = np.int32(total << np.int32(7))


_I8, _I64, _ADDRESS = ir.IntType(8), ir.IntType(64), ir.IntType(8).as_pointer()
_KINDS: dict[str, list[Any]] = {
    "ldtilecfg": [_ADDRESS],
    "tilerelease": [],
    "tileloadd64": [_I8, _ADDRESS, _I64],
    "tilestored64": [_I8, _ADDRESS, _I64],
    "tdpbusd": [_I8, _I8, _I8],
    "tdpbsud": [_I8, _I8, _I8],
}


def _call(builder: Any, name: str, *arguments: Any) -> None:
    """One instruction; whole numbers name registers."""
    name, kinds = f"llvm.x86.{name}", _KINDS[name]
    function = builder.module.globals.get(name)
    function = function or ir.Function(builder.module, ir.FunctionType(ir.VoidType(), kinds), name)
    builder.call(function, [ir.Constant(_I8, each) if isinstance(each, int) else each for each in arguments])


@intrinsic
def _begin(typing_context, configuration):  # type: ignore[no-untyped-def]
    """Set the registers of this thread up, by the address of a configuration."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        _call(builder, "ldtilecfg", builder.inttoptr(arguments[0], _ADDRESS))
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def _end(typing_context):  # type: ignore[no-untyped-def]
    """Give the registers of this thread back."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        _call(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


def _products(instruction: str) -> Any:
    """A function that multiplies 16 rows with 48 columns; it takes addresses, distances in bytes, and counts."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        left, stride, steps, panel, panel_stride, start, start_stride, start_next, out, out_stride = arguments

        def at(base, distance, times):  # type: ignore[no-untyped-def]
            return builder.inttoptr(builder.add(base, builder.mul(distance, times)), _ADDRESS)

        zero, one, width, size = (ir.Constant(_I64, value) for value in (0, 1, BYTES, TILE * BYTES))
        numbers = [ir.Constant(_I64, c) for c in range(PANELS)]
        for c in range(PANELS):
            _call(builder, "tileloadd64", c, at(start, start_next, numbers[c]), start_stride)
        entry, loop, end = builder.block, builder.append_basic_block("steps"), builder.append_basic_block("end")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(_I64)
        _call(builder, "tileloadd64", LEFT, at(left, width, k), stride)
        down = builder.add(panel, builder.mul(size, k))
        for c in range(PANELS):
            _call(builder, "tileloadd64", RIGHT + c, at(down, panel_stride, numbers[c]), width)
            _call(builder, instruction, c, LEFT, RIGHT + c)
        following = builder.add(k, one)
        k.add_incoming(zero, entry)
        k.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, steps), loop, end)
        builder.position_at_end(end)
        for c in range(PANELS):
            _call(builder, "tilestored64", c, at(out, width, numbers[c]), out_stride)
        return context.get_dummy_value()

    @intrinsic
    def products(  # type: ignore[no-untyped-def]
        typing_context, left, stride, steps, panel, panel_stride, start, start_stride, start_next, out, out_stride
    ):
        return types.void(*[types.int64] * 10), generate

    return products


_unsigned_products, _signed_products = _products("tdpbusd"), _products("tdpbsud")


@njit
def _set_tiles(configuration, rows, starts, panels, out):  # type: ignore[no-untyped-def]
    """Three panels stay in the first-level cache while all rows pass by."""
    _begin(configuration.ctypes.data)
    steps = rows.shape[1] // BYTES
    for c in range(0, panels.shape[0], PANELS):
        panel = panels[c:].ctypes.data
        for r in range(starts.shape[0]):
            left, start = rows[r * TILE :].ctypes.data, starts[r:].ctypes.data
            target = out[r * TILE :, c * TILE :].ctypes.data
            _unsigned_products(
                left, rows.strides[0], steps, panel, panels.strides[0], start, BYTES, 0, target, out.strides[0]
            )
    _end()


@njit
def _add_tiles(configuration, rows, panels, out):  # type: ignore[no-untyped-def]
    _begin(configuration.ctypes.data)
    steps = rows.shape[1] // BYTES
    for c in range(0, panels.shape[0], PANELS):
        panel = panels[c:].ctypes.data
        for r in range(rows.shape[0] // TILE):
            left, target = rows[r * TILE :].ctypes.data, out[r * TILE :, c * TILE :].ctypes.data
            stride = out.strides[0]
            _signed_products(
                left, rows.strides[0], steps, panel, panels.strides[0], target, stride, BYTES, target, stride
            )
    _end()
