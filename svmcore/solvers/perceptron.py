"""The perceptron: any hyperplane without mistakes, and no end where there is none. It knows neither C nor a margin."""

from dataclasses import dataclass
from typing import ClassVar

from svmcore._numba import njit
from svmcore.losses import Hinge
from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.problem import Bias, Problem
from svmcore.solution import Status
from svmcore.solvers._linear import LinearRows
from svmcore.solvers.base import Outcome, Solver, Solves

__all__ = ["Perceptron"]


@dataclass(frozen=True)
class Perceptron(Solver):
    """Where y_i w'x_i <= 0: w <- w + y_i x_i; until a pass over all rows finds no mistake.

    With an offset the rows are (x_i, 1), that is, bias=penalised. alpha_i counts the updates on row i, so that w is the
    sum of alpha_i y_i x_i. It solves another problem than the SVM's: C_i > 0 only says that row i takes part, alpha
    may leave the box, no bound of the SVM's optimum follows (relative_gap is null), and without a mistake left the
    status is STALLED, since its KKT gap is not what tol asks for. `max_iter` counts passes.

    References
    ----------
    Rosenblatt (1958), The perceptron, Psychological Review 65.
    """

    name: ClassVar[str] = "perceptron"
    solves: ClassVar[Solves] = Solves(
        losses=(Hinge,),
        biases=(Bias.PENALISED, Bias.NONE),
        linear_only=True,
        certifies=False,
        bounds=False,
        warm_starts=False,
        float32=False,
    )
    max_iter: int = 1000

    def _solve(self, problem: Problem, alpha: Floats, gradient: Floats | None, monitor: Monitor) -> Outcome:
        rows, n_iter = LinearRows(self.name, problem), 0
        w = rows.weights(alpha)
        while True:
            status = self.ends(rows.kkt_gap(alpha, rows.margins(w)), n_iter, monitor)
            if status is not None:
                return Outcome(status, n_iter, alpha)
            if not perceptron_pass(rows.X, problem.y, rows.inside, w, alpha):
                return Outcome(Status.STALLED, n_iter, alpha)
            n_iter += 1


@njit
def perceptron_pass(X, y, order, w, alpha):  # type: ignore[no-untyped-def]
    """Visit the rows `order` once, changing `w` and `alpha` at every mistake; returns the number of mistakes."""
    mistakes = 0
    for i in order:
        product = 0.0
        for k in range(len(w)):
            product += w[k] * X[i, k]
        if y[i] * product <= 0.0:
            alpha[i] += 1.0
            mistakes += 1
            for k in range(len(w)):
                w[k] += y[i] * X[i, k]
    return mistakes
