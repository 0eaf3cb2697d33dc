r"""Support vector regression: a tube of given width (epsilon) or one that leaves out a given share of rows (nu).

.. math::
    \min_{w, b} \tfrac12 \|w\|^2 + \sum_i C_i \max(0, |y_i - f(x_i)| - \epsilon)

.. math::
    \min_{w, b, \epsilon} \tfrac12 \|w\|^2 + \sum_i C_i \big(\nu \epsilon + \max(0, |y_i - f(x_i)| - \epsilon)\big)

Each row has two variables on one column of K: one draws f up to the tube's lower edge, one down to its upper edge,

.. math::  p = y - \epsilon, \; 0 \le \beta_v \le C_i, \qquad p = y + \epsilon, \; -C_i \le \beta_v \le 0

and all add up to 0. The nu machine has p = y for both, and the two halves add up to plus and minus nu sum(C) / 2; their
multipliers are b + epsilon and b - epsilon. C_i = 0 leaves a row out.

References
----------
Smola, Schölkopf (2004), A tutorial on support vector regression, eq. 10; Schölkopf, Smola, Williamson, Bartlett (2000),
New support vector algorithms, Neural Computation 12, eq. 17-21.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from svmcore.errors import InputError, InvalidProblem
from svmcore.points import Floats
from svmcore.qp import Groups, SignedQP
from svmcore.solution import Solution
from svmcore.sources.base import Source
from svmcore.tasks.base import Answer, Task, check_share

__all__ = ["SVR", "NuSVR"]


@dataclass(frozen=True)
class SVR(Task):
    """Regression with a tube of half-width epsilon, see the module docstring."""

    name: ClassVar[str] = "svr"
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 <= self.epsilon < np.inf:
            raise InputError(f"task {self.name!r}: epsilon must be a number >= 0; given {self.epsilon!r}")

    @property
    def can_centre(self) -> bool:
        """All variables add up to 0."""
        return True

    def program(self, source: Source, target: Floats, C: ArrayLike) -> SignedQP:
        """The program for targets (n,) and C, a number or (n,)."""
        y, costs = _checked(source.n, target, C)
        if self.epsilon == 0.0:  # both variables of a row would be the same: one does
            return SignedQP(source, y, 0.0 - costs, costs, groups=Groups((0.0,)))
        p = np.concatenate([y - self.epsilon, y + self.epsilon])
        return SignedQP(source, p, *_halves(costs), groups=Groups((0.0,)), rows=_twice(source.n))


@dataclass(frozen=True)
class NuSVR(Task):
    """Regression with a tube that is found: about a share nu of the rows is outside, see the module docstring."""

    name: ClassVar[str] = "nu-svr"
    nu: float = 0.5

    def __post_init__(self) -> None:
        check_share(self, self.nu)

    @property
    def can_centre(self) -> bool:
        """Both halves together add up to 0."""
        return True

    def check(self, target: Floats, C: Floats) -> None:
        """Refuse an infinite C: the sums of the halves would be."""
        if not np.isfinite(C).all():
            raise InvalidProblem("nu-SVR needs a finite C: its dual variables add up to nu times the sum of all C")

    def program(self, source: Source, target: Floats, C: ArrayLike) -> SignedQP:
        """The program for targets (n,) and C, a number or (n,)."""
        y, costs = _checked(source.n, target, C)
        self.check(y, costs)
        half = 0.5 * self.nu * float(costs.sum())
        codes = np.repeat(np.array([0, 1], dtype=np.int8), source.n)
        groups = Groups((half, -half), codes)
        return SignedQP(source, np.tile(y, 2), *_halves(costs), groups=groups, rows=_twice(source.n))

    def answer(self, qp: SignedQP, solution: Solution) -> Answer:
        """With the half-width epsilon: half the difference of the multipliers."""
        above, below = solution.multipliers
        return Answer(qp.at_rows(solution.beta), solution.bias, epsilon=float(0.5 * (above - below)))


def _halves(costs: Floats) -> tuple[Floats, Floats]:
    """Bounds (2n,) of the variables that draw up, then of those that draw down."""
    zeros = np.zeros_like(costs)
    return np.concatenate([zeros, 0.0 - costs]), np.concatenate([costs, zeros])


def _twice(n: int) -> Floats:
    return np.tile(np.arange(n), 2)


def _checked(n: int, target: Floats, C: ArrayLike) -> tuple[Floats, Floats]:
    """Targets and C_i, (n,) float64 each."""
    y, costs = np.array(target, dtype=np.float64), np.empty(np.shape(target))
    costs[...] = C
    if y.shape != (n,):
        raise InvalidProblem(f"there must be one target per row, ({n},); given {y.shape}")
    if not np.isfinite(y).all():
        raise InvalidProblem("targets must be finite numbers; some are NaN or infinite: leave those rows out")
    if not (costs.min(initial=np.inf) >= 0 and costs.max(initial=0.0) > 0):  # neither is so for a NaN
        raise InvalidProblem("C must be a number > 0, or one number >= 0 per row with at least one > 0")
    return y, costs
