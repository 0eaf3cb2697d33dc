"""Stochastic gradient ascent on the dual: one alpha a step, with the step that makes its gradient zero."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from svmcore._numba import njit
from svmcore.columns import lookup
from svmcore.errors import InputError
from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.problem import Bias, Problem
from svmcore.solution import Status
from svmcore.solvers._pairs import not_separable, with_lookup
from svmcore.solvers.base import Outcome, Solver, Solves, box_gap, gradient_at

__all__ = ["DualAscent"]

STEP_FLOPS = 2e7  # of one compiled pass: a few milliseconds
CHUNK = 256  # columns looked up together


@dataclass(frozen=True)
class DualAscent(Solver):
    """alpha_k <- alpha_k + eta_k (1 - y_k f(x_k) - ridge_k alpha_k), clipped to the box; eta_k = 1 / (K_kk + ridge_k).

    The rows come in a new random order every epoch, or as they are if not `shuffle`. The bias is inside w (K + 1) or
    zero, so the box is the only constraint. An epoch that saw no violation above tol ends it, once the gap over all
    rows agrees. `max_iter` counts epochs.

    References
    ----------
    Zaki, Meira (2014), Data mining and analysis, Algorithm 23.1; there the loop ends when an epoch moves alpha by at
    most epsilon.
    """

    name: ClassVar[str] = "dual-ascent"
    solves: ClassVar[Solves] = Solves(biases=(Bias.PENALISED, Bias.NONE), float32=False)
    shuffle: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.shuffle, bool):
            raise InputError(f"solver {self.name!r}: shuffle must be true or false; given {self.shuffle!r}")

    def _solve(self, problem: Problem, alpha: Floats, gradient: Floats | None, monitor: Monitor) -> Outcome:
        rng, epoch, order = np.random.default_rng(self.seed), 0, np.flatnonzero(problem.upper > 0)
        gradient = gradient_at(problem, alpha) if gradient is None else gradient
        ascent = _Ascent(problem, alpha, problem.y * gradient)
        gap = ascent.kkt_gap()
        while (status := self.ends(gap, epoch, monitor)) is None:
            epoch += 1
            gap, status = ascent.epoch(rng.permutation(order) if self.shuffle else order, epoch, gap, monitor)
            if status is not None:
                break
            if gap <= self.tol:
                gap = ascent.kkt_gap()
        return Outcome(status, epoch, alpha)


class _Ascent:
    """alpha (n,), changed in place, and f = y gradient (n,), as in `_pairs`."""

    def __init__(self, problem: Problem, alpha: Floats, f: Floats) -> None:
        self.problem, self.alpha, self.f = problem, alpha, f
        self.columns = with_lookup(problem.columns)
        self.diagonal, self.hard_margin = problem.diagonal + problem.ridge, problem.hard_margin
        self.step = max(1, min(CHUNK, getattr(self.columns, "capacity", CHUNK), int(STEP_FLOPS / problem.n)))

    def kkt_gap(self) -> float:
        """Largest projected gradient over all rows."""
        return box_gap(self.problem.y * self.f, self.alpha, self.problem.upper)

    def epoch(self, order: Floats, epoch: int, gap: float, monitor: Monitor) -> tuple[float, Status | None]:
        """Visit every row of `order`; returns the largest violation met, and why the solve ends, if it does."""
        p, worst = self.problem, 0.0
        for start in range(0, len(order), self.step):
            part = order[start : start + self.step]
            K, rows = lookup(self.columns, part)
            worst = ascent_pass(K, rows, part, self.diagonal, p.shift, p.ridge, p.y, p.upper, self.alpha, self.f, worst)
            if worst == np.inf:
                return gap, Status.INFEASIBLE
            status = monitor.paced(epoch, gap)
            if status is not None:
                return gap, status
        if self.hard_margin and not_separable(p, self.alpha, self.f):
            return worst, Status.INFEASIBLE
        return worst, None


@njit
def ascent_pass(K, rows, order, diagonal, shift, ridge, y, upper, alpha, f, worst):  # type: ignore[no-untyped-def]
    """Steps on the rows `order`, column order[r] being K[rows[r]]; returns the worst violation met (inf: no bound)."""
    for r in range(len(order)):
        k, column = order[r], K[rows[r]]
        gradient = y[k] * f[k]
        new = min(max(alpha[k] - gradient / diagonal[k], 0.0), upper[k])
        if new == np.inf:
            return np.inf
        if new != alpha[k]:
            worst = max(worst, abs(gradient))
            t = y[k] * (new - alpha[k])
            alpha[k] = new
            for i in range(len(f)):
                f[i] += t * (np.float64(column[i]) + shift)
            f[k] += t * ridge[k]
    return worst
