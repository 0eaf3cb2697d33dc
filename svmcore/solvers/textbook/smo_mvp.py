"""SMO on the maximal violating pair: the plainest of the family, first order, with Keerthi's f-cache."""

from dataclasses import dataclass
from typing import ClassVar

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import Bias, SignedQP
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, Solver, Solves
from svmcore.solvers.textbook.pairs import PairState

__all__ = ["MVPSMO"]


@dataclass(frozen=True)
class MVPSMO(Solver):
    """SMO on the maximal violating pair: i = argmax s over those that may grow, j = argmin over those that may shrink.

    Stops when b_low <= b_up + tol, that is, Keerthi's 2 tau is our tol. `max_iter` counts pair steps.

    References
    ----------
    Keerthi, Shevade, Bhattacharyya, Murthy (2001), Improvements to Platt's SMO algorithm, Modification 2.

    >>> import numpy as np
    >>> from svmcore.sources import ResidentGram
    >>> from svmcore.tasks import classification
    >>> qp = classification(ResidentGram(np.array([[1.0, -1.0], [-1.0, 1.0]])), np.array([1.0, -1.0]), C=10.0)
    >>> MVPSMO().solve(qp).beta
    array([ 0.5, -0.5])
    """

    name: ClassVar[str] = "smo-mvp"
    solves: ClassVar[Solves] = Solves(biases=(Bias.FREE,), float32=False)

    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        state = PairState(qp, beta, score)
        while True:
            status = self.ends(state.kkt_gap(), n_iter, monitor) or state.infeasible()
            if status is not None:
                return Outcome(status, n_iter, beta)
            steps = state.maximal_steps(self.tol, self.steps_left(n_iter))
            n_iter += steps
            if steps == 0:
                return Outcome(state.infeasible() or Status.STALLED, n_iter, beta)
