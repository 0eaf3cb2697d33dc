"""Columns computed from the rows when asked for, never kept."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from svmcore.kernels.base import Kernel
from svmcore.kernels.exact import ExactKernel
from svmcore.kernels.rounding import Rounding
from svmcore.passes.kernel.differences import SUMMED_FLOAT32
from svmcore.passes.kernel.lines import place_rows
from svmcore.passes.matrix.columns import add_block, weighted
from svmcore.points import Floats, Points
from svmcore.runtime.memory import empty
from svmcore.runtime.threads import split_range
from svmcore.sources.base import CHUNK, Factor, Source

__all__ = ["ComputedColumns"]

GRAIN = 192  # rows: whole lines of values, and whole tiles of products of bytes
BLOCK = 6 * CHUNK  # most rows of one matrix product
Adder = Callable[[Points, Floats, Floats], None]  # of rows (m), memory for values, and sums (k, 2, m)

ANEW = 8 * CHUNK  # columns whose values are summed together where none is stored
VALUES = 1 << 15  # of these that are worth a thread of their own, which may begin at any of so many
LINES = 64  # rows
MANY = 1 << 15  # rows, of whose columns it pays to ask which are alike
SUMMED = 6 * CHUNK  # rows whose values are summed together: 1.5 MB of float32, which the second-level cache holds


class ComputedColumns(Source):
    """Columns computed from the rows when asked for, never kept.

    Parameters
    ----------
    kernel, points
        A kernel with numeric parameters and the rows in the form of `kernel.prepare`.
    dtype
        Of the columns: float32 or float64.
    exact
        The same kernel on the rows as they came, for proofs; None takes what is served for the K that is meant.
    """

    can_take: ClassVar[bool] = True
    concurrent: ClassVar[bool] = True

    def __init__(
        self, kernel: Kernel, points: Points, dtype: DTypeLike = np.float32, exact: ExactKernel | None = None
    ) -> None:
        self.kernel, self.points, self.exact = kernel, points, exact
        self.psd, self.is_positive = bool(kernel.psd), kernel.is_positive
        self.n, self.dtype = len(points), np.dtype(dtype)
        self.computes_anew = kernel.sums_alone(points, points, self.dtype)
        self._parts: dict[tuple[int, int], Points] = {}

    @cached_property
    def rounding(self) -> Any:  # type: ignore[override]
        """Of values in sums, where these are all that is served of them."""
        return self.stored.and_then(SUMMED_FLOAT32) if self.computes_anew else self.stored

    @cached_property
    def stored(self) -> Rounding:
        """Of the kernel's values at this precision, as a matrix has them."""
        return self.kernel.rounding(self.points, self.points, self.dtype)

    def diagonal(self) -> Floats:
        """k(x_i, x_i) (n,)."""
        return self.kernel.diagonal_of(self.points)

    def columns(self, idx: Floats) -> Floats:
        """Columns `idx`, one matrix product."""
        return self.fill(idx, np.empty((len(idx), self.n), self.dtype))

    def fill(self, idx: Floats, out: Floats, rows: Floats | None = None) -> Floats:
        """Write columns `idx` to the rows of `out`, or to those `rows` of it, on as many threads as BLAS has."""
        left, block = self.of_columns(np.asarray(idx)), _block_rows(self.n)

        def part(start: int, stop: int) -> None:
            near = None if rows is None else np.empty((len(idx), block), self.dtype)
            for lo in range(start, stop, block):
                hi = min(lo + block, stop)
                target = out[:, lo:hi] if near is None else near[:, : hi - lo]
                self.kernel.block(left, self._rows(lo, hi), target)
                if rows is not None:
                    place_rows(target, rows, out[:, lo:hi])

        split_range(self.n, part, least=max(block, 3 * CHUNK), grain=block)
        return out

    def outputs(self, coef: Floats) -> tuple[Floats, Floats]:
        """K @ coef and abs(K) @ abs(coef), (n,): values are summed while a cache holds them, no column is stored.

        Where what is served is the K that is meant, its bits must be those of columns: products of other shapes differ.
        """
        return self.outputs_of([coef])[0]

    def outputs_of(self, coefs: Sequence[Floats]) -> list[tuple[Floats, Floats]]:
        """`outputs` of each of several `coefs` (n,): a column that more than one of them wants is computed once.

        Of rows on a lattice the bits of each are those that it has alone: a value does not depend on what is computed
        with it there, and values are added one by one.
        """
        if self.exact is None:
            return [super(ComputedColumns, self).outputs(coef) for coef in coefs]
        weights = np.array(coefs)
        wanted = np.flatnonzero(weights.any(axis=0))
        return [self._joined(each) for each in self._summed(wanted, weights[:, wanted])]

    def outputs_at(self, coef: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """At these rows no other value is computed."""
        if self.exact is None:
            return super().outputs_at(coef, rows)
        idx = np.flatnonzero(coef)
        return self._joined(self._summed(idx, coef[None, idx], rows)[0])

    def outputs_within(self, idx: Floats, weights: Floats, start: int, stop: int) -> tuple[Floats, Floats]:
        """The same of the columns `idx` with their `weights`, at the rows start ... stop - 1, on this thread."""
        sums = np.zeros((1, 2, stop - start))
        self._add(self._adders(idx, np.asarray(weights)[None]), self._rows, start, sums)
        return self._joined(sums[0])

    def by_sign(self, idx: Floats, weights: Floats, most: int = CHUNK) -> tuple[Floats, Floats]:
        """Of columns, or, where that is as fast, of values that are summed as they are computed."""
        if not self.computes_anew:
            return super().by_sign(idx, weights, most)
        up, down = self._summed(idx, weights[None])[0]
        return up, down

    def square(
        self, idx: Floats, others: Floats, out: Floats, at: Floats, shift: float = 0.0, unit: float | None = None
    ) -> None:
        """Of values that are computed by themselves."""
        P, Q = self.points.take(idx), self.points.take(others)
        work = lambda lo, hi: self.kernel.place(P.rows(lo, hi), Q, out, at[lo:hi], shift, unit)  # noqa: E731
        split_range(len(idx), work, least=max(1, VALUES // max(1, len(others))))

    def terms(self, count: int) -> float:
        """One column after the other."""
        return count + 2.0

    def _summed(self, idx: Floats, weights: Floats, rows: Floats | None = None) -> Floats:
        """Sums (k, 2, m) at all rows, or at some, of the columns `idx` times `weights` (k, q), as `add_block` does."""
        sums = np.zeros((len(weights), 2, self.n if rows is None else len(rows)))
        if not len(idx):
            return sums
        adders = self._adders(idx, weights)
        block = self._rows if rows is None else lambda lo, hi: self.points.take(rows[lo:hi])
        least, grain = (VALUES // max(1, len(idx)), LINES) if self.computes_anew else (SUMMED, SUMMED)
        work = lambda lo, hi: self._add(adders, block, lo, sums[:, :, lo:hi])  # noqa: E731
        split_range(sums.shape[2], work, least=least, grain=grain)
        return sums

    def _adders(self, idx: Floats, weights: Floats) -> list[Adder]:
        """What adds some of the columns each, in an order in which they are faster."""
        first = self._first(idx, weights)
        if first is not None:
            idx, weights = idx[first], weights[:, first]
        step = ANEW if self.computes_anew else CHUNK
        parts = [slice(start, start + step) for start in range(0, len(idx), step)]
        return [self._adder(self.of_columns(idx[part]), weights[:, part].copy()) for part in parts]

    def _first(self, idx: Floats, weights: Floats) -> Floats | None:
        """The order of columns: those with a plus first where there is one sum; bytes that are 0 in the same words."""
        if self.computes_anew:
            return np.argsort(weights[0] < 0.0, kind="stable") if len(weights) == 1 else None
        return None if self._ranks is None else np.argsort(self._ranks[idx])

    @cached_property
    def _ranks(self) -> Floats | None:
        """Of all rows, where there are many: then it pays that columns of a kind are computed together."""
        return self.points.values.ranks if self.n >= MANY and self.points.on_lattice else None

    def _adder(self, left: Points, weights: Floats) -> Adder:
        """What adds columns of `left` at some rows to sums (k, 2, m)."""
        if self.computes_anew:
            return lambda rows, _, sums: self.kernel.add_by_sign(left, rows, weights, sums)
        every = [weighted(own, self.is_positive) for own in weights]

        def add(rows: Points, memory: Floats, sums: Floats) -> None:
            K = self.kernel.block(left, rows, memory[: len(left), : len(rows)])
            add_block(K, every, self.is_positive, sums)

        return add

    def _add(self, adders: list[Adder], block: Callable[[int, int], Points], start: int, sums: Floats) -> None:
        """Add what the columns have at the rows that `block` gives, from `start` on, to `sums` (k, 2, m)."""
        memory = np.empty((0 if self.computes_anew else CHUNK, SUMMED), self.dtype)
        for lo in range(0, sums.shape[2], SUMMED):
            hi = min(lo + SUMMED, sums.shape[2])
            rows, near = block(start + lo, start + hi), empty((*sums.shape[:2], hi - lo), sums.dtype)
            near[:] = 0.0
            for add in adders:
                add(rows, memory, near)
            sums[:, :, lo:hi] = near

    def _rows(self, start: int, stop: int) -> Points:
        """Rows start ... stop - 1: blocks are the same each time, and each is looked up once."""
        if self.points.is_sparse:  # a part is a copy
            return self.points.rows(start, stop)
        found = self._parts.get((start, stop))
        if found is None:
            found = self._parts[start, stop] = self.points.rows(start, stop)
        return found

    def _joined(self, sums: Floats) -> tuple[Floats, Floats]:
        up, down = sums
        return (up - down, up + down) if self.is_positive else (up, down)

    def of_columns(self, idx: Floats) -> Points:
        """The rows whose columns these are."""
        return self.points.take(idx)

    def take(self, rows: Floats) -> "ComputedColumns":
        """The same kernel on the rows `rows` alone."""
        exact = None if self.exact is None else self.exact.take(rows)
        return ComputedColumns(self.kernel, self.points.take(rows), self.dtype, exact)

    def finer(self) -> "ComputedColumns | None":
        """The same columns in float64, from the rows as they came."""
        if self.exact is None or self.dtype == np.float64:
            return None
        return ComputedColumns(self.kernel, self.exact.points(), np.float64, self.exact)

    @property
    def rank(self) -> int | None:
        """Features of a linear kernel's rows."""
        return self.points.n_features if self.kernel.is_linear else None

    def factor(self) -> Factor | None:
        """The rows of a linear kernel as they came, about the centre where the kernel is."""
        if not self.kernel.is_linear:
            return None
        if self.exact is not None:
            return Factor(self.exact.X, self.exact.about, self.exact.at)
        rows = self.points.values if self.kernel.is_centred else self.points.origin_values
        return Factor(rows, np.zeros(self.points.n_features))

    def offset(self, coef: Floats) -> float:
        """What centring the kernel has added to the bias."""
        if not (self.kernel.is_centred and coef.any()):
            return 0.0
        return float(coef @ self.kernel.at_centre(self.points))


def _block_rows(n: int) -> int:
    """Rows of one matrix product of n: at most BLOCK, and a number of blocks that 2, 4 or 8 threads can share alike.

    They are whole tiles of products of bytes, whose rows are then arranged once for all columns.

    >>> _block_rows(32_000), _block_rows(6_000), _block_rows(100)
    (1344, 768, 384)
    """
    count = 8 * -(-n // (8 * BLOCK))
    return max(-(-CHUNK // GRAIN) * GRAIN, -(-n // (GRAIN * max(1, count))) * GRAIN)
