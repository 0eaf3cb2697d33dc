"""Stochastic gradient descent on the hinge loss: one row a step, in a new random order every epoch."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.runtime.compiled import njit
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, Solver, Solves
from svmcore.solvers.linear.hyperplane import WEIGHTS, LinearRows

__all__ = ["SGD"]

STEP_FLOPS = 2e7  # of one compiled pass: a few milliseconds


@dataclass(frozen=True)
class SGD(Solver):
    r"""Stochastic subgradient descent: w <- (1 - eta) w + eta n C_i y_i x_i where y_i w'x_i < 1.

    eta = e / (the sum of the epoch numbers of all steps so far), e = 1, 2, ... in epoch e, so that w is the average of
    the subgradients, recent epochs weighing more. Every epoch visits each row once: at its end beta_i = y_i C_i
    times the weighted share of epochs in which row i fell short of its margin, which lies in the box, and the primal
    and dual at beta bound the optimum. The answer is the epoch with the smallest primal. `max_iter` counts epochs.

    References
    ----------
    Shalev-Shwartz, Singer, Srebro (2007), Pegasos; Lacoste-Julien, Schmidt, Bach (2012), arXiv:1212.2002, for the
    weights.
    """

    name: ClassVar[str] = "sgd"
    solves: ClassVar[Solves] = replace(WEIGHTS, hard_margin=False)
    max_iter: int = 1000
    seed: int = 0

    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        rows, rng = LinearRows(self.name, qp), np.random.default_rng(self.seed)
        lowest, best = np.inf, beta
        hits, u = np.zeros(qp.m), np.zeros(rows.X.shape[1])
        while True:
            w = u / max(_weight(n_iter), 1.0)
            outputs = rows.outputs(w)
            primal = rows.primal(w, outputs)
            if primal < lowest:
                lowest, best = primal, beta
            gap = rows.kkt_gap(beta, outputs)
            status = self.ends(gap, n_iter, monitor)
            if status is None:
                n_iter += 1
                status = _epoch(rows, n_iter, rng.permutation(rows.inside), u, hits, gap, monitor)
            if status is not None:
                return Outcome(status, n_iter, best)
            beta = rows.sign * rows.reach * hits / _weight(n_iter)


def _weight(epoch: int) -> float:
    """1 + 2 + ... + epoch."""
    return 0.5 * epoch * (epoch + 1)


def _epoch(
    rows: LinearRows, epoch: int, order: Floats, u: Floats, hits: Floats, gap: float, monitor: Monitor
) -> Status | None:
    """Visit every row of `order` once; changes `u` and `hits` in place."""
    n, step = len(order), max(1, int(STEP_FLOPS / rows.X.shape[1]))
    force, needed = rows.sign * rows.reach, rows.sign * rows.qp.p
    for start in range(0, n, step):
        done = _weight(epoch - 1) + epoch * start / n
        part = order[start : start + step]
        sgd_pass(rows.X, rows.sign, needed, force, part, float(epoch), epoch / n, done, u, hits)
        status = monitor.paced(epoch, gap)
        if status is not None and start + step < n:
            return status
    return None


@njit
def sgd_pass(X, sign, needed, force, order, epoch, share, done, u, hits):  # type: ignore[no-untyped-def]
    """Steps on the rows `order`; w = u / done is kept as the weighted sum u of subgradients and never rescaled."""
    n_features = X.shape[1]
    for i in order:
        product = 0.0
        for k in range(n_features):
            product += u[k] * X[i, k]
        if sign[i] * product <= done * needed[i]:
            hits[i] += epoch
            for k in range(n_features):
                u[k] += epoch * force[i] * X[i, k]
        done += share
