"""Simplified SMO: every KKT violator is paired with a random row. It teaches; it promises nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import Bias, SignedQP
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, Solver, Solves
from svmcore.solvers.textbook.pairs import PairState

__all__ = ["SimplifiedSMO", "partners"]


@dataclass(frozen=True)
class SimplifiedSMO(Solver):
    """SMO with a random second index; ends after `max_passes` passes in a row that changed nothing.

    A row is a violator if it misses the KKT conditions by more than tol / 2 at the threshold b, and a step counts if
    beta_j moves by at least `min_change`. Nothing guarantees that the last beta is optimal: if the gap over all rows
    is still above tol, the status is STALLED. `max_iter` counts pair steps.

    References
    ----------
    The simplified SMO of the Stanford CS 229 notes (2009), where pairs without curvature are left out; here they go to
    the better end of their segment.
    """

    name: ClassVar[str] = "smo-simplified"
    solves: ClassVar[Solves] = Solves(biases=(Bias.FREE,), hard_margin=False, certifies=False, float32=False)
    max_passes: int = 5
    min_change: float = 1e-5
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_whole("max_passes", self.max_passes, 1)
        self._check("min_change", self.min_change, 0.0)

    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        state, draws, passes = PairState(qp, beta, score), partners(qp.m, self.seed), 0
        while (status := self.ends(state.kkt_gap(), n_iter, monitor)) is None and passes < self.max_passes:
            changed, status = self._pass(state, draws, n_iter, monitor)
            n_iter, passes = n_iter + changed, 0 if changed else passes + 1
            if status is not None:
                break
        return Outcome(status or Status.STALLED, n_iter, beta)

    def _pass(self, state: PairState, draws: Iterator[int], n_iter: int, monitor: Monitor) -> tuple[int, Status | None]:
        """Pair every violator with a random row; returns the steps taken and why the solve ends, if it does."""
        gap, changed, tau = state.kkt_gap(), 0, 0.5 * self.tol
        i = state.next_violator(0, tau, examine_all=True)
        while i < state.qp.m:
            j = next(draws)
            changed += state.step(i, j + (j >= i), self.min_change) != 0.0
            status = self.ends(gap, n_iter + changed, monitor)
            if status is not None:
                return changed, status
            i = state.next_violator(i + 1, tau, examine_all=True)
        return changed, None


def partners(n: int, seed: int) -> Iterator[int]:
    """Endless draws from 0 ... n - 2; j >= i stands for j + 1, so that j is never i.

    >>> draws = partners(3, seed=0)
    >>> [next(draws) for _ in range(4)]
    [1, 1, 1, 0]
    """
    rng = np.random.default_rng(seed)
    while True:
        yield from rng.integers(n - 1, size=1024).tolist()
