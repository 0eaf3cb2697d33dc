"""Shrinking: solve on the rows that could move, and look at all rows in one pass when that is done.

Most rows of a large table end at 0, far behind the margin. A program without them needs columns of the other rows
alone, so columns, scores and the square of a working set are a fraction of those over all rows. Which rows these are is
guessed from the solution of a random quarter of the rows (itself found so): those that violate, and the nearest to it.
The pass over all rows sums kernel values as they are computed, and tells which rows were missed. They join in the next
stage, until none is missed. The idea is Joachims' (1999, section 11.4) and Osuna's chunking (1997).
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from svmcore.monitor import Monitor
from svmcore.outputs import free_multipliers
from svmcore.points import Floats
from svmcore.qp import Groups, SignedQP
from svmcore.solution import Status
from svmcore.solvers.base import Outcome
from svmcore.sources import served, served_after
from svmcore.state import Part, behind, ends_of, gap_of

__all__ = ["LEAST", "Shrinking", "can_shrink"]

LEAST = 4096  # rows from which it pays
QUARTER = 4  # one row of so many is a sample
ROUGH = 1e-2  # tol of a sample, at least
PRECISION = 0.01  # of the gap over all rows, to which a stage solves: the next one changes it anyway,
QUICK = 0.04  # where values are computed anew: a look at all rows then costs less than the steps that would save it,
WORTH = 50  # times tol, below which it is solved to tol at once
SHARE = 2.0  # times the rows that are not 0 or violate: so many are looked at, the nearest to it;
SHARED = 1.25  # and where several look at all rows at once: what a missed row costs then is less
MOST = 0.6  # of the rows; where more violate, all are looked at
STAGES = 8  # after which all are
FETCHED = 3  # columns for each support vector of a sample that a solve on all rows asks for:
WORTH_BYTES = 1 << 29  # where they are fewer bytes, it is as fast, unless passes are made for several at once or
# columns are not kept, so that each round costs a value for each row
MANY = 0.5  # of the rows; where more violate at first, leaving rows out costs more stages than it saves

Rounds = Callable[[SignedQP, Floats, Floats | None, Monitor, int, float], Outcome]


def can_shrink(qp: SignedQP) -> bool:
    """Whether columns of fewer rows cost less, and a program without the others is one."""
    costly = qp.source.whole is None and qp.source.can_take
    return bool(costly and qp.m >= LEAST and qp.rows is None and not any(qp.groups.sums))


class Shrinking:
    """One solve; `rounds` solves a program on all of its rows, from beta and scores to a tol.

    Parameters
    ----------
    tol, aim
        What the last stage is solved to, and the gap over all rows that ends the solve.
    together
        Whether a look at all rows is made for several programs at once.
    """

    def __init__(self, rounds: Rounds, tol: float, aim: float, monitor: Monitor, together: bool = False) -> None:
        self.rounds, self.tol, self.aim, self.monitor = rounds, tol, aim, monitor
        self.share = SHARED if together else SHARE

    def solve(self, qp: SignedQP, beta: Floats, score: Floats | None, n_iter: int) -> Outcome:
        """Solve `qp` from `beta` (m,), whose scores may be known, until all rows are within the aim."""
        at = Outcome(Status.CONVERGED, n_iter, beta, score)
        if score is None:
            at = at if beta.any() else self._sampled(qp, n_iter)
            fetched = FETCHED * np.count_nonzero(at.beta)
            few = fetched <= qp.source.capacity and fetched * qp.m * qp.source.dtype.itemsize < WORTH_BYTES
            if few and not (qp.source.shares_passes or qp.source.computes_anew):
                return self._on_all(qp, at)
            at = _looked_at(qp, at)
            if np.count_nonzero(_violate(at, _behind(qp, at))) > MANY * qp.m:
                return self._on_all(qp, at)
        for _ in range(STAGES):
            gap = gap_of(ends_of(_whole(qp, at), len(qp.groups.sums)))
            if at.status is not Status.CONVERGED or (gap <= self.aim and at.served is not None):
                return at
            rows = _nearest(qp, at, self.share)
            if len(rows) > MOST * qp.m:
                break
            precise = (QUICK if qp.source.computes_anew else PRECISION) * gap
            at = self._stage(qp, rows, at, precise if precise >= WORTH * self.tol else self.tol)
        return self._on_all(qp, at)

    def _stage(self, qp: SignedQP, rows: Floats, at: Outcome, tol: float) -> Outcome:
        """Solve on some rows and look at all; what held columns of the rows has then gone, and the next has its memory.

        At the rows K beta is known by the sums that were kept of them meanwhile, where any were. They are of columns of
        fewer rows, which may round in another way: where served values are the K that is meant, they say nothing of it.
        """
        found = self._on(qp, rows, at, tol)
        after = _put(at, rows, found)
        if found.product is not None and at.served is not None and qp.source.exact is not None:
            after.served = served_after(qp.source, at.served, rows, found.product)
        return _looked_at(qp, after)

    def _on_all(self, qp: SignedQP, at: Outcome) -> Outcome:
        """Go on without leaving rows out."""
        return self.rounds(qp, at.beta, at.score, self.monitor, at.n_iter, self.tol)

    def _sampled(self, qp: SignedQP, n_iter: int) -> Outcome:
        """Beta of a random quarter of the rows, solved roughly, the others at 0."""
        start = Outcome(Status.CONVERGED, n_iter, np.zeros(qp.m))
        rows = np.flatnonzero(qp.hi > qp.lo)
        if len(rows) < LEAST:
            return start
        rows = np.sort(np.random.default_rng(len(rows)).choice(rows, len(rows) // QUARTER, replace=False))
        return _put(start, rows, self._rough(_of_rows(qp, rows), n_iter))

    def _rough(self, qp: SignedQP, n_iter: int) -> Outcome:
        """A rough solution, of which nobody asks whether rows were missed."""
        tol = max(10 * self.tol, ROUGH)
        if qp.m < LEAST:
            return self.rounds(qp, np.zeros(qp.m), None, self._apart, n_iter, tol)
        at = _looked_at(qp, self._sampled(qp, n_iter))
        rows = _nearest(qp, at, self.share)
        return _put(at, rows, self._on(qp, rows, at, tol))

    def _on(self, qp: SignedQP, rows: Floats, at: Outcome, tol: float) -> Outcome:
        """Solve the program of some rows; the others are at 0."""
        assert at.score is not None
        some = _of_rows(qp, rows)
        return _mended(some, self.rounds(some, at.beta[rows], at.score[rows], self._apart, at.n_iter, tol))

    @property
    def _apart(self) -> Monitor:
        """The monitor of a part, whose variables nobody could go on from."""
        return dataclasses.replace(self.monitor, keep=None)


def _mended(qp: SignedQP, found: Outcome) -> Outcome:
    """With sums to the last bit, as the look at all rows has them: else that would add a column that hardly moved."""
    beta = qp.mended(found.beta.copy())
    moved = np.flatnonzero(beta != found.beta)
    if found.product is not None and len(moved):
        found.product.set(moved, beta[moved])
    return dataclasses.replace(found, beta=beta)


def _put(at: Outcome, rows: Floats, found: Outcome) -> Outcome:
    """What was `found` on some rows, among the others."""
    beta = at.beta.copy()
    beta[rows] = found.beta
    return Outcome(found.status, found.n_iter, beta, None, at.served)


def _looked_at(qp: SignedQP, at: Outcome) -> Outcome:
    """Look at all rows: their scores, as they will be proved."""
    beta = qp.mended(qp.feasible(at.beta))
    known = served(qp.source, beta, at.served)
    score = qp.p - known.values - qp.shift * beta.sum()
    score = score - qp.ridge * beta if qp.is_soft else score
    return Outcome(at.status, at.n_iter, beta, score, known)


def _whole(qp: SignedQP, at: Outcome) -> Part:
    return Part(at.score, at.beta, qp.lo, qp.hi, qp.ridge, qp.groups.codes)  # type: ignore[arg-type]


def _behind(qp: SignedQP, at: Outcome) -> Floats:
    """How far (m,) rows at a bound are from moving, by the free ones' multipliers."""
    assert at.score is not None
    multipliers = free_multipliers(qp, at.beta, at.score)
    multipliers = np.where(np.isfinite(multipliers), multipliers, 0.0)
    return behind(_whole(qp, at)._replace(codes=qp.codes), multipliers)


def _violate(at: Outcome, far: Floats) -> Floats:
    """Rows (m,) that are not 0 or that violate."""
    return (far <= 0.0) | (at.beta != 0.0)


def _nearest(qp: SignedQP, at: Outcome, share: float) -> Floats:
    """Rows that are not 0 or violate, and those nearest to it, `share` times as many in all; ascending."""
    far = _behind(qp, at)
    wanted = int(np.count_nonzero(_violate(at, far)))
    far[at.beta != 0.0] = -np.inf
    count = max(wanted, min(int(share * wanted), int(MOST * qp.m)), LEAST // QUARTER)
    return np.arange(qp.m) if count >= qp.m else np.sort(np.argpartition(far, count - 1)[:count])


def _of_rows(qp: SignedQP, rows: Floats) -> SignedQP:
    """The program without the other rows, which are at 0."""
    codes = None if qp.groups.codes is None else qp.groups.codes[rows]
    p, lo, hi, ridge = (values[rows] for values in (qp.p, qp.lo, qp.hi, qp.ridge))
    return SignedQP(qp.source.take(rows), p, lo, hi, ridge, Groups(qp.groups.sums, codes), shift=qp.shift)
