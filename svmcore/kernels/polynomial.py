"""The polynomial kernel, homogeneous (coef0 = 0) or not."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from svmcore.errors import InputError
from svmcore.kernels.base import InnerProductKernel, Kernel, check_gamma, check_number
from svmcore.kernels.centred import CentredPolynomial
from svmcore.kernels.rounding import MORE, UNIT64, Errors, Rounding, resolved_gamma
from svmcore.passes.kernel.kernel_values import float64_pass
from svmcore.points import Floats, Moments

__all__ = ["Polynomial"]


@dataclass(frozen=True)
class Polynomial(InnerProductKernel):
    """k(x, z) = (gamma x'z + coef0)^degree; positive semi-definite for coef0 >= 0.

    >>> import numpy as np
    >>> Polynomial(degree=2, gamma=1.0, coef0=1.0)(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[144.]])
    """

    name: ClassVar[str] = "polynomial"
    example: ClassVar[dict[str, Any]] = {"degree": 2, "gamma": 0.5, "coef0": 1.0}
    degree: int = 3
    gamma: float | str = "scale"
    coef0: float = 0.0

    def __post_init__(self) -> None:
        check_gamma(self.name, self.gamma)
        check_number(self.name, "coef0", self.coef0)
        if isinstance(self.degree, bool) or not isinstance(self.degree, (int, np.integer)) or self.degree < 0:
            raise InputError(f"kernel 'polynomial': degree must be an integer >= 0; given {self.degree!r}")

    @property
    def psd(self) -> bool:
        """Positive semi-definite unless a negative constant is raised."""
        return self.coef0 >= 0 or self.degree == 0

    def centred(self) -> Kernel:
        """The same about the points' centre; a constant is its own."""
        if self.degree == 0:
            return self
        return CentredPolynomial(int(self.degree), resolved_gamma(self.name, self.gamma), float(self.coef0))

    def from_inner_products(self, G: Floats, x: Moments, z: Moments, out: Floats | None = None) -> Floats:
        """(gamma x'z + coef0)^degree in float64, a few rows at a time."""
        return float64_pass(G, x, z, out, self._raise)

    def from_moments(self, x: Moments) -> Floats:
        """(gamma x'x + coef0)^degree (n,)."""
        return self._raise(x.square)

    def largest(self, errors: Errors) -> float:
        """(gamma ||x|| ||z|| + abs(coef0))^degree."""
        return _power(self._largest_base(errors), self.degree)

    def rounding_of(self, errors: Errors) -> Rounding:
        """Degree t^(degree - 1) times what t = gamma x'z + coef0 is off, and the multiplications."""
        if self.degree == 0:
            return Rounding(0.0, 0.0)
        base = self._largest_base(errors)
        off = resolved_gamma(self.name, self.gamma) * errors.inner + 3 * UNIT64 * base
        change = self.degree * off * _power(base + off, self.degree - 1)
        return Rounding(errors.store + self.degree * UNIT64 * MORE, MORE * change + errors.least)

    def _largest_base(self, errors: Errors) -> float:
        return resolved_gamma(self.name, self.gamma) * errors.largest_inner + abs(self.coef0)

    def _raise(self, products: Floats) -> Floats:
        """In place: products -> (gamma products + coef0)^degree by repeated multiplication."""
        products *= resolved_gamma(self.name, self.gamma)
        products += self.coef0
        base = products.copy()
        if self.degree == 0:
            products[...] = 1.0
        for _ in range(self.degree - 1):
            products *= base
        return products


def _power(base: float, degree: int) -> float:
    """base^degree, inf where it overflows."""
    with np.errstate(over="ignore"):
        return float(np.float64(base) ** degree)
