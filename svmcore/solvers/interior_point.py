"""A primal-dual interior point where K has a factor of low rank: linear kernels of up to a few hundred features.

Pair steps crawl where K has rank r << n; a pass here costs n r^2 whatever the data, and some tens of passes end it.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, Solver, Solves, linear_rows
from svmcore.solvers.interior.iterate import LowRank, minimise
from svmcore.solvers.interior.narrowed import minimise_narrowed, narrows
from svmcore.solvers.interior.program import Program

__all__ = ["InteriorPoint"]

STATUSES = {"converged": Status.CONVERGED, "stalled": Status.STALLED, "infeasible": Status.INFEASIBLE}
AIM = 0.5  # of tol: the proof adds its uncertainty


@dataclass(frozen=True)
class InteriorPoint(Solver):
    """Mehrotra's predictor and corrector on K = GG', G the rows of a linear kernel (n, r).

    Every system is solved through an r x r matrix (Woodbury). The answer is no interior point: its variables are
    snapped to their bounds, the sums repaired, and that is what is judged. `max_iter` counts passes. Of many rows of
    few features a sample is solved first, and then those rows that it leaves in doubt.

    References
    ----------
    Fine, Scheinberg (2001), Efficient SVM training using low-rank kernel representations, JMLR 2; Ferris, Munson
    (2002), Interior-point methods for massive support vector machines, SIAM J. Optim. 13.
    """

    name: ClassVar[str] = "interior-point"
    solves: ClassVar[Solves] = Solves(linear_only=True, psd_only=True, shared_rows=True, two_groups=True, float32=False)

    def takes_factor(self, qp: SignedQP, rank: int) -> bool:
        """Always."""
        return True

    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        if not self.steps_left(n_iter):
            return Outcome(Status.MAX_ITER, n_iter, beta)
        G = linear_rows(self.name, qp)
        passes, ended = [n_iter], [Status.STALLED]

        def stops() -> bool:
            late = 0 <= self.max_iter <= passes[0]
            status = Status.MAX_ITER if late else monitor.stops(passes[0], monitor.last_gap)
            passes[0] += 1
            ended[0] = status or Status.STALLED
            return status is not None

        box = (qp.p, qp.lo, qp.hi, qp.ridge, qp.codes, np.array(qp.groups.sums))
        program, tol, answer = Program(LowRank(G), *box), AIM * self.tol, None
        if narrows(program, G.rank):
            answer = minimise_narrowed(program, tol, stops, beta)
        answer = answer or minimise(program.system, *box, tol, stops, beta)
        return Outcome(STATUSES.get(answer.status, ended[0]), n_iter + answer.n_iter, answer.beta)
