r"""What support vectors give at rows: they are prepared once and kept, in the forms whose products are fastest.

Values are float64, or quick ones with a bound of what they are off. Served kernel values v are within
:math:`r |k| + a` of the exact ones (`svmcore.kernels.rounding`), and sums of them, t terms at a time with unit
roundoff u, are added in float64; so with :math:`A_j = \max_k |coef_{kj}|`

.. math::  |f_k - \sum_j coef_{kj} v_j| \le (r + (t + 2) u) \sum_j A_j |k_j| + a \sum_j A_j
"""

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from svmcore.kernels.base import InnerProductKernel, Kernel
from svmcore.kernels.rounding import MORE, UNIT32, Errors, Rounding, of_sums
from svmcore.passes.kernel.kernel_values import TERMS, sums_of_values
from svmcore.points import Floats, Points, Rows
from svmcore.points.byte_products import COLUMNS
from svmcore.points.listed import ListedRows, listed_products, listed_rows
from svmcore.runtime.threads import one_blas_thread

__all__ = ["BLOCK", "ROWS", "Outputs"]

ROWS, WIDTH = 192, 512  # of a tile of kernel values: 400 or 800 KB, which stay in the second-level cache
FINE_WIDTH = 5 * COLUMNS  # the same in whole tiles of byte products
LONGER = 8  # times as wide, and as low, is a tile of sparse rows, each of which is read once for all its columns
BLOCK = 5 * ROWS  # of a tile of few support vectors, and of what a thread does at a time
QUICK_BLOCKS, QUICK_ENTRIES = 8, 1 << 24  # at a time, where a block is sooner told than prepared; and their entries


class _Part(NamedTuple):
    """Some of the support vectors."""

    at: slice
    points: Points
    listed: ListedRows | None  # the same by columns, where they are sparse
    weights: Floats  # (k + 1, m) float32 coefficients, and the largest of each vector


@dataclasses.dataclass(frozen=True, eq=False)
class Outputs:
    """Sum_m coef[k, m] K(x_m, x) of rows x, for k problems over shared support vectors.

    Attributes
    ----------
    kernel, support_vectors, coef
        As of `svmcore.model.Model`.
    """

    kernel: Kernel
    support_vectors: Rows
    coef: Floats

    # ---- what is kept
    @cached_property
    def _points(self) -> Points | None:
        """The support vectors as bytes, or as rows for float32 values; None where neither serves."""
        if not isinstance(self.kernel, InnerProductKernel) or self.kernel.is_linear:
            return None
        points = _single(self.kernel.prepare_gram(self.support_vectors, np.float32))
        if not points.on_lattice:
            return points
        codes = points.values.loosened()  # other rows may be a little further off the lattice than these
        loose = dataclasses.replace(codes, deviation=2.0 * codes.deviation)
        return dataclasses.replace(points, values=loose)

    @cached_property
    def _coarse(self) -> list[_Part]:
        """The support vectors where bytes or float32 values serve, in parts; none where they do not."""
        points = self._points
        if points is None:
            return []
        alone = isinstance(self.kernel, InnerProductKernel) and self.kernel.stands_alone(points, points, np.float32)
        return self._parts(points, np.float32, len(points) if alone else WIDTH)

    @cached_property
    def _fine(self) -> list[_Part]:
        """The same where bytes tell float64 values: exactly, or with digits of what they are off; none elsewhere."""
        points = self._points
        if points is None or not points.on_lattice:
            return []
        if points.values.exact:
            return self._coarse
        refined = Points.refined(self.support_vectors, slice(None), points)
        return self._parts(refined, np.float64, FINE_WIDTH) if refined.is_fine else []

    @cached_property
    def _plain(self) -> list[_Part]:
        """The same of any rows, in float64."""
        return self._parts(self.kernel.prepare(self.support_vectors, None, np.float64), np.float64, WIDTH)

    def _parts(self, points: Points, dtype: DTypeLike, width: int) -> list[_Part]:
        listed = points.is_sparse and isinstance(self.kernel, InnerProductKernel)
        width = LONGER * WIDTH if listed else max(1, width)
        found = []
        for start in range(0, max(1, len(points)), width):
            part = points.rows(start, min(start + width, len(points)))
            coef = self.coef[:, start : start + width]
            weights = np.vstack([coef, np.abs(coef).max(axis=0, initial=0.0)]).astype(np.float32, order="C")
            columns = listed_rows(part.values, dtype) if listed else None
            found.append(_Part(slice(start, start + width), part, columns, weights))
        return found

    @cached_property
    def _weights(self) -> Floats:
        """W (p, k) of a linear kernel."""
        with one_blas_thread():
            return np.ascontiguousarray(np.asarray(self.coef @ self.support_vectors, dtype=np.float64).T)

    @cached_property
    def _coef(self) -> Floats:
        """Coefficients (m, k)."""
        return np.ascontiguousarray(self.coef.T)

    @cached_property
    def grain(self) -> int:
        """Rows that are computed together: more where they meet few support vectors."""
        return BLOCK if self.kernel.is_linear or self.support_vectors.shape[0] <= WIDTH else ROWS

    @cached_property
    def _is_alone(self) -> bool:
        """Whether the kernel tells sums of quick values without a tile of them."""
        return len(self._coarse) == 1 and self._stands_alone(self._coarse[0].points)

    def _stands_alone(self, P: Points) -> bool:
        kernel = self.kernel
        return isinstance(kernel, InnerProductKernel) and kernel.stands_alone(P, self._coarse[0].points, np.float32)

    @cached_property
    def quick_rows(self) -> int:
        """Rows that `add_quickly` takes at a time at best."""
        if not self._coarse or not (self._is_alone or self._coarse[0].listed):
            return BLOCK
        blocks = QUICK_ENTRIES // (BLOCK * max(1, self.support_vectors.shape[1]))
        return BLOCK * min(max(1, blocks), QUICK_BLOCKS)

    def prepare(self, quick: bool = False) -> None:
        """Make what every thread would make for itself."""
        _ = self._weights if self.kernel.is_linear else (quick and self._coarse) or self._fine or self._plain

    # ---- rows
    def _coarsely(self, X: Rows) -> Points | None:
        """Rows `X` (n, p) in the form of `_coarse`, reaching as far as they do; None if they have no such form."""
        P = self._coarse[0].points.alike(X) if self._coarse else None
        return None if P is None else dataclasses.replace(_single(P), whole=None)

    def _finely(self, X: Rows) -> Points | None:
        """Rows `X` (n, p) in the form of `_fine`; None if they have no such form."""
        P = self._coarsely(X) if self._fine else None
        return None if P is None else Points.refined(X, slice(None), P)

    def add(self, X: Rows, out: Floats) -> None:
        """Add the values at `X` (n, p) to `out` (n, k), in float64."""
        if self.kernel.is_linear:
            out += X @ self._weights
            return
        step = self.grain if self._fine else len(out)  # what one row is does not show in rows that are cut from it
        for start in range(0, len(out), step):
            some = slice(start, start + step)
            self._add_values(X[some], out[some])

    def _add_values(self, X: Rows, out: Floats) -> None:
        P, parts = self._finely(X), self._fine
        if P is None:
            parts = self._plain
            P = self.kernel.prepare(X, parts[0].points.centre, np.float64)
        for here, part, K in self._values(P, parts, np.float64):
            out[here] += K @ self._coef[part.at]

    def add_quickly(self, X: Rows, out: Floats) -> Floats | None:
        """As `add`, of the fastest kind of values; how far each row's may be from the exact ones (n,), or None.

        None is returned, and nothing added, where nothing is faster than float64.
        """
        P = self._coarsely(X)
        rounding = None if P is None else self._rounding(P)
        if P is None or rounding is None:
            return None
        found = np.zeros((len(P), len(self.coef) + 1))
        self._sum_quickly(P, found)
        out += found[:, :-1]
        total = float(sum(part.weights[-1].sum(dtype=np.float64) for part in self._coarse))
        size = MORE * (found[:, -1] + rounding.absolute * total) / (1.0 - rounding.relative)
        return MORE * (size * (rounding.relative + of_sums(TERMS + 2, UNIT32)) + rounding.absolute * total)

    def _sum_quickly(self, P: Points, out: Floats) -> None:
        if self._coarse[0].listed is not None:
            for here, part, K in self._values(P, self._coarse, np.float32):
                sums_of_values(K, part.weights, not self.kernel.is_positive, out[here])
            return
        step = len(P) if self._is_alone else self.grain
        for here, left, part, memory in _tiles(P, self._coarse, step, np.float32):
            self.kernel.add_sums(left, part.points, part.weights, out[here], memory)

    def _rounding(self, P: Points) -> Rounding | None:
        """Of quick values of rows `P`; None where they are no use."""
        kernel, extent = self.kernel, self._coarse[0].points.extent
        if not isinstance(kernel, InnerProductKernel) or (self._is_alone and not self._stands_alone(P)):
            return None
        single = self._coarse[0].listed is not None  # products of CSR rows are float64 elsewhere
        errors = Errors.of(P, extent, np.float32, wide=False)
        found = kernel.rounding_within(errors) if single else kernel.rounding(P, extent, np.float32)
        return found if found.relative <= 0.5 else None

    def _values(self, P: Points, parts: list[_Part], dtype: DTypeLike) -> Iterator[tuple[slice, _Part, Floats]]:
        """(rows, support vectors, kernel values of them), of which the last is written over by the next."""
        kernel = self.kernel
        if parts[0].listed is None:
            for here, left, part, memory in _tiles(P, parts, self.grain, dtype):
                yield here, part, kernel.block(left, part.points, memory)
            return
        for here, part, memory in _memory(len(P), parts, ROWS // LONGER, dtype):
            assert part.listed is not None
            assert isinstance(kernel, InnerProductKernel)
            G = listed_products(P.values, here.start, part.listed, memory)
            yield here, part, kernel.from_inner_products(G, P.moments.take(here), part.points.moments)


def _tiles(P: Points, parts: list[_Part], step: int, dtype: DTypeLike) -> Iterator[tuple[slice, Points, _Part, Floats]]:
    """(rows, the same rows, support vectors, memory for their values)."""
    left = P.rows(0, min(step, len(P)))
    for here, part, memory in _memory(len(P), parts, step, dtype):
        if part is parts[0]:
            left = P.rows(here.start, here.stop)
        yield here, left, part, memory


def _memory(n: int, parts: list[_Part], step: int, dtype: DTypeLike) -> Iterator[tuple[slice, _Part, Floats]]:
    """(rows, support vectors, contiguous memory for their values), the same memory for all."""
    memory = np.empty(min(step, n) * len(parts[0].points), dtype)
    for start in range(0, n, step):
        here = slice(start, min(start + step, n))
        for part in parts:
            shape = here.stop - here.start, len(part.points)
            yield here, part, memory[: shape[0] * shape[1]].reshape(shape)


def _single(points: Points) -> Points:
    """The same with CSR values in float32."""
    if not points.is_sparse:
        return points
    return dataclasses.replace(points, values=points.values.astype(np.float32, copy=False))
