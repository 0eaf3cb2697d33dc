"""Large programs with few support vectors where K = GG': working sets on the rows that matter, looked for in all.

A sample of the rows is solved first. Then all rows are looked at, with one product, and those are solved that bounds
may not hold any more, the others being left where they are: a few passes over all rows in place of one for each round.

References
----------
Osuna, Freund, Girosi (1997), An improved training algorithm for support vector machines; Joachims (1999), Making
large-scale SVM learning practical.
"""

import dataclasses

import numpy as np
from scipy import sparse

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import Groups, SignedQP
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, box_gap
from svmcore.solvers.linear.rows_state import RowsOfFactor
from svmcore.solvers.smo import SMO
from svmcore.sources import Factor, RowMap

__all__ = ["solve_in_parts"]

LARGE = 16384  # variables from which on parts pay
SHARE, SAMPLE = 8, 8192  # one of so many begins, and that many at most
NEAR = 2  # variables that are solved for each one that violates its conditions,
LEAST = 8  # and at least one of so many
MOST = 8192  # support vectors that may be foretold: working sets are no way to move more
ROUGH = 1e-2  # what the sample is solved to at least
AIM = 0.8  # of tol: the proof adds its uncertainty
LOOKS = 10  # after which others shall try


def solve_in_parts(qp: SignedQP, beta: Floats, tol: float, monitor: Monitor, most: int = -1) -> Outcome | None:
    """Solve `qp`; None where it is small or sparse, has many support vectors, or parts do not get there.

    `beta` (m,) is changed in place, towards the optimum also then. Working sets take `most` pair steps together, -1 for
    no limit: MAX_ITER if that is not enough.
    """
    moving, factor = np.flatnonzero(qp.hi > qp.lo), qp.source.factor()
    if factor is None or len(moving) < LARGE or sparse.issparse(factor.rows) or qp.is_hard:
        return None
    if factor.centre.any() and not qp.groups.sums:  # where the sum is fixed, no step depends on the centre
        return None
    return _Parts(qp, factor, beta, tol, monitor, most).run(moving)


class _Parts:
    """One solve: beta (m,), and the w that it makes."""

    def __init__(self, qp: SignedQP, factor: Factor, beta: Floats, tol: float, monitor: Monitor, most: int) -> None:
        self.qp, self.beta, self.tol, self.most = qp, beta, tol, most
        self.rows = RowMap(factor.rows, at=factor.at)
        self.monitor = dataclasses.replace(monitor, keep=None)  # of a part nobody could go on
        self.w, self.n_iter = self.rows.weights(beta), 0

    def run(self, moving: Floats) -> Outcome | None:
        """Solve a sample of the `moving`, unless there is a start, and then what looks at all of them find."""
        foretold = 1.0
        if not self.beta.any():
            count = min(SAMPLE, len(moving) // SHARE)
            part = np.sort(np.random.default_rng(len(moving)).choice(moving, count, replace=False))
            status, foretold = self._solve(part, max(10.0 * self.tol, ROUGH)), len(moving) / count
            if status is not Status.CONVERGED:
                return self._ended(status)
        for _ in range(LOOKS):
            if foretold * np.count_nonzero(self.beta) > MOST:
                return None
            gap, near = self._look(moving)
            status = Status.CONVERGED if gap <= self.tol else self._solve(near, AIM * self.tol)
            if gap <= self.tol or status is not Status.CONVERGED:
                return self._ended(status)
            foretold = 1.0
        return None

    def _ended(self, status: Status) -> Outcome | None:
        return None if status is Status.STALLED else Outcome(status, self.n_iter, self.beta)

    def _solve(self, part: Floats, tol: float) -> Status:
        """Move the variables `part` alone, to a gap of `tol` among them."""
        qp, before = self.qp, self.beta[part]
        rows, own = self.rows.take(part), float(before.sum())
        others = self.w - rows.weights(before)
        p = qp.p[part] - rows.times(others) - qp.shift * (float(self.beta.sum()) - own)
        groups = Groups((own,)) if qp.groups.sums else qp.groups
        source = RowsOfFactor(rows, qp.diagonal[part] - qp.shift)
        some = SignedQP(source, p, qp.lo[part], qp.hi[part], qp.ridge[part], groups, shift=qp.shift)
        found = SMO(tol=tol, max_iter=self.most)._solve(some, before.copy(), None, self.monitor, 0)
        self.beta[part], self.n_iter = found.beta, self.n_iter + 1
        self.most = max(0, self.most - found.n_iter) if self.most >= 0 else -1
        self.w = others + rows.weights(found.beta)
        return found.status

    def _look(self, moving: Floats) -> tuple[float, Floats]:
        """The gap of all variables, and those of the `moving` that violate their conditions or are nearest to it."""
        qp, beta = self.qp, self.beta
        score = qp.p - self.rows.times(self.w) - qp.shift * float(beta.sum()) - qp.ridge * beta
        grows, shrinks = (beta < qp.hi)[moving], (beta > qp.lo)[moving]
        free, s = grows & shrinks, score[moving]
        up, down = float(s[grows].max(initial=-np.inf)), float(s[shrinks].min(initial=np.inf))
        gap = max(0.0, up - down) if qp.groups.sums else box_gap(score, beta, qp.lo, qp.hi)
        middle = float(np.median(s[free])) if qp.groups.sums and free.any() else 0.0
        behind = np.where(free, -np.inf, np.where(grows, middle - s, s - middle))
        count = min(len(moving), max(NEAR * int((behind < 0.0).sum()), len(moving) // LEAST))
        return gap, np.sort(moving[np.argpartition(behind, count - 1)[:count]])
