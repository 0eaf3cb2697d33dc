"""Kernel values right in float64, from the rows as they came: what certificates are made of.

Only the rows that are asked for are converted, about one centre for all of them; rows on a lattice keep its exact
integers. Sums of values are formed in tiles that start at fixed rows, on all threads, and no matrix is ever held.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, cast

import numpy as np
from scipy import sparse

from svmcore.kernels.base import InnerProductKernel, Kernel
from svmcore.kernels.precomputed import Precomputed
from svmcore.kernels.rounding import UNIT64, Rounding, largest_exponent_share, of_sums
from svmcore.passes.kernel.kernel_tiles import GRAIN, Tiles
from svmcore.passes.proof.compensated import (
    gaussian_outputs,
    outputs_of_csr,
    outputs_of_dense,
    power_outputs,
    quadratic_moments,
    quadratic_outputs,
    tanh_outputs,
    weights_of_csr,
    weights_of_dense,
)
from svmcore.points import Extent, Floats, Moments, Points, Rows
from svmcore.points.fine import FINE_FEATURES
from svmcore.points.taken import taken
from svmcore.runtime.threads import split_range

__all__ = ["ExactKernel"]

PARTS = 32  # ranges of rows or columns at most: partial sums are this many numbers a row
CHUNK = 256  # rows that are worth a thread
KEPT = 1 << 25  # bytes of digits that are kept at most
POLYNOMIALS = ("polynomial", "centred-polynomial")
FINEST_KERNELS = (*POLYNOMIALS, "rbf", "tanh")
FINEST_FEATURES = 64  # of which all products of two are formed in twice the digits
FINEST_PRODUCTS = 1e10  # of two numbers that are formed in twice the digits at most: three seconds


class ExactKernel:
    """K of chosen rows, in float64.

    Parameters
    ----------
    kernel, X
        A kernel with numeric parameters and the rows (n, p) as they came: dense or CSR. Where they are given as they
        are served too, `X` may be a function that gives them: rows on a lattice are hardly ever asked for.
    centred
        Take `kernel.centred()` in its place.
    like
        The rows as they are served. A centred kernel depends on the centre, and proofs mix served and exact values, so
        both must have the same one; it also saves looking for a lattice again. Without it the rows are prepared as
        `kernel.prepare_gram` would.
    at
        (n,) which rows of `X` they are; default all. So a part of the rows, or an order of them, is no copy.

    >>> from svmcore.kernels import Linear
    >>> ExactKernel(Linear(), np.array([[1.0, 2.0], [3.0, 4.0]])).block([0], [0, 1])
    array([[ 5., 11.]])
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Rows | Callable[[], Rows],
        centred: bool = False,
        like: Points | None = None,
        at: Floats | None = None,
    ) -> None:
        self.kernel = kernel.centred() if centred else kernel
        self._X, self.at = X, at
        self._like = like
        self._asked = 0
        self._digits: Points | None = None

    def __len__(self) -> int:
        if self.at is not None:
            return len(self.at)
        return int(self.X.shape[0]) if self._like is None else len(self._like)

    @cached_property
    def X(self) -> Rows:
        """The rows as they came."""
        return self._X() if callable(self._X) else self._X

    def _at(self, idx: Any) -> Any:
        """Rows of `X` that the rows `idx` are."""
        return idx if self.at is None else self.at[idx]

    def _all(self) -> Rows:
        return self.X if self.at is None else taken(self.X, self.at)

    @cached_property
    def _given(self) -> Points:
        """The rows as they are served: what tells the centre, the form and the norms."""
        return self._like if self._like is not None else self.kernel.prepare_gram(self._all(), np.float32)

    @property
    def centre(self) -> Floats:
        """(p,) float64, or (0,) for rows kept sparse."""
        return self._given.centre

    @property
    def is_direct(self) -> bool:
        """Whether a product costs a pass over the rows and not over the pairs: that of a linear kernel."""
        return self.kernel.is_linear

    def take(self, rows: Any) -> "ExactKernel":
        """The same kernel of the rows `rows` alone, about the same centre."""
        at = np.arange(len(self))[rows] if self.at is None else self.at[rows]
        return ExactKernel(self.kernel, self._X, like=self._given.take(rows), at=at)

    def prepared(self, idx: Any) -> Points:
        """Rows `idx`, ready to be given to `block` and `product` in place of their indices."""
        if isinstance(self.kernel, Precomputed):
            return self.kernel.prepare(taken(self.X, self._at(idx)))
        if not self._given.on_lattice:
            return self._as_float64(taken(self.X, self._at(idx)))
        return self._given.take(idx) if self._given.values.exact else self._refined(idx)

    def _refined(self, idx: Any) -> Points:
        """Rows with their digits: those of all rows are kept once more have been asked for than there are.

        So it is where many problems share one K, and each asks for its own support.
        """
        if self._digits is None:
            self._asked += len(np.arange(len(self))[idx])
            if self._asked <= len(self) or not self._may_keep:
                return Points.refined(self.X, self._at(idx), self._given.take(idx))
            self._digits = Points.refined(self.X, self._at(slice(None)), self._given)
        return dataclasses.replace(self._digits.take(idx), whole=None)

    @cached_property
    def _may_keep(self) -> bool:
        """Whether digits are few bytes, and those of a row the same bits whichever rows are asked for with it."""
        given = self._given
        few = 2 * given.values.bytes.nbytes <= KEPT and given.n_features <= FINE_FEATURES
        return few and not given.centre.any()

    def others(self, X: Rows) -> Points:
        """Rows `X` (m, p) that are none of these, ready to be given where these are."""
        alike = self._given.alike(X) if self._given.on_lattice else None
        return self._as_float64(X) if alike is None else Points.refined(X, slice(None), alike)

    def shorter(self, rows: Points) -> Points:
        """Prepared rows with fewer digits, where these are enough: `rounding` tells."""
        return rows.shorter

    def columns(self, idx: Any) -> Points:
        """Rows `idx`, ready to be given to `block`, `product` and `symmetric_product` as their columns."""
        if isinstance(idx, Points):
            return idx
        if isinstance(self.kernel, Precomputed):
            return self.kernel.prepare(self.kernel.units(np.arange(len(self))[idx], self.X.shape[1]))
        return self.prepared(idx)

    def points(self) -> Points:
        """All rows about the centre in float64, never on a lattice."""
        if self._given.dtype == np.float64 and not self._given.on_lattice:
            return self._given
        return self._as_float64(self._all())

    def _as_float64(self, X: Rows) -> Points:
        return Points.prepare(X, self.centre, np.float64)

    def block(self, rows: Any, columns: Any, out: Floats | None = None) -> Floats:
        """K(x_i, x_j) (len(rows), len(columns)), float64."""
        P, Q = self._left(rows), self.columns(columns)
        return self.kernel.block(P, Q, np.empty((len(P), len(Q))) if out is None else out)

    def diagonal(self) -> Floats:
        """K(x_i, x_i) (n,), float64."""
        if isinstance(self.kernel, InnerProductKernel):
            return self.kernel.from_moments(self._exact_moments())
        return self.kernel.diagonal(self._all())

    def product(self, rows: Any, columns: Any, coef: Floats) -> Floats:
        """Sum_j coef_j k(x_i, x_j) over `columns`, (len(rows),); (len(rows), k) of several `coef` (len(columns), k)."""
        coef = np.ascontiguousarray(coef, np.float64)
        if self.is_direct:
            return self._through_weights(rows, columns, coef)
        P, Q = self._left(rows), self.columns(columns)
        tall = -(-len(P) // GRAIN) >= PARTS  # enough ranges of rows for every thread: columns need no parts
        across = [slice(0, len(Q))] if tall and len(Q) else _ranges(len(Q), PARTS)
        pairs = [(i, j) for i in _ranges(len(P), len(P)) for j in enumerate(across)]
        parts = np.zeros((max(1, len(across)), len(P), *coef.shape[1:]))
        tiles = self.kernel.tiles(P, Q)

        def add(at: Any, memory: Floats) -> None:
            i, (k, j) = at
            tiles.add(i, j, coef[j], _NONE, (parts[k, i], _NONE), memory)

        _on_all_threads(pairs, tiles, add)
        return parts.sum(axis=0)

    def symmetric_product(self, rows: Any, coef: Floats, columns: Points | None = None) -> Floats:
        """`product(rows, rows, coef)`, each pair of rows met once; `columns` are those of `rows`, if at hand."""
        if self.is_direct:
            return self.product(rows, rows, coef)
        Q, coef = self.columns(rows) if columns is None else columns, np.ascontiguousarray(coef, np.float64)
        P = self._left(rows) if isinstance(self.kernel, Precomputed) else Q
        ranges = list(enumerate(_ranges(len(P), PARTS)))
        parts = np.zeros((max(1, len(ranges)), len(P), *coef.shape[1:]))
        tiles = self.kernel.tiles(P, Q)

        def add(at: Any, memory: Floats) -> None:
            (a, i), (b, j) = at
            mirror = (coef[i], parts[a, j]) if a < b else (_NONE, _NONE)
            tiles.add(i, j, coef[j], mirror[0], (parts[b, i], mirror[1]), memory)

        _on_all_threads([(i, j) for i in ranges for j in ranges if i[0] <= j[0]], tiles, add)
        return parts.sum(axis=0)

    @cached_property
    def unit(self) -> Rounding:
        """A bound of the errors of all values, and of a linear kernel's sums against `sizes`.

        For every other kernel a sum of m values is off by what its values are and by `summation(m)` of the sum of
        their absolute values.
        """
        if self.is_direct:  # sums of m terms in twice the digits, m below 2^20: m^2 units squared
            return Rounding(UNIT64 * UNIT64 * float(len(self) + self._given.n_features) ** 2, 0.0)
        if not isinstance(self.kernel, InnerProductKernel):
            return self.kernel.rounding(self.prepared(slice(0, 1)), dtype=np.float64)
        return self.kernel.rounding(self._described(), dtype=np.float64)

    def rounding(self, rows: Points, columns: Points | None = None) -> Rounding:
        """A bound of the errors of the values of these `rows` and `columns`, sharper than `unit`."""
        if self.is_direct or not isinstance(self.kernel, InnerProductKernel):
            return self.unit
        return self.kernel.rounding(rows, rows if columns is None else columns, np.float64)

    def summands(self, m: int) -> int:
        """Longest chain of additions in a product over `m` columns."""
        if self.is_direct:
            return 1
        return -(-m // PARTS) + GRAIN + PARTS

    def summation(self, m: int) -> float:
        """Relative error of a sum of `m` weighted values against that of their absolute values."""
        return of_sums(self.summands(m), UNIT64)

    def sizes(self, coef: Floats) -> Floats:
        """||x_i|| sum_j abs(coef_j) ||x_j|| (n,), about the centre for a centred kernel: what `unit` refers to."""
        moments = self._given.moments
        lengths = np.sqrt(np.maximum(moments.norm2 if self.kernel.is_centred else moments.square, 0.0))
        lengths *= 1.0 + 1e-6  # the rows as they are served
        return lengths * float(np.abs(coef) @ lengths)

    def can_refine(self, m: int) -> bool:
        """Whether `finest` is to be had of a product over `m` columns, and soon."""
        pairs = float(len(self)) * m * self._given.n_features
        return self._through_moments or (self.kernel.name in FINEST_KERNELS and pairs <= FINEST_PRODUCTS)

    @property
    def _through_moments(self) -> bool:
        quadratic = self._is_polynomial and cast(Any, self.kernel).degree == 2
        return quadratic and self._given.n_features <= FINEST_FEATURES and not sparse.issparse(self.X)

    @property
    def _is_polynomial(self) -> bool:
        return self.kernel.name in POLYNOMIALS

    def finest_rounding(self, m: int) -> Rounding:
        """A bound of the errors of `finest` over `m` columns, but for the last rounding of a sum."""
        if (
            not self._is_polynomial
        ):  # 5 roundings of the exponent, or of what tanh is taken of, and those of the function
            share = largest_exponent_share(6 * UNIT64) if self.kernel.name == "rbf" else 0.0
            return Rounding(8 * UNIT64, share + float(np.finfo(np.float64).tiny))
        digits = (float(m + self.X.shape[1] + FINEST_FEATURES) * 2 * UNIT64) ** 2
        return Rounding(digits, 2.0 * digits * self._finest_size)

    @property
    def _finest_size(self) -> float:
        """Largest value that cancels in `finest`: of the kernel as it is, where that about the centre comes from it."""
        if self._through_moments or not self.kernel.is_centred:
            return 0.0
        kernel = cast(Any, self.kernel)
        base = kernel.gamma * float(self._given.moments.square.max(initial=0.0)) + abs(kernel.coef0)
        return float(base**kernel.degree)

    def finest(self, rows: Any, columns: Any, coef: Floats) -> Floats:
        """As `product`, in twice the digits."""
        rows, columns = (np.arange(len(self))[side] for side in (rows, columns))
        coef, out = np.ascontiguousarray(coef, np.float64), np.empty(len(rows))
        apply = (self._by_moments if self._through_moments else self._by_pairs)(columns, coef, math.fsum(coef.tolist()))

        def some(first: int, last: int) -> None:
            for start in range(first, last, CHUNK):
                part = slice(start, min(start + CHUNK, last))
                apply(self._dense(rows[part]), out[part])

        split_range(len(rows), some, least=CHUNK)
        return out

    def _by_moments(self, columns: Floats, coef: Floats, total: float) -> Callable[[Floats, Floats], None]:
        """Degree two, through sum coef_j x_j and sum coef_j x_j x_j'."""
        p, kernel, about = self.X.shape[1], cast(Any, self.kernel), self.about
        w, M = np.zeros((2, p)), np.zeros((2, p, p))
        quadratic_moments(self._dense(columns), about, coef, w, M)
        parameters = float(kernel.gamma), float(kernel.coef0), kernel.is_centred
        return lambda X, out: quadratic_outputs(X, about, *parameters, total, w, M, out)

    def _by_pairs(self, columns: Floats, coef: Floats, total: float) -> Callable[[Floats, Floats], None]:
        """Value by value."""
        Z, kernel, about = self._dense(columns), cast(Any, self.kernel), self.about
        gamma = float(kernel.gamma)
        if kernel.name == "rbf":
            return lambda X, out: gaussian_outputs(X, Z, coef, gamma, out)
        coef0 = float(kernel.coef0)
        if kernel.name == "tanh":
            return lambda X, out: tanh_outputs(X, Z, coef, gamma, coef0, out)
        form = int(kernel.degree), kernel.is_centred, total
        return lambda X, out: power_outputs(X, Z, coef, about, gamma, coef0, *form, out)

    def _dense(self, rows: Any) -> Floats:
        X = taken(self.X, self._at(rows))
        return np.ascontiguousarray(X.toarray() if sparse.issparse(X) else X)

    # ---- how it is done
    def _left(self, rows: Any) -> Points:
        return rows if isinstance(rows, Points) else self.prepared(rows)

    def _exact_moments(self) -> Moments:
        """Norms of the rows as they came; those of a rough lattice are of its integers."""
        if not self._given.on_lattice or self._given.values.exact:
            return self._given.moments
        step = max(1, (1 << 20) // max(1, self.X.shape[1]))
        some = [self._as_float64(self.X[self._at(slice(i, i + step))]).moments for i in range(0, len(self), step)]
        return Moments(np.concatenate([m.norm2 for m in some]), np.concatenate([m.along for m in some]), some[0].half)

    def _described(self) -> Points:
        """Rows as `prepared` gives them, as far as bounds of rounding look at them: form, norms, non-zero entries."""
        given = self._given
        some = self.prepared(slice(0, None if given.is_sparse else 1))
        values = some.values.loosest if some.is_fine else some.values
        return dataclasses.replace(
            some, values=values, moments=given.moments, whole=Extent(*(1.00001 * far for far in given.extent))
        )

    def _through_weights(self, rows: Any, columns: Any, coef: Floats) -> Floats:
        """X_rows (X_columns' coef) through weights in twice the digits, in chunks of rows."""
        if coef.ndim > 1:
            return np.stack([self._through_weights(rows, columns, c) for c in coef.T], axis=1)
        rows, columns = (np.arange(len(self))[side] for side in (rows, columns))
        high, low = self._weights(columns, coef)
        out = np.empty(len(rows))

        def apply(first: int, last: int) -> None:
            X = taken(self.X, self._at(rows[first:last]))
            if sparse.issparse(X):
                outputs_of_csr(X.data, X.indices, X.indptr, high, low, out[first:last])
            else:
                outputs_of_dense(np.ascontiguousarray(X), self.about, high, low, out[first:last])

        split_range(len(rows), apply, least=CHUNK)
        return out

    def _weights(self, columns: Floats, coef: Floats) -> tuple[Floats, Floats]:
        """W = sum_j coef_j x_j as the sum of two float64 (p,)."""
        high, low = np.zeros(self.X.shape[1]), np.zeros(self.X.shape[1])
        for first in range(0, len(columns), 64 * CHUNK):
            some = slice(first, first + 64 * CHUNK)
            X = taken(self.X, self._at(columns[some]))
            if sparse.issparse(X):
                weights_of_csr(X.data, X.indices, X.indptr, coef[some], high, low)
            else:
                weights_of_dense(np.ascontiguousarray(X), self.about, coef[some], high, low)
        return high, low

    @property
    def about(self) -> Floats:
        """The centre (p,) of dense rows, 0 where the kernel is not centred."""
        centred = self.kernel.is_centred and self.centre.size > 0
        return self.centre if centred else np.zeros(self.X.shape[1])


_NONE = np.empty(0)


def _ranges(n: int, parts: int) -> list[slice]:
    """0 ... n in at most `parts` ranges of whole grains."""
    step = max(1, -(-n // (GRAIN * max(1, parts)))) * GRAIN
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def _on_all_threads(work: list[Any], tiles: Tiles, add: Callable[[Any, Floats], None]) -> None:
    """Do each piece of work once: a thread that is done takes the next, and each has its place to write to."""
    following = itertools.count()

    def some(first: int, last: int) -> None:
        memory = tiles.memory()
        while (k := next(following)) < len(work):
            add(work[k], memory)

    if work:
        split_range(len(work), some)
