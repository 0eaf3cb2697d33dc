"""SMO on the maximal violating pair: the plainest of the family, first order, with Keerthi's f-cache."""

from dataclasses import dataclass
from typing import ClassVar

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.problem import Bias, Problem
from svmcore.solution import Status
from svmcore.solvers._pairs import PairState
from svmcore.solvers.base import Outcome, Solver, Solves

__all__ = ["MVPSMO"]


@dataclass(frozen=True)
class MVPSMO(Solver):
    """SMO on the maximal violating pair: i = argmin f over I_up, j = argmax f over I_low.

    Stops when b_low <= b_up + tol, that is, Keerthi's 2 tau is our tol. `max_iter` counts pair steps.

    References
    ----------
    Keerthi, Shevade, Bhattacharyya, Murthy (2001), Improvements to Platt's SMO algorithm, Modification 2.

    >>> import numpy as np
    >>> from svmcore.columns import ResidentGram
    >>> problem = Problem(ResidentGram(np.array([[1.0, -1.0], [-1.0, 1.0]])), np.array([1.0, -1.0]), C=10.0)
    >>> MVPSMO().solve(problem).alpha
    array([0.5, 0.5])
    """

    name: ClassVar[str] = "smo-mvp"
    solves: ClassVar[Solves] = Solves(biases=(Bias.FREE,), float32=False)

    def _solve(self, problem: Problem, alpha: Floats, gradient: Floats | None, monitor: Monitor) -> Outcome:
        state, n_iter = PairState(problem, alpha, gradient), 0
        while True:
            status = self.ends(state.kkt_gap(), n_iter, monitor) or state.infeasible()
            if status is not None:
                return Outcome(status, n_iter, alpha)
            steps = state.maximal_steps(self.tol, self.steps_left(n_iter))
            n_iter += steps
            if steps == 0:
                return Outcome(state.infeasible() or Status.STALLED, n_iter, alpha)
