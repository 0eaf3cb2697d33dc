"""The perceptron: any hyperplane without mistakes, and no end where there is none. It knows neither C nor a margin."""

from dataclasses import dataclass, replace
from typing import ClassVar

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.runtime.compiled import njit
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, Solver, Solves
from svmcore.solvers.linear.hyperplane import WEIGHTS, LinearRows

__all__ = ["Perceptron"]


@dataclass(frozen=True)
class Perceptron(Solver):
    """Where y_i w'x_i <= 0: w <- w + y_i x_i; until a pass over all rows finds no mistake.

    With an offset the rows are (x_i, 1), that is, bias=penalised. abs(beta_i) counts the updates on row i, so that w is
    the sum of beta_i x_i. It solves another problem than the SVM's: C_i > 0 only says that row i takes part, beta
    may leave the box, no bound of the SVM's optimum follows (relative_gap is null), and without a mistake left the
    status is STALLED, since its KKT gap is not what tol asks for. `max_iter` counts passes.

    References
    ----------
    Rosenblatt (1958), The perceptron, Psychological Review 65.
    """

    name: ClassVar[str] = "perceptron"
    solves: ClassVar[Solves] = replace(WEIGHTS, bounds=False)
    max_iter: int = 1000

    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        rows = LinearRows(self.name, qp)
        w = rows.weights(beta)
        while True:
            status = self.ends(rows.kkt_gap(beta, rows.outputs(w)), n_iter, monitor)
            if status is not None:
                return Outcome(status, n_iter, beta)
            if not perceptron_pass(rows.X, rows.sign, rows.inside, w, beta):
                return Outcome(Status.STALLED, n_iter, beta)
            n_iter += 1


@njit
def perceptron_pass(X, sign, order, w, beta):  # type: ignore[no-untyped-def]
    """Visit the rows `order` once, changing `w` and `beta` at every mistake; returns the number of mistakes."""
    mistakes = 0
    for i in order:
        product = 0.0
        for k in range(len(w)):
            product += w[k] * X[i, k]
        if sign[i] * product <= 0.0:
            beta[i] += sign[i]
            mistakes += 1
            for k in range(len(w)):
                w[k] += sign[i] * X[i, k]
    return mistakes
