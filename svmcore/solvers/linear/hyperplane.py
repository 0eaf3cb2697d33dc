"""What the linear classifiers share: the rows of a linear kernel, with a one appended where the bias is penalised."""

import numpy as np

from svmcore.points import Floats
from svmcore.primal import primal_at
from svmcore.qp import Bias, SignedQP
from svmcore.solvers.base import Solves, box_gap, linear_rows
from svmcore.tasks.losses import Hinge

__all__ = ["WEIGHTS", "LinearRows"]

NO_MULTIPLIERS = np.empty(0)
WEIGHTS = Solves(  # what steps on w alone admit
    losses=(Hinge,),
    biases=(Bias.PENALISED, Bias.NONE),
    linear_only=True,
    certifies=False,
    warm_starts=False,
    float32=False,
)


class LinearRows:
    """Rows x_i, or (x_i, 1) for a penalised bias, of the linear function f(x) = w'x, w = sum_i beta_i x_i.

    Attributes
    ----------
    X
        (n, p) or (n, p + 1) float64, C-contiguous.
    sign
        (n,) on which side of 0 the box of each variable lies, +1 or -1.
    reach
        (n,) its width: C_i of a classifier.
    inside
        Indices of the variables that may be other than 0.
    """

    def __init__(self, solver: str, qp: SignedQP) -> None:
        self.qp, self.X = qp, linear_rows(solver, qp).dense()
        self.sign = np.where(qp.hi > 0, 1.0, -1.0)
        self.reach = qp.hi - qp.lo
        self.inside = np.flatnonzero(self.reach > 0)

    def weights(self, beta: Floats) -> Floats:
        """W = sum_i beta_i x_i of `beta` (n,)."""
        return self.X.T @ beta

    def outputs(self, w: Floats) -> Floats:
        """w'x_i (n,)."""
        return self.X @ w

    def short(self, outputs: Floats) -> Floats:
        """By how much each output (n,) falls short of its target p: above 0 it costs a loss."""
        return self.sign * (self.qp.p - outputs)

    def primal(self, w: Floats, outputs: Floats) -> float:
        """Primal value at w with its outputs (n,)."""
        return primal_at(self.qp, outputs, float(w @ w), NO_MULTIPLIERS)

    def kkt_gap(self, beta: Floats, outputs: Floats) -> float:
        """Largest projected gradient at `beta` (n,) with these outputs."""
        qp = self.qp
        return box_gap(qp.p - outputs - qp.ridge * beta, beta, qp.lo, qp.hi)
