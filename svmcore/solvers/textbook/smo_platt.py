"""Platt's SMO: sweeps over KKT violators, alternately over all rows and over those off their bounds."""

from dataclasses import dataclass
from typing import ClassVar

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import Bias, SignedQP
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, Solver, Solves
from svmcore.solvers.textbook.pairs import PairState

__all__ = ["PlattSMO"]


@dataclass(frozen=True)
class PlattSMO(Solver):
    """SMO with Platt's two heuristics and an error cache E_i = b - s_i.

    First index: the next row of the sweep that violates its KKT condition by more than tol / 2; a sweep over all rows
    is followed by sweeps over the non-bound ones until they change nothing. Second index: the row that maximises
    abs(E_i - E_j) among those that can move with i. Platt looks at the non-bound rows first and then at all in a random
    order, since he caches their errors alone; the cache here has every row, so one scan finds the best of all, and
    half the steps do. Ends when the gap over all rows, looked at after each sweep, is at most tol. `max_iter` counts
    pair steps.

    References
    ----------
    Platt (1998), Sequential minimal optimization, MSR-TR-98-14.
    """

    name: ClassVar[str] = "smo-platt"
    solves: ClassVar[Solves] = Solves(biases=(Bias.FREE,), float32=False)

    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        state, examine_all = PairState(qp, beta, score), True
        while (status := self.ends(state.kkt_gap(), n_iter, monitor)) is None:
            changed, status = self._sweep(state, n_iter, examine_all, monitor)
            n_iter += changed
            if status is not None or (examine_all and not changed):
                return Outcome(status or Status.STALLED, n_iter, beta)
            examine_all = not examine_all and not changed
        return Outcome(status, n_iter, beta)

    def _sweep(self, state: PairState, n_iter: int, examine_all: bool, monitor: Monitor) -> tuple[int, Status | None]:
        """Pass over the rows in order; returns the steps taken and why the solve ends, if it does."""
        gap, changed, i = state.kkt_gap(), 0, 0
        while i < state.qp.m:
            steps, i = state.sweep_steps(i, 0.5 * self.tol, examine_all, self.steps_left(n_iter + changed))
            changed += steps
            status = self.ends(gap, n_iter + changed, monitor) or state.infeasible()
            if status is not None:
                return changed, status
        return changed, None
