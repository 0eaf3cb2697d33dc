"""The hyperbolic tangent kernel, which is not positive semi-definite."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from svmcore.kernels.base import InnerProductKernel, check_gamma, check_number
from svmcore.kernels.rounding import MORE, UNIT64, Errors, Rounding, resolved_gamma
from svmcore.passes.kernel.kernel_values import float64_pass
from svmcore.points import Floats, Moments

__all__ = ["Tanh"]

TANH = 8 * UNIT64  # bound of the relative error of NumPy's
COARSE = 64.0  # gamma ||u||^2 above which float32 products could move a value by more than about 1e-5


@dataclass(frozen=True)
class Tanh(InnerProductKernel):
    """k(x, z) = tanh(gamma x'z + coef0); indefinite in general, so a solution has no duality bound.

    >>> import numpy as np
    >>> Tanh(gamma=0.5)(np.array([[1.0]]), np.array([[2.0]])).round(6)
    array([[0.761594]])
    """

    name: ClassVar[str] = "tanh"
    example: ClassVar[dict[str, Any]] = {"gamma": 0.1, "coef0": -0.5}
    gamma: float | str = "scale"
    coef0: float = 0.0

    def __post_init__(self) -> None:
        check_gamma(self.name, self.gamma)
        check_number(self.name, "coef0", self.coef0)

    @property
    def psd(self) -> bool:
        """Never claimed."""
        return False

    def from_inner_products(self, G: Floats, x: Moments, z: Moments, out: Floats | None = None) -> Floats:
        """tanh(gamma x'z + coef0) in float64, a few rows at a time."""
        return float64_pass(G, x, z, out, self._bend)

    def from_moments(self, x: Moments) -> Floats:
        """tanh(gamma x'x + coef0) (n,)."""
        return self._bend(x.square)

    def too_coarse(self, norm2: float) -> bool:
        """Whether rounding the products to float32 would show in the values."""
        return resolved_gamma(self.name, self.gamma) * norm2 > COARSE

    def largest(self, errors: Errors) -> float:
        """1."""
        return 1.0

    def rounding_of(self, errors: Errors) -> Rounding:
        """No more than what gamma x'z + coef0 is off: tanh is nowhere steeper than 1, and flat where all are large."""
        gamma = resolved_gamma(self.name, self.gamma)
        off = gamma * errors.inner + 3 * UNIT64 * (gamma * errors.largest_inner + abs(self.coef0))
        least = gamma * errors.smallest_inner - abs(self.coef0) - off
        steepness = 4.0 * math.exp(-2.0 * min(least, 300.0)) if least > 1.0 else 1.0
        return Rounding(errors.store + TANH, min(2.0, MORE * off * min(1.0, steepness)) + errors.least)

    def _bend(self, products: Floats) -> Floats:
        """In place: products -> tanh(gamma products + coef0)."""
        products *= resolved_gamma(self.name, self.gamma)
        products += self.coef0
        return np.tanh(products, out=products)
