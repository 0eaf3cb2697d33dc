"""Gradient descent on the hinge loss with all rows in every step: the linear classifier to start from."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solvers.base import Outcome, Solver, Solves
from svmcore.solvers.linear.hyperplane import WEIGHTS, LinearRows

__all__ = ["GradientDescent"]


@dataclass(frozen=True)
class GradientDescent(Solver):
    r"""Subgradient descent w <- w - eta g on the primal, g = w - sum_{y_i w'x_i < 1} C_i y_i x_i.

    With eta in [0, 1] every w is a sum of beta_i x_i, beta_i between 0 and y_i C_i: beta_i moves towards y_i C_i where
    the margin is below 1 and towards 0 elsewhere. So each step knows a lower bound of the optimum, the dual at beta,
    and eta = (primal - dual) / ||g||^2 is Polyak's step towards it; it is also the best step of the dual. The answer
    is the iterate with the smallest primal. `max_iter` counts steps; the primal gets within about 1 %, the KKT gap
    rarely to tol.

    References
    ----------
    Polyak (1987), Introduction to optimization, 5.3; Bach (2015), Duality between subgradient and conditional
    gradient methods, SIAM J. Optim. 25.
    """

    name: ClassVar[str] = "gd"
    solves: ClassVar[Solves] = replace(WEIGHTS, hard_margin=False)
    max_iter: int = 10_000

    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        rows = LinearRows(self.name, qp)
        lowest, best = np.inf, beta
        w = rows.weights(beta)
        while True:
            outputs = rows.outputs(w)
            primal = rows.primal(w, outputs)
            if primal < lowest:
                lowest, best = primal, beta.copy()
            status = self.ends(rows.kkt_gap(beta, outputs), n_iter, monitor)
            if status is not None:
                return Outcome(status, n_iter, best)
            target = np.where(rows.short(outputs) > 0.0, rows.sign * rows.reach, 0.0)
            g = w - rows.weights(target)
            eta = min(1.0, (primal - (qp.p @ beta - 0.5 * (w @ w))) / max(g @ g, 1e-300))
            w -= eta * g
            beta += eta * (target - beta)
            n_iter += 1
