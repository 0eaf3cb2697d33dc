r"""Kernels about the points' centre m in feature space, formed without cancellation.

.. math::  k_c(x, z) = k(x, z) - k(x, m) - k(m, z) + k(m, m)

Where all coefficients sum to 0, k_c is the same kernel as k, and its values are as small as the spread of the data. Of
the linear kernel it is u'v. Of a polynomial with A = gamma m'm + coef0, a = gamma u'm, b = gamma v'm, g = gamma u'v:

.. math::  k_c = (T^d - S^d) + (S^d - s^d - t^d + A^d), \quad s = A + a, \; t = A + b, \; S = A + a + b, \; T = S + g

With the sums of products :math:`h_n(x, y) = \sum_{i + j = n} x^i y^j` the first part is :math:`g h_{d-1}(T, S)` and the
second :math:`a D_{d-1}`, where :math:`D_n = S D_{n-1} + b (h_{n-1}(s, A) + h_{n-1}(t, A))` and :math:`D_0 = 0`.

These kernels are how others are evaluated: they have no name in a configuration.
"""

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from svmcore.kernels.base import InnerProductKernel
from svmcore.kernels.rounding import MORE, UNIT64, Errors, Rounding
from svmcore.passes.kernel.centred_powers import centred_powers
from svmcore.points import Floats, Moments, Points

__all__ = ["CentredLinear", "CentredPolynomial"]


class Centred(InnerProductKernel, ABC):
    """A kernel about the points' centre, which belongs to no registry."""

    is_centred: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Do without the registration of `Plugin`."""


@dataclass(frozen=True)
class CentredLinear(Centred):
    """k(x, z) = (x - m)'(z - m): products of centred rows are the values."""

    name: ClassVar[str] = "centred-linear"
    is_linear: ClassVar[bool] = True

    def from_inner_products(self, G: Floats, x: Moments, z: Moments, out: Floats | None = None) -> Floats:
        """The products themselves."""
        if out is None or out is G:
            return G
        out[...] = G
        return out

    def from_integer_products(self, G: Floats, unit: float, x: Moments, z: Moments, out: Floats) -> Floats:
        """Integers times their unit."""
        return np.asarray(np.multiply(G, unit, out=out, casting="same_kind"))

    def from_moments(self, x: Moments) -> Floats:
        """||u||^2 (n,)."""
        return x.norm2.copy()

    def at_centre(self, P: Points) -> Floats:
        """Values u'm (n,)."""
        return P.moments.along.copy()

    def largest(self, errors: Errors) -> float:
        """||u|| ||v||."""
        return errors.reach[0] * errors.reach[1]

    def rounding_of(self, errors: Errors) -> Rounding:
        """That of the products, and of their store where it is not theirs."""
        store = errors.store if errors.work < errors.store else 0.0
        return Rounding(store, errors.centred * (1.0 + store) + errors.least)


@dataclass(frozen=True)
class CentredPolynomial(Centred):
    """(gamma x'z + coef0)^degree about the points' centre, degree >= 1."""

    name: ClassVar[str] = "centred-polynomial"
    degree: int
    gamma: float
    coef0: float

    @property
    def psd(self) -> bool:
        """Centring loses no definiteness, and of degree 1 it loses the constant."""
        return self.coef0 >= 0 or self.degree == 1

    def from_inner_products(self, G: Floats, x: Moments, z: Moments, out: Floats | None = None) -> Floats:
        """Values g h(T, S) + a D in float64, a row at a time."""
        out = G if out is None else out
        A = self._constant(x)
        centred_powers(G, self.gamma, self.gamma * x.along, self.gamma * z.along, A, self.degree, out)
        return out

    def from_moments(self, x: Moments) -> Floats:
        """k_c(x_i, x_i) (n,)."""
        a, g, A = self.gamma * x.along, self.gamma * x.norm2, self._constant(x)
        S, h_s, power = A + 2.0 * a, np.ones(len(a)), 1.0
        H, D, S_power = np.ones(len(a)), np.zeros(len(a)), np.ones(len(a))
        for _ in range(self.degree - 1):
            S_power *= S
            H = (S + g) * H + S_power
            D = S * D + 2.0 * a * h_s
            power *= A
            h_s = (A + a) * h_s + power
        return g * H + a * D

    def at_centre(self, P: Points) -> Floats:
        """(A + a)^d - A^d = a h_{d-1}(A + a, A), (n,)."""
        a, A = self.gamma * P.moments.along, self._constant(P.moments)
        power, total = 1.0, np.ones(len(a))
        for _ in range(self.degree - 1):
            power *= A
            total = (A + a) * total + power
        return a * total

    def _constant(self, x: Moments) -> float:
        return self.gamma * 2.0 * x.half + self.coef0

    def largest(self, errors: Errors) -> float:
        """Bound d abs(g) T^(d - 1) + d (d - 1) abs(a b) T^(d - 2)."""
        a, b, g, base = self._sizes(errors)
        d = self.degree
        with np.errstate(over="ignore"):
            return float(d * g * np.float64(base) ** (d - 1) + d * (d - 1) * a * b * np.float64(base) ** max(0, d - 2))

    def rounding_of(self, errors: Errors) -> Rounding:
        """Derivatives by g, a, b and A times what these are off, and the multiplications."""
        a, b, g, base = self._sizes(errors)
        d, T = self.degree, np.float64(base * MORE)
        first, second = d * T ** (d - 1), d * (d - 1) * T ** max(0, d - 2)
        third = d * (d - 1) * (d - 2) * T ** max(0, d - 3)
        arithmetic = 6 * d * UNIT64 * self.largest(errors)
        off_a, off_b = (self.gamma * errors.along_error[side] + 3 * UNIT64 * (a, b)[side] for side in (0, 1))
        total = first * (self.gamma * errors.centred + UNIT64 * g)
        total += second * (off_a * (b + g) + off_b * (a + g)) + off_a * off_b * second
        total += (second * g + third * a * b) * (self.gamma * errors.sums * errors.centre**2 + 3 * UNIT64 * base)
        return Rounding(errors.store, float(MORE * (total + arithmetic)) + errors.least)

    def _sizes(self, errors: Errors) -> tuple[float, float, float, float]:
        """Bounds of abs(a), abs(b), abs(g) and of all the bases that are raised."""
        a, b = (self.gamma * along for along in errors.along)
        g = self.gamma * errors.reach[0] * errors.reach[1]
        return a, b, g, self.gamma * errors.centre**2 + abs(self.coef0) + a + b + g
