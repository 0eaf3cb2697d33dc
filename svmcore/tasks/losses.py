"""Losses of a margin, by what they do to the program: a bound of abs(beta), and a ridge on the diagonal of K."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from svmcore.points import Floats
from svmcore.runtime.plugins import Plugin

__all__ = ["Hinge", "Loss", "SquaredHinge"]


class Loss(Plugin):
    """loss(m) of the margin m = y f(x), and its dual form for the weights C_i."""

    @abstractmethod
    def __call__(self, margins: Floats) -> Floats:
        """Loss of each margin y_i f(x_i), shape (n,)."""

    @abstractmethod
    def upper(self, C: Floats) -> Floats:
        """Upper bounds of abs(beta) (n,); 0 where C_i = 0."""

    @abstractmethod
    def ridge(self, C: Floats) -> Floats:
        """What is added to the diagonal of K (n,); 0 where C_i = 0."""


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, 1 - m): 0 <= y_i beta_i <= C_i, no ridge.

    >>> Hinge()(np.array([-1.0, 0.5, 2.0]))
    array([2. , 0.5, 0. ])
    """

    name: ClassVar[str] = "hinge"

    def __call__(self, margins: Floats) -> Floats:
        """max(0, 1 - m), shape (n,)."""
        return np.maximum(0.0, 1.0 - margins)

    def upper(self, C: Floats) -> Floats:
        """C_i, shape (n,)."""
        return C.copy()

    def ridge(self, C: Floats) -> Floats:
        """Zeros (n,)."""
        return np.zeros_like(C)


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """max(0, 1 - m)^2: y_i beta_i >= 0 without bound, ridge 1 / (2 C_i) (Zaki & Meira 2014, eq. 23.51).

    >>> SquaredHinge().ridge(np.array([0.0, 0.5, np.inf]))
    array([0., 1., 0.])
    """

    name: ClassVar[str] = "squared_hinge"

    def __call__(self, margins: Floats) -> Floats:
        """max(0, 1 - m)^2, shape (n,)."""
        return np.maximum(0.0, 1.0 - margins) ** 2

    def upper(self, C: Floats) -> Floats:
        """Infinity, or 0 where the row is left out, shape (n,)."""
        return np.where(C > 0, np.inf, 0.0)

    def ridge(self, C: Floats) -> Floats:
        """1 / (2 C_i), shape (n,); 0 where C_i = 0 or infinite."""
        return np.divide(0.5, C, out=np.zeros_like(C), where=C > 0)
