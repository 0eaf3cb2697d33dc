r"""Rows of data prepared for kernels: centred, cast, with squared norms kept in float64.

With x = c + u for a common centre c, every kernel of the inner product needs only the small numbers u:

.. math::  ||x - z||^2 = ||u_x||^2 + ||u_z||^2 - 2 u_x'u_z, \qquad x'z = u_x'u_z + o_x + o_z, \quad o_x = u_x'c + c'c/2

The norms and offsets are float64, so a shift of the columns by 1e4 times their spread loses nothing. Mostly zero rows
are CSR, which cannot be centred; their inner products accumulate in float64 instead. This file evaluates no kernel.
"""

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from svmcore.errors import InvalidProblem
from svmcore.points.byte_products import MOST_FEATURES, is_fast
from svmcore.points.fine import FINE_FEATURES, FineCodes, fine_products, refine
from svmcore.points.lattice import Codes, encode, encode_alike, integer_products, nearest, of_bytes
from svmcore.points.moments import Extent, Floats, Moments, empty_moments, moments_of, scaled_moments
from svmcore.points.taken import taken
from svmcore.runtime.compiled import njit
from svmcore.runtime.threads import split_range

__all__ = ["Extent", "Floats", "Moments", "Points", "Rows", "check_fit", "inner_products"]

Rows: TypeAlias = Any  # an (n, p) array or a scipy CSR matrix: scipy ships no types

SPARSE = np.empty(0)  # the centre of rows that are kept sparse
DENSITY = 0.1  # share of non-zero entries below which the CSR products are faster than a matrix product
CODED_DENSITY = 0.02  # the same for products of 8-bit integers
DENSE_ENTRIES = 1 << 27  # of a CSR matrix that is made dense to look for a lattice
FEW = 1 << 16  # entries that one thread counts sooner than it shares them
PANEL = 64  # CSR rows scattered to one dense panel: 64 lanes of float64 fill eight wide registers


@dataclasses.dataclass(frozen=True)
class Points:
    """n rows of p features, ready for `Kernel.block`.

    Attributes
    ----------
    values
        (n, p) C-contiguous centred rows, CSR as it came, or `Codes` of rows on a lattice, `FineCodes` of those near it.
    moments
        Squared norms and offsets (n,), float64.
    centre
        (p,) float64, or (0,) for CSR rows. Two `Points` fit together only with the same centre.
    whole
        Of parts: how far all the rows reach that these were taken from, so that a value does not depend on which other
        rows are asked for with it.
    """

    values: Rows
    moments: Moments
    centre: Floats
    whole: Extent | None = None

    @classmethod
    def prepare(cls, X: Rows, centre: Floats | None = None, dtype: DTypeLike = np.float32) -> "Points":
        """Centre `X` (n, p) in float64, take norms, then cast to `dtype`; mostly zero rows become CSR instead.

        Without a `centre` the density of `X` decides the form, whatever form it came in; with the centre of other
        rows, these take the form of those.

        >>> P = Points.prepare(np.array([[1e4, 0.0], [1e4 + 1, 2.0]]))
        >>> P.values
        array([[-0.5, -1. ],
               [ 0.5,  1. ]], dtype=float32)
        >>> P.moments.norm2
        array([1.25, 1.25])
        """
        _check_table(X)
        if centre is None:
            return cls._about_mean(X, _density(X), dtype)
        if centre.size == 0 < X.shape[1]:
            return cls._prepare_sparse(X, dtype)
        return cls._prepare_dense(_as_dense(X), centre, dtype)

    @classmethod
    def for_gram(cls, X: Rows, dtype: DTypeLike = np.float32) -> "Points":
        """Rows that meet only each other, in the form whose products are fastest at the precision of `dtype`.

        As `prepare`, but rows on a lattice are kept as its integers about their least values: float32 blocks are then
        computed from exact products. Without an instruction for bytes, this pays for rows of 0 and 1 alone.
        """
        _check_table(X)
        density = _density(X)
        if np.dtype(dtype) == np.float32 and density >= CODED_DENSITY and _may_be_dense(X):
            rows = _as_dense(X)
            found = encode(rows) if is_fast() else encode(rows, levels=1)
            if found is not None and _pays(found[1]):
                return cls._of_codes(*found)
            X = rows if density >= DENSITY else X
        return cls._about_mean(X, density, dtype)

    @classmethod
    def of_bytes(cls, rows: Any, step: float, always: bool = False) -> "Points | None":
        """As `for_gram` of rows that are `step` times the bytes `rows` (n, p).

        None where it would not keep these, or, if `always`, where their products do not fit an int32.
        """
        if rows.shape[1] > MOST_FEATURES or not (always or _density(rows) >= CODED_DENSITY):
            return None
        codes = of_bytes(rows, step)
        return cls._of_codes(np.zeros(rows.shape[1]), codes) if always or _pays(codes) else None

    def alike(self, X: Rows) -> "Points | None":
        """More rows `X` (m, p) in the form of these, about their centre; None where they are not on their lattice."""
        _check_table(X)
        if not self.on_lattice:
            return dataclasses.replace(Points.prepare(X, self.centre, self.dtype), whole=self.whole)
        codes = encode_alike(_as_dense(X), self.centre, self.values)
        if codes is None or not _pays(codes):
            return None
        return dataclasses.replace(Points._of_codes(self.centre, codes), whole=self.whole)

    def nearest(self, X: Rows) -> Rows:
        """The rows nearest to `X` (m, p) that are on the lattice of these; `X` itself where these are on none."""
        return nearest(X, self.centre, self.values) if self.on_lattice else X

    @property
    def pattern(self) -> "Points":
        """None of the rows: their form, centre and step, for others to be prepared `alike`."""
        values = self.values.loosened() if self.on_lattice else self.values
        return Points(values[:0], self.moments.take(slice(0, 0)), self.centre)

    @classmethod
    def _about_mean(cls, X: Rows, density: float, dtype: DTypeLike) -> "Points":
        if density < DENSITY:
            return cls._prepare_sparse(X, dtype)
        X = _as_dense(X)
        centre = np.add.reduce(X, axis=0, dtype=np.float64) / max(1, len(X))
        return cls._prepare_dense(X, centre, dtype)

    @classmethod
    def _of_codes(cls, centre: Floats, codes: Codes) -> "Points":
        return cls(codes, scaled_moments(codes.bytes[:, : codes.n_features], codes.step, centre), centre)

    @classmethod
    def refined(cls, X: Rows, rows: Any, given: "Points") -> "Points":
        """The `rows` (n,) of `X`, that are `given` on a lattice, to more digits where they are only near it."""
        if given.values.exact:
            return given
        X, rows = (X, np.arange(X.shape[0])[rows]) if _is_plain(X) else (_as_dense(X[rows]), np.arange(len(given)))
        if given.n_features > FINE_FEATURES:
            return cls._prepare_dense(taken(X, rows), given.centre, np.float64)
        values = refine(X, rows, given.centre, given.values)
        centred = bool(given.centre.any())
        moments = moments_of(taken(X, rows), given.centre) if centred else given.moments  # without an offset: 0
        return cls(values, moments._replace(norm2=values.norm2), given.centre)

    @property
    def shorter(self) -> "Points":
        """The same rows with a digit less, where they are near a lattice."""
        if not self.is_fine:
            return self
        values = self.values.shorter
        return dataclasses.replace(self, values=values, moments=self.moments._replace(norm2=values.norm2))

    @classmethod
    def _prepare_dense(cls, X: Floats, centre: Floats, dtype: DTypeLike) -> "Points":
        values, in_place = np.empty(X.shape, dtype), np.dtype(dtype) == np.float64
        moments = empty_moments(len(X), centre)

        def keep(rows: slice) -> None:
            centred = np.subtract(X[rows], centre, out=values[rows] if in_place else None)
            np.einsum("ij,ij->i", centred, centred, out=moments.norm2[rows])
            np.matmul(centred, centre, out=moments.along[rows])
            if not in_place:
                values[rows] = centred

        _each_part(X.shape[0], X.shape[1], keep)
        return cls(values, moments, centre)

    @classmethod
    def _prepare_sparse(cls, X: Rows, dtype: DTypeLike) -> "Points":
        values = sparse.csr_matrix(X)
        norm2 = np.asarray(values.astype(np.float64).power(2).sum(axis=1)).ravel()
        kept = np.result_type(values.dtype, dtype) if values.dtype.kind == "f" else np.dtype(np.float64)
        return cls(values.astype(kept, copy=False), Moments(norm2, np.zeros(values.shape[0])), SPARSE)

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns p."""
        return int(self.values.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are CSR."""
        return self.form == "CSR"

    @cached_property
    def form(self) -> str:
        """Dense, CSR, lattice or near a lattice."""
        if self.is_fine:
            return "near a lattice"
        return "lattice" if self.on_lattice else "CSR" if sparse.issparse(self.values) else "dense"

    @property
    def on_lattice(self) -> bool:
        """Whether the rows are integers times a step."""
        return isinstance(self.values, Codes)

    @property
    def is_fine(self) -> bool:
        """Whether the rows are integers times a step and a small residue."""
        return isinstance(self.values, FineCodes)

    @property
    def dtype(self) -> np.dtype:
        """Type of the values; CSR accumulates in float64 whatever this is."""
        return self.values.dtype

    def take(self, idx: Any) -> "Points":
        """Rows `idx` (an index array or a slice), with their norms; a slice of dense rows copies nothing."""
        return Points(taken(self.values, idx), self.moments.take(idx), self.centre, self.extent)

    def rows(self, start: int, stop: int) -> "Points":
        """Rows start ... stop - 1."""
        return self if start == 0 and stop >= len(self) else self.take(slice(start, stop))

    @cached_property
    def extent(self) -> Extent:
        """The largest norms of all the rows that these are part of."""
        norm2, square = self.moments.norm2, self.moments.square
        return self.whole or Extent(float(norm2.max(initial=0.0)), float(square.max(initial=0.0)))

    @property
    def origin_values(self) -> Rows:
        """(n, p) rows about the origin again, float64: what a linear classifier's weights refer to."""
        if self.on_lattice:
            return self.values.decoded() + self.centre
        return self.values.toarray().astype(np.float64) if self.is_sparse else self.values + self.centre


def inner_products(P: Points, Q: Points, out: Floats | None = None) -> Floats:
    """u_P'u_Q (n, m) about the centre: one GEMM for dense rows, float64 panels for CSR.

    Raises
    ------
    InvalidProblem
        If the two sides differ in width, form, centre or step.
    """
    check_fit(P, Q)
    if P.on_lattice:
        return np.multiply(integer_products(P.values, Q.values), P.values.step**2, out=out)
    if P.is_fine:
        return fine_products(P.values, Q.values, np.empty((len(P), len(Q))) if out is None else out)
    if P.is_sparse:
        out = np.empty((len(P), len(Q))) if out is None else out
        a, b = P.values, Q.values
        _csr_products(a.data, a.indices, a.indptr, b.data, b.indices, b.indptr, a.shape[1], out)
        return out
    if out is None:
        return P.values @ Q.values.T
    return np.matmul(P.values, Q.values.T, out=out)


def check_fit(P: Points, Q: Points) -> None:
    """Refuse two sides of a block whose products mean nothing: other features, another form, centre or step."""
    if P.n_features != Q.n_features or P.form != Q.form:
        raise InvalidProblem(
            f"both sides of a kernel block need the same features; given {P.n_features} "
            f"({P.form}) and {Q.n_features} ({Q.form})"
        )
    if P.centre is not Q.centre and not np.array_equal(P.centre, Q.centre):
        raise InvalidProblem(
            "both sides of a kernel block need the same centre; prepare one side with the centre of the other"
        )
    if P.on_lattice and P.values.step != Q.values.step:
        raise InvalidProblem(
            f"both sides of a kernel block need the same lattice; given steps {P.values.step!r} and {Q.values.step!r}"
        )


def _each_part(n: int, p: int, use: Callable[[slice], None]) -> None:
    """Give `use` all rows, in steps of the same rows on any number of threads."""
    step = max(1, (1 << 20) // max(1, p * 8))  # 1 MB of float64 at a time stays in cache

    def part(first: int, last: int) -> None:
        for start in range(first * step, last * step, step):
            use(slice(start, start + step))

    split_range(-(-n // step), part, least=4)


def _as_dense(X: Rows) -> Floats:
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def _is_plain(X: Rows) -> bool:
    """Whether compiled code takes the rows as they are."""
    return isinstance(X, np.ndarray) and X.flags.c_contiguous and X.flags.aligned


def _check_table(X: Rows) -> None:
    if X.ndim != 2:
        raise InvalidProblem(f"rows must be an (n, p) array; given shape {X.shape}")


def _density(X: Rows) -> float:
    """Share of non-zero entries; of no entries, what keeps the form of `X`."""
    size = X.shape[0] * X.shape[1]
    if size == 0:
        return 0.0 if sparse.issparse(X) else 1.0
    if sparse.issparse(X):
        return X.nnz / size
    if size <= FEW:
        return np.count_nonzero(X) / size
    found: list[int] = []
    _each_part(X.shape[0], X.shape[1], lambda rows: found.append(int(np.count_nonzero(X[rows]))))
    return sum(found) / size


def _pays(codes: Codes) -> bool:
    """Whether products of these integers, and of the digits that they lack, are faster than float32."""
    return is_fast() or (codes.binary and codes.exact)


def _may_be_dense(X: Rows) -> bool:
    """Whether `X` may be looked at for a lattice, which is done on dense rows."""
    return not sparse.issparse(X) or X.shape[0] * X.shape[1] <= DENSE_ENTRIES


@njit
def _scatter(panel, data, indices, indptr, start, stop):  # type: ignore[no-untyped-def]
    """panel[:, j - start] = row j of a CSR matrix, for rows start ... stop - 1."""
    for j in range(start, stop):
        for k in range(indptr[j], indptr[j + 1]):
            panel[indices[k], j - start] += data[k]


@njit(makes_arrays=True)
def _csr_products(  # type: ignore[no-untyped-def]
    a_data, a_indices, a_indptr, b_data, b_indices, b_indptr, p, out
):
    """out[i, j] = a_i'b_j: 64 rows of b scattered into a dense (p, 64) panel, swept by the rows of a.

    Four entries of a row at a time, so that the 64 sums are loaded and stored once for four products.
    """
    panel, total = np.zeros((p, PANEL)), np.empty(PANEL)
    _panel_products(a_data, a_indices, a_indptr, b_data, b_indices, b_indptr, panel, total, out)


@njit
def _panel_products(  # type: ignore[no-untyped-def]
    a_data, a_indices, a_indptr, b_data, b_indices, b_indptr, panel, total, out
):
    n, m = out.shape
    for start in range(0, m, PANEL):
        stop = min(start + PANEL, m)
        _scatter(panel, b_data, b_indices, b_indptr, start, stop)
        for i in range(n):
            first = a_indptr[i]
            count = a_indptr[i + 1] - first
            at, value = a_indices[first : first + count], a_data[first : first + count]
            total[:] = 0.0
            for k in range(0, count - count % 4, 4):
                w0, w1, w2, w3 = panel[at[k]], panel[at[k + 1]], panel[at[k + 2]], panel[at[k + 3]]
                v0, v1, v2, v3 = value[k], value[k + 1], value[k + 2], value[k + 3]
                for lane in range(PANEL):
                    total[lane] += (v0 * w0[lane] + v1 * w1[lane]) + (v2 * w2[lane] + v3 * w3[lane])
            for k in range(count - count % 4, count):
                w0, v0 = panel[at[k]], value[k]
                for lane in range(PANEL):
                    total[lane] += v0 * w0[lane]
            for lane in range(stop - start):
                out[i, start + lane] = total[lane]
        for k in range(b_indptr[start], b_indptr[stop]):
            panel[b_indices[k]] = 0.0
