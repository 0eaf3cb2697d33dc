"""The mirror image of a tile of a symmetric matrix, in squares that stay in the first-level cache.

Squares of entries of 4 or 2 bytes are turned in registers: element by element that took a third of the time of a
kernel matrix.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from svmcore.points import Floats
from svmcore.runtime.compiled import njit

__all__ = ["write_mirrored"]

SIDE = 16  # of a square: a row of float32 is a cache line, and a register


def write_mirrored(tile: Floats, out: Floats, lower_only: bool) -> None:
    """out[c, r] = tile[r, c], or only below the diagonal."""
    if 1 in tile.shape and not lower_only:  # to numba a single row is of another type, which it would compile for
        out[...] = tile.T
        return
    in_lines = tile.dtype == out.dtype and all(side.strides[1] == side.itemsize for side in (tile, out))
    _write_mirrored(tile, out, lower_only, tile.itemsize if in_lines else 0)


_I64 = ir.IntType(64)


def _turning(n_bytes: int) -> Any:
    """What writes the mirror image of a square of entries of so many bytes."""
    line = ir.VectorType(ir.IntType(8 * n_bytes), SIDE).as_pointer()

    @intrinsic
    def turn(typing_context, source, source_stride, target, target_stride):  # type: ignore[no-untyped-def]
        """All arguments are addresses, or distances in bytes."""

        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            source, source_stride, target, target_stride = arguments
            rows = [builder.load(_line(builder, line, source, source_stride, r)) for r in range(SIDE)]
            for row in rows:
                row.align = n_bytes
            for half in (8, 4, 2, 1):
                rows = _exchanged(builder, rows, half)
            for r, row in enumerate(rows):
                builder.store(row, _line(builder, line, target, target_stride, r)).align = n_bytes
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), generate

    return turn


_turn_words, _turn_halves = _turning(4), _turning(2)


def _line(builder: Any, line: Any, base: Any, stride: Any, r: int) -> Any:
    return builder.inttoptr(builder.add(base, builder.mul(stride, ir.Constant(_I64, r))), line)


def _exchanged(builder: Any, rows: list[Any], half: int) -> list[Any]:
    """Of every block of 2 `half` rows and columns, the two quarters off the diagonal change places."""
    lanes = range(SIDE)
    upper = ir.Constant(ir.VectorType(ir.IntType(32), SIDE), [SIDE + j - half if j & half else j for j in lanes])
    lower = ir.Constant(ir.VectorType(ir.IntType(32), SIDE), [SIDE + j if j & half else j + half for j in lanes])
    found = list(rows)
    for i in lanes:
        if not i & half:
            pair = rows[i], rows[i + half]
            found[i], found[i + half] = (builder.shuffle_vector(*pair, mask) for mask in (upper, lower))
    return found


@njit
def _write_mirrored(tile, out, lower_only, n_bytes):  # type: ignore[no-untyped-def]
    n, m = tile.shape
    for r0 in range(0, n, SIDE):
        for c0 in range(r0 if lower_only else 0, m, SIDE):
            source, target = tile[r0 : r0 + SIDE, c0 : c0 + SIDE], out[c0 : c0 + SIDE, r0 : r0 + SIDE]
            if source.size == SIDE * SIDE and not (lower_only and r0 == c0):
                if n_bytes == 4:
                    _turn_words(source.ctypes.data, source.strides[0], target.ctypes.data, target.strides[0])
                    continue
                if n_bytes == 2:
                    _turn_halves(source.ctypes.data, source.strides[0], target.ctypes.data, target.strides[0])
                    continue
            for c in range(source.shape[1]):
                for r in range(c if lower_only and r0 == c0 else source.shape[0]):
                    target[c, r] = source[r, c]
