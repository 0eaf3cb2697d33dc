"""Kernels made of kernels: scaled, sum, product, conformal. A composite costs one matrix product per block."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from svmcore._plugins import Plugin
from svmcore.errors import InputError
from svmcore.kernels.base import InnerProductKernel, Kernel, check_number
from svmcore.points import Floats, Moments

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


@dataclass(frozen=True)
class Sum(_Pair):
    """k(x, z) = k1(x, z) + k2(x, z)."""

    name: ClassVar[str] = "sum"
    example: ClassVar[dict[str, Any]] = {"left": "linear", "right": {"name": "rbf", "gamma": 0.3}}

    @staticmethod
    def _combine(a: Floats, b: Floats) -> Floats:
        return np.add(a, b, out=a, casting="same_kind")


@dataclass(frozen=True)
class Product(_Pair):
    """k(x, z) = k1(x, z) k2(x, z) (Schur)."""

    name: ClassVar[str] = "product"
    example: ClassVar[dict[str, Any]] = {"left": "linear", "right": {"name": "rbf", "gamma": 0.3}}

    @staticmethod
    def _combine(a: Floats, b: Floats) -> Floats:
        return np.multiply(a, b, out=a, casting="same_kind")


class Factor(Plugin):
    """c(x) of a conformal kernel, a function of the row's own norm and diagonal."""

    @abstractmethod
    def values(self, diagonal: Floats, square: Floats) -> Floats:
        """c(x_i) (n,) from k(x_i, x_i) (n,) and x_i'x_i (n,)."""


@dataclass(frozen=True)
class Normalise(Factor):
    """c(x) = 1 / sqrt(k(x, x)): the cosine in feature space; 0 where k(x, x) = 0."""

    name: ClassVar[str] = "normalise"

    def values(self, diagonal: Floats, square: Floats) -> Floats:
        """1 / sqrt(diagonal), (n,)."""
        return np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0)


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
