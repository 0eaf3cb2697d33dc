r"""Rows on a lattice: x = c + h k with one step h and integers 0 <= k <= 255.

Pixels, counts, ratings and one-hot columns are such rows. Of theirs,

.. math::  u_x'u_z = h^2 k_x'k_z, \qquad ||x - z||^2 = h^2 (k_x'k_x + k_z'k_z - 2 k_x'k_z)

are integers but for h^2: no digit is lost to cancellation, and sums of products of bytes (`byte_products`) are four
times faster than float32. A lattice is looked for in every table; a few rows tell most that are on none.
"""

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np

from svmcore.points.alike import ranked
from svmcore.points.byte_products import (
    COLUMNS,
    MOST_FEATURES,
    LeftRows,
    LeftSide,
    RightRows,
    byte_products,
    left_bits,
    left_rows,
    products_size,
    right_bits,
    right_rows,
)
from svmcore.points.taken import taken
from svmcore.points.tile_products import has_tiles
from svmcore.runtime.compiled import njit
from svmcore.runtime.memory import empty
from svmcore.runtime.threads import split_range

__all__ = ["LEVELS", "Codes", "encode", "encode_alike", "integer_products", "nearest", "of_bytes", "sides"]

LEVELS = 255  # the largest k
SAMPLE = 64  # rows whose values propose a step
ROUNDING = 2.0**-23  # of the widest range: x = c + h k holds to what casting centred rows to float32 would cost
EXACT = 2.0**-50  # of the widest range: what rounding in float64 explains


@dataclasses.dataclass(frozen=True, eq=False)
class Codes:
    """The integers k of n rows, to be indexed by rows as an array is.

    Attributes
    ----------
    bytes
        (n, width) uint8, C-contiguous; `width` is p rounded up to a multiple of 4, with zeros.
    n_features
        p.
    step
        h.
    deviation
        The largest abs(x - c - h k) of the rows that were coded, rounding included.
    exact
        Whether that is no more than what rounding in float64 explains.
    binary
        Whether every k is known to be 0 or 1.
    part_of
        More rows and where these begin among them, in whole tiles: what is kept of those is kept of these.
    """

    bytes: Any
    n_features: int
    step: float
    deviation: float = 0.0
    exact: bool = True
    binary: bool = False
    part_of: "tuple[Codes, int] | None" = None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, p)."""
        return len(self.bytes), self.n_features

    @property
    def dtype(self) -> np.dtype:
        """float32: of the kernel values that the rows are for."""
        return np.dtype(np.float32)

    def __getstate__(self) -> dict[str, Any]:
        """The integers alone: another process arranges them in its own way, and needs no rows but these."""
        kept = dataclasses.replace(self, part_of=None)
        return dict(kept.__dict__)

    def __getitem__(self, rows: Any) -> "Codes":
        whole = (self, rows.start or 0) if isinstance(rows, slice) and rows.step is None else None
        part_of = whole if whole is not None and whole[1] >= 0 and whole[1] % COLUMNS == 0 else None
        some = taken(self.bytes, rows)
        return Codes(some, self.n_features, self.step, self.deviation, self.exact, self.binary, part_of)

    @cached_property
    def left(self) -> LeftSide:
        """The rows as the left side of products, kept."""
        return left_rows(self.bytes)

    @cached_property
    def right(self) -> RightRows:
        """The rows as the right side of products, kept."""
        return self._within("right") or right_rows(self.bytes, signed=True)

    @cached_property
    def left_bits(self) -> LeftRows:
        """As `left`, of rows that are `binary`."""
        return left_bits(self.bytes)

    @cached_property
    def right_bits(self) -> RightRows:
        """As `right`, of rows that are `binary`."""
        return self._within("right_bits") or right_bits(self.bytes)

    @cached_property
    def ranks(self) -> Any | None:
        """Of the rows (n,), near each other where tiles of both leave out most; None where nothing is won."""
        return None if self.binary or has_tiles() else ranked(self.bytes.view(np.uint32))

    def _within(self, side: str) -> RightRows | None:
        """That side of more rows, as far as it is of these; None where these are no part of any."""
        if self.part_of is None:
            return None
        whole, start = self.part_of
        arranged: RightRows = getattr(whole, side)
        return arranged.take(slice(start, start + len(self.bytes)))

    def loosened(self) -> "Codes":
        """The same, taken to deviate by all that rounding explains: other rows on the lattice are rounded too."""
        limit = EXACT * self.step * float(self.bytes.max(initial=0))
        return Codes(self.bytes, self.n_features, self.step, max(self.deviation, limit), self.exact, self.binary)

    def decoded(self) -> Any:
        """The rows h k about the corner, (n, p) float64."""
        return self.bytes[:, : self.n_features] * self.step


@np.errstate(over="ignore", invalid="ignore")  # of values that are on no lattice
def encode(X: Any, levels: int = LEVELS) -> tuple[Any, Codes] | None:
    """The corner c (p,) and the codes of `X` (n, p), or None if X is on no lattice of 0 ... `levels`.

    All features have one corner where that is enough: rows that come later are then on the lattice too, though they
    have a value that is the least of its feature.

    >>> corner, codes = encode(np.array([[-1.0, 0.5], [0.0, 1.0]]))
    >>> corner, codes.step, codes.bytes[:, :2]
    (array([-1., -1.]), 0.5, array([[0, 3],
           [2, 4]], dtype=uint8))
    """
    n, p = X.shape
    gap = _smallest_gap(X[:: max(1, n // SAMPLE)][:SAMPLE]) if n > 0 and 0 < p <= MOST_FEATURES else 0.0
    if gap == 0.0:
        return None
    least, most = _ends(X)
    least = least.astype(np.float64)
    for corner in (np.full(p, least.min()), least):
        span = float((most - corner).max())
        if 0.5 < span / gap < levels + 0.5:
            codes = _coded(X, corner, span / round(span / gap), span)
            if codes is not None:
                return corner, codes
    return None


def of_bytes(rows: Any, step: float) -> Codes:
    """The codes of rows that are `step` times the bytes `rows` (n, p), each product rounded once.

    >>> of_bytes(np.array([[0, 3, 255]], np.uint8), 0.5).decoded()
    array([[  0. ,   1.5, 127.5]])
    """
    p = rows.shape[1]
    written = np.ascontiguousarray(np.pad(rows, ((0, 0), (0, -p % 4))) if p % 4 else rows)
    most = int(rows.max(initial=0))
    return Codes(written, p, step, 2.0**-52 * step * most, exact=True, binary=most <= 1)


def _coded(X: Any, corner: Any, step: float, span: float) -> Codes | None:
    n, p = X.shape
    written = empty((n, -(-p // 4) * 4), np.uint8)
    found = [0.0]

    def part(lo: int, hi: int) -> None:
        written[lo:hi, p:] = 0
        found.append(_encode(X[lo:hi], corner, step, ROUNDING * span, written[lo:hi]))

    split_range(n, part, least=1024)
    deviation = max(found) + 2.0**-52 * span
    if deviation == np.inf:
        return None
    return Codes(written, p, step, deviation, deviation <= EXACT * span, binary=round(span / step) == 1)


def encode_alike(X: Any, corner: Any, like: Codes) -> Codes | None:
    """The codes of `X` (m, p) on the lattice of others, or None if it is not on that within what those deviate.

    >>> corner, codes = encode(np.array([[-1.0, 0.5], [0.0, 1.0]]))
    >>> encode_alike(np.array([[-0.5, 2.5]]), corner, codes).bytes[:, :2]
    array([[1, 7]], dtype=uint8)
    >>> encode_alike(np.array([[-0.4, 2.5]]), corner, codes) is None
    True
    """
    n, p = X.shape
    written = np.zeros((n, -(-p // 4) * 4), np.uint8)
    if n == 0:
        return Codes(written, p, like.step, like.deviation, like.exact)
    least, most = (ends - corner for ends in _ends(X))
    found = Codes(written, p, like.step, like.deviation, like.exact, bool((most < 1.5 * like.step).all()))
    if not ((least > -0.5 * like.step).all() and (most < (LEVELS + 0.5) * like.step).all()):
        return None
    return found if _encode(X, corner, like.step, like.deviation, written) <= like.deviation else None


def nearest(X: Any, corner: Any, like: Codes) -> Any:
    """The rows nearest to `X` (m, p) on the lattice of others, float64.

    >>> corner, codes = encode(np.array([[-1.0, 0.5], [0.0, 1.0]]))
    >>> nearest(np.array([[-0.4, 2.6]]), corner, codes)
    array([[-0.5,  2.5]])
    """
    return corner + like.step * np.clip(np.rint((X - corner) / like.step), 0, LEVELS)


def _ends(X: Any) -> tuple[Any, Any]:
    """The least and the largest value (p,) of each feature of at least one row."""
    least, most = [], []

    def part(lo: int, hi: int) -> None:
        least.append(X[lo:hi].min(axis=0))
        most.append(X[lo:hi].max(axis=0))

    split_range(len(X), part, least=1024)
    return np.min(least, axis=0), np.max(most, axis=0)


def _smallest_gap(sample: Any) -> float:
    """The smallest difference of two values beyond rounding; 0 if there is none, or a value is not finite."""
    values = np.unique(sample - sample.min(axis=0).astype(np.float64))
    gaps = np.diff(values)
    gaps = gaps[gaps > 4 * ROUNDING * values[-1]]
    return float(gaps.min()) if len(gaps) and np.isfinite(values[-1]) else 0.0


@njit(makes_arrays=True)
def _encode(X, corner, step, limit, out):  # type: ignore[no-untyped-def]
    """Write the integers k nearest to (X - corner) / step; the largest miss, inf as soon as one is over `limit`."""
    most = np.int64(0)
    missed = np.empty(1, np.float64)
    key = missed.view(np.int64)
    for i in range(X.shape[0]):
        for f in range(X.shape[1]):
            u = np.float64(X[i, f]) - corner[f]
            k = np.rint(u / step)
            out[i, f] = np.uint8(np.int64(k))
            # floats that are not negative are in the order of their bits, a NaN above all: this loop vectorises
            most = max(most, np.float64(abs(u - step * k)).view(np.int64))
        key[0] = most
        if not missed[0] <= limit:
            return np.inf
    return missed[0]


def sides(left: Codes, right: Codes) -> tuple[LeftSide, RightRows]:
    """Both as sides of products in the same form: bits where all are 0 or 1, else bytes."""
    if left.binary and right.binary:
        return left.left_bits, right.right_bits
    return left.left, right.right


def integer_products(left: Codes, right: Codes) -> Any:
    """k_i'k_j (n, m) of two sets of codes, exact int32."""
    n, m = len(left.bytes), len(right.bytes)
    memory = np.empty(products_size(n, m), np.int32)
    return byte_products(*sides(left, right), memory)[:n, :m]
