"""Compiled elementwise passes: products or rows in, kernel values or their sums out, nothing larger than a row is kept.

Values for a matrix that no cache holds are written past the caches. An ordinary store first reads the line that it
writes to: that took more time than the exponentials.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from svmcore.passes.kernel.kernel_sums import values_of_distances, values_of_products
from svmcore.passes.matrix.gather import MOST
from svmcore.points import Floats, Moments
from svmcore.runtime.compiled import njit_fused, njit_sums

__all__ = [
    "EXP_FLOAT32",
    "LARGEST_FLOAT32",
    "TERMS",
    "add_differences_by_sign",
    "exp_of_differences",
    "exp_of_distances",
    "exp_pass",
    "float64_pass",
    "place_differences",
    "place_rows",
    "sums_of_differences",
    "sums_of_values",
]

STREAMED = 1 << 22  # bytes from the first row of a block to its last, beyond which no second-level cache holds it
EXP_FLOAT32 = 1.75 * 2.0**-24  # bound of the relative error of `_exp2`: 1.24 units over all float32 from -125 to 0,
# and 1.63 on a processor that rounds a * b before it adds c
LOG2E = 1.4426950408889634  # exp(x) = 2^(x LOG2E)
SHIFTER = 1.5 * 2.0**23  # t + SHIFTER has the integer nearest to t in its last bits
LARGEST_FLOAT32 = 1e37  # of a factor that may still be cast to float32 and multiplied
TERMS = 128  # of a sum in float32
QUAD, PART = 4, 1536  # rows and columns of values at a time, which stay in the first-level cache
LINE, LANES = 64, 16  # bytes and float32 values of a cache line
_I64, _LINE = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)


def float64_pass(G: Floats, x: Moments, z: Moments, out: Floats | None, function: Callable[[Floats], object]) -> Floats:
    """Apply `function` (in place, float64) to x'z = G + o_x + o_z, a few rows at a time, into `out` or G."""
    out = G if out is None else out
    step = max(1, (1 << 17) // max(1, G.shape[1]))
    left, right = x.offset[:, None], z.offset
    for start in range(0, G.shape[0], step):
        part = slice(start, start + step)
        products = G[part].astype(np.float64)
        products += left[part]
        products += right
        function(products)
        out[part] = products
    return out


def exp_pass(G: Floats, x_norm2: Floats, z_norm2: Floats, gamma: float, out: Floats | None) -> Floats:
    """Out = exp(-gamma max(0, ||x||^2 + ||z||^2 - 2 G)), in place if `out` is None."""
    out = G if out is None else out
    if out.dtype == np.float32:
        scale = gamma * LOG2E
        _exp2_float32(G, -scale * x_norm2, -scale * z_norm2, 2.0 * scale, out, out is not G and _is_spread(out))
    else:
        values_of_products(G, gamma * x_norm2, gamma * z_norm2, 2.0 * gamma, out)
    return out


@njit_fused(makes_arrays=True)
def _exp2_float32(G, a, b, scale, out, past_caches):  # type: ignore[no-untyped-def]
    """out[i, j] = 2^min(0, scale G[i, j] + a[i] + b[j]) in float32, relative error below 1e-7 + that of the sum."""
    row, values = np.empty(G.shape[1], G.dtype), np.empty(G.shape[1], np.float32)
    _rows_of_products(G, a, b.astype(G.dtype), G.dtype.type(scale), row, values, out, past_caches)


@njit_fused
def _rows_of_products(G, a, right, factor, row, values, out, past_caches):  # type: ignore[no-untyped-def]
    m = len(row)
    for i in range(len(G)):
        # contiguous buffers: over overlapping or strided arrays the middle loop runs as scalars, ten times slower;
        # and copied by loops: numba's slice assignments take longer than the exponentials
        source, target, left = G[i], out[i], G.dtype.type(a[i])
        for j in range(m):
            row[j] = source[j]
        for j in range(m):
            values[j] = _exp2(np.float32(row[j] * factor + (left + right[j])))
        _write(values, target, past_caches)
    _fence()


def exp_of_distances(G: Floats, unit: float, x_norm2: Floats, z_norm2: Floats, gamma: float, out: Floats) -> Floats:
    """Out = exp(-gamma (||x||^2 + ||z||^2 - 2 unit G)): rows of int32 `G` contiguous, norms multiples of `unit`."""
    a, b = x_norm2 / unit, z_norm2 / unit
    if out.dtype == np.float32 and gamma * unit <= LARGEST_FLOAT32:
        _exp_of_distances(G, a, b, gamma * unit * LOG2E, out, _is_spread(out))
    else:
        values_of_distances(G, np.rint(a).astype(np.int32), np.rint(b).astype(np.int32), gamma * unit, out)
    return out


@njit_fused(makes_arrays=True)
def _exp_of_distances(G, a, b, scale, out, past_caches):  # type: ignore[no-untyped-def]
    n, m = G.shape
    factor = np.float32(-scale)
    row, right = np.empty(m, np.float32), np.empty(m, np.int32)
    for j in range(m):
        right[j] = np.int32(np.rint(b[j]))
    for i in range(n):
        source, target, left = numba.carray(_int32_at(G[i].ctypes.data), m), out[i], np.int32(np.rint(a[i]))
        for j in range(m):  # of a row that is known to be contiguous: else this runs as scalars
            distance = np.int32(np.int32(left + right[j]) - np.int32(source[j] + source[j]))
            row[j] = _exp2(np.float32(distance) * factor)
        _write(row, target, past_caches)
    _fence()


@intrinsic
def _int32_at(typing_context, address):  # type: ignore[no-untyped-def]
    """An address as a pointer to int32."""
    pointer = types.CPointer(types.int32)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(types.intp), generate


def exp_of_differences(X: Floats, Z: Floats, gamma: float, out: Floats) -> Floats:
    """Out = exp(-gamma sum_f (X_if - Z_jf)^2) in float32 of float32 rows with few features."""
    _exp_of_differences(X, Z, gamma, out, _is_spread(out))
    return out


def add_differences_by_sign(X: Floats, Z: Floats, gamma: float, weights: Floats, sums: Floats) -> None:
    """Add the values above, of columns `X` (c, p) at rows `Z` (m, p), times `weights` (k, c), to k pairs of sums.

    What has a plus goes to sums[:, 0], what has a minus to sums[:, 1] without it, `sums` (k, 2, m) in float64, one
    column after the other: a sum has the same bits whatever the other weights are. No value is stored.
    """
    _add_differences_by_sign(X, Z, gamma, weights, sums)


def place_differences(
    X: Floats, Z: Floats, gamma: float, out: Floats, at: Floats, shift: float = 0.0, unit: float | None = None
) -> None:
    """out[at[i], j] = the values above + shift; with a `unit` the nearest whole number of units, in 16 bits."""
    amount = np.float32(shift if unit is None else 1.0 / unit)
    _place_differences(X, Z, gamma, amount, unit is not None, at, out)


def sums_of_differences(X: Floats, Z: Floats, gamma: float, weights: Floats, out: Floats) -> None:
    """As `sums_of_values`, of the values above, which are at least 0."""
    _sums_of_differences(X, Z, gamma, weights, out)


def sums_of_values(K: Floats, weights: Floats, absolute: bool, out: Floats) -> None:
    """Out (n, k) float64 += K weights', with float32 `K` (n, m) and weights (k, m), in float32 sums of TERMS of them.

    If `absolute`, the last weights are of abs(K).
    """
    plain = len(weights) - absolute
    _sums_of_values(K, weights[:plain], out[:, :plain])
    if absolute:
        _sums_of_values(np.abs(K), weights[plain:], out[:, plain:])


@njit_fused(makes_arrays=True)
def _in_quads(X):  # type: ignore[no-untyped-def]
    """`X` in whole quads of rows, with an even number of features, at least two."""
    out = np.zeros((-(-len(X) // QUAD) * QUAD, (max(1, X.shape[1]) + 1) // 2 * 2), np.float32)
    for i in range(len(X)):
        for f in range(X.shape[1]):
            out[i, f] = X[i, f]
    return out


@njit_fused(makes_arrays=True)
def _in_lines(Z):  # type: ignore[no-untyped-def]
    """`Z` transposed, in whole lines, with an even number of features, at least two."""
    m, p = Z.shape
    lines = -(-m // LANES)
    out = _aligned((max(1, p) + 1) // 2 * 2, lines * LANES)
    out[p:] = np.float32(0.0)
    for start in range(0, lines * LANES, LANES):
        for f in range(p):
            line = out[f, start : start + LANES]
            for lane in range(LANES):
                line[lane] = Z[start + lane, f] if start + lane < m else np.float32(0.0)
    return out


@njit_fused(makes_arrays=True)
def _exp_of_differences(X, Z, gamma, out, past_caches):  # type: ignore[no-untyped-def]
    left, right = _in_quads(X), _in_lines(Z)
    for start in range(0, out.shape[1], PART):
        values = _aligned(QUAD, min(PART, right.shape[1] - start))
        _quads_of_differences(left, right, start, gamma, values, out, past_caches)
    _fence()


@njit_fused
def _quads_of_differences(left, right, start, gamma, values, out, past_caches):  # type: ignore[no-untyped-def]
    """The values of all rows with the columns from `start` on, four rows at a time."""
    stop = min(start + PART, out.shape[1])
    for first in range(0, len(out), QUAD):
        _values_of_differences(left, first, right, start, gamma, values)
        for i in range(first, min(first + QUAD, len(out))):
            _write(values[i - first], out[i, start:stop], past_caches)


@njit_fused(makes_arrays=True)
def _add_differences_by_sign(X, Z, gamma, weights, sums):  # type: ignore[no-untyped-def]
    left, right = _in_quads(X), _in_lines(Z)
    padded = np.zeros((len(weights), len(left)))
    padded[:, : len(X)] = weights
    for start in range(0, right.shape[1], PART):
        values = _aligned(QUAD, min(PART, right.shape[1] - start))
        _add_quads_by_sign(left, right, start, gamma, values, padded, sums)


@njit_fused
def _add_quads_by_sign(left, right, start, gamma, values, weights, sums):  # type: ignore[no-untyped-def]
    """Add the values of all columns at the rows from `start` on, four columns at a time."""
    stop = min(start + PART, sums.shape[2])
    for first in range(0, len(left), QUAD):
        _values_of_differences(left, first, right, start, gamma, values)
        for k in range(len(weights)):
            a, b, c, d = weights[k, first], weights[k, first + 1], weights[k, first + 2], weights[k, first + 3]
            if max(max(a, b), max(c, d)) > 0.0:
                _add_four(values, max(a, 0.0), max(b, 0.0), max(c, 0.0), max(d, 0.0), sums[k, 0, start:stop])
            if min(min(a, b), min(c, d)) < 0.0:
                _add_four(values, max(-a, 0.0), max(-b, 0.0), max(-c, 0.0), max(-d, 0.0), sums[k, 1, start:stop])


@njit_fused
def _add_four(values, a, b, c, d, out):  # type: ignore[no-untyped-def]
    """Add four weighted rows of values to a sum, one after the other."""
    first, second, third, fourth = values[0], values[1], values[2], values[3]
    for j in range(len(out)):
        out[j] = (((out[j] + a * first[j]) + b * second[j]) + c * third[j]) + d * fourth[j]


@njit_fused(makes_arrays=True)
def _place_differences(X, Z, gamma, amount, rounds, at, out):  # type: ignore[no-untyped-def]
    left = _in_quads(X)
    for start in range(0, len(Z), PART):
        right = _in_lines(Z[start : start + PART])
        values = _aligned(QUAD, right.shape[1])
        _place_quads(left, right, gamma, amount, rounds, values, at, out[:, start : min(start + PART, len(Z))])


@njit_fused
def _place_quads(left, right, gamma, amount, rounds, values, at, out):  # type: ignore[no-untyped-def]
    """Place the values of all rows, plus an `amount`; where it `rounds`, times it: four rows at a time."""
    for first in range(0, len(at), QUAD):
        _values_of_differences(left, first, right, 0, gamma, values)
        for i in range(first, min(first + QUAD, len(at))):
            source, target = values[i - first], out[at[i]]
            for j in range(len(target)):
                if rounds:
                    target[j] = min(np.int32(source[j] * amount + np.float32(0.5)), np.int32(MOST))
                else:
                    target[j] = source[j] + amount


@njit_sums(makes_arrays=True)
def _sums_of_differences(X, Z, gamma, weights, out):  # type: ignore[no-untyped-def]
    left, right = _in_quads(X), _in_lines(Z)
    padded = np.zeros((len(weights), right.shape[1]), np.float32)
    for k in range(len(weights)):
        for j in range(len(Z)):
            padded[k, j] = weights[k, j]
    for start in range(0, right.shape[1], PART):
        values = _aligned(QUAD, min(PART, right.shape[1] - start))
        _add_quads(left, right, start, gamma, values, padded, out)


@njit_sums
def _add_quads(left, right, start, gamma, values, weights, out):  # type: ignore[no-untyped-def]
    """Add the sums of all rows over the columns from `start` on, four rows at a time."""
    for first in range(0, len(out), QUAD):
        _values_of_differences(left, first, right, start, gamma, values)
        _add_quad(values, 0, weights, start, out[first : first + QUAD])


@njit_sums
def _sums_of_values(K, weights, out):  # type: ignore[no-untyped-def]
    for first in range(0, len(out), QUAD):
        _add_quad(K, first, weights, 0, out[first : first + QUAD])


@njit_sums
def _add_quad(values, first, weights, start, out):  # type: ignore[no-untyped-def]
    """Add the sums of up to four rows of values from `first`, which meet the weights from `start` on."""
    m, last = values.shape[1], len(values) - 1
    second, third, fourth = min(first + 1, last), min(first + 2, last), min(first + 3, last)
    for k in range(len(weights)):
        for lo in range(0, m, TERMS):
            hi = min(lo + TERMS, m)
            row = weights[k][start + lo : start + hi]
            v0, v1, v2, v3 = values[first][lo:hi], values[second][lo:hi], values[third][lo:hi], values[fourth][lo:hi]
            s0, s1, s2, s3 = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for j in range(len(row)):
                w = row[j]
                s0 += v0[j] * w
                s1 += v1[j] * w
                s2 += v2[j] * w
                s3 += v3[j] * w
            sums = s0, s1, s2, s3
            for i in range(len(out)):
                out[i, k] += sums[i]


@njit_fused(makes_arrays=True)
def _aligned(n, m):  # type: ignore[no-untyped-def]
    """Room for n rows of m values, whole lines of them, that begin with a cache line each."""
    memory = np.empty(n * m + LANES, np.float32)
    first = -memory.ctypes.data % LINE // 4
    return memory[first : first + n * m].reshape(n, m)


@njit_fused
def _values_of_differences(X, first, Z, start, gamma, out):  # type: ignore[no-untyped-def]
    """Write exp(-gamma ||x - z||^2) (4, m) of rows from `first` and, transposed, from `start` on."""
    _squared_distances(
        X[first:].ctypes.data,
        X.strides[0],
        Z[:, start:].ctypes.data,
        Z.strides[0],
        X.shape[1] // 2,
        out.shape[1] // LANES,
        out.ctypes.data,
        out.strides[0],
    )
    factor = np.float32(-gamma * LOG2E)
    for r in range(QUAD):
        row = out[r]
        for j in range(len(row)):
            row[j] = _exp2(row[j] * factor)


@intrinsic
def _squared_distances(typing_context, x, x_stride, z, z_stride, pairs, lines, out, out_stride):  # type: ignore[no-untyped-def]
    """Write ||x - z||^2 of QUAD rows x (p,) and 16 `lines` columns z of (p, m): addresses, distances in bytes, counts.

    Sums of even and of odd features stay in registers, a line of each row at a time, while the `pairs` of features pass
    by: as LLVM's intermediate code, because a loop of numba loads and stores the sums at every feature.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        x, x_stride, z, z_stride, pairs, lines, out, out_stride = arguments
        zero = ir.Constant(_I64, 0)
        none = ir.Constant(_LINE, [0.0] * LANES)
        rows = [builder.add(x, builder.mul(x_stride, ir.Constant(_I64, r))) for r in range(QUAD)]
        targets = [builder.add(out, builder.mul(out_stride, ir.Constant(_I64, r))) for r in range(QUAD)]

        def line(k):  # type: ignore[no-untyped-def]
            along = builder.mul(k, ir.Constant(_I64, LINE))
            here = builder.add(z, along)

            def pair(f, sums):  # type: ignore[no-untyped-def]
                first = builder.mul(f, ir.Constant(_I64, 8))
                below = builder.add(here, builder.mul(builder.mul(f, ir.Constant(_I64, 2)), z_stride))
                columns = [_load(builder, below, zero, _LINE), _load(builder, below, z_stride, _LINE)]
                added = []
                for n, total in enumerate(sums):
                    parity = n % 2
                    at = builder.add(first, ir.Constant(_I64, 4 * parity))
                    value = _load(builder, rows[n // 2], at, ir.FloatType())
                    far = builder.fsub(columns[parity], _everywhere(builder, value))  # read as it is taken away
                    added.append(builder.fadd(builder.fmul(far, far, ("contract",)), total, ("contract",)))
                return added

            sums = _counted(builder, pairs, pair, [none] * (2 * QUAD))
            for r in range(QUAD):
                total = builder.fadd(sums[2 * r], sums[2 * r + 1])
                builder.store(total, _address(builder, targets[r], along, _LINE)).align = 4
            return []

        _counted(builder, lines, lambda k, _: line(k), [])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8), generate


def _counted(builder, count, body, carried):  # type: ignore[no-untyped-def]
    """Loop over 0 ... count - 1, at least once: `body(k, values)` gives the values of the next turn."""
    before = builder.block
    loop, end = builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(_I64)
    values = [builder.phi(value.type) for value in carried]
    following = body(k, values)
    more = builder.add(k, ir.Constant(_I64, 1))
    k.add_incoming(ir.Constant(_I64, 0), before)
    k.add_incoming(more, builder.block)
    for value, at_first, at_next in zip(values, carried, following, strict=True):
        value.add_incoming(at_first, before)
        value.add_incoming(at_next, builder.block)
    builder.cbranch(builder.icmp_signed("<", more, count), loop, end)
    builder.position_at_end(end)
    return following


def _load(builder, base, offset, kind):  # type: ignore[no-untyped-def]
    value = builder.load(_address(builder, base, offset, kind))
    value.align = 4
    return value


def _everywhere(builder, value):  # type: ignore[no-untyped-def]
    """The same float32 in every lane."""
    nothing = ir.Constant(_LINE, ir.Undefined)
    single = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(single, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


@njit_fused
def _exp2(t):  # type: ignore[no-untyped-def]
    """Return 2^min(0, t) of one float32, and 2^-125 below that.

    t = k + r, 2^r by a polynomial of degree 6 through the nodes of Chebyshev (relative error 1e-8), 2^k through the
    exponent bits: those of t + SHIFTER end in k. Numba's own exp is a scalar call; this vectorises.
    """
    t = min(max(t, np.float32(-125.0)), np.float32(0.0))
    shifted = np.float32(t + np.float32(SHIFTER))
    r = t - (shifted - np.float32(SHIFTER))
    p = np.float32(1.5453163359779865e-4)
    p = p * r + np.float32(1.3390863314270973e-3)
    p = p * r + np.float32(9.618083015084267e-3)
    p = p * r + np.float32(5.5503569543361664e-2)
    p = p * r + np.float32(2.4022650718688965e-1)
    p = p * r + np.float32(6.931471824645996e-1)
    p = np.float32(p * r + np.float32(1.0))
    power = np.int32(shifted.view(np.int32) << np.int32(23))
    return np.int32(p.view(np.int32) + power).view(np.float32)


# ---- writing past the caches
def _is_spread(out: Floats) -> bool:
    """Whether the rows of `out` are float32 values that lie further apart than a cache would hold."""
    contiguous = out.dtype == np.float32 and out.strides[1] == out.itemsize
    return contiguous and len(out) * out.strides[0] >= STREAMED


@njit_fused
def place_rows(values, rows, out):  # type: ignore[no-untyped-def]
    """out[rows[r]] = values[r], past the caches, on this thread."""
    for r in range(len(rows)):
        _write(values[r], out[rows[r]], values.itemsize == 4)
    _fence()


@njit_fused
def _write(row, target, past_caches):  # type: ignore[no-untyped-def]
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
    integer, line = _I64, _LINE

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        source, target, lines = arguments
        zero, one, size = (ir.Constant(integer, value) for value in (0, 1, LINE))
        entry, loop, end = builder.block, builder.append_basic_block("lines"), builder.append_basic_block("end")
        builder.cbranch(builder.icmp_signed(">", lines, zero), loop, end)
        builder.position_at_end(loop)
        k = builder.phi(integer)
        offset, following = builder.mul(k, size), builder.add(k, one)
        value = builder.load(_address(builder, source, offset, line))
        value.align = 4
        store = builder.store(value, _address(builder, target, offset, line))
        store.align = LINE
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        k.add_incoming(zero, entry)
        k.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, lines), loop, end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _address(builder: Any, base: Any, offset: Any, kind: Any) -> Any:
    return builder.inttoptr(builder.add(base, offset), kind.as_pointer())


@intrinsic
def _fence(typing_context):  # type: ignore[no-untyped-def]
    """Let no other thread see what follows before the stores that went past the caches."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate
