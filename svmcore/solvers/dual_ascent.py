"""Stochastic gradient ascent on the dual: one variable a step, with the step that makes its gradient zero."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from svmcore.errors import InputError
from svmcore.monitor import Monitor
from svmcore.passes.coordinates import coordinate_pass
from svmcore.points import Floats
from svmcore.qp import Bias, SignedQP
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, Solver, Solves, box_gap
from svmcore.solvers.textbook.pairs import CACHE_BYTES
from svmcore.sources.cached import kept
from svmcore.state import MemoryState

__all__ = ["DualAscent"]

STEP_FLOPS = 2e7  # of one compiled pass: a few milliseconds
CHUNK = 256  # columns looked up together


@dataclass(frozen=True)
class DualAscent(Solver):
    """beta_k <- beta_k + eta_k s_k, clipped to the box; eta_k = 1 / (K_kk + ridge_k), s_k the score of `svmcore.qp`.

    For a classifier that is Algorithm 23.1's alpha_k <- alpha_k + eta_k (1 - y_k f(x_k) - ridge_k alpha_k). Where
    K_kk + ridge_k is not positive, the step goes to the end of the box.

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

    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        rng, order = np.random.default_rng(self.seed), np.flatnonzero(qp.hi > qp.lo)
        ascent = _Ascent(qp, beta, score)
        gap = ascent.kkt_gap()
        while (status := self.ends(gap, n_iter, monitor)) is None:
            n_iter += 1
            gap, status = ascent.epoch(rng.permutation(order) if self.shuffle else order, n_iter, gap, monitor)
            if status is not None:
                break
            if gap <= self.tol:
                gap = ascent.kkt_gap()
        return Outcome(status, n_iter, beta)


class _Ascent:
    """beta (n,), changed in place, and the scores (n,)."""

    def __init__(self, qp: SignedQP, beta: Floats, score: Floats | None) -> None:
        self.qp, self.beta = qp, beta
        self.score = MemoryState(qp, beta, score).part(np.arange(qp.m)).score
        self.source = kept(qp.source, CACHE_BYTES)
        self.step = max(1, min(CHUNK, self.source.capacity, int(STEP_FLOPS / qp.m)))

    def kkt_gap(self) -> float:
        """Largest projected gradient over all variables."""
        return box_gap(self.score, self.beta, self.qp.lo, self.qp.hi)

    def epoch(self, order: Floats, epoch: int, gap: float, monitor: Monitor) -> tuple[float, Status | None]:
        """Visit every variable of `order`; returns the largest violation met, and why the solve ends, if it does."""
        qp, worst, moved = self.qp, 0.0, 0
        for start in range(0, len(order), self.step):
            part = order[start : start + self.step]
            K, rows = self.source.lookup(part)
            worst, steps = coordinate_pass(
                K, rows, part, qp.diagonal, qp.shift, qp.ridge, qp.lo, qp.hi, self.beta, self.score, worst
            )
            moved += steps
            if worst == np.inf:
                return gap, Status.INFEASIBLE if qp.unbounded.any() else Status.STALLED
            status = monitor.paced(epoch, gap)
            if status is not None:
                return gap, status
        return self._judged(worst, moved)

    def _judged(self, worst: float, moved: int) -> tuple[float, Status | None]:
        qp, beta = self.qp, self.beta
        if qp.unbounded.any():
            norm2 = float(beta @ (qp.p - self.score - qp.ridge * beta))
            if not Solver.separates(qp, beta, norm2):
                return worst, Status.INFEASIBLE
        return worst, None if moved or worst == 0.0 else Status.STALLED
