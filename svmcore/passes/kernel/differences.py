"""The Gaussian of rows with few features, from differences: values, or their sums where none is stored.

A tile of values of four rows stays in the first-level cache, and nothing cancels: equal rows have the value 1.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from svmcore.passes.kernel.exp2 import LOG2E, exp2_below
from svmcore.passes.kernel.kernel_values import QUAD, add_quad
from svmcore.passes.kernel.lines import INT64, LANES, LINE, LINE_OF_FLOATS, address, aligned, fence, is_spread, write
from svmcore.passes.matrix.gather import MOST
from svmcore.points import Floats
from svmcore.runtime.compiled import njit_fused, njit_sums

__all__ = [
    "SUMMED_FLOAT32",
    "add_differences_by_sign",
    "exp_of_differences",
    "place_differences",
    "sums_of_differences",
]

SUMMED_FLOAT32 = 5.001 * 2.0**-24  # bound of what a term loses before it is in float64: its weight, its product, and
# three additions of numbers of one sign

HIGH = 60  # exponent of the largest weight of a sum in the sum's unit,
LEAST = -900  # unless all are smaller than this power of two: a unit is no power that underflows
PART = 1536  # columns of values at a time, which stay in the first-level cache with the rows' sums


def exp_of_differences(X: Floats, Z: Floats, gamma: float, out: Floats) -> Floats:
    """Out = exp(-gamma sum_f (X_if - Z_jf)^2) in float32 of float32 rows with few features."""
    _exp_of_differences(X, Z, gamma, out, is_spread(out))
    return out


def add_differences_by_sign(X: Floats, Z: Floats, gamma: float, weights: Floats, sums: Floats) -> None:
    """Add the values above, of columns `X` (c, p) at rows `Z` (m, p), times `weights` (k, c), to k pairs of sums.

    What has a plus goes to sums[:, 0], what has a minus to sums[:, 1] without it, `sums` (k, 2, m) in float64: four
    columns are added in float32, whose sum is off by `SUMMED_FLOAT32` of itself. No value is stored.
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
    """`Z` transposed, in whole lines, with an even number of features, at least two.

    A line more lies between features: in a cache those of 1,024 rows would all fall into one set of eight places.
    """
    m, p = Z.shape
    lines = -(-m // LANES)
    out = aligned((max(1, p) + 1) // 2 * 2, lines * LANES + LANES)[:, : lines * LANES]
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
        values = aligned(QUAD, min(PART, right.shape[1] - start))
        _quads_of_differences(left, right, start, gamma, values, out, past_caches)
    fence()


@njit_fused
def _quads_of_differences(left, right, start, gamma, values, out, past_caches):  # type: ignore[no-untyped-def]
    """The values of all rows with the columns from `start` on, four rows at a time."""
    stop = min(start + PART, out.shape[1])
    for first in range(0, len(out), QUAD):
        _values_of_differences(left, first, right, start, gamma, values)
        for i in range(first, min(first + QUAD, len(out))):
            write(values[i - first], out[i, start:stop], past_caches)


@njit_fused(makes_arrays=True)
def _add_differences_by_sign(X, Z, gamma, weights, sums):  # type: ignore[no-untyped-def]
    left, right = _in_quads(X), _in_lines(Z)
    padded, units = np.zeros((len(weights), len(left)), np.float32), np.ones(len(weights))
    for k in range(len(weights)):
        units[k] = _unit_of(weights[k])
        for i in range(len(X)):
            padded[k, i] = weights[k, i] / units[k]
    for start in range(0, right.shape[1], PART):
        values = aligned(QUAD, min(PART, right.shape[1] - start))
        _add_quads_by_sign(left, right, start, gamma, values, padded, units, sums)


@njit_fused
def _unit_of(weights):  # type: ignore[no-untyped-def]
    """A power of two, of which the largest of the weights is about 2^HIGH: products with small values stay normal."""
    largest = 0.0
    for weight in weights:
        largest = max(largest, abs(weight))
    return math.ldexp(1.0, max(math.frexp(largest)[1], LEAST) - HIGH)


@njit_fused
def _add_quads_by_sign(left, right, start, gamma, values, weights, units, sums):  # type: ignore[no-untyped-def]
    """Add the values of all columns at the rows from `start` on, four columns at a time."""
    stop, zero = min(start + PART, sums.shape[2]), np.float32(0.0)
    for first in range(0, len(left), QUAD):
        _values_of_differences(left, first, right, start, gamma, values)
        for k in range(len(weights)):
            a, b, c, d = weights[k, first], weights[k, first + 1], weights[k, first + 2], weights[k, first + 3]
            if max(max(a, b), max(c, d)) > zero:
                four = max(a, zero), max(b, zero), max(c, zero), max(d, zero)
                _add_four(values, four, units[k], sums[k, 0, start:stop])
            if min(min(a, b), min(c, d)) < zero:
                four = max(-a, zero), max(-b, zero), max(-c, zero), max(-d, zero)
                _add_four(values, four, units[k], sums[k, 1, start:stop])


@njit_fused
def _add_four(values, weights, unit, out):  # type: ignore[no-untyped-def]
    """Add four rows of values times their weights, of a `unit`: to each other in float32, to the sum in float64."""
    first, second, third, fourth = values[0], values[1], values[2], values[3]
    a, b, c, d = weights
    for j in range(len(out)):
        out[j] += unit * np.float64(((a * first[j] + b * second[j]) + c * third[j]) + d * fourth[j])


@njit_fused(makes_arrays=True)
def _place_differences(X, Z, gamma, amount, rounds, at, out):  # type: ignore[no-untyped-def]
    left = _in_quads(X)
    for start in range(0, len(Z), PART):
        right = _in_lines(Z[start : start + PART])
        values = aligned(QUAD, right.shape[1])
        _place_quads(left, right, gamma, amount, rounds, values, at, out, start, min(start + PART, len(Z)))


@njit_fused
def _place_quads(left, right, gamma, amount, rounds, values, at, out, start, stop):  # type: ignore[no-untyped-def]
    """Place the values of all rows, plus an `amount`; where it `rounds`, times it: four rows at a time."""
    for first in range(0, len(at), QUAD):
        _values_of_differences(left, first, right, 0, gamma, values)
        for i in range(first, min(first + QUAD, len(at))):
            source, target = values[i - first], out[at[i], start:stop]
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
        values = aligned(QUAD, min(PART, right.shape[1] - start))
        _add_quads(left, right, start, gamma, values, padded, out)


@njit_sums
def _add_quads(left, right, start, gamma, values, weights, out):  # type: ignore[no-untyped-def]
    """Add the sums of all rows over the columns from `start` on, four rows at a time."""
    for first in range(0, len(out), QUAD):
        _values_of_differences(left, first, right, start, gamma, values)
        add_quad(values, 0, weights, start, out[first : first + QUAD])


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
            row[j] = exp2_below(row[j] * factor)


@intrinsic
def _squared_distances(typing_context, x, x_stride, z, z_stride, pairs, lines, out, out_stride):  # type: ignore[no-untyped-def]
    """Write ||x - z||^2 of QUAD rows x (p,) and 16 `lines` columns z of (p, m): addresses, distances in bytes, counts.

    Sums of even and of odd features stay in registers, a line of each row at a time, while the `pairs` of features pass
    by: as LLVM's intermediate code, because a loop of numba loads and stores the sums at every feature.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        x, x_stride, z, z_stride, pairs, lines, out, out_stride = arguments
        zero = ir.Constant(INT64, 0)
        none = ir.Constant(LINE_OF_FLOATS, [0.0] * LANES)
        rows = [builder.add(x, builder.mul(x_stride, ir.Constant(INT64, r))) for r in range(QUAD)]
        targets = [builder.add(out, builder.mul(out_stride, ir.Constant(INT64, r))) for r in range(QUAD)]

        def line(k):  # type: ignore[no-untyped-def]
            along = builder.mul(k, ir.Constant(INT64, LINE))
            here = builder.add(z, along)

            def pair(f, sums):  # type: ignore[no-untyped-def]
                first = builder.mul(f, ir.Constant(INT64, 8))
                below = builder.add(here, builder.mul(builder.mul(f, ir.Constant(INT64, 2)), z_stride))
                columns = [_load(builder, below, zero, LINE_OF_FLOATS), _load(builder, below, z_stride, LINE_OF_FLOATS)]
                added = []
                for n, total in enumerate(sums):
                    parity = n % 2
                    at = builder.add(first, ir.Constant(INT64, 4 * parity))
                    value = _load(builder, rows[n // 2], at, ir.FloatType())
                    far = builder.fsub(columns[parity], _everywhere(builder, value))  # read as it is taken away
                    added.append(builder.fadd(builder.fmul(far, far, ("contract",)), total, ("contract",)))
                return added

            sums = _counted(builder, pairs, pair, [none] * (2 * QUAD))
            for r in range(QUAD):
                total = builder.fadd(sums[2 * r], sums[2 * r + 1])
                builder.store(total, address(builder, targets[r], along, LINE_OF_FLOATS)).align = 4
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
    k = builder.phi(INT64)
    values = [builder.phi(value.type) for value in carried]
    following = body(k, values)
    more = builder.add(k, ir.Constant(INT64, 1))
    k.add_incoming(ir.Constant(INT64, 0), before)
    k.add_incoming(more, builder.block)
    for value, at_first, at_next in zip(values, carried, following, strict=True):
        value.add_incoming(at_first, before)
        value.add_incoming(at_next, builder.block)
    builder.cbranch(builder.icmp_signed("<", more, count), loop, end)
    builder.position_at_end(end)
    return following


def _load(builder, base, offset, kind):  # type: ignore[no-untyped-def]
    value = builder.load(address(builder, base, offset, kind))
    value.align = 4
    return value


def _everywhere(builder, value):  # type: ignore[no-untyped-def]
    """The same float32 in every lane."""
    nothing = ir.Constant(LINE_OF_FLOATS, ir.Undefined)
    single = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(single, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))
