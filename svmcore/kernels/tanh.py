"""The hyperbolic tangent kernel, which is not positive semi-definite."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from svmcore.kernels._passes import float64_pass
from svmcore.kernels.base import InnerProductKernel, check_gamma, check_number
from svmcore.points import Floats, Moments

__all__ = ["Tanh"]

COARSE = 64.0  # gamma ||u||^2 above which float32 products could move a value by more than about 1e-5


@dataclass(frozen=True)
class Tanh(InnerProductKernel):
    """k(x, z) = tanh(gamma x'z + coef0); indefinite in general, so a solution has no duality bound.

    >>> import numpy as np
    >>> Tanh(gamma=0.5)(np.array([[1.0]]), np.array([[2.0]])).round(6)
    array([[0.761594]])
    """

    name: ClassVar[str] = "tanh"
    psd: ClassVar[bool] = False
    example: ClassVar[dict[str, Any]] = {"gamma": 0.1, "coef0": -0.5}
    gamma: float | str = "scale"
    coef0: float = 0.0

    def __post_init__(self) -> None:
        check_gamma(self.name, self.gamma)
        check_number(self.name, "coef0", self.coef0)

    def from_inner_products(self, G: Floats, x: Moments, z: Moments, out: Floats | None = None) -> Floats:
        """tanh(gamma x'z + coef0) in float64, a few rows at a time."""
        return float64_pass(G, x, z, out, self._bend)

    def from_moments(self, x: Moments) -> Floats:
        """tanh(gamma x'x + coef0) (n,)."""
        return self._bend(x.square)

    def too_coarse(self, norm2: float) -> bool:
        """Whether rounding the products to float32 would show in the values."""
        return float(self.gamma) * norm2 > COARSE

    def _bend(self, products: Floats) -> Floats:
        """In place: products -> tanh(gamma products + coef0)."""
        products *= self.gamma
        products += self.coef0
        return np.tanh(products, out=products)
