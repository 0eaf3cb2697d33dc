"""Kernels made of kernels: scaled, sum, product, conformal. A composite costs one matrix product per block."""

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from svmcore.errors import InputError
from svmcore.kernels.base import NOTHING, InnerProductKernel, Kernel, check_number
from svmcore.kernels.rounding import MORE, UNIT64, Errors, Rounding
from svmcore.points import Extent, Floats, Moments, Points
from svmcore.runtime.plugins import Plugin

__all__ = ["Conformal", "Factor", "Gaussian", "Normalise", "Product", "Scaled", "Sum"]


def _inner(kernel: Any) -> InnerProductKernel:
    """Build a part of a composite from its spec; only kernels of the inner product compose."""
    made = Kernel.create(kernel)
    if not isinstance(made, InnerProductKernel):
        raise InputError(f"kernel {made.name!r} cannot be part of a composite; it is not one of the inner product")
    return made


@dataclass(frozen=True)
class Scaled(InnerProductKernel):
    """k(x, z) = scale k1(x, z), scale > 0."""

    name: ClassVar[str] = "scaled"
    example: ClassVar[dict[str, Any]] = {"kernel": {"name": "rbf", "gamma": 0.3}, "scale": 2.5}
    kernel: Any
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", _inner(self.kernel))
        check_number(self.name, "scale", self.scale, positive=True)

    def from_inner_products(self, G: Floats, x: Moments, z: Moments, out: Floats | None = None) -> Floats:
        """Scale the values of the part, in place."""
        values = self.kernel.from_inner_products(G, x, z, out)
        values *= self.scale
        return values

    def from_moments(self, x: Moments) -> Floats:
        """Scale k1(x_i, x_i), shape (n,)."""
        return self.scale * self.kernel.from_moments(x)

    def too_coarse(self, norm2: float) -> bool:
        """As the part."""
        return bool(self.kernel.too_coarse(norm2))

    @property
    def psd(self) -> bool:
        """As the part."""
        return bool(self.kernel.psd)

    @property
    def is_centred(self) -> bool:  # type: ignore[override]
        """As the part."""
        return bool(self.kernel.is_centred)

    def centred(self) -> Kernel:
        """The same of the centred part."""
        part = self.kernel.centred()
        return self if part is self.kernel else Scaled(part, self.scale)

    def at_centre(self, P: Points) -> Floats:
        """Scale times that of the part."""
        return np.asarray(self.scale * self.kernel.at_centre(P))

    def largest(self, errors: Errors) -> float:
        """Scale times that of the part."""
        return float(self.scale * self.kernel.largest(errors))

    def rounding_of(self, errors: Errors) -> Rounding:
        """Scale times that of the part, and one rounding more; `scale` itself may be rounded to float32."""
        part = self.kernel.rounding_within(errors)
        return Rounding(_twice(part.relative, 2 * errors.store), MORE * self.scale * part.absolute + errors.least)


def _twice(a: float, b: float) -> float:
    """The relative error of a product of factors with relative errors a and b."""
    return a + b + a * b


@dataclass(frozen=True)
class _Pair(InnerProductKernel):
    """Two kernels on the same inner products; the subclass says how their values combine."""

    left: Any
    right: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "left", _inner(self.left))
        object.__setattr__(self, "right", _inner(self.right))

    @staticmethod
    @abstractmethod
    def _combine(a: Floats, b: Floats) -> Floats:
        """Write the combination of two blocks into `a`."""

    def from_inner_products(self, G: Floats, x: Moments, z: Moments, out: Floats | None = None) -> Floats:
        """Values of both parts from one block of products; the second works on a copy."""
        out = G if out is None else out
        second = self.right.from_inner_products(G.copy(), x, z)
        return self._combine(self.left.from_inner_products(G, x, z, out), second)

    def from_moments(self, x: Moments) -> Floats:
        """Combine both diagonals, (n,)."""
        return self._combine(self.left.from_moments(x), self.right.from_moments(x))

    def too_coarse(self, norm2: float) -> bool:
        """Whether either part needs float64 products."""
        return bool(self.left.too_coarse(norm2) or self.right.too_coarse(norm2))

    @property
    def psd(self) -> bool:
        """As both parts."""
        return bool(self.left.psd and self.right.psd)

    def _parts(self, errors: Errors) -> tuple[Rounding, float, Rounding, float]:
        """Bounds of the errors and of the values of both parts, whichever of the two types each is kept in."""
        kept = dataclasses.replace(errors, store=max(errors.store, errors.work))
        left, right = self.left, self.right
        return left.rounding_within(kept), left.largest(kept), right.rounding_within(kept), right.largest(kept)


@dataclass(frozen=True)
class Sum(_Pair):
    """k(x, z) = k1(x, z) + k2(x, z)."""

    name: ClassVar[str] = "sum"
    example: ClassVar[dict[str, Any]] = {"left": "linear", "right": {"name": "rbf", "gamma": 0.3}}

    @staticmethod
    def _combine(a: Floats, b: Floats) -> Floats:
        return np.add(a, b, out=a, casting="same_kind")

    @property
    def is_centred(self) -> bool:  # type: ignore[override]
        """Whether a part is."""
        return bool(self.left.is_centred or self.right.is_centred)

    def centred(self) -> Kernel:
        """The sum of the centred parts."""
        left, right = self.left.centred(), self.right.centred()
        return self if left is self.left and right is self.right else Sum(left, right)

    def at_centre(self, P: Points) -> Floats:
        """The sum of both."""
        return np.asarray(self.left.at_centre(P) + self.right.at_centre(P))

    def largest(self, errors: Errors) -> float:
        """The sum of both."""
        return float(self.left.largest(errors) + self.right.largest(errors))

    def rounding_of(self, errors: Errors) -> Rounding:
        """Errors add up."""
        a, largest_a, b, largest_b = self._parts(errors)
        return Rounding(2 * errors.store, MORE * (a.within(largest_a) + b.within(largest_b)) + errors.least)


@dataclass(frozen=True)
class Product(_Pair):
    """k(x, z) = k1(x, z) k2(x, z) (Schur)."""

    name: ClassVar[str] = "product"
    example: ClassVar[dict[str, Any]] = {"left": "linear", "right": {"name": "rbf", "gamma": 0.3}}

    @staticmethod
    def _combine(a: Floats, b: Floats) -> Floats:
        return np.multiply(a, b, out=a, casting="same_kind")

    def largest(self, errors: Errors) -> float:
        """The product of both."""
        return float(self.left.largest(errors) * self.right.largest(errors))

    def rounding_of(self, errors: Errors) -> Rounding:
        """Relative errors add up; an absolute one is multiplied by the other part."""
        a, largest_a, b, largest_b = self._parts(errors)
        absolute = a.absolute * (largest_b + b.within(largest_b)) + b.absolute * (largest_a + a.within(largest_a))
        relative = _twice(_twice(a.relative, b.relative), 2 * errors.store)
        return Rounding(relative, MORE * absolute + errors.least)


class Factor(Plugin):
    """c(x) of a conformal kernel, a function of the row's own norm and diagonal."""

    @abstractmethod
    def values(self, diagonal: Floats, square: Floats) -> Floats:
        """c(x_i) (n,) from k(x_i, x_i) (n,) and x_i'x_i (n,)."""

    def rounding(self, diagonal: float, square: float, smallest: float) -> float:
        """A bound of the relative error of c(x), from those of the absolute errors of k(x, x) and x'x.

        `smallest` is the smallest k(x, x).
        """
        return np.inf

    def largest(self, smallest: float) -> float:
        """A bound of c(x), where k(x, x) is at least `smallest`."""
        return np.inf


@dataclass(frozen=True)
class Normalise(Factor):
    """c(x) = 1 / sqrt(k(x, x)): the cosine in feature space; 0 where k(x, x) = 0."""

    name: ClassVar[str] = "normalise"

    def values(self, diagonal: Floats, square: Floats) -> Floats:
        """1 / sqrt(diagonal), (n,)."""
        return np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0)

    def rounding(self, diagonal: float, square: float, smallest: float) -> float:
        """Half the relative error of the diagonal, to first order."""
        return diagonal / (smallest - diagonal) + 4 * UNIT64 if diagonal < 0.5 * smallest else np.inf

    def largest(self, smallest: float) -> float:
        """1 / sqrt(smallest)."""
        return float(smallest**-0.5) if smallest > 0 else np.inf


@dataclass(frozen=True)
class Gaussian(Factor):
    """c(x) = exp(-gamma x'x)."""

    name: ClassVar[str] = "gaussian"
    gamma: float

    def __post_init__(self) -> None:
        check_number(f"conformal factor {self.name}", "gamma", self.gamma, positive=True)

    def values(self, diagonal: Floats, square: Floats) -> Floats:
        """exp(-gamma x'x), (n,)."""
        return np.exp(-self.gamma * square)

    def rounding(self, diagonal: float, square: float, smallest: float) -> float:
        """What the exponent is off, and exp's own."""
        return float(np.expm1(min(700.0, self.gamma * square)) + 8 * UNIT64)

    def largest(self, smallest: float) -> float:
        """1."""
        return 1.0


@dataclass(frozen=True)
class Conformal(InnerProductKernel):
    """k(x, z) = c(x) k1(x, z) c(z) with a `Factor` c: `normalise`, or `{name: gaussian, gamma: g}`."""

    name: ClassVar[str] = "conformal"
    example: ClassVar[dict[str, Any]] = {
        "kernel": {"name": "polynomial", "degree": 2, "gamma": 0.5, "coef0": 1.0},
        "factor": {"name": "gaussian", "gamma": 0.1},
    }
    kernel: Any
    factor: Any = "normalise"

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", _inner(self.kernel))
        object.__setattr__(self, "factor", Factor.create(self.factor))

    def _factor(self, x: Moments) -> Floats:
        return self.factor.values(self.kernel.from_moments(x), x.square)

    def from_inner_products(self, G: Floats, x: Moments, z: Moments, out: Floats | None = None) -> Floats:
        """Multiply rows by c(x) and columns by c(z), in place."""
        values = self.kernel.from_inner_products(G, x, z, out)
        values *= self._factor(x).astype(values.dtype)[:, None]
        values *= self._factor(z).astype(values.dtype)
        return values

    def from_moments(self, x: Moments) -> Floats:
        """c(x_i)^2 k1(x_i, x_i), (n,)."""
        return self._factor(x) ** 2 * self.kernel.from_moments(x)

    def too_coarse(self, norm2: float) -> bool:
        """As the part."""
        return bool(self.kernel.too_coarse(norm2))

    @property
    def psd(self) -> bool:
        """As the part."""
        return bool(self.kernel.psd)

    def largest(self, errors: Errors) -> float:
        """That of the part times c(x) c(z)."""
        return float(self.kernel.largest(errors) * self.factor.largest(0.0) ** 2)

    def rounding_of(self, errors: Errors) -> Rounding:
        """As `rounding`, of a factor that does not depend on the diagonal."""
        return self._rounding(errors, (0.0, 0.0))

    def rounding(self, P: Points, Q: Points | Extent | None = None, dtype: DTypeLike = np.float32) -> Rounding:
        """Relative errors of the part and both factors add up; an absolute one is multiplied by the factors."""
        Q = P if Q is None else Q
        errors = Errors.of(P, Q, dtype, self.needs_float64(P, Q, dtype))
        left = float(self.kernel.from_moments(P.moments).min(initial=np.inf))
        right = float(self.kernel.from_moments(Q.moments).min(initial=np.inf)) if isinstance(Q, Points) else left
        with np.errstate(invalid="ignore"):
            found = self._rounding(errors, (left, right))
        return found if np.isfinite(found).all() else NOTHING

    def _rounding(self, errors: Errors, smallest: tuple[float, float]) -> Rounding:
        kept = dataclasses.replace(errors, store=max(errors.store, errors.work))
        part, relative, largest = self.kernel.rounding_within(kept), 4 * errors.store, 1.0
        relative = _twice(relative, part.relative)
        for side in (0, 1):
            diagonal = errors.diagonal(side)
            off = self.kernel.rounding_within(diagonal).within(self.kernel.largest(diagonal))
            relative = _twice(relative, self.factor.rounding(off, errors.square[side], smallest[side]))
            largest *= self.factor.largest(smallest[side] - off)
        least = errors.least * (1.0 + self.kernel.largest(kept))  # of factors that underflow
        return Rounding(relative, MORE * part.absolute * largest * (1.0 + relative) + 2 * least)
