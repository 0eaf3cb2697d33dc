"""The Gaussian (radial basis function) kernel."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from svmcore.kernels.base import InnerProductKernel, check_gamma, reach
from svmcore.kernels.rounding import (
    MORE,
    UNIT32,
    UNIT64,
    Errors,
    Rounding,
    largest_exponent_share,
    of_sums,
    resolved_gamma,
)
from svmcore.passes.kernel.differences import (
    add_differences_by_sign,
    exp_of_differences,
    place_differences,
    sums_of_differences,
)
from svmcore.passes.kernel.exp2 import EXP_FLOAT32
from svmcore.passes.kernel.kernel_tiles import Distances, FineProducts, Products, Tiles
from svmcore.passes.kernel.kernel_values import LARGEST_FLOAT32, exp_of_distances, exp_pass
from svmcore.points import Extent, Floats, Moments, Points, check_fit

__all__ = ["RBF"]

FEW = 32  # features up to which sums of squared differences are as fast as products
FEW_BY_FLOAT64 = 48  # the same where products must be float64
EXP_FLOAT64 = 4 * UNIT64
UNDERFLOW64 = 1e-306  # of values below exp(-707)
UNDERFLOW = 1e-30  # of exponents in float32, and of values below 2^-125
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
    is_positive: ClassVar[bool] = True
    mirrors_on_lattice: ClassVar[bool] = True
    example: ClassVar[dict[str, Any]] = {"gamma": 0.3}
    gamma: float | str = "scale"

    def __post_init__(self) -> None:
        check_gamma(self.name, self.gamma)

    @property
    def _gamma(self) -> float:
        return resolved_gamma(self.name, self.gamma)

    def tiles(self, P: Points, Q: Points) -> Tiles:
        """Values that are weighted as they are computed."""
        check_fit(P, Q)
        if P.on_lattice:
            return Distances(P, Q, self._gamma)
        if P.is_fine:
            return FineProducts(P, Q, self._gamma)
        return Products(P, Q, self._gamma)

    def from_inner_products(self, G: Floats, x: Moments, z: Moments, out: Floats | None = None) -> Floats:
        """exp(-gamma (||u_x||^2 + ||u_z||^2 - 2 u_x'u_z)): the centre cancels."""
        return exp_pass(G, x.norm2, z.norm2, self._gamma, out)

    def stands_alone(self, P: Points, Q: Points | Extent, dtype: DTypeLike) -> bool:
        """Whether float32 differences of few features serve: as fast as products, and nothing cancels."""
        if P.form != "dense" or not P.dtype == dtype == np.float32 or (isinstance(Q, Points) and Q.dtype != dtype):
            return False
        few = FEW_BY_FLOAT64 if self.too_coarse(reach(P, Q)) else FEW
        return P.n_features <= few and self._gamma * reach(P, Q) <= COARSE_DIFFERENCES and self._gamma < LARGEST_FLOAT32

    def block(self, P: Points, Q: Points, out: Floats | None = None) -> Floats:
        """Kernel values (len(P), len(Q)), from differences of few features or from inner products."""
        out = np.empty((len(P), len(Q)), P.dtype) if out is None else out
        if self.stands_alone(P, Q, out.dtype):
            check_fit(P, Q)
            return exp_of_differences(P.values, Q.values, self._gamma, out)
        return super().block(P, Q, out)

    def add_sums(self, P: Points, Q: Points, weights: Floats, out: Floats, memory: Floats) -> None:
        """Sums of values from differences of few features, none of which is stored."""
        if not self.stands_alone(P, Q, np.float32):
            super().add_sums(P, Q, weights, out, memory)
            return
        check_fit(P, Q)
        sums_of_differences(P.values, Q.values, self._gamma, weights, out)

    def sums_alone(self, P: Points, Q: Points | Extent, dtype: DTypeLike) -> bool:
        """Where values are of differences of few features."""
        return P.n_features <= FEW and self.stands_alone(P, Q, dtype)

    def add_by_sign(self, P: Points, Q: Points, weights: Floats, sums: Floats) -> None:
        """Sums in float64 of values from differences of few features, none of which is stored."""
        check_fit(P, Q)
        add_differences_by_sign(P.values, Q.values, self._gamma, weights, sums)

    def place(self, P: Points, Q: Points, out: Floats, at: Floats, shift: float, unit: float | None) -> None:
        """The same values, where they are wanted."""
        check_fit(P, Q)
        place_differences(P.values, Q.values, self._gamma, out, at, shift, unit)

    def from_integer_products(self, G: Floats, unit: float, x: Moments, z: Moments, out: Floats) -> Floats:
        """exp(-gamma unit d) of integer squared distances d = k_x'k_x + k_z'k_z - 2 k_x'k_z: nothing cancels."""
        return exp_of_distances(G, unit, x.norm2, z.norm2, self._gamma, out)

    def from_moments(self, x: Moments) -> Floats:
        """1 for every row, shape (n,)."""
        return np.ones(len(x.norm2))

    def too_coarse(self, norm2: float) -> bool:
        """Whether rounding the products to float32 would show in the values."""
        return self._gamma * norm2 > COARSE or self._gamma > LARGEST_FLOAT32

    def largest(self, errors: Errors) -> float:
        """1."""
        return 1.0

    def rounding(self, P: Points, Q: Points | Extent | None = None, dtype: DTypeLike = np.float32) -> Rounding:
        """As of any kernel of the inner product; distances of integers and sums of differences are sharper."""
        Q = P if Q is None else Q
        if not (P.on_lattice or self.stands_alone(P, Q, dtype)):
            return super().rounding(P, Q, dtype)
        errors = Errors.of(P, Q, dtype, wide=True)
        if P.on_lattice:
            return self._of_distances(errors, 4 * errors.store, 0.0)
        depth = -(-P.n_features // 2) + 9
        return self._of_distances(errors, of_sums(depth, UNIT32), sum(errors.cast))

    def rounding_of(self, errors: Errors) -> Rounding:
        """Exp turns what the exponent is off into a relative error; what its size costs is nothing where exp is."""
        distance2 = (errors.reach[0] + errors.reach[1]) ** 2
        off = self._gamma * (errors.norms + 2 * errors.products + 2 * errors.work * distance2) * MORE
        exp = EXP_FLOAT32 if errors.store == UNIT32 else EXP_FLOAT64
        if off > 1.0:
            return Rounding(0.0, 1.0 + exp)
        relative = (1.0 + exp) * math.exp(off) - 1.0
        share = largest_exponent_share(4 * max(errors.work, errors.store))
        return Rounding(
            relative, (share + self._moved(sum(errors.moved))) * (1 + relative) + max(errors.least, UNDERFLOW64)
        )

    def _of_distances(self, errors: Errors, relative: float, cast: float) -> Rounding:
        """Of squared distances served with a relative error, of rows that were moved by the cast."""
        share = largest_exponent_share(relative)
        absolute = share + self._moved(sum(errors.moved) + cast)
        single = errors.store == UNIT32
        relative, least = (EXP_FLOAT32, UNDERFLOW) if single else (EXP_FLOAT64, UNDERFLOW64)
        return Rounding(relative, absolute * (1.0 + relative) * MORE + least)

    def _moved(self, moved: float) -> float:
        """Bound of the change of k where the distance d changes by `moved`: 2 gamma d exp(-gamma d^2) has a maximum."""
        return moved * math.sqrt(2.0 * math.exp(-1.0) * self._gamma) + self._gamma * moved**2
