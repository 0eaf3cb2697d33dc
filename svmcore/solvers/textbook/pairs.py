r"""What the textbook's SMO solvers share: the variables, their scores, and the exact step on one pair.

A step grows beta_i and shrinks beta_j by the same t, which keeps their sum; in the bounds it is the
t = min(hi_i - beta_i, beta_j - lo_j, (s_i - s_j) / eta) that is best. Which pair, and when to stop, is what the solvers
differ in. Keerthi's f_i is -s_i.

References
----------
Keerthi, Shevade, Bhattacharyya, Murthy (2001), Improvements to Platt's SMO algorithm, Neural Computation 13.
"""

from typing import NamedTuple

import numpy as np

from svmcore.passes.steps.box import FAR
from svmcore.passes.steps.textbook_pairs import (
    farthest,
    maximal_pass,
    next_violator,
    pair_extremes,
    step_pass,
    sweep_pass,
)
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solution import Status
from svmcore.solvers.base import Solver
from svmcore.sources.cached import kept
from svmcore.state import MemoryState

__all__ = ["CACHE_BYTES", "PairState"]

CACHE_BYTES = 256 << 20  # of columns, for a source that keeps none
PASS_FLOPS = 1e7  # of one compiled pass: a few milliseconds
LOOKS = 64  # steps with unbounded variables between two looks whether they have a minimum


class PairArrays(NamedTuple):
    """What the compiled passes work on, all (n,) float64; beta, score, up, low change in place.

    `up` is 0 for the variables that can grow, `low` for those that can shrink, else FAR: a scan subtracts them instead
    of branching.
    """

    beta: Floats
    score: Floats
    up: Floats
    low: Floats
    lo: Floats
    hi: Floats
    ridge: Floats
    diagonal: Floats


class PairState:
    """beta (n,), changed in place, and the scores (n,) of one program.

    Attributes
    ----------
    threshold
        b of f(x) + b, from the last pair: the mean of the two scores, or the one of a free variable.
    unbounded
        Whether a step met no bound and no curvature: a hard margin that nothing separates.
    """

    def __init__(self, qp: SignedQP, beta: Floats, score: Floats | None) -> None:
        self.qp, self.hard = qp, bool(qp.unbounded.any())
        self.source = kept(qp.source, CACHE_BYTES)
        self.K = self.source.whole
        self.arrays = PairArrays(
            beta=beta,
            score=MemoryState(qp, beta, score).part(np.arange(qp.m)).score,
            up=np.where(beta < qp.hi, 0.0, FAR),
            low=np.where(beta > qp.lo, 0.0, FAR),
            lo=qp.lo,
            hi=qp.hi,
            ridge=qp.ridge,
            diagonal=qp.diagonal,
        )
        i, j = pair_extremes(self.arrays)
        self.threshold, self.unbounded = 0.5 * float(self.arrays.score[i] + self.arrays.score[j]), False

    def kkt_gap(self) -> float:
        """Largest score that may grow less the smallest that may shrink, at least 0."""
        i, j = pair_extremes(self.arrays)
        possible = self.arrays.up[i] == self.arrays.low[j] == 0.0
        return max(0.0, float(self.arrays.score[i] - self.arrays.score[j])) if possible else 0.0

    def step(self, i: int, j: int, min_change: float = 0.0) -> float:
        """Minimise the program over variables i and j exactly.

        Returns how far beta_i moved: 0 where it cannot, or would by less than `min_change`.
        """
        matrix, rows = self.source.lookup(np.array((i, j)))
        t, b = step_pass(i, j, matrix[rows[0]], matrix[rows[1]], self.qp.shift, min_change, self.arrays)
        if t == np.inf:
            self.unbounded = True
        elif t != 0.0:
            self.threshold = b
        return 0.0 if self.unbounded else t

    def maximal_steps(self, tol: float, limit: int) -> int:
        """Steps on the maximal violating pair: a few milliseconds of them where K is in memory, else one."""
        if self.K is None:
            i, j = pair_extremes(self.arrays)
            return int(self.step(i, j) != 0.0)
        limit = min(limit, self._steps_in_a_pass())
        steps, self.unbounded = maximal_pass(self.K, self.qp.shift, tol, limit, self.arrays)
        return int(steps)

    def sweep_steps(self, start: int, tau: float, examine_all: bool, limit: int) -> tuple[int, int]:
        """Steps of a sweep of Platt's from row `start` on: returns (steps, the row to go on from); as above."""
        if self.K is None:
            i = self.next_violator(start, tau, examine_all)
            j = int(farthest(i, self.threshold, self.arrays)) if i < self.qp.m else -1
            return int(j >= 0 and self.step(i, j) != 0.0), i + 1
        limit = min(limit, self._steps_in_a_pass())
        steps, start, self.threshold, self.unbounded = sweep_pass(
            self.K, self.qp.shift, start, self.threshold, tau, examine_all, limit, self.arrays
        )
        return steps, start

    def next_violator(self, start: int, tau: float, examine_all: bool) -> int:
        """First variable >= `start` whose score violates its KKT condition at the threshold by over tau, or m.

        One that may grow needs s <= b + tau, one that may shrink s >= b - tau; unless `examine_all`, only free ones are
        looked at.
        """
        return int(next_violator(start, self.threshold, tau, examine_all, self.arrays))

    def _steps_in_a_pass(self) -> int:
        return LOOKS if self.hard else max(1, int(PASS_FLOPS / self.qp.m))

    def infeasible(self) -> Status | None:
        """INFEASIBLE if unbounded variables have no minimum, as far as can be seen."""
        if self.unbounded:
            return Status.INFEASIBLE
        if not self.hard:
            return None
        beta, s, qp = self.arrays.beta, self.arrays.score, self.qp
        norm2 = float(beta @ (qp.p - s - qp.ridge * beta))
        return None if Solver.separates(qp, beta, norm2) else Status.INFEASIBLE
