"""The linear kernel."""

from dataclasses import dataclass
from typing import ClassVar

from svmcore.kernels.base import InnerProductKernel, Kernel
from svmcore.kernels.centred import CentredLinear
from svmcore.kernels.rounding import Errors, Rounding
from svmcore.passes.kernel.kernel_values import float64_pass
from svmcore.points import Floats, Moments

__all__ = ["Linear"]


@dataclass(frozen=True)
class Linear(InnerProductKernel):
    """k(x, z) = x'z.

    >>> import numpy as np
    >>> Linear()(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[11.,  2.]])
    """

    name: ClassVar[str] = "linear"
    is_linear: ClassVar[bool] = True

    def centred(self) -> Kernel:
        """The kernel u'v of centred rows."""
        return CentredLinear()

    def from_inner_products(self, G: Floats, x: Moments, z: Moments, out: Floats | None = None) -> Floats:
        """X'z = u_x'u_z + o_x + o_z, added in float64."""
        return float64_pass(G, x, z, out, lambda products: None)

    def from_moments(self, x: Moments) -> Floats:
        """X'x (n,)."""
        return x.square

    def largest(self, errors: Errors) -> float:
        """||x|| ||z||."""
        return errors.largest_inner

    def rounding_of(self, errors: Errors) -> Rounding:
        """That of x'z, and of its store."""
        return Rounding(errors.store, errors.inner * (1.0 + errors.store) + errors.least)
