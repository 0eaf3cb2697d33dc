"""The base of all machines: targets to a program, and back."""

import dataclasses
from abc import ABC, abstractmethod
from typing import ClassVar, Literal, Self, TypeAlias

import numpy as np

from svmcore.errors import InputError
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.runtime.plugins import Plugin
from svmcore.solution import Solution
from svmcore.sources.base import Source

__all__ = ["Answer", "Answers", "Task", "check_share"]

Answers: TypeAlias = Literal["labels", "values", "novelty"]


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """What the solution of a program says as a model: f(x) = (sum_i coef_i k(x, x_i) + bias) / scale.

    Attributes
    ----------
    coef
        (n,) coefficients of the rows of K, as they are in the program.
    bias
        b of the program.
    scale
        What a model divides both by: 1, or the margin rho of a nu-SVC.
    epsilon
        Half the width of the tube, where the program finds it (nu-SVR); else None.
    """

    coef: Floats
    bias: float
    scale: float = 1.0
    epsilon: float | None = None


class Task(Plugin, ABC):
    """A machine as data; the fields are its hyperparameters apart from kernel and solver.

    Attributes
    ----------
    answers
        What it is trained on and tells: "labels" of -1 and +1, "values", or "novelty" (its targets mean nothing).
    takes_C
        Whether the size of C changes its answer; False where only the proportions of the C_i do.
    """

    answers: ClassVar[Answers] = "values"
    takes_C: ClassVar[bool] = True

    @abstractmethod
    def program(self, source: Source, target: Floats, C: Floats | float) -> SignedQP:
        """The program over `source` (n rows) for targets (n,) and C_i (n,) >= 0; C_i = 0 leaves a row out."""

    @property
    def can_centre(self) -> bool:
        """Whether all variables of its programs add up to 0, so that the kernel may be taken about a centre."""
        return False

    @property
    def unit(self) -> float:
        """What the variables of its programs add up to, in some unit: `nearest` scales `tol` with it."""
        return 1.0

    def check(self, target: Floats, C: Floats) -> None:
        """Refuse targets and C_i (n,) that have no program, before any kernel work.

        Raises
        ------
        InvalidProblem
            With what was given and what would be feasible.
        """

    def nearest(self, target: Floats, C: Floats, plain: Floats | None = None) -> Self:
        """Itself, or the nearest machine that is feasible for targets and C_i (n,).

        `plain` are the C_i before class weights.
        """
        return self

    def answer(self, qp: SignedQP, solution: Solution) -> Answer:
        """What the solution of its program says."""
        return Answer(qp.at_rows(solution.beta), solution.bias)

    def doubt(self, errors: Floats) -> tuple[float, float]:
        """How far bias and scale of an answer are off at most, where the multipliers (k,) are by `errors`."""
        return sum(errors.tolist()) / max(1, len(errors)), 0.0

    def variables(self, qp: SignedQP, coef: Floats) -> Floats:
        """Variables (m,) of the coefficients (n,) of an answer: where a warm start begins."""
        if qp.rows is None:
            return coef
        shared = coef[qp.rows]
        return np.where(qp.hi > 0, np.maximum(shared, 0.0), np.minimum(shared, 0.0))


def check_share(task: Task, nu: float) -> None:
    """Raise InputError unless 0 < nu <= 1."""
    if not 0.0 < nu <= 1.0:
        raise InputError(f"task {task.name!r}: nu must be above 0 and at most 1; given {nu!r}")
