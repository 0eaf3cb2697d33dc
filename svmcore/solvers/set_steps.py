"""The program restricted to a working set: pair steps on its square of K, and a direct finish where they crawl.

Pairs are of compiled second-order SMO (`svmcore.passes.steps.pairs`), on members that are not far behind their bound:
the square of these fits a cache. Where pairs crawl, an interior point finishes the set. Float32 scores give way to
float64 ones, and squares of 16 bits to those of K's type, where they do not tell apart what is asked.
"""

import numpy as np
from numpy.typing import DTypeLike

from svmcore.monitor import Monitor
from svmcore.passes.matrix.gather import gather_square
from svmcore.passes.steps.coordinates import solve_box
from svmcore.passes.steps.pairs import solve_pairs
from svmcore.passes.steps.working_set import moving
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.runtime.aligned import pitch
from svmcore.runtime.memory import empty
from svmcore.solvers.base import Solver
from svmcore.solvers.interior.iterate import Dense, minimise
from svmcore.solvers.working_set import WholeSet, WorkingSet
from svmcore.state import Part, WorkingSetState

__all__ = ["FEW", "STEPS", "SetSteps", "may_move"]

STEPS = 1 << 27  # members x pair steps of a round: about 0.1 s, after which the monitor is asked
DIRECT = 4096  # most variables of a set that is finished directly
CRAWL = 0.4  # pair steps over (q + 256)^2 from which an interior point is the shorter way
PREPARE = 20  # pair steps for each variable of a set that will be finished directly
FEW = 0.7  # share of a set that may move, below which a round goes on in a square of their own
FLOAT32_DIGITS = 2e-6  # a gap below this times the largest score is solved for in float64
ERRORS = 1.2  # units times the length of a change of beta: what scores on a square of 16 bits are wrong by


class SetSteps:
    """Steps of one solve within its working sets, and what they have come to.

    Attributes
    ----------
    n_iter, pairs
        Pair steps so far, those of before among them, and members x pair steps of this solve.
    wide
        Whether scores are in float64 from now on, whatever the type of K.
    crawls
        Whether pairs were found to: then they only prepare what is finished directly.
    """

    def __init__(
        self, solver: Solver, qp: SignedQP, state: WorkingSetState, monitor: Monitor, n_iter: int, aim: float
    ) -> None:
        self.solver, self.qp, self.state, self.monitor, self.aim = solver, qp, state, monitor, aim
        self.n_iter, self.pairs, self.wide, self.crawls = n_iter, 0.0, False, False
        self._work = 0.0  # of pairs since the last direct finish, in units of that
        self._convex = True  # until a set is found that is not

    @property
    def left(self) -> int:
        """Steps that `max_iter` allows."""
        return self.solver.steps_left(self.n_iter)

    def count(self, steps: int, q: int) -> None:
        """Take down pair steps on q variables."""
        self.n_iter += steps
        self.pairs += float(steps) * q
        self._work += steps / (CRAWL * (q + 256) ** 2)

    def on_pairs(
        self, working: WorkingSet | WholeSet, part: Part, score: Floats, places: Floats | None, target: float
    ) -> tuple[int, bool]:
        """Pair steps on the square of the members at `places`, or all, which change `part.beta`.

        Returns how many, and whether one had no end.
        """
        some = part if places is None else Part(*(values[places] for values in part))
        dtype, before = self.precision(score, target), some.beta.copy()
        K, unit = self._square_of(working, places, dtype)
        s = (score if places is None else score[places]).astype(dtype)
        most = PREPARE * len(score) if self.crawls else STEPS // (len(s) + 256)
        steps, unbounded = self._compiled(K, unit, s, some, target, min(most, self.left))
        self.count(steps, len(part.beta))
        if K.dtype == np.uint16 and ERRORS * unit * float(np.linalg.norm(some.beta - before)) > target:
            working.refine()
        if places is not None:
            part.beta[places] = some.beta
        return steps, unbounded

    def _compiled(self, K: Floats, unit: float, s: Floats, part: Part, target: float, limit: int) -> tuple[int, bool]:
        """At most `limit` compiled steps, of pairs where sums are kept: as `on_pairs`."""
        _, beta, lo, hi, ridge, codes = part
        groups = len(self.qp.groups.sums)
        if groups:
            steps, _, unbounded = solve_pairs(K, ridge, s, beta, lo, hi, codes, groups, target, limit, unit)
        else:
            steps, _, unbounded = solve_box(K, ridge, s, beta, lo, hi, target, limit)
        return steps, unbounded

    def precision(self, score: Floats, target: float) -> DTypeLike:
        """That of the source, or float64 where float32 does not tell scores apart as well as the target asks."""
        dtype = self.qp.source.dtype
        if dtype == np.float64 or self.wide:
            return np.float64
        return np.float64 if FLOAT32_DIGITS * float(np.abs(score).max(initial=0.0)) > target else dtype

    def _square_of(
        self, working: WorkingSet | WholeSet, places: Floats | None, dtype: DTypeLike
    ) -> tuple[Floats, float]:
        """K of the members at `places`, or all, in its first rows and columns, and the unit of its entries.

        That is the square itself where no more is asked, of whole numbers if it is.
        """
        if dtype == np.float64:
            working.refine()
        square, every, unit = working.square, working.members, self.state.unit or 1.0
        dtype = np.uint16 if self.state.unit else dtype
        if places is None and square.dtype == dtype:
            return square, unit
        places = np.arange(len(every)) if places is None else places
        K = empty((len(places), pitch(len(places), dtype)), dtype)
        gather_square(square, places, places, K)
        return K, unit

    def asks_for_finish(self, steps: int, q: int) -> bool:
        """Whether pairs crawl, of which there were `steps` now, on q members that an interior point can take."""
        crawled = self._work > 1.0 or (self.crawls and steps >= PREPARE * q)
        return crawled and q <= DIRECT and self._convex and self.left > 0 and not self._stops()

    def finish(self, working: WorkingSet | WholeSet, part: Part) -> bool:
        """Newton's method on the whole set, its sums and what is outside held: changes `part.beta`.

        Returns whether the set has no minimum.
        """
        idx = working.members
        start = self.state.part(idx)
        working.refine()
        K = np.ascontiguousarray(working.square[: len(idx), : len(idx)], dtype=np.float64)
        p = start.score + K @ start.beta + start.ridge * start.beta
        groups = len(self.qp.groups.sums)
        sums = np.array([start.beta[start.codes == g].sum() for g in range(groups)])
        found = minimise(
            Dense(K), p, part.lo, part.hi, part.ridge, part.codes, sums, 0.5 * self.aim, self._stops, part.beta
        )
        self._work, self.crawls = 0.0, True
        self._convex = self.qp.source.psd or found.n_iter > 0 or found.status == "converged"
        if _value(K, p, part, found.beta) < _value(K, p, part, part.beta):
            part.beta[:] = found.beta
        return found.status == "infeasible"

    def _stops(self) -> bool:
        return self.monitor.stops(self.n_iter, self.monitor.last_gap) is not None


def may_move(part: Part, score: Floats, reach: float) -> Floats | None:
    """Places of the members that may move, or None for all: leaving few out saves less than it costs."""
    found = moving(score, part.beta, part.lo, part.hi, reach)
    return found if len(found) <= FEW * len(score) else None


def _value(K: Floats, p: Floats, part: Part, beta: Floats) -> float:
    """The program's value within a set."""
    return float(0.5 * beta @ (K @ beta + part.ridge * beta) - p @ beta)
