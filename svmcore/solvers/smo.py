"""The production solver: SMO on working sets, over any source of columns.

A round (`svmcore.solvers.rounds`) adds the worst violators of both ends to the working set, solves the program
restricted to it on the contiguous square of K (`svmcore.solvers.set_steps`), and applies what changed to the scores of
all rows in one pass. A large square is of 16 bits (`svmcore.squares`); the scores of all rows are not. Rows that are
far from moving are left out where columns are costly (`svmcore.solvers.shrinking`).
"""

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solvers.base import Outcome, Solver, Solves
from svmcore.solvers.rounds import Aims, Rounds
from svmcore.solvers.row_steps import begins_on_rows
from svmcore.solvers.set_steps import FEW
from svmcore.solvers.shrinking import Shrinking, can_shrink
from svmcore.solvers.working_set import LARGEST, PADDING
from svmcore.state import MemoryState

__all__ = ["SMO"]

AIM = 0.7  # of tol, with float32 columns: what their rounding moves is seen by the proof, and costs another round


@dataclasses.dataclass(frozen=True)
class SMO(Solver):
    """Sequential minimal optimisation with second-order working sets.

    Parameters
    ----------
    tol, max_iter, time_limit
        See `Solver`; `max_iter` counts pair steps.
    working_set
        Most variables of a working set, at least 2.
    newcomers
        Variables that a round adds to it, more where the set is large already; at least 2.

    References
    ----------
    Fan, Chen, Lin (2005), Working set selection using second order information, JMLR 6, WSS 2; the rounds are those
    of Joachims (1999), Making large-scale SVM learning practical.

    >>> from svmcore.sources import ResidentGram
    >>> from svmcore.tasks import classification
    >>> qp = classification(ResidentGram(np.array([[1.0, -1.0], [-1.0, 1.0]])), np.array([1.0, -1.0]), C=10.0)
    >>> SMO().solve(qp).beta
    array([ 0.5, -0.5])
    """

    name: ClassVar[str] = "smo"
    solves: ClassVar[Solves] = Solves(shared_rows=True, two_groups=True, shards=True)
    working_set: int = LARGEST
    newcomers: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_whole("working_set", self.working_set, 2)
        self._check_whole("newcomers", self.newcomers, 2)

    @classmethod
    def square_bytes(cls, m: int, dtype: DTypeLike) -> int:
        """Bytes of the square of the largest working set among m variables."""
        q = min(cls.working_set, m)
        return int((1.0 + FEW**2) * q * (q + PADDING)) * np.dtype(dtype).itemsize

    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        if can_shrink(qp):
            together = qp.source.shares_passes
            shrinking = Shrinking(self._rounds, self.tol, _aim(qp, self.tol), monitor, together)
            return shrinking.solve(qp, beta, score, n_iter)
        return self._rounds(qp, beta, score, monitor, n_iter, self.tol)

    def shares(self, qp: SignedQP) -> int:
        """Of the source's, where rows are left out: then programs have few columns in common.

        One that has a time limit does not wait for others.
        """
        return qp.source.shares if can_shrink(qp) and self.time_limit is None else 0

    def begins_anew(self, qp: SignedQP) -> bool:
        """Where its first steps are on K itself."""
        return begins_on_rows(qp)

    def _rounds(
        self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int, tol: float
    ) -> Outcome:
        """Solve to `tol` over all rows of `qp`."""
        state = qp.source.state(qp, beta, score) or MemoryState(qp, beta, score)
        aims = Aims(_aim(qp, tol), self.working_set, self.newcomers, rough=tol != self.tol)
        try:
            return Rounds(self, aims, qp, state, monitor, n_iter).run()
        finally:
            state.end()


def _aim(qp: SignedQP, tol: float) -> float:
    """The gap to solve for."""
    return tol * (AIM if qp.source.dtype == np.float32 else 1.0)
