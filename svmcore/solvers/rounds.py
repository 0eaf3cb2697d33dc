"""The rounds of `smo`: admit the worst violators, solve on the working set, apply what changed to all scores.

Members stay until their place is needed, free variables longest, so that late rounds solve for all of them at once.
Where pairs end though the program is flat, conjugate gradients move all free variables together
(`svmcore.passes.steps.free_steps`). Where K is in memory the first steps are on K itself
(`svmcore.solvers.row_steps`). The loop talks to the n-vectors only through `svmcore.state.WorkingSetState`, so they may
live in memory or in shards.
"""

from typing import NamedTuple

import numpy as np

from svmcore.monitor import Monitor
from svmcore.passes.steps.free_steps import free_steps
from svmcore.passes.steps.working_set import count_free
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.runtime.memory import empty
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, Solver
from svmcore.solvers.row_steps import begins_on_rows, row_steps
from svmcore.solvers.set_steps import FEW, STEPS, SetSteps, may_move
from svmcore.solvers.working_set import PADDING, ROOM, WholeSet, WorkingSet
from svmcore.state import MemoryState, Part, WorkingSetState

__all__ = ["WHOLE", "Aims", "Rounds"]

WHOLE = 1024  # rows up to which a problem in memory is one working set
NEARLY = 0.03  # of the gap on all rows is what a set that begins with nearly all that it will need is solved to
REACH = 1.5  # KKT gaps from the middle of the scores, beyond which a variable at its bound stays there for a round
FLAT = 1e-4  # of tol times the objective: what steps of all free variables must gain, where pairs have ended
SHARE = 0.1  # of the work of the pairs is what such steps may cost
MOST = 100  # of such steps at a time,
LEAST = 16  # below which they gain nothing that pairs have left: to have their square alone takes as long
TIMES = 4  # that they are taken in one solve
BEYOND = 4096  # variables that a set may have though fewer columns are held: its square has memory of its own
PATIENCE = 32  # rounds without a gap that is less by
LESS = 0.01  # of the least so far, after which the dual must have grown by
GROWN = 1e-12  # of itself: else rounding is all that moves


class Aims(NamedTuple):
    """What the rounds of a solve are to do.

    Attributes
    ----------
    gap
        KKT gap over all rows that ends them.
    working_set, newcomers
        Most variables of a working set, and how many a round adds to it.
    rough
        Whether the solve goes on elsewhere: then flat directions are left to that.
    """

    gap: float
    working_set: int
    newcomers: int
    rough: bool


class Rounds:
    """The rounds of one solve, which count their pair steps from `n_iter`."""

    def __init__(
        self, solver: Solver, aims: Aims, qp: SignedQP, state: WorkingSetState, monitor: Monitor, n_iter: int
    ) -> None:
        self.solver, self.aims, self.qp, self.state, self.monitor = solver, aims, qp, state, monitor
        self.steps = SetSteps(solver, qp, state, monitor, n_iter, aims.gap)
        self.flat = TIMES if aims.rough else 0  # how often free variables were moved together
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
        capacity = min(self.aims.working_set, max(BEYOND, qp.source.capacity * (1 if qp.rows is None else 2)))
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
        fits = 0 < len(first) <= self._capacity // 2  # then most of them will move
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
        return Outcome(status, self.steps.n_iter, state.snapshot(), state.scores(), product=state.product())

    def _ends(self) -> Status | None:
        gap = self.state.kkt_gap()
        if gap <= self.aims.gap:
            return Status.CONVERGED
        if 0 <= self.solver.max_iter <= self.steps.n_iter:
            return Status.MAX_ITER
        if not self._separates():
            return Status.INFEASIBLE
        if self._is_stuck(gap):
            return Status.STALLED
        return self.monitor.stops(self.steps.n_iter, gap)

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
        most = min(MOST, int(SHARE * self.steps.pairs / max(1, free) ** 2), self.steps.left)
        if self.flat >= TIMES or free < 2 or most < LEAST:
            return False
        self.flat += 1
        score = part.score - self.state.centres()[part.codes]
        steps, gain = free_steps(self._fine_square(idx), score, part.beta, *part[2:], len(self.qp.groups.sums), most)
        if gain <= FLAT * self.solver.tol * abs(self._dual()):
            return False
        self.steps.n_iter += steps
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
        state, target = self.state, 0.7 * self.aims.gap
        assert isinstance(state, MemoryState)
        part = state.part(state.everyone)
        score = part.score - state.centres()[part.codes]
        if self.steps.precision(score, target) != np.float32:
            self.on_rows = False
            return None
        s, most = score.astype(np.float32), min(STEPS // len(score), self.steps.left)
        begun = row_steps(self.qp, part, s, target, most, self._capacity)
        self.steps.count(begun.n_iter, int(np.count_nonzero(part.beta)))
        unbounded = begun.unbounded
        if begun.members is not None:
            self.on_rows = False
            unbounded = self._goes_on(begun.members, part, s, max(target, NEARLY * begun.gap))
        state.apply(state.everyone, part.beta)
        return Status.INFEASIBLE if unbounded else None

    def _goes_on(self, members: Floats, part: Part, s: Floats, target: float) -> bool:
        """Solve on a working set of these `members`, from scores `s` of all, and say whether a step had no end."""
        self.set = self._set_of(members)
        some = Part(*(values[members] for values in part))
        _, unbounded = self.steps.on_pairs(self.set, some, s[members], None, target)
        part.beta[members] = some.beta
        return unbounded

    def _round(self) -> Status | None:
        """Admit violators, solve on the square, apply; a status where nothing is left to do."""
        gap, inner = self.state.kkt_gap(), self.steps
        self.working.advance(max(self.aims.newcomers, len(self.working.members) if inner.crawls else 0))
        idx = self.working.members
        part, target = self.state.part(idx), max(0.7 * self.aims.gap, self.working.precision * gap)
        score = part.score - self.state.centres()[part.codes]
        steps, unbounded = inner.on_pairs(self.working, part, score, may_move(part, score, REACH * gap), target)
        finish = inner.asks_for_finish(steps, len(idx))
        rounded = self.qp.source.dtype == np.float32 and self.qp.source.exact is not None
        if finish and not rounded:
            unbounded |= inner.finish(self.working, part)
        self.state.apply(idx, part.beta)
        self.working.makes_room(count_free(part.beta, part.lo, part.hi))
        if unbounded:
            return Status.INFEASIBLE
        if finish and rounded:
            return Status.STALLED  # rounded values may have no minimum where the exact ones do: on with finer ones
        if steps == 0 and inner.wide:
            return Status.STALLED
        inner.wide = inner.wide or steps == 0
        return None
