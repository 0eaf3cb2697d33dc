r"""C-support vector classification: hinge and squared hinge, with a free, a penalised or no bias.

.. math::  \min_{w, b} \tfrac12 \|w\|^2 + \sum_i C_i \, \mathrm{loss}(y_i f(x_i)), \qquad y_i \in \{-1, +1\}

In the signed variables beta_i = y_i alpha_i it is the program of `svmcore.qp` with p = y and a box on the side of y.
The hinge has beta_i between 0 and y_i C_i; the squared hinge no bound and ridge_i = 1 / (2 C_i). A free bias is one
group with sum 0; a penalised one adds 1 to K. C_i = 0 leaves a row out: a fold is a box. C_i = inf is a hard margin.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from svmcore.errors import InvalidProblem
from svmcore.passes.proof.boxes import box_of_labels, costs_of_labels
from svmcore.points import Floats
from svmcore.qp import NO_GROUPS, Bias, Groups, SignedQP
from svmcore.sources.base import Source
from svmcore.tasks.base import Answers, Task
from svmcore.tasks.losses import Hinge, Loss

__all__ = ["SVC", "classification"]

BALANCED = Groups((0.0,))  # of a free bias


@dataclass(frozen=True)
class SVC(Task):
    """C-SVC with a loss and a bias, see the module docstring."""

    name: ClassVar[str] = "svc"
    answers: ClassVar[Answers] = "labels"
    loss: Any = field(default_factory=Hinge)
    bias: Bias = Bias.FREE

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", Loss.create(self.loss))
        object.__setattr__(self, "bias", Bias(self.bias))

    @property
    def can_centre(self) -> bool:
        """With a free bias all variables add up to 0."""
        return self.bias is Bias.FREE

    def program(self, source: Source, target: Floats, C: ArrayLike) -> SignedQP:
        """The program for labels (n,) in {-1, +1} (a 0 leaves the row out) and C, a number or (n,).

        Raises
        ------
        InvalidProblem
            For other labels, shapes or C.
        """
        y, costs = np.ascontiguousarray(target, dtype=np.float64), np.empty(np.shape(target))
        costs[...] = C
        _check(source.n, y, costs)
        p, lo, hi = np.empty((3, source.n))
        box_of_labels(y, self.loss.upper(costs), p, lo, hi)
        groups = BALANCED if self.bias is Bias.FREE else NO_GROUPS
        shift = 1.0 if self.bias is Bias.PENALISED else 0.0
        return SignedQP(source, p, lo, hi, self.loss.ridge(costs), groups, shift=shift)


def classification(
    source: Source, y: Floats, C: ArrayLike, loss: Loss | str = "hinge", bias: Bias | str = Bias.FREE
) -> SignedQP:
    """The program of `SVC(loss, bias)`: labels y (n,) in {-1, 0, +1}, C a number or (n,).

    >>> from svmcore.sources import ResidentGram
    >>> qp = classification(ResidentGram(np.eye(2)), np.array([1.0, -1.0]), C=10.0)
    >>> qp.lo, qp.hi, qp.groups.sums
    (array([  0., -10.]), array([10.,  0.]), (0.0,))
    """
    return SVC(loss, Bias(bias)).program(source, y, C)


def _check(n: int, y: Floats, C: Floats) -> None:
    """Refuse what is no program; C of a label of 0 becomes 0."""
    if y.shape != (n,):
        raise InvalidProblem(f"y must have one label per row, ({n},); given {y.shape}")
    signs, positive = costs_of_labels(y, C)
    if not signs:
        raise InvalidProblem("y must hold -1 and +1 (0 leaves a row out); encode the labels first")
    if not positive:
        raise InvalidProblem("C must be a number > 0, or one number >= 0 per row with at least one > 0")
