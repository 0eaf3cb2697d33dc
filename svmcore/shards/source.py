"""K of rows that are in shards, as solvers and certificates know it."""

import dataclasses
import functools
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from svmcore.errors import Unsupported
from svmcore.kernels.base import Kernel
from svmcore.kernels.rounding import Rounding
from svmcore.points import Extent, Floats, Points, Rows
from svmcore.qp import SignedQP
from svmcore.shards.group import Group
from svmcore.shards.line import Transport
from svmcore.shards.shard import ByPairs, Opening
from svmcore.shards.state import ShardedState
from svmcore.sources import Source

__all__ = ["ShardedSource"]


@dataclasses.dataclass(frozen=True)
class _Table:
    """Where the rows are, and how they are divided: shard i has the rows edges[i] ... edges[i + 1] - 1."""

    address: Any
    edges: tuple[int, ...]
    transport: Transport
    limit_bytes: int


class ShardedSource(Source):
    """Columns of K that no process holds: a shard has those of its rows; see `open`."""

    repeats: ClassVar[bool] = False
    at_once: int = 4  # while this process solves a set, the shards are asked by others

    def __init__(self, table: _Table, kernel: Kernel, pattern: Points, dtype: np.dtype) -> None:
        self.table, self.kernel, self.pattern = table, kernel, pattern
        self.n, self.dtype = table.edges[-1], np.dtype(dtype)
        self.psd, self.is_positive = bool(kernel.psd), kernel.is_positive
        self.group = Group(table.edges, [self._opening(i) for i in range(len(table.edges) - 1)], table.transport)
        self._settle()

    @classmethod
    def open(
        cls,
        address: Any,
        edges: Sequence[int],
        kernel: Kernel,
        sample: Rows,
        dtype: Any,
        transport: Transport,
        limit_bytes: int,
    ) -> "ShardedSource":
        """Prepare all rows alike, as a `sample` of them suggests.

        Parameters
        ----------
        address, edges
            What shards find the table by, and the first row of each shard, then n.
        limit_bytes
            Of the columns of each shard.
        """
        table = _Table(address, tuple(edges), transport, int(limit_bytes))
        try:
            return cls(table, kernel, kernel.prepare_gram(sample, dtype).pattern, np.dtype(dtype))
        except _OffLattice:
            return cls(table, kernel, Points.prepare(sample, None, dtype).pattern, np.dtype(dtype))

    def _opening(self, i: int) -> Opening:
        table, key = self.table, f"{uuid.uuid4().hex}-{i}"
        start, stop = table.edges[i : i + 2]
        about = self.kernel, self.pattern, self.dtype.name
        return Opening(key, table.address, start, stop, self.n, *about, table.limit_bytes)

    def _settle(self) -> None:
        """Tell all shards how far the rows of any reach, so that a value does not depend on the shard it is in."""
        extents = self.group.every("extent")
        if any(extent is None for extent in extents):
            raise _OffLattice
        largest = Extent(*(max(far) for far in zip(*extents, strict=True)))
        self.pattern = dataclasses.replace(self.pattern, whole=largest)
        told = self.group.settle(self.pattern)
        self._rounding, unit = (Rounding(*map(max, zip(*each, strict=True))) for each in zip(*told, strict=True))
        self.exact = _ShardedExact(self, unit)  # type: ignore[assignment]

    # ---- as a source
    def state(self, qp: SignedQP, beta: Floats, score: Floats | None) -> ShardedState:
        """The vectors of a program, in the shards."""
        return ShardedState(self.group, qp, beta, score)

    def outputs(self, coef: Floats) -> tuple[Floats, Floats]:
        """K @ coef and a bound of abs(K) @ abs(coef), both (n,) float64, of the values that are served."""
        numbers = np.flatnonzero(coef)
        self.group.meet(numbers)
        parts = self.group.every("outputs", numbers, coef[numbers], needs=numbers)
        values, sizes = zip(*parts, strict=True)
        return np.concatenate(values), np.concatenate(sizes).astype(np.float64)

    def terms(self, count: int) -> float:
        """Of columns that a shard holds, and of others, one after the other."""
        return count + 9.0

    def diagonal(self) -> Floats:
        """K_ii (n,), float64."""
        return self._diagonal

    @functools.cached_property
    def _diagonal(self) -> Floats:
        return np.concatenate([packed.vectors()[0] for packed in self.group.every("diagonal")])

    def columns(self, idx: Floats) -> Floats:
        """No process has a whole column."""
        raise Unsupported("columns of K in shards are in no one place; solver 'smo' needs none")

    @property
    def capacity(self) -> int:
        """Columns that every shard can hold."""
        rows = int(np.diff(self.table.edges).max())
        return max(2, min(self.n, self.table.limit_bytes // max(1, rows * self.dtype.itemsize)))

    @property
    def rounding(self) -> Any:
        """The widest of the shards'."""
        return self._rounding

    def finer(self) -> "ShardedSource | None":
        """The same columns in float64, in the same bytes."""
        if self.dtype == np.float64:
            return None
        centre, p = self.pattern.centre, self.pattern.n_features
        values = self.pattern.values if self.pattern.is_sparse else np.empty((0, p))
        return ShardedSource(self.table, self.kernel, Points.prepare(values, centre, np.float64), np.dtype(np.float64))

    def close(self) -> None:
        """Let the shards go; they need not be there any more."""
        for line in self.group.lines:
            line.close()

    def offset(self, coef: Floats) -> float:
        """What centring the kernel has added to the bias."""
        numbers = np.flatnonzero(coef)
        if not len(numbers):
            return 0.0
        self.group.meet(numbers)
        return float(coef[numbers] @ self.kernel.at_centre(self.group.met.points(numbers)))


class _OffLattice(Exception):
    """Rows of a shard are not on the lattice of the sample."""


class _ShardedExact:
    """What a certificate asks of `svmcore.kernels.exact.ExactKernel`: every shard proves its own rows, in float64."""

    is_direct = False

    def __init__(self, source: ShardedSource, unit: Rounding) -> None:
        self.source, self.unit = source, unit

    def rounding(self, rows: Floats, columns: Floats | None = None) -> Rounding:
        """A bound of the errors of all values."""
        return self.unit

    def summands(self, m: int) -> int:
        """Longest chain of additions in a product over `m` columns."""
        return ByPairs.summands(self, m)  # type: ignore[arg-type]

    def columns(self, numbers: Floats) -> Floats:
        """The numbers themselves: shards have met the rows."""
        return numbers

    prepared = shorter = columns

    def product(self, rows: Floats, columns: Floats, coef: Floats) -> Floats:
        """Sum_j coef_j k(x_i, x_j) over `columns`, (len(rows),)."""
        group, owner = self.source.group, self.source.group.owners(rows)
        group.meet(columns)
        at = [np.flatnonzero(owner == i) for i in range(len(group.lines))]
        given = [(rows[own] - group.edges[i], columns, coef) if len(own) else None for i, own in enumerate(at)]
        out = np.empty(len(rows))
        for own, values in zip(at, group.each("product", given, columns), strict=True):
            out[own] = values if len(own) else 0.0
        return out

    def symmetric_product(self, rows: Floats, coef: Floats, columns: Floats | None = None) -> Floats:
        """`product(rows, rows, coef)`."""
        return self.product(rows, rows, coef)

    def can_refine(self, m: int) -> bool:
        """Twice the digits are for what one process holds."""
        return False

    def finest_rounding(self, m: int) -> Rounding:
        """Nothing is finer than float64 here."""
        return self.unit
