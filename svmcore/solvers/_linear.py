"""What the linear classifiers share: the rows of a linear kernel, with a one appended where the bias is penalised."""

import numpy as np

from svmcore.certificate import primal_of
from svmcore.points import Floats
from svmcore.problem import Bias, Problem
from svmcore.solvers.base import box_gap, linear_rows

__all__ = ["LinearRows"]


class LinearRows:
    """Rows x_i, or (x_i, 1) for a PENALISED bias, of the linear classifier f(x) = w'x.

    Attributes
    ----------
    X
        (n, p) or (n, p + 1) float64, C-contiguous.
    inside
        Indices of the rows with C_i > 0.
    """

    def __init__(self, solver: str, problem: Problem) -> None:
        X = linear_rows(solver, problem.columns)
        self.problem = problem
        self.X = np.column_stack([X, np.ones(len(X))]) if problem.bias is Bias.PENALISED else X
        self.C = np.asarray(problem.C)
        self.inside = np.flatnonzero(self.C > 0)

    def weights(self, alpha: Floats) -> Floats:
        """W = sum_i alpha_i y_i x_i of `alpha` (n,)."""
        return self.X.T @ (alpha * self.problem.y)

    def margins(self, w: Floats) -> Floats:
        """y_i w'x_i (n,)."""
        return self.problem.y * (self.X @ w)

    def primal(self, w: Floats, margins: Floats) -> float:
        """1/2 w'w + sum_i C_i loss(margin_i)."""
        return primal_of(self.problem, self.problem.y * margins, float(w @ w))[0]

    def kkt_gap(self, alpha: Floats, margins: Floats) -> float:
        """Largest projected gradient of the dual at `alpha` (n,) with these margins."""
        gradient = margins + self.problem.ridge * alpha - 1.0
        return box_gap(gradient, alpha, self.problem.upper)
