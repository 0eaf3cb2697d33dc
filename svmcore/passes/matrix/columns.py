"""Weighted sums of columns of K in float64: what a product with K and an update of scores are made of."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from svmcore.points import Floats
from svmcore.runtime.compiled import njit
from svmcore.runtime.threads import split_range

__all__ = [
    "Weighted",
    "add_block",
    "add_columns",
    "add_columns_and_sizes",
    "add_columns_by_sign",
    "add_columns_compensated",
    "weighted",
]

SPLITTER = 134217729.0  # 2^27 + 1
RANGE = 4096  # entries of the sum that stay in the second-level cache
GRAIN = 1024  # of the sum: least of a thread, and
ADDED = 1 << 20  # entries of columns that are worth a thread of their own


def add_columns(
    matrix: Floats, rows: Floats, weights: Floats, out: Floats, span: tuple[int, int] | None = None
) -> None:
    """Out += sum_r weights[r] matrix[rows[r]] in float64, by ranges on several threads; within a `span` alone."""
    start, stop = span or (0, len(out))
    work = lambda lo, hi: _add_columns(matrix, rows, weights, out, start + lo, start + hi)  # noqa: E731
    split_range(stop - start, work, least=_least(rows), grain=GRAIN)


def _least(rows: Floats) -> int:
    """Entries of a sum of so many columns that are worth a thread: few, where there are many columns."""
    return max(GRAIN, ADDED // max(1, len(rows)))


def add_columns_by_sign(matrix: Floats, rows: Floats, weights: Floats, up: Floats, down: Floats) -> None:
    """As `add_columns`, those of positive weight to `up`; of the others the same with the opposite sign to `down`."""
    work = lambda lo, hi: _add_by_sign(matrix, rows, weights, up, down, lo, hi)  # noqa: E731
    split_range(len(up), work, least=_least(rows), grain=GRAIN)


def add_columns_and_sizes(matrix: Floats, rows: Floats, weights: Floats, out: Floats, sizes: Floats) -> None:
    """As `add_columns`, and sizes += sum_r |weights[r] matrix[rows[r]]|."""
    work = lambda lo, hi: _add_sizes(matrix, rows, weights, out, sizes, lo, hi)  # noqa: E731
    split_range(len(out), work, least=_least(rows), grain=GRAIN)


class Weighted(NamedTuple):
    """Columns of a block that one sum is of, with their weights; if signed, of positive weight, and the others' sizes.

    Threads that add many blocks wait for the interpreter: what is the same for all is told once.
    """

    used: Floats
    weights: Floats
    others: Floats
    sizes: Floats


def weighted(weights: Floats, by_sign: bool) -> Weighted:
    """The columns whose weight, of `weights` (m,), is not 0."""
    used = np.flatnonzero(weights > 0.0) if by_sign else np.flatnonzero(weights)
    others = np.flatnonzero(weights < 0.0) if by_sign else used[:0]
    return Weighted(used, weights[used], others, -weights[others])


def add_block(K: Floats, every: Sequence[Weighted], by_sign: bool, sums: Floats) -> None:
    """Add a block whose rows are columns to several sums (k, 2, m), on this thread.

    As `add_columns_by_sign`, or else `add_columns_and_sizes`, but one column after the other: a sum has the same bits
    whatever other columns are in the block, for other sums.
    """
    for (used, weights, others, sizes), (first, second) in zip(every, sums, strict=True):
        if by_sign:
            _add_in_order_by_sign(K, used, weights, others, sizes, first, second)
        elif len(used):
            _add_in_order_and_sizes(K, used, weights, first, second)


def add_columns_compensated(matrix: Floats, rows: Floats, weights: Floats, out: Floats, rest: Floats) -> None:
    """Out + rest += sum_r weights[r] matrix[rows[r]], what each addition rounds away being kept in `rest`."""
    work = lambda lo, hi: _add_compensated(matrix, rows, weights, out, rest, lo, hi)  # noqa: E731
    split_range(len(out), work, least=_least(rows), grain=GRAIN)


@njit
def _add_columns(matrix, rows, weights, out, lo, hi):  # type: ignore[no-untyped-def]
    """Eight columns at a time over ranges that stay in cache: long enough runs for the prefetcher."""
    m = len(rows)
    for start in range(lo, hi, RANGE):
        target = out[start : min(start + RANGE, hi)]
        k = len(target)
        for r in range(0, m - m % 8, 8):
            a, w_a = matrix[rows[r], start : start + k], weights[r]
            b, w_b = matrix[rows[r + 1], start : start + k], weights[r + 1]
            c, w_c = matrix[rows[r + 2], start : start + k], weights[r + 2]
            d, w_d = matrix[rows[r + 3], start : start + k], weights[r + 3]
            e, w_e = matrix[rows[r + 4], start : start + k], weights[r + 4]
            f, w_f = matrix[rows[r + 5], start : start + k], weights[r + 5]
            g, w_g = matrix[rows[r + 6], start : start + k], weights[r + 6]
            h, w_h = matrix[rows[r + 7], start : start + k], weights[r + 7]
            for j in range(k):
                left = (w_a * a[j] + w_b * b[j]) + (w_c * c[j] + w_d * d[j])
                right = (w_e * e[j] + w_f * f[j]) + (w_g * g[j] + w_h * h[j])
                target[j] += left + right
        for r in range(m - m % 8, m):
            a = matrix[rows[r], start : start + k]
            for j in range(k):
                target[j] += weights[r] * a[j]


@njit(makes_arrays=True)
def _add_by_sign(matrix, rows, weights, up, down, lo, hi):  # type: ignore[no-untyped-def]
    chosen, sizes = np.empty_like(rows), np.empty_like(weights)
    for sign, target in ((1.0, up), (-1.0, down)):
        n = 0
        for r in range(len(rows)):
            chosen[n], sizes[n] = rows[r], sign * weights[r]
            n += sign * weights[r] > 0.0
        _add_columns(matrix, chosen[:n], sizes[:n], target, lo, hi)


@njit
def _add_in_order_by_sign(K, used, weights, others, sizes, up, down):  # type: ignore[no-untyped-def]
    _add_in_order(K, used, weights, up)
    _add_in_order(K, others, sizes, down)


@njit
def _add_in_order(matrix, rows, weights, out):  # type: ignore[no-untyped-def]
    """Four columns for each load of the sum, to which they are added one after the other."""
    k, m = len(out), len(rows)
    for r in range(0, m - m % 4, 4):
        a, w_a = matrix[rows[r], :k], weights[r]
        b, w_b = matrix[rows[r + 1], :k], weights[r + 1]
        c, w_c = matrix[rows[r + 2], :k], weights[r + 2]
        d, w_d = matrix[rows[r + 3], :k], weights[r + 3]
        for j in range(k):
            out[j] = (((out[j] + w_a * a[j]) + w_b * b[j]) + w_c * c[j]) + w_d * d[j]
    for r in range(m - m % 4, m):
        a = matrix[rows[r], :k]
        for j in range(k):
            out[j] += weights[r] * a[j]


@njit
def _add_in_order_and_sizes(matrix, rows, weights, out, sizes):  # type: ignore[no-untyped-def]
    k = len(out)
    for r in range(len(rows)):
        a, weight = matrix[rows[r], :k], weights[r]
        for j in range(k):
            term = weight * a[j]
            out[j] += term
            sizes[j] += abs(term)


@njit
def _add_sizes(matrix, rows, weights, out, sizes, lo, hi):  # type: ignore[no-untyped-def]
    """Four columns at a time: the products are added to one sum and their sizes to another."""
    m = len(rows)
    for start in range(lo, hi, RANGE):
        target, size = out[start : min(start + RANGE, hi)], sizes[start : min(start + RANGE, hi)]
        k = len(target)
        for r in range(0, m - m % 4, 4):
            a, w_a = matrix[rows[r], start : start + k], weights[r]
            b, w_b = matrix[rows[r + 1], start : start + k], weights[r + 1]
            c, w_c = matrix[rows[r + 2], start : start + k], weights[r + 2]
            d, w_d = matrix[rows[r + 3], start : start + k], weights[r + 3]
            for j in range(k):
                w, x, y, z = w_a * a[j], w_b * b[j], w_c * c[j], w_d * d[j]
                target[j] += (w + x) + (y + z)
                size[j] += (abs(w) + abs(x)) + (abs(y) + abs(z))
        for r in range(m - m % 4, m):
            a = matrix[rows[r], start : start + k]
            for j in range(k):
                target[j] += weights[r] * a[j]
                size[j] += abs(weights[r] * a[j])


@njit
def _add_compensated(matrix, rows, weights, out, rest, lo, hi):  # type: ignore[no-untyped-def]
    """Dekker's product and Knuth's sum: as good as if the whole were computed in twice the digits and rounded once."""
    for start in range(lo, hi, RANGE):
        total, lost = out[start : min(start + RANGE, hi)], rest[start : min(start + RANGE, hi)]
        k = len(total)
        for r in range(len(rows)):
            a, w = matrix[rows[r], start : start + k], weights[r]
            w_high = SPLITTER * w - (SPLITTER * w - w)
            w_low = w - w_high
            for j in range(k):
                x, before = np.float64(a[j]), total[j]
                x_high = SPLITTER * x - (SPLITTER * x - x)
                x_low = x - x_high
                term = w * x
                wrong = w_low * x_low - (((term - w_high * x_high) - w_low * x_high) - w_high * x_low)
                after = before + term
                part = after - before
                lost[j] += ((before - (after - part)) + (term - part)) + wrong
                total[j] = after
