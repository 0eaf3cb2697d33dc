"""The Gaussian (radial basis function) kernel."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from svmcore.kernels._passes import exp_of_differences, exp_of_distances, exp_pass
from svmcore.kernels.base import InnerProductKernel, check_gamma
from svmcore.points import Floats, Moments, Points

__all__ = ["RBF"]

FEW = 16  # features up to which sums of squared differences are as fast as products
FEW_BY_FLOAT64 = 48  # the same where products must be float64
COARSE_DIFFERENCES = 4096.0  # gamma ||u||^2 above which rounding u to float32 could move a value by about 3e-6
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

    def stands_alone(self, P: Points, Q: Points, dtype: DTypeLike) -> bool:
        """Whether float32 differences of few features serve: as fast as products, and nothing cancels."""
        if not P.form == Q.form == "dense" or not P.dtype == Q.dtype == dtype == np.float32:
            return False
        largest = float(max(side.moments.norm2.max(initial=0.0) for side in (P, Q)))
        few = FEW_BY_FLOAT64 if self.too_coarse(largest) else FEW
        return P.n_features <= few and float(self.gamma) * largest <= COARSE_DIFFERENCES

    def block(self, P: Points, Q: Points, out: Floats | None = None) -> Floats:
        """Kernel values (len(P), len(Q)), from differences of few features or from inner products."""
        out = np.empty((len(P), len(Q)), P.dtype) if out is None else out
        if self.stands_alone(P, Q, out.dtype):
            return exp_of_differences(P.values, Q.values, float(self.gamma), out)
        return super().block(P, Q, out)

    def from_integer_products(self, G: Floats, unit: float, x: Moments, z: Moments, out: Floats) -> Floats:
        """exp(-gamma unit d) of integer squared distances d = k_x'k_x + k_z'k_z - 2 k_x'k_z: nothing cancels."""
        if out.dtype != np.float32:
            return super().from_integer_products(G, unit, x, z, out)
        return exp_of_distances(G, unit, x.norm2, z.norm2, float(self.gamma), out)

    def from_moments(self, x: Moments) -> Floats:
        """1 for every row, shape (n,)."""
        return np.ones(len(x.norm2))

    def too_coarse(self, norm2: float) -> bool:
        """Whether rounding the products to float32 would show in the values."""
        return float(self.gamma) * norm2 > COARSE
