r"""One-class: the region where all but a share nu of the rows is.

.. math::
    \min_{w, \rho} \tfrac12 \|w\|^2 + \sum_i c_i \big(\max(0, \rho - w'\phi(x_i)) - \nu \rho\big), \qquad
    f(x) = w'\phi(x) - \rho

c_i is the weight of row i; 0 leaves it out. p = 0, beta_i is between 0 and c_i, and all add up to nu sum(c): this sum
is not 0, so the kernel is taken as it is and never about a centre. The bias is -rho; f < 0 is outside.

References
----------
Schölkopf, Platt, Shawe-Taylor, Smola, Williamson (2001), Estimating the support of a high-dimensional distribution,
Neural Computation 13, eq. 3-11 (with nu sum(c) in place of 1).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from svmcore.errors import InvalidProblem
from svmcore.points import Floats
from svmcore.qp import Groups, SignedQP
from svmcore.sources.base import Source
from svmcore.tasks.base import Answers, Task, check_share

__all__ = ["OneClass"]


@dataclass(frozen=True)
class OneClass(Task):
    """One-class machine, see the module docstring."""

    name: ClassVar[str] = "one-class"
    answers: ClassVar[Answers] = "novelty"
    takes_C: ClassVar[bool] = False
    nu: float = 0.5

    def __post_init__(self) -> None:
        check_share(self, self.nu)

    def program(self, source: Source, target: Floats, C: ArrayLike) -> SignedQP:
        """The program for weights C, a number or (n,); the targets (n,) are not looked at."""
        weights = np.empty(source.n)
        weights[...] = C
        total = float(weights.sum())
        if not (weights.min(initial=np.inf) >= 0 and 0 < total < np.inf):
            raise InvalidProblem("weights must be finite numbers >= 0, one of them > 0: nu is a share of their sum")
        zeros = np.zeros(source.n)
        return SignedQP(source, zeros, zeros, weights, groups=Groups((self.nu * total,)))
