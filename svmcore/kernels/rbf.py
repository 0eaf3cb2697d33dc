"""The Gaussian (radial basis function) kernel."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from svmcore.kernels._passes import exp_pass
from svmcore.kernels.base import InnerProductKernel, check_gamma
from svmcore.points import Floats, Moments

__all__ = ["RBF"]

COARSE = 16.0  # gamma ||u||^2 above which float32 products could move a value near 1 by more than about 3e-6


@dataclass(frozen=True)
class RBF(InnerProductKernel):
    """k(x, z) = exp(-gamma ||x - z||^2).

    `gamma` is a number > 0, `scale` = 1 / (p var(X)) or `auto` = 1 / p.

    >>> import numpy as np
    >>> RBF(gamma=0.5)(np.array([[0.0]]), np.array([[0.0], [2.0]])).round(6)
    array([[1.      , 0.135335]])
    """

    name: ClassVar[str] = "rbf"
    example: ClassVar[dict[str, Any]] = {"gamma": 0.3}
    gamma: float | str = "scale"

    def __post_init__(self) -> None:
        check_gamma(self.name, self.gamma)

    def from_inner_products(self, G: Floats, x: Moments, z: Moments, out: Floats | None = None) -> Floats:
        """exp(-gamma (||u_x||^2 + ||u_z||^2 - 2 u_x'u_z)): the centre cancels."""
        return exp_pass(G, x.norm2, z.norm2, float(self.gamma), out)

    def from_moments(self, x: Moments) -> Floats:
        """1 for every row, shape (n,)."""
        return np.ones(len(x.norm2))

    def too_coarse(self, norm2: float) -> bool:
        """Whether rounding the products to float32 would show in the values."""
        return float(self.gamma) * norm2 > COARSE
