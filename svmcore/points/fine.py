r"""Rows close to a lattice, to sixteen more digits: x = c + h k + h_1 m_1 + h_2 m_2 with bytes m that have a sign.

Pixels k / 255 in float32 are no lattice in float64: each is off by its own rounding. What is missing is a small residue
of two bytes, and

.. math::  u_x'u_z = h^2 k_x'k_z + h h_1 (k_x'm_{1z} + m_{1x}'k_z) + h h_2 (k_x'm_{2z} + m_{2x}'k_z) + O(r^2)

with r the largest residue: five exact products of bytes, three times faster than one of float64.
"""

import dataclasses
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from svmcore.points.byte_products import (
    MOST_FEATURES,
    PackedRows,
    byte_products,
    packed_rows,
    products_size,
    signed_part,
    signed_rows,
)
from svmcore.points.lattice import Codes
from svmcore.runtime.compiled import njit
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


@dataclasses.dataclass(frozen=True, eq=False)
class FineCodes:
    """The codes of n rows and two digits of what the rows differ from them by, to be indexed by rows.

    Attributes
    ----------
    coarse
        The integers k and their step.
    digits
        m_1 + 128 and m_2 + 128, (n, width) uint8 each.
    steps
        h_1, h_2.
    deviation
        The largest abs(x - c - h k - h_1 m_1 - h_2 m_2), rounding included.
    residue
        r, the largest abs(x - c - h k).
    """

    coarse: Codes
    digits: tuple[Any, Any]
    steps: tuple[float, float]
    deviation: float
    residue: float

    @property
    def shape(self) -> tuple[int, int]:
        """(n, p)."""
        return self.coarse.shape

    @property
    def dtype(self) -> np.dtype:
        """float64: of the kernel values that the rows are for."""
        return np.dtype(np.float64)

    @property
    def dropped(self) -> float:
        """Bound of the products of two residues, which are left out."""
        return self.coarse.n_features * self.residue**2

    @cached_property
    def left(self) -> "LeftDigits":
        """These rows as the left side of products."""
        return LeftDigits.of(self)

    @cached_property
    def right(self) -> "RightDigits":
        """These rows as the right side of products."""
        return RightDigits.of(self)

    def __getitem__(self, rows: Any) -> "FineCodes":
        first, second = self.digits
        return dataclasses.replace(self, coarse=self.coarse[rows], digits=(first[rows], second[rows]))


def refine(X: Any, corner: Any, codes: Codes) -> FineCodes:
    """Both digits of what dense rows `X` (n, p) differ from their `codes` about `corner` (p,) by.

    >>> X = np.array([[0.0, 1.0 + 1e-9], [3.0, 2.0]])
    >>> fine = refine(X, np.zeros(2), Codes(np.array([[0, 1, 0, 0], [3, 2, 0, 0]], np.uint8), 2, 1.0, 1e-8))
    >>> fine.deviation < 1e-12
    True
    """
    far = codes.deviation
    first, second = far / MOST, far / MOST / (2 * MOST)
    high, low = np.empty(codes.bytes.shape, np.uint8), np.empty(codes.bytes.shape, np.uint8)

    def part(lo: int, hi: int) -> None:
        some = slice(lo, hi)
        _digits(X[some], corner, codes.bytes[some], codes.step, first, second, high[some], low[some])

    split_range(len(X), part, least=1024)
    rounding = 4 * 2.0**-53 * (codes.step * 255 + float(np.abs(corner).max(initial=0.0)))
    return FineCodes(codes, (high, low), (first, second), 0.5 * second + rounding, far)


@njit
def _digits(X, corner, k, step, first, second, high, low):  # type: ignore[no-untyped-def]
    """Write the digits + 128 of X - corner - step k, and of zeros up to the width."""
    high[:], low[:] = ZERO, ZERO
    for i in range(X.shape[0]):
        for f in range(X.shape[1]):
            left = (np.float64(X[i, f]) - corner[f]) - step * k[i, f]
            m = np.rint(left / first)
            high[i, f] = np.uint8(np.int64(m) + ZERO)
            low[i, f] = np.uint8(np.int64(np.rint((left - m * first) / second)) + ZERO)


class LeftDigits(NamedTuple):
    """Rows as the left side: signed bytes of k, [k | m_1], [k | m_2], and 128 sum k."""

    signed: tuple[Any, Any, Any]
    sums: Any

    @classmethod
    def of(cls, codes: FineCodes) -> "LeftDigits":
        """Packed once for many tiles."""
        k = codes.coarse.bytes
        parts = (k, *(np.hstack([k, m]) for m in codes.digits))
        return cls(tuple(signed_rows(part) for part in parts), _sums(k))  # type: ignore[arg-type]

    def take(self, rows: slice) -> "LeftDigits":
        """Rows from a multiple of 8 on."""
        return LeftDigits(tuple(signed_part(part, rows) for part in self.signed), self.sums[rows])  # type: ignore[arg-type]


class RightDigits(NamedTuple):
    """Rows as the right side: k, [m_1 | k], [m_2 | k] packed, and 128 sum k."""

    packed: tuple[PackedRows, PackedRows, PackedRows]
    sums: Any

    @classmethod
    def of(cls, codes: FineCodes) -> "RightDigits":
        """Packed once for many tiles."""
        k = codes.coarse.bytes
        parts = (k, *(np.hstack([m, k]) for m in codes.digits))
        return cls(tuple(packed_rows(part) for part in parts), _sums(k))  # type: ignore[arg-type]

    def take(self, rows: slice) -> "RightDigits":
        """Rows from a multiple of 48 on."""
        return RightDigits(tuple(part.take(rows) for part in self.packed), self.sums[rows])  # type: ignore[arg-type]


def _sums(k: Any) -> Any:
    return ZERO * k.sum(axis=1, dtype=np.int64).astype(np.int32)


def products_of(left: LeftDigits, right: RightDigits, scales: Any, memory: Any, out: Any) -> Any:
    """u_x'u_z (n, m) float64 into `out`; `memory` (int32) holds one table of byte products.

    A digit m is stored as m + 128, so k_x'm_z + m_x'k_z comes with 128 (sum k_x + sum k_z), which is taken off.
    """
    nothing = np.zeros(1, np.int32)
    for digit, scale in enumerate(scales):
        G = byte_products(left.signed[digit], right.packed[digit], memory)
        a, b = (left.sums, right.sums) if digit else (nothing, nothing)
        _add_scaled(G, a, b, scale, digit == 0, out)
    return out


def scales_of(codes: FineCodes) -> tuple[float, float, float]:
    """What each of the three tables of products counts: h^2, h h_1, h h_2."""
    h = codes.coarse.step
    return h * h, h * codes.steps[0], h * codes.steps[1]


@njit
def _add_scaled(G, a, b, scale, is_first, out):  # type: ignore[no-untyped-def]
    n, m = out.shape
    if is_first:
        for i in range(n):
            for j in range(m):
                out[i, j] = scale * G[i, j]
        return
    for i in range(n):
        x = a[i]
        for j in range(m):
            out[i, j] += scale * np.int32(G[i, j] - np.int32(x + b[j]))


def fine_products(P: FineCodes, Q: FineCodes, out: Any) -> Any:
    """u_x'u_z (n, m) about the corner, into `out` (n, m) float64."""
    memory = np.empty(products_size(len(P.coarse.bytes), len(Q.coarse.bytes)), np.int32)
    return products_of(P.left, Q.right, scales_of(P), memory, out)
