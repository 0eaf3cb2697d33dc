r"""What support vectors give at rows: they are prepared once and kept, in the forms whose products are fastest.

Values are float64, or quick ones with a bound of what they are off. Served kernel values v are within
:math:`r |k| + a` of the exact ones (`svmcore.kernels.rounding`), and sums of them, t terms at a time with unit
roundoff u, are added in float64; so with :math:`A_j = \max_k |coef_{kj}|`

.. math::  |f_k - \sum_j coef_{kj} v_j| \le (r + (t + 2) u) \sum_j A_j |k_j| + a \sum_j A_j
"""

import dataclasses
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike

from svmcore.kernels.base import InnerProductKernel, Kernel
from svmcore.kernels.rounding import MORE, UNIT32, of_sums
from svmcore.points import Floats, Points, Rows
from svmcore.runtime.threads import one_blas_thread

__all__ = ["BLOCK", "ROWS", "Outputs"]

ROWS, WIDTH = 192, 512  # of a tile of kernel values: 400 or 800 KB, which stay in the second-level cache
BLOCK = 5 * ROWS  # of a tile of CSR rows, for which columns are spread out once, and of what a thread does at a time
TERMS = 128  # of a sum in float32


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
    def _coarse(self) -> list[Points]:
        """The support vectors where bytes or float32 values serve, in parts; none where they are no faster."""
        if not isinstance(self.kernel, InnerProductKernel) or self.kernel.is_linear:
            return []
        points = self.kernel.prepare_gram(self.support_vectors, np.float32)
        if points.on_lattice:  # other rows may be a little further off it than these
            codes = points.values.loosened()
            loose = dataclasses.replace(codes, deviation=2.0 * codes.deviation)
            points = dataclasses.replace(points, values=loose)
        return [] if points.is_sparse else _parts(points)

    @cached_property
    def _fine(self) -> list[Points]:
        """The same in float64 or CSR."""
        return _parts(self.kernel.prepare(self.support_vectors, None, np.float64))

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
    def _columns(self) -> Floats:
        """Coefficients (m, k + 1) float32, and the largest of each row."""
        return np.vstack([self.coef, np.abs(self.coef).max(axis=0, initial=0.0)]).T.astype(np.float32)

    @cached_property
    def grain(self) -> int:
        """Rows of a tile: many of CSR rows, for which columns are spread out once, and of few support vectors."""
        if self.kernel.is_linear:
            return BLOCK
        parts = self._coarse or self._fine
        return BLOCK if parts[0].is_sparse or len(parts) == 1 else ROWS

    def prepare(self) -> None:
        """Make what every thread would make for itself."""
        _ = (self._weights,) if self.kernel.is_linear else (self._coarse or self._fine, self._columns)

    # ---- rows
    def _coarsely(self, X: Rows) -> Points | None:
        """Rows `X` (n, p) in the form of `_coarse`, reaching as far as they do; None if they have no such form."""
        P = self._coarse[0].alike(X) if self._coarse else None
        return None if P is None else dataclasses.replace(P, whole=None)

    def add(self, X: Rows, out: Floats) -> None:
        """Add the values at `X` (n, p) to `out` (n, k), in float64."""
        if self.kernel.is_linear:
            out += X @ self._weights
            return
        parts = self._coarse
        P = self._coarsely(X) if parts and parts[0].on_lattice and parts[0].values.exact else None
        if P is None:
            parts = self._fine
            P = self.kernel.prepare(X, parts[0].centre, np.float64)
        for here, at, K in self._tiles(P, parts, np.float64):
            out[here] += K @ self._coef[at]

    def add_quickly(self, X: Rows, out: Floats) -> Floats | None:
        """As `add`, of the fastest kind of values; how far each row's may be from the exact ones (n,), or None.

        None is returned, and nothing added, where nothing is faster than float64.
        """
        parts = self._coarse
        P = self._coarsely(X)
        if P is None:
            return None
        extent = parts[0].extent
        size, rounding = np.zeros(len(P)), self.kernel.rounding(P, extent, np.float32)
        if not rounding.relative <= 0.5:
            return None

        for here, at, K in self._tiles(P, parts, np.float32):
            for start in range(0, K.shape[1], TERMS):
                some, columns = K[:, start : start + TERMS], self._columns[at][start : start + TERMS]
                found = some @ columns
                out[here] += found[:, :-1]
                size[here] += found[:, -1] if self.kernel.is_positive else np.abs(some) @ columns[:, -1]
        total = float(self._columns[:, -1].sum(dtype=np.float64))
        size = MORE * (size + rounding.absolute * total) / (1.0 - rounding.relative)
        return MORE * (size * (rounding.relative + of_sums(TERMS + 2, UNIT32)) + rounding.absolute * total)

    def _tiles(self, P: Points, parts: list[Points], dtype: DTypeLike) -> Iterator[tuple[slice, slice, Floats]]:
        """(rows, support vectors, kernel values of them), of which the last is written over by the next."""
        step = self.grain
        memory = np.empty((min(step, len(P)), WIDTH), dtype)
        for start in range(0, len(P), step):
            left = P.rows(start, min(start + step, len(P)))
            for j, right in enumerate(parts):
                K = self.kernel.block(left, right, memory[: len(left), : len(right)])
                yield slice(start, start + step), slice(WIDTH * j, WIDTH * j + len(right)), K


def _parts(points: Points) -> list[Points]:
    """Whole columns of tiles."""
    return [points.rows(start, min(start + WIDTH, len(points))) for start in range(0, max(1, len(points)), WIDTH)]
