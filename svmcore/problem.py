r"""The program that everything here solves, with every sign.

Primal, over w, b with f(x) = w'phi(x) + b:

.. math::  \min_{w, b} \tfrac12 \|w\|^2 + \sum_i C_i \, \mathrm{loss}(y_i f(x_i))

Dual, **minimised** over alpha, with Q_ij = y_i y_j K_ij:

.. math::  \min_\alpha \tfrac12 \alpha'(Q + \mathrm{diag}(ridge)) \alpha - e'\alpha, \qquad 0 \le \alpha \le upper

and y'alpha = 0 if the bias is FREE. Hinge: upper_i = C_i, ridge_i = 0. Squared hinge: upper_i = inf and
ridge_i = 1/(2 C_i). C_i = 0 leaves row i out (upper 0, ridge 0): a fold is a box. C_i = inf is the hard margin.

The decision function is f(x) = sum_i alpha_i y_i K(x_i, x) + bias, **plus** bias. `coef` is always alpha * y.
PENALISED puts the bias inside w: the kernel is K + 1, the box is the only constraint, bias = sum_i coef_i.
"""

import dataclasses
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from svmcore.columns import KernelColumns
from svmcore.errors import InvalidProblem
from svmcore.losses import Hinge, Loss
from svmcore.points import Floats

__all__ = ["Bias", "Problem"]


class Bias(StrEnum):
    """Where the bias b of f(x) = w'phi(x) + b is."""

    FREE = "free"  # outside the norm: y'alpha = 0
    PENALISED = "penalised"  # inside w: K + 1, box only
    NONE = "none"  # b = 0, box only


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """One binary problem over label-free columns of K.

    Parameters
    ----------
    columns
        Source of the columns of K (n, n); it knows no labels, so every problem on the same rows can share it.
    y
        (n,) in {-1, +1}; a 0 leaves the row out (one-vs-one), as C_i = 0 does.
    C
        A number > 0 or (n,) numbers >= 0; inf is the hard margin.
    loss, bias
        See the module docstring.
    psd
        Whether K is positive semi-definite, that is, whether duality bounds exist.

    Raises
    ------
    InvalidProblem
        For other labels, shapes or bounds, or a diagonal that is not finite.
    """

    columns: KernelColumns
    y: Floats
    C: ArrayLike
    loss: Loss = dataclasses.field(default_factory=Hinge)
    bias: Bias = Bias.FREE
    psd: bool = True

    upper: Floats = dataclasses.field(init=False, repr=False)
    ridge: Floats = dataclasses.field(init=False, repr=False)
    diagonal: Floats = dataclasses.field(init=False, repr=False)  # of K + shift, float64

    def __post_init__(self) -> None:
        y = np.array(self.y, dtype=np.float64)
        C = np.empty_like(y)
        C[...] = self.C
        left_out = y == 0
        self._check(y, C, left_out)
        C[left_out] = 0.0
        y[left_out] = 1.0
        values = {"y": y, "C": C, "loss": Loss.create(self.loss), "bias": Bias(self.bias)}
        for key, value in values.items():
            object.__setattr__(self, key, value)
        diagonal = np.asarray(self.columns.diagonal(), dtype=np.float64)
        if not -np.inf < diagonal.min(initial=0.0) <= diagonal.max(initial=0.0) <= np.finfo(self.columns.dtype).max:
            raise InvalidProblem("the kernel overflows on these rows: scale the data, or lower gamma or the degree")
        object.__setattr__(self, "upper", self.loss.upper(C))
        object.__setattr__(self, "ridge", self.loss.ridge(C))
        object.__setattr__(self, "diagonal", diagonal + self.shift)

    def _check(self, y: Floats, C: Floats, left_out: Floats) -> None:
        if y.shape != (self.columns.n,):
            raise InvalidProblem(f"y must have one label per row, ({self.columns.n},); given {y.shape}")
        if not ((np.abs(y) == 1.0) | left_out).all():
            raise InvalidProblem("y must hold -1 and +1 (0 leaves a row out); encode the labels first")
        if not (C.min(initial=np.inf) >= 0 and C.max(initial=0.0) > 0):  # neither is so for a NaN
            raise InvalidProblem("C must be a number > 0, or one number >= 0 per row with at least one > 0")

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.columns.n

    @property
    def shift(self) -> float:
        """What is added to every entry of K: 1 for a PENALISED bias."""
        return 1.0 if self.bias is Bias.PENALISED else 0.0

    @property
    def hard_margin(self) -> bool:
        """Whether some C_i is infinite."""
        return bool(np.asarray(self.C).max() == np.inf)
