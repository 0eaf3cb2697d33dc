r"""Nu support vector classification: the share of support vectors is given, the margin rho is found.

.. math::
    \min_{w, b, \rho} \tfrac12 \|w\|^2 + \sum_i c_i \big(\max(0, \rho - y_i f(x_i)) - \nu \rho\big), \qquad
    y_i \in \{-1, +1\}

c_i is the weight of row i; 0 leaves it out. In signed variables p = 0, beta_i is between 0 and y_i c_i, and each class
has a sum: nu sum(c) / 2, and minus that. With the multipliers v+ and v- of the classes b = (v+ + v-) / 2 and
rho = (v- - v+) / 2. As in LIBSVM the model is f / rho, and `tol` bounds the gap of f, before it is rescaled. No class
can give more than its weight, so nu is at most 2 min(sum of a class) / sum(c).

At the optimum nu rho sum(c) = ||w||^2 + losses, so rho is never negative. Where it is 0, to rounding, the classes
cannot be told apart at this nu: w = 0, and the model is f itself.

With the largest nu the lighter class is at its bounds whole, and rho is free upwards from the least optimal one, with b
such that the other class stays on its margin. Beyond that nu the primal falls without end as rho grows: f / rho becomes
the heavier class everywhere. `nearest` takes a way between: rho grows in proportion to what class weights have taken
from nu.

References
----------
Schölkopf, Smola, Williamson, Bartlett (2000), New support vector algorithms, Neural Computation 12, eq. 34-44; Chang,
Lin (2001), Training nu-support vector classifiers: theory and algorithms, Neural Computation 13, sections 2 and 4.
"""

import dataclasses
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from svmcore.errors import InputError, InvalidProblem
from svmcore.points import Floats
from svmcore.qp import Groups, SignedQP
from svmcore.solution import Solution
from svmcore.sources.base import Source
from svmcore.tasks.base import Answer, Answers, Task, check_share

__all__ = ["NuSVC"]

ROUNDED = 1e-12  # relative: a nu this far above the largest one is that one
NO_MARGIN = 1e-14  # of max K sum(abs(beta)): what rounding leaves of a margin of 0


@dataclasses.dataclass(frozen=True)
class NuSVC(Task):
    """nu-SVC with a free bias, see the module docstring."""

    name: ClassVar[str] = "nu-svc"
    answers: ClassVar[Answers] = "labels"
    takes_C: ClassVar[bool] = False
    nu: float = 0.5
    widen: float = 1.0  # factor of a rho that is free upwards

    def __post_init__(self) -> None:
        check_share(self, self.nu)
        if not 1.0 <= self.widen < np.inf:
            raise InputError(f"task {self.name!r}: widen must be a number >= 1; given {self.widen!r}")

    @property
    def can_centre(self) -> bool:
        """Both classes together add up to 0."""
        return True

    @property
    def unit(self) -> float:
        """Return nu: each class adds up to nu / 2 of all weights."""
        return self.nu

    @staticmethod
    def largest(target: Floats, C: Floats) -> float:
        """The largest feasible nu for labels (n,) and weights (n,).

        >>> NuSVC.largest(np.array([1.0, -1.0, -1.0, -1.0]), np.ones(4))
        0.5
        """
        sums = [float(C[target > 0].sum()), float(C[target < 0].sum())]
        return 2.0 * min(sums) / sum(sums) if min(sums) > 0 else 0.0

    def check(self, target: Floats, C: Floats) -> None:
        """Refuse a nu that is infeasible for labels and weights (n,)."""
        most = self.largest(target, C)
        if most == 0.0:
            raise InvalidProblem(
                f"specified nu is infeasible: {self.nu:g} was given, and all samples with positive weights belong to "
                "the same class: give it rows of two"
            )
        if self.nu > most * (1.0 + ROUNDED):
            raise InvalidProblem(
                f"specified nu is infeasible: {self.nu:g} was given; at most {most:.6g}, twice the smaller class's "
                "share of all weights, is feasible: lower nu, or weight the classes"
            )

    def nearest(self, target: Floats, C: Floats, plain: Floats | None = None) -> Self:
        """With the largest feasible nu where this one is too large, see the module docstring."""
        most = self.largest(target, C)
        if not 0.0 < most < self.nu:
            return self
        without = most if plain is None else min(self.nu, self.largest(target, plain))
        return dataclasses.replace(self, nu=most, widen=max(self.widen, without / most))

    def program(self, source: Source, target: Floats, C: ArrayLike) -> SignedQP:
        """The program for labels (n,) in {-1, +1} (a 0 leaves the row out) and weights, a number or (n,).

        Raises
        ------
        InvalidProblem
            For other labels, shapes or weights, and an infeasible nu.
        """
        y, weights = np.array(target, dtype=np.float64), np.empty(np.shape(target))
        weights[...] = C
        _check(source.n, y, weights)
        weights[y == 0] = 0.0
        self.check(y, weights)
        positive, total = y > 0, 0.5 * self.nu * float(weights.sum())
        lo, hi = np.where(positive, 0.0, 0.0 - weights), np.where(positive, weights, 0.0)
        sums = min(total, float(hi.sum())), -min(total, -float(lo.sum()))  # rounding may not ask for more than there is
        codes = np.where(positive, 0, 1).astype(np.int8)
        return SignedQP(source, np.zeros(source.n), lo, hi, groups=Groups(sums, codes))

    def answer(self, qp: SignedQP, solution: Solution) -> Answer:
        """With the margin rho as its scale, 1 where that is 0 to rounding."""
        positive, negative = solution.multipliers
        rho = float(0.5 * (negative - positive))
        size = float(np.abs(qp.diagonal).max(initial=0.0)) * float(np.abs(solution.beta).sum())
        if not rho > NO_MARGIN * size:
            return Answer(solution.beta, solution.bias)
        light = 1.0 if qp.groups.sums[0] >= float(qp.hi.sum()) else -1.0
        shift = (self.widen - 1.0) * rho
        return Answer(solution.beta, solution.bias - light * shift, scale=rho + shift)

    def doubt(self, errors: Floats) -> tuple[float, float]:
        """Of the mean of the two multipliers, and of half their difference, which both are widened."""
        half = float(errors.mean())
        return half + (self.widen - 1.0) * half, self.widen * half


def _check(n: int, y: Floats, weights: Floats) -> None:
    if y.shape != (n,):
        raise InvalidProblem(f"y must have one label per row, ({n},); given {y.shape}")
    if not ((np.abs(y) == 1.0) | (y == 0.0)).all():
        raise InvalidProblem("y must hold -1 and +1 (0 leaves a row out); encode the labels first")
    if not (weights.min(initial=np.inf) >= 0 and np.isfinite(weights.sum())):
        raise InvalidProblem("weights must be finite numbers >= 0: the sums of nu-SVC are shares of them")
