"""What a training of several programs gives."""

import dataclasses

from svmcore.approximation import ExactBound
from svmcore.model import Model
from svmcore.points import Floats
from svmcore.solution import Solution
from svmcore.tasks import Answer
from svmcore.train.doubt import Doubts
from svmcore.train.posing.plan import Plan

__all__ = ["Training"]


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """Solutions of all problems of a training set, in terms of its original rows.

    Attributes
    ----------
    model
        Over the distinct support vectors, kernel parameters numeric.
    solutions, answers
        One per program; their vectors speak of the distinct rows.
    support
        (n_sv,) original rows with a non-zero coefficient, ascending.
    coef
        (k, n_sv) coefficients of those rows, split over identical ones in proportion to their weights.
    vector
        (n_sv,) which support vector of `model` each of those rows is a copy of.
    held_out
        Of each problem, if a recipe's seed asks for them: (decision values of its rows by models that have not seen
        them, whether the row is of the positive class), which probabilities are fitted to.
    plan
        How K was served.
    doubts
        How far decision values may be from the exact optimum's; None of a model whose training is not known, and of
        an approximation.
    bounds
        Of an approximation: what its answers prove of the exact optimum of each problem.
    """

    model: Model
    solutions: tuple[Solution, ...]
    answers: tuple[Answer, ...]
    support: Floats
    coef: Floats
    vector: Floats
    held_out: tuple[tuple[Floats, Floats], ...]
    plan: Plan
    doubts: Doubts | None = None
    bounds: tuple[ExactBound, ...] = ()
