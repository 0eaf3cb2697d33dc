r"""How far a served kernel value can be from the exact one, bounded beforehand for every pair of rows.

A value passes through five roundings: of the rows (centred in float64, cast, or put on a lattice), of their products,
of the norms and offsets, of the function, of the store. With unit roundoff :math:`u` (2^-24 or 2^-53) and p features

.. math::  |fl(a'b) - a'b| \le \frac{p u}{1 - p u} \|a\| \|b\|

in whatever order the terms are added, with fused operations or without. `Errors` carries these bounds from the rows
to the function of each kernel, which turns them into a `Rounding`. They are bounds, not estimates: what happens is
about the square root of p smaller.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from svmcore.errors import InputError
from svmcore.points import Extent, Floats, Points

__all__ = ["Errors", "Rounding", "largest_exponent_share", "of_sums", "resolved_gamma", "unit_of"]

UNIT32, UNIT64 = 2.0**-24, 2.0**-53
TINY32, TINY64 = 2.0**-149, 2.0**-1074  # the smallest numbers: what underflow can cost
MORE = 1.001  # for products of two small bounds, and for the rounding of these bounds themselves


class Rounding(NamedTuple):
    """A bound for every pair: abs(served - exact) <= relative * abs(exact) + absolute."""

    relative: float
    absolute: float

    def within(self, largest: float) -> float:
        """The bound of one error where abs(exact) <= `largest`.

        >>> Rounding(0.25, 1.0).within(2.0)
        1.5
        """
        return self.relative * largest + self.absolute

    def and_then(self, relative: float) -> "Rounding":
        """Of values that are rounded once more, each by a part of itself.

        >>> Rounding(0.5, 1.0).and_then(1.0)
        Rounding(relative=2.0, absolute=2.0)
        """
        more = 1.0 + relative
        return Rounding(self.relative * more + relative, self.absolute * more)


def unit_of(dtype: DTypeLike) -> float:
    """Unit roundoff of float32 or float64."""
    return UNIT32 if np.dtype(dtype) == np.float32 else UNIT64


def tiny_of(dtype: DTypeLike) -> float:
    """The smallest positive number of float32 or float64."""
    return TINY32 if np.dtype(dtype) == np.float32 else TINY64


def of_sums(terms: float, unit: float) -> float:
    """Relative bound of a sum of `terms` products against the sum of their absolute values; inf where none holds."""
    return terms * unit / (1.0 - terms * unit) if terms * unit < 0.5 else math.inf


def largest_exponent_share(relative: float) -> float:
    """Bound of e k (exp(-e) served with its exponent e off by `relative` e): e exp(-e) is at most exp(-1)."""
    return math.exp(-1.0) * relative / (1.0 - relative) if relative < 0.5 else 1.0


@dataclass(frozen=True)
class Errors:
    """What is known of a block before the kernel's function is applied: sizes, and bounds of errors.

    Attributes
    ----------
    radius, size
        The largest norms of a row of either side, about the centre and about the origin.
    moved
        Bound of how far either side's rows, as they enter products and norms alike, lie from the given ones.
    cast
        Bound of how far the rows of the products lie from those of the norms.
    reach
        `radius` with both.
    products
        Bound of the error of u'v.
    norms
        Bound of the errors of ||u||^2, both sides together, against the rows that enter the products.
    inner
        Bound of the error of x'z = u'v + o_x + o_z as summed in float64.
    square
        Bound of the error of x'x of either side.
    along, along_error
        Bounds of u'c and of its error.
    centre
        The norm of the centre.
    sums
        Relative bound of a sum over the features in float64.
    work
        Unit roundoff of the products' type, in which the kernel's function may go on.
    store
        Unit roundoff of the values' type.
    least
        The smallest positive number of the values' type.
    """

    radius: tuple[float, float]
    size: tuple[float, float]
    moved: tuple[float, float]
    cast: tuple[float, float]
    reach: tuple[float, float]
    products: float
    norms: float
    inner: float
    square: tuple[float, float]
    along: tuple[float, float]
    along_error: tuple[float, float]
    centre: float
    sums: float
    work: float
    store: float
    least: float

    @classmethod
    def of(cls, P: Points, Q: "Points | Extent", dtype: DTypeLike, wide: bool) -> "Errors":
        """Bounds for blocks of `P` by `Q` stored as `dtype`; `wide`: with products in float64.

        Float32 CSR rows are cast where their products are float32 too, and are as they came elsewhere.
        """
        single = not wide and P.form in ("dense", "CSR") and P.dtype == np.float32
        left = right = _Side.of(P, P.extent, single)
        if Q is not P:
            right = _Side.of(P, Q, single) if isinstance(Q, Extent) else _Side.of(Q, Q.extent, single)
        work = UNIT32 if single else UNIT64
        summed, dropped = _summed(P, work), left.dropped + right.dropped
        products = left.cast * right.reach + right.cast * left.reach + summed * left.reach * right.reach
        products = MORE * products + P.n_features * (TINY32 if single else TINY64) + 0.5 * dropped
        sums = of_sums(P.n_features + 3, UNIT64)
        norms = summed if P.is_fine else sums
        inner = products + left.offset_error + right.offset_error
        inner += left.moved * right.radius + right.moved * left.radius + left.moved * right.moved
        inner += 3 * UNIT64 * (left.reach * right.reach + left.offset + right.offset)
        return cls(
            (left.radius, right.radius),
            (left.size, right.size),
            (left.moved, right.moved),
            (left.cast, right.cast),
            (left.reach, right.reach),
            products,
            norms * (left.reach**2 + right.reach**2) + dropped,
            MORE * inner,
            (left.square_error, right.square_error),
            (left.along, right.along),
            (left.along_error, right.along_error),
            _length(P.centre),
            sums,
            work,
            unit_of(dtype),
            tiny_of(dtype),
        )

    @property
    def overflow(self) -> float:
        """What the values' type can hold, with room for a factor of two."""
        return float(np.finfo(np.float32 if self.store == UNIT32 else np.float64).max) / 2

    @property
    def centred(self) -> float:
        """Bound of the error of the products against those of the given rows about the centre."""
        moved = self.moved[0] * self.radius[1] + self.moved[1] * self.radius[0] + self.moved[0] * self.moved[1]
        return MORE * (self.products + moved)

    @property
    def largest_inner(self) -> float:
        """Bound of abs(x'z)."""
        return self.size[0] * self.size[1]

    @property
    def smallest_inner(self) -> float:
        """Bound from below of x'z: large where the rows lie far from the origin beside what separates them."""
        return self.centre**2 - self.along[0] - self.along[1] - self.reach[0] * self.reach[1]

    def diagonal(self, side: int) -> "Errors":
        """The same of the rows of one side against themselves, from their norms alone."""

        def twice(pair: tuple[float, float]) -> tuple[float, float]:
            return pair[side], pair[side]

        changes: dict[str, Any] = {
            name: twice(getattr(self, name))
            for name in ("radius", "size", "moved", "cast", "reach", "square", "along", "along_error")
        }
        norms = 0.5 * self.norms if self.radius[0] == self.radius[1] else self.norms
        alone: dict[str, Any] = {"products": norms, "norms": 0.0, "inner": self.square[side]}
        return dataclasses.replace(self, **changes, **alone, work=UNIT64, store=UNIT64, least=TINY64)


@dataclass(frozen=True)
class _Side:
    """The rows of one side of a block: their norms, and what preparing them has changed."""

    radius: float  # ||u||
    reach: float  # ||u|| as it enters the products
    size: float  # ||x||
    moved: float  # from the given rows to those of the norms, which products may share
    cast: float  # from those of the norms to those of the products
    along: float  # |u'c|
    along_error: float
    offset: float  # |o|
    offset_error: float
    square_error: float
    dropped: float  # of ||u||^2, and of products

    @classmethod
    def of(cls, P: Points, extent: Extent, single: bool) -> "_Side":
        p, centre = P.n_features, _length(P.centre)
        sums = of_sums(p + 3, UNIT64)
        radius = math.sqrt(extent.norm2 * (1.0 + 2 * sums)) if extent.norm2 > 0 else 0.0
        moved, cast, dropped = _moved(P, radius), 0.0, P.values.dropped if P.is_fine else 0.0
        if P.dtype == np.float32 and (P.form == "dense" or single):
            cast = UNIT32 * radius + math.sqrt(p) * TINY32
        reach = (radius + moved + cast) * MORE
        along, offset = reach * centre, reach * centre + 0.5 * centre**2
        along_error = MORE * (sums * along + moved * centre)
        offset_error = (sums + 2 * UNIT64) * offset + moved * centre
        norm2_error = sums * reach**2 + 2 * moved * reach + moved**2 + dropped
        square_error = MORE * (norm2_error + 2 * offset_error + 2 * UNIT64 * (reach**2 + 2 * offset))
        size = math.sqrt(max(0.0, extent.square) + square_error)
        return cls(radius, reach, size, moved, cast, along, along_error, offset, offset_error, square_error, dropped)


def _length(vector: Floats) -> float:
    return math.sqrt(float(vector @ vector))


def _moved(P: Points, radius: float) -> float:
    if P.is_fine:
        return float(P.values.distance)
    if P.on_lattice:
        return float(math.sqrt(P.n_features) * P.values.deviation)
    return 0.0 if P.is_sparse else UNIT64 * radius * MORE


def _summed(P: Points, work: float) -> float:
    """Relative error of a product's sum against that of absolute values; integers are exact until they are scaled."""
    if P.is_fine:
        return 8 * work
    return 2 * work if P.on_lattice else of_sums(_terms(P), work)


def _terms(P: Points) -> int:
    """Products that a sum has at most."""
    return int(np.diff(P.values.indptr).max(initial=0)) if P.is_sparse else P.n_features


def resolved_gamma(kernel: str, gamma: float | str) -> float:
    """`gamma` as a number; raises InputError for one that waits for the data."""
    if isinstance(gamma, str):
        raise InputError(
            f"kernel {kernel!r}: gamma={gamma!r} has no value before the data are known; give a number, or take "
            "kernel.resolved(n_features, variance) of the training rows"
        )
    return float(gamma)
