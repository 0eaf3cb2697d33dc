"""Float32 rows in whole cache lines: memory for them, and stores that go past the caches.

Values for a matrix that no cache holds are written past the caches. An ordinary store first reads the line that it
writes to: that took more time than the exponentials.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from svmcore.points import Floats
from svmcore.runtime.aligned import LINE
from svmcore.runtime.compiled import njit_fused

__all__ = [
    "INT64",
    "LANES",
    "LINE",
    "LINE_OF_FLOATS",
    "address",
    "aligned",
    "fence",
    "is_spread",
    "place_rows",
    "write",
]

STREAMED = 1 << 22  # bytes from the first row of a block to its last, beyond which no second-level cache holds it
LANES = LINE // 4  # float32 values of a cache line
INT64, LINE_OF_FLOATS = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)


@njit_fused(makes_arrays=True)
def aligned(n, m):  # type: ignore[no-untyped-def]
    """Room for n rows of m values, whole lines of them, that begin with a cache line each."""
    memory = np.empty(n * m + LANES, np.float32)
    first = -memory.ctypes.data % LINE // 4
    return memory[first : first + n * m].reshape(n, m)


def is_spread(out: Floats) -> bool:
    """Whether the rows of `out` are float32 values that lie further apart than a cache would hold."""
    contiguous = out.dtype == np.float32 and out.strides[1] == out.itemsize
    return contiguous and len(out) * out.strides[0] >= STREAMED


@njit_fused
def place_rows(values, rows, out):  # type: ignore[no-untyped-def]
    """out[rows[r]] = values[r], past the caches, on this thread."""
    for r in range(len(rows)):
        write(values[r], out[rows[r]], values.itemsize == 4)
    fence()


@njit_fused
def write(row, target, past_caches):  # type: ignore[no-untyped-def]
    """Copy a float32 row: whole lines past the caches if asked, the ends and all else by ordinary stores."""
    m = len(target)
    if not past_caches:
        for j in range(m):
            target[j] = row[j]
        return
    head = min(m, (-target.ctypes.data % LINE) // 4)
    lines = (m - head) // LANES
    for j in range(head):
        target[j] = row[j]
    _stream_lines(row[head:].ctypes.data, target[head:].ctypes.data, lines)
    for j in range(head + LANES * lines, m):
        target[j] = row[j]


@intrinsic
def _stream_lines(typing_context, source, target, lines):  # type: ignore[no-untyped-def]
    """Copy `lines` cache lines between two addresses, the target's a multiple of 64, by non-temporal stores."""
    integer, line = INT64, LINE_OF_FLOATS

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        source, target, lines = arguments
        zero, one, size = (ir.Constant(integer, value) for value in (0, 1, LINE))
        entry, loop, end = builder.block, builder.append_basic_block("lines"), builder.append_basic_block("end")
        builder.cbranch(builder.icmp_signed(">", lines, zero), loop, end)
        builder.position_at_end(loop)
        k = builder.phi(integer)
        offset, following = builder.mul(k, size), builder.add(k, one)
        value = builder.load(address(builder, source, offset, line))
        value.align = 4
        store = builder.store(value, address(builder, target, offset, line))
        store.align = LINE
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        k.add_incoming(zero, entry)
        k.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, lines), loop, end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def fence(typing_context):  # type: ignore[no-untyped-def]
    """Let no other thread see what follows before the stores that went past the caches."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


def address(builder: Any, base: Any, offset: Any, kind: Any) -> Any:
    """The sum of two integers as a pointer to a `kind`, in LLVM's intermediate code."""
    return builder.inttoptr(builder.add(base, offset), kind.as_pointer())
