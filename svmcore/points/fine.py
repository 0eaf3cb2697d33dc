r"""Rows close to a lattice, to many more digits: x = c + h k + h_1 m_1 + h_2 m_2 with bytes m that have a sign.

Pixels k / 255 in float32 are no lattice in float64: each is off by its own rounding. What is missing is a small residue
of two bytes, and

.. math::  u_x'u_z = h^2 k_x'k_z + h h_1 (k_x'm_{1z} + m_{1x}'k_z) + h h_2 (k_x'm_{2z} + m_{2x}'k_z) + O(r^2)

with r the longest residue: five exact products of bytes, three times faster than one of float64; three, where m_1 is
enough. Squared norms are made in the same way, so that distances are those of the rows with their digits but for
O(r^2): what cannot be written moves each row by its own length alone.
"""

import dataclasses
import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from svmcore.points.byte_products import (
    MOST_FEATURES,
    LeftSide,
    RightRows,
    add_byte_products,
    byte_products,
    left_rows,
    products_size,
    right_rows,
)
from svmcore.points.lattice import Codes
from svmcore.points.taken import taken
from svmcore.runtime.compiled import njit, njit_sums
from svmcore.runtime.threads import split_range

__all__ = [
    "FINE_FEATURES",
    "FineCodes",
    "fine_products",
    "products_of",
    "refine",
    "scales_of",
]

FINE_FEATURES = MOST_FEATURES // 2  # sums over twice as many bytes fit an int32
ZERO = 128  # the byte that stands for a digit of 0
MOST = 127.0  # the largest digit
LEFT_OVER = 1e-3  # of a step: what rounding may take a digit too far
MORE = 1.0001  # for rounding in sums of squares


@dataclasses.dataclass(frozen=True, eq=False)
class FineCodes:
    """The codes of n rows and two digits of what the rows differ from them by, to be indexed by rows.

    Attributes
    ----------
    coarse
        The integers k and their step.
    digits
        m_1 + 128 and m_2 + 128, (n, width) uint8 each, or the first alone.
    steps
        h_1, h_2.
    missed
        (n, 3) ||x - c - h k|| of each row, the same less h_1 m_1, and less h_2 m_2, rounding included.
    norms
        (n, 2) squared norms of the rows with one digit and with two.
    """

    coarse: Codes
    digits: tuple[Any, ...]
    steps: tuple[float, float]
    missed: Any
    norms: Any

    @property
    def shape(self) -> tuple[int, int]:
        """(n, p)."""
        return self.coarse.shape

    @property
    def dtype(self) -> np.dtype:
        """float64: of the kernel values that the rows are for."""
        return np.dtype(np.float64)

    @cached_property
    def distances(self) -> tuple[float, ...]:
        """How far a row may be from the given one: with no digit, with one, and with two."""
        return tuple(self.missed.max(axis=0, initial=0.0).tolist())

    @property
    def distance(self) -> float:
        """How far a row with its digits may be from the given one."""
        return self.distances[len(self.digits)]

    @property
    def dropped(self) -> float:
        """Bound of the products of two residues, which are left out."""
        return self.distances[0] ** 2

    @property
    def norm2(self) -> Any:
        """Squared norms (n,) of the rows with their digits."""
        return self.norms[:, len(self.digits) - 1]

    @property
    def shorter(self) -> "FineCodes":
        """With the first digit alone: three products of bytes."""
        return dataclasses.replace(self, digits=self.digits[:1])

    @property
    def loosest(self) -> "FineCodes":
        """The same, as far from the rows as digits of any row of this lattice can be."""
        most, steps = math.sqrt(self.coarse.n_features), (2.0 * self.coarse.deviation, *self.steps)
        far = [own + most * (0.5 + LEFT_OVER) * step for own, step in zip(self.distances, steps, strict=True)]
        return dataclasses.replace(self, missed=np.array([far]))

    @cached_property
    def left(self) -> "LeftDigits":
        """These rows as the left side of products."""
        return LeftDigits.of(self)

    @cached_property
    def right(self) -> "RightDigits":
        """These rows as the right side of products."""
        return RightDigits.of(self)

    def __getstate__(self) -> dict[str, Any]:
        """What they are made of: another process arranges rows in its own way."""
        return dict(dataclasses.replace(self).__dict__)

    def __getitem__(self, rows: Any) -> "FineCodes":
        digits = tuple(taken(digit, rows) for digit in self.digits)
        return FineCodes(taken(self.coarse, rows), digits, self.steps, self.missed[rows], self.norms[rows])


def refine(X: Any, rows: Any, corner: Any, codes: Codes) -> FineCodes:
    """Both digits of what the `rows` (n,) of a dense `X` differ from their `codes` about `corner` (p,) by.

    >>> X = np.array([[0.0, 1.0 + 1e-9], [3.0, 2.0]])
    >>> codes = Codes(np.array([[0, 1, 0, 0], [3, 2, 0, 0]], np.uint8), 2, 1.0, 1e-8)
    >>> fine = refine(X, np.arange(2), np.zeros(2), codes)
    >>> fine.distance < 1e-12, fine.norm2
    (True, array([ 1., 13.]))
    """
    far = codes.deviation
    first, second = far / MOST, far / MOST / (2 * MOST)
    high, low = np.empty(codes.bytes.shape, np.uint8), np.empty(codes.bytes.shape, np.uint8)
    norms, left = np.empty((len(rows), 2)), np.empty((len(rows), 3))
    scales = codes.step * codes.step, codes.step * first, codes.step * second

    def part(lo: int, hi: int) -> None:
        some = slice(lo, hi)
        k, both = codes.bytes[some], (high[some], low[some])
        _digits(X, rows[some], corner, k, codes.step, first, second, *both, left[some])
        _norms(k, *both, scales, norms[some])

    split_range(len(rows), part, least=1024)
    rounding = 4 * 2.0**-53 * (codes.step * 255 + float(np.abs(corner).max(initial=0.0)))
    missed = np.sqrt(left) * MORE + rounding * np.sqrt(codes.n_features)
    return FineCodes(codes, (high, low), (first, second), missed, norms)


@njit_sums
def _digits(X, rows, corner, k, step, first, second, high, low, left):  # type: ignore[no-untyped-def]
    """Write the digits + 128 of X[rows] - corner - step k, padded with zeros; squared lengths of what is left."""
    high[:], low[:] = ZERO, ZERO
    for i in range(len(rows)):
        x = X[rows[i]]
        before, between, after = 0.0, 0.0, 0.0
        for f in range(len(x)):
            r = (np.float64(x[f]) - corner[f]) - step * k[i, f]
            m = np.rint(r / first)
            s = r - m * first
            high[i, f] = np.uint8(np.int64(m) + ZERO)
            m = np.rint(s / second)
            low[i, f] = np.uint8(np.int64(m) + ZERO)
            before += r * r
            between += s * s
            after += (s - m * second) * (s - m * second)
        left[i, 0], left[i, 1], left[i, 2] = before, between, after


@njit
def _norms(k, high, low, scales, norms):  # type: ignore[no-untyped-def]
    """The product of each row with itself, summed as `products_of` does."""
    for i in range(k.shape[0]):
        a, b, c = np.int32(0), np.int32(0), np.int32(0)
        for f in range(k.shape[1]):
            x = np.int32(k[i, f])
            a += x * x
            b += x * (np.int32(high[i, f]) - ZERO)
            c += x * (np.int32(low[i, f]) - ZERO)
        norms[i, 0] = scales[0] * a + scales[1] * (2.0 * b)
        norms[i, 1] = norms[i, 0] + scales[2] * (2.0 * c)


class LeftDigits(NamedTuple):
    """Rows as the left side of products: k, m_1 and m_2; and k for a right side that has a sign of its own."""

    parts: tuple[LeftSide, ...]
    plain: LeftSide

    @classmethod
    def of(cls, codes: FineCodes) -> "LeftDigits":
        """Arranged once for many tiles."""
        k = left_rows(codes.coarse.bytes)
        digits = (left_rows(m, signed=True) for m in codes.digits)
        return cls((k, *digits), k.plain)

    def take(self, rows: slice) -> "LeftDigits":
        """Rows from a multiple of WINDOW on, to another or to the last."""
        return LeftDigits(tuple(part.take(rows) for part in self.parts), self.plain.take(rows))


class RightDigits(NamedTuple):
    """Rows as the right side of products: k without a sign; k - 128, m_1 and m_2."""

    plain: RightRows
    parts: tuple[RightRows, ...]

    @classmethod
    def of(cls, codes: FineCodes) -> "RightDigits":
        """Packed once for many tiles."""
        k = codes.coarse.bytes
        return cls(right_rows(k), tuple(right_rows(part, signed=True) for part in (k, *codes.digits)))

    def take(self, rows: slice) -> "RightDigits":
        """Rows from a multiple of COLUMNS on."""
        return RightDigits(self.plain.take(rows), tuple(part.take(rows) for part in self.parts))


def products_of(left: LeftDigits, right: RightDigits, scales: Any, memory: Any, out: Any) -> Any:
    """u_x'u_z (n, m) float64 into `out`; `memory` (int32) holds one table of byte products."""
    _set_scaled(byte_products(left.parts[0], right.parts[0], memory), scales[0], out)
    for digit in range(1, len(left.parts)):
        G = byte_products(left.plain, right.parts[digit], memory)
        add_byte_products(left.parts[digit], right.plain, G)
        _add_scaled(G, scales[digit], out)
    return out


def scales_of(codes: FineCodes) -> tuple[float, float, float]:
    """What each table of products counts: h^2, h h_1, h h_2."""
    h = codes.coarse.step
    return h * h, h * codes.steps[0], h * codes.steps[1]


@njit
def _set_scaled(G, scale, out):  # type: ignore[no-untyped-def]
    n, m = out.shape
    for i in range(n):
        for j in range(m):
            out[i, j] = scale * G[i, j]


@njit
def _add_scaled(G, scale, out):  # type: ignore[no-untyped-def]
    n, m = out.shape
    for i in range(n):
        for j in range(m):
            out[i, j] += scale * G[i, j]


def fine_products(P: FineCodes, Q: FineCodes, out: Any) -> Any:
    """u_x'u_z (n, m) about the corner, into `out` (n, m) float64."""
    memory = np.empty(products_size(len(P.coarse.bytes), len(Q.coarse.bytes)), np.int32)
    return products_of(P.left, Q.right, scales_of(P), memory, out)
