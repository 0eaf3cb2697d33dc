"""The production solver: SMO on working sets, over any source of columns.

A round adds the worst violators of both ends to the working set, solves the program restricted to it on the contiguous
square of K with compiled second-order SMO (`svmcore.passes.steps.pairs`), and applies what changed to the scores of all
rows in one pass. Members stay until their place is needed, free variables longest, so that late rounds solve for all of
them at once; those far behind their bound are left out of a round, and the square of the others fits a cache. A large
square is of 16 bits (`svmcore.squares`); the scores of all rows are not. Where pairs crawl, an interior point finishes
the set directly, and where they end though the program is flat, conjugate gradients move all free variables together
(`svmcore.passes.steps.free_steps`). Where K is in memory the first steps are on K itself
(`svmcore.solvers.row_steps`). The loop talks to the n-vectors only through `svmcore.state.WorkingSetState`, so
they may live in memory or in shards.
"""

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike

from svmcore.monitor import Monitor
from svmcore.passes.matrix.gather import gather_square
from svmcore.passes.steps.coordinates import solve_box
from svmcore.passes.steps.free_steps import free_steps
from svmcore.passes.steps.pairs import solve_pairs
from svmcore.passes.steps.working_set import count_free, moving
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.runtime.memory import empty
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, Solver, Solves
from svmcore.solvers.interior.iterate import Dense, minimise
from svmcore.solvers.row_steps import begins_on_rows, row_steps
from svmcore.solvers.shrinking import Shrinking, can_shrink
from svmcore.solvers.working_set import PADDING, ROOM, WholeSet, WorkingSet
from svmcore.state import MemoryState, Part, WorkingSetState

__all__ = ["SMO"]

WHOLE = 1024  # rows up to which a problem in memory is one working set
NEARLY = 0.03  # of the gap on all rows is what a set that begins with nearly all that it will need is solved to
STEPS = 1 << 27  # members x pair steps of a round: about 0.1 s, after which the monitor is asked
AIM = 0.7  # of tol, with float32 columns: what their rounding moves is seen by the proof, and costs another round
DIRECT = 4096  # most variables of a set that is finished directly
CRAWL = 0.4  # pair steps over (q + 256)^2 from which an interior point is the shorter way
PREPARE = 20  # pair steps for each variable of a set that will be finished directly
FEW = 0.7  # share of a set that may move, below which a round goes on in a square of their own
REACH = 1.5  # KKT gaps from the middle of the scores, beyond which a variable at its bound stays there for a round
FLAT = 1e-4  # of tol times the objective: what steps of all free variables must gain, where pairs have ended
SHARE = 0.1  # of the work of the pairs is what such steps may cost
MOST = 100  # of such steps at a time
TIMES = 4  # that they are taken in one solve
BEYOND = 4096  # variables that a set may have though fewer columns are held: its square has memory of its own
PATIENCE = 32  # rounds without a gap that is less by
LESS = 0.01  # of the least so far, after which the dual must have grown by
GROWN = 1e-12  # of itself: else rounding is all that moves
FLOAT32_DIGITS = 2e-6  # a gap below this times the largest score is solved for in float64
ERRORS = 1.2  # units times the length of a change of beta: what scores on a square of 16 bits are wrong by


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
    working_set: int = 8192
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
            return Shrinking(self._rounds, self.tol, self.aim(qp), monitor).solve(qp, beta, score, n_iter)
        return self._rounds(qp, beta, score, monitor, n_iter, self.tol)

    def shares(self, qp: SignedQP) -> int:
        """Of the source's, where rows are left out: then programs have few columns in common.

        One that has a time limit does not wait for others.
        """
        return qp.source.shares if can_shrink(qp) and self.time_limit is None else 0

    def begins_anew(self, qp: SignedQP) -> bool:
        """Where its first steps are on K itself."""
        return begins_on_rows(qp)

    def aim(self, qp: SignedQP) -> float:
        """The gap to solve for."""
        return self.tol * (AIM if qp.source.dtype == np.float32 else 1.0)

    def _rounds(
        self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int, tol: float
    ) -> Outcome:
        """Solve to `tol` over all rows of `qp`."""
        state = qp.source.state(qp, beta, score) or MemoryState(qp, beta, score)
        try:
            if tol == self.tol:
                return _Rounds(self, qp, state, monitor, n_iter).run()
            return _Rounds(dataclasses.replace(self, tol=tol), qp, state, monitor, n_iter, rough=True).run()
        finally:
            state.end()


class _Rounds:
    """The rounds of one solve."""

    def __init__(
        self, solver: SMO, qp: SignedQP, state: WorkingSetState, monitor: Monitor, n_iter: int, rough: bool = False
    ) -> None:
        self.solver, self.qp, self.state, self.monitor = solver, qp, state, monitor
        self.aim = solver.aim(qp)
        self.n_iter, self.wide = n_iter, False
        self.work = 0.0  # of pairs since the last direct finish, in units of that
        self.convex = True  # until a set is found that is not
        self.crawls = False  # once it was found out, sets grow faster and pairs only prepare what is finished directly
        self.pairs = 0.0  # members x pair steps so far
        self.flat = TIMES if rough else 0  # how often free variables were moved together: what is rough goes on anyway
        self.least, self.idle = np.inf, 0  # gap so far, and rounds since it fell
        self.dual = -np.inf  # when that was last too many of them
        self.set: WorkingSet | WholeSet | None = self._whole_set()
        self.on_rows = self.set is None and isinstance(state, MemoryState) and begins_on_rows(qp)

    @property
    def working(self) -> WorkingSet | WholeSet:
        """The working set, made by the first round that needs one."""
        if self.set is None:
            self.set = self._start_set()
        return self.set

    def _whole_set(self) -> WholeSet | None:
        """That of a small problem."""
        qp, K = self.qp, self.qp.source.whole
        if qp.m <= WHOLE and K is not None and qp.rows is None and isinstance(self.state, MemoryState):
            return WholeSet(self.state, K)
        return None

    @property
    def _capacity(self) -> int:
        """Most members of a working set."""
        qp = self.qp
        least = 2 if qp.groups.codes is None else 2 * (len(qp.groups.sums) + 1)  # a pair of each group, and of none
        capacity = min(self.solver.working_set, max(BEYOND, qp.source.capacity * (1 if qp.rows is None else 2)))
        if qp.source.scratch_bytes is not None:
            entries = qp.source.scratch_bytes / ((1.0 + FEW**2) * qp.source.dtype.itemsize)
            capacity = min(capacity, int(entries**0.5) - PADDING)
        return min(qp.m, max(least, capacity))

    def _start_set(self) -> WorkingSet:
        """One of the variables that are not 0, or are likely not to be."""
        first = self.state.support()
        if not len(first) and self.qp.likely is not None:
            first = self.qp.likely
        elif len(first) > ROOM:
            first = self._free_of(first)
        fits = 0 < len(first) <= min(ROOM, self._capacity // 2)  # then most of them will move
        return self._set_of(first if fits else first[:0])

    def _set_of(self, members: Floats) -> WorkingSet:
        """One that begins with these."""
        working = WorkingSet(self.state, self.qp, self._capacity)
        if len(members):
            working.makes_room(len(members))
            working.admit(members)
        return working

    def run(self) -> Outcome:
        """Rounds until the gap is small enough, or something ends them."""
        try:
            while (status := self._ends()) is None or (status is Status.CONVERGED and self._flattens()):
                solve = self._row_round if self.on_rows else self._round
                status = solve() if status is None else None
                if status is not None:
                    break
                self.monitor.keeps(self.state.snapshot)
        finally:
            if self.set is not None:
                self.set.release()
        state = self.state
        return Outcome(status, self.n_iter, state.snapshot(), state.scores(), product=state.product())

    def _ends(self) -> Status | None:
        gap = self.state.kkt_gap()
        if gap <= self.aim:
            return Status.CONVERGED
        if 0 <= self.solver.max_iter <= self.n_iter:
            return Status.MAX_ITER
        if not self._separates():
            return Status.INFEASIBLE
        if self._is_stuck(gap):
            return Status.STALLED
        return self.monitor.stops(self.n_iter, gap)

    def _is_stuck(self, gap: float) -> bool:
        """Count a round; whether for many neither the gap fell nor the dual grew: float64 tells no better."""
        if gap < (1.0 - LESS) * self.least:
            self.least, self.idle = gap, 0
            return False
        self.idle += 1
        if self.idle < PATIENCE:
            return False
        self.idle, before, self.dual = 0, self.dual, self._dual()
        return not self.dual > before + GROWN * abs(self.dual)

    def _separates(self) -> bool:
        """Whether unbounded variables may have a minimum, by the scores as they are."""
        qp = self.qp
        if not qp.is_hard:
            return True
        idx = self.state.support()
        part = self.state.part(idx)
        norm2 = float(part.beta @ (qp.p[idx] - part.score - part.ridge * part.beta))
        return Solver.separates(qp, self.state.snapshot(), norm2)

    def _flattens(self) -> bool:
        """Move all free members together, where that gains what pairs leave along flat directions: whether it did."""
        idx = self._may_be_free()
        part = self.state.part(idx)
        free = count_free(part.beta, part.lo, part.hi)
        most = min(MOST, int(SHARE * self.pairs / max(1, free) ** 2), self.solver.steps_left(self.n_iter))
        if self.flat >= TIMES or free < 2 or most < 2:
            return False
        self.flat += 1
        score = part.score - self.state.centres()[part.codes]
        steps, gain = free_steps(self._fine_square(idx), score, part.beta, *part[2:], len(self.qp.groups.sums), most)
        if gain <= FLAT * self.solver.tol * abs(self._dual()):
            return False
        self.n_iter += steps
        self.state.apply(idx, part.beta)
        return True

    def _may_be_free(self) -> Floats:
        """The members of the set, or the free variables where all steps were on rows of K and there is none."""
        if self.set is not None:
            return self.set.members
        return self._free_of(self.state.support())

    def _free_of(self, idx: Floats) -> Floats:
        """Those of the variables that are at no bound."""
        part = self.state.part(idx)
        return idx[(part.beta > part.lo) & (part.beta < part.hi)]

    def _fine_square(self, idx: Floats) -> Floats:
        """K of these variables in its type: the set's square, or gathered where there is none."""
        if self.set is not None:
            self.set.refine()
            return self.set.square
        square = empty((len(idx), len(idx)), self.qp.source.dtype)
        self.state.square(idx, idx, square, np.arange(len(idx)))
        return square

    def _dual(self) -> float:
        """The program's value, by the scores as they are: 1/2 beta'(p + s)."""
        idx = self.state.support()
        part = self.state.part(idx)
        return 0.5 * float(part.beta @ (self.qp.p[idx] + part.score))

    def _row_round(self) -> Status | None:
        """Solve on all rows of K itself, or from there on a working set where that is worth it; apply."""
        state, target = self.state, 0.7 * self.aim
        assert isinstance(state, MemoryState)
        part = state.part(state.everyone)
        score = part.score - state.centres()[part.codes]
        if self._precision(score, target) != np.float32:
            self.on_rows = False
            return None
        s, most = score.astype(np.float32), min(STEPS // len(score), self.solver.steps_left(self.n_iter))
        begun = row_steps(self.qp, part, s, target, most, self._capacity)
        self._counts(begun.n_iter, int(np.count_nonzero(part.beta)))
        unbounded = begun.unbounded
        if begun.members is not None:
            self.on_rows = False
            unbounded = self._goes_on(begun.members, part, s, max(target, NEARLY * begun.gap))
        state.apply(state.everyone, part.beta)
        return Status.INFEASIBLE if unbounded else None

    def _goes_on(self, members: Floats, part: Part, s: Floats, target: float) -> bool:
        """Solve on a working set of these `members`, from scores `s` of all: as `_pairs`, whether a step had no end."""
        self.set = self._set_of(members)
        some = Part(*(values[members] for values in part))
        steps, unbounded = self._pairs(some, s[members], None, target)
        self._counts(steps, len(members))
        part.beta[members] = some.beta
        return unbounded

    def _counts(self, steps: int, q: int) -> None:
        """Take down pair steps on q variables."""
        self.n_iter += steps
        self.pairs += float(steps) * q
        self.work += steps / (CRAWL * (q + 256) ** 2)

    def _round(self) -> Status | None:
        """Admit violators, solve on the square, apply; a status where nothing is left to do."""
        gap = self.state.kkt_gap()
        self.working.advance(max(self.solver.newcomers, len(self.working.members) if self.crawls else 0))
        idx = self.working.members
        part, target = self.state.part(idx), max(0.7 * self.aim, self.working.precision * gap)
        score = part.score - self.state.centres()[part.codes]
        steps, unbounded = self._pairs(part, score, _moving(part, score, REACH * gap), target)
        self._counts(steps, len(idx))
        finish = (self.work > 1.0 or (self.crawls and steps >= PREPARE * len(idx))) and self._can_finish(idx)
        rounded = self.qp.source.dtype == np.float32 and self.qp.source.exact is not None
        if finish and not rounded:
            unbounded |= self._finish(idx, part)
        self.state.apply(idx, part.beta)
        self.working.makes_room(count_free(part.beta, part.lo, part.hi))
        if unbounded:
            return Status.INFEASIBLE
        if finish and rounded:
            return Status.STALLED  # rounded values may have no minimum where the exact ones do: on with finer ones
        if steps == 0 and self.wide:
            return Status.STALLED
        self.wide = self.wide or steps == 0
        return None

    def _pairs(self, part: Part, score: Floats, places: Floats | None, target: float) -> tuple[int, bool]:
        """Steps on the square of the members at `places`, or all, which change `part.beta`.

        Returns how many, and whether one had no end.
        """
        some = part if places is None else Part(*(values[places] for values in part))
        dtype, before = self._precision(score, target), some.beta.copy()
        K, unit = self._square_of(places, dtype)
        s = (score if places is None else score[places]).astype(dtype)
        most = PREPARE * len(score) if self.crawls else STEPS // (len(s) + 256)
        steps, unbounded = self._steps(K, unit, s, some, target, min(most, self.solver.steps_left(self.n_iter)))
        if K.dtype == np.uint16 and ERRORS * unit * float(np.linalg.norm(some.beta - before)) > target:
            self.working.refine()
        if places is not None:
            part.beta[places] = some.beta
        return steps, unbounded

    def _steps(self, K: Floats, unit: float, s: Floats, part: Part, target: float, limit: int) -> tuple[int, bool]:
        """At most `limit` compiled steps, of pairs where sums are kept: as `_pairs`."""
        _, beta, lo, hi, ridge, codes = part
        groups = len(self.qp.groups.sums)
        if groups:
            steps, _, unbounded = solve_pairs(K, ridge, s, beta, lo, hi, codes, groups, target, limit, unit)
        else:
            steps, _, unbounded = solve_box(K, ridge, s, beta, lo, hi, target, limit)
        return steps, unbounded

    def _precision(self, score: Floats, target: float) -> DTypeLike:
        """That of the source, or float64 where float32 does not tell scores apart as well as the target asks."""
        dtype = self.qp.source.dtype
        if dtype == np.float64 or self.wide:
            return np.float64
        return np.float64 if FLOAT32_DIGITS * float(np.abs(score).max(initial=0.0)) > target else dtype

    def _square_of(self, places: Floats | None, dtype: DTypeLike) -> tuple[Floats, float]:
        """K of the members at `places`, or all, in its first rows and columns, and the unit of its entries.

        That is the square itself where no more is asked, of whole numbers if it is.
        """
        if dtype == np.float64:
            self.working.refine()
        square, every, unit = self.working.square, self.working.members, self.state.unit or 1.0
        dtype = np.uint16 if self.state.unit else dtype
        if places is None and square.dtype == dtype:
            return square, unit
        places = np.arange(len(every)) if places is None else places
        K = empty((len(places), len(places)), dtype)
        gather_square(square, places, places, K)
        return K, unit

    def _can_finish(self, idx: Floats) -> bool:
        """Whether pairs crawl on a set that an interior point can take: K must be convex."""
        left = self.solver.steps_left(self.n_iter)
        return len(idx) <= DIRECT and self.convex and left > 0 and not self._stops()

    def _finish(self, idx: Floats, part: Part) -> bool:
        """Newton's method on the whole set, its sums and what is outside held: changes `part.beta`.

        Returns whether the set has no minimum.
        """
        start = self.state.part(idx)
        self.working.refine()
        K = np.ascontiguousarray(self.working.square[: len(idx), : len(idx)], dtype=np.float64)
        p = start.score + K @ start.beta + start.ridge * start.beta
        groups = len(self.qp.groups.sums)
        sums = np.array([start.beta[start.codes == g].sum() for g in range(groups)])
        found = minimise(
            Dense(K), p, part.lo, part.hi, part.ridge, part.codes, sums, 0.5 * self.aim, self._stops, part.beta
        )
        self.work, self.crawls = 0.0, True
        self.convex = self.qp.source.psd or found.n_iter > 0 or found.status == "converged"
        if _value(K, p, part, found.beta) < _value(K, p, part, part.beta):
            part.beta[:] = found.beta
        return found.status == "infeasible"

    def _stops(self) -> bool:
        return self.monitor.stops(self.n_iter, self.monitor.last_gap) is not None


def _moving(part: Part, score: Floats, reach: float) -> Floats | None:
    """Places of the members of a set that may move, or None for all: where leaving few out saves less than it costs."""
    found = moving(score, part.beta, part.lo, part.hi, reach)
    return found if len(found) <= FEW * len(score) else None


def _value(K: Floats, p: Floats, part: Part, beta: Floats) -> float:
    """The program's value within a set."""
    return float(0.5 * beta @ (K @ beta + part.ridge * beta) - p @ beta)
