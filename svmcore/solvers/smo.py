"""The production solver: SMO on working sets, over any source of columns.

A round adds the worst violators of both ends to the working set, solves the problem restricted to it on the contiguous
square of K with compiled second-order SMO (`_smo_passes`), and applies what changed to the scores of all rows in one
pass. Members stay until their place is needed, free support vectors longest, so that late rounds solve for all of
them at once. The loop talks to the n-vectors only through `WorkingSetState`, so they may live in memory or in shards.
"""

import dataclasses
from typing import ClassVar, Protocol

import numpy as np

from svmcore.columns import ResidentGram, add_columns, lookup
from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.problem import Bias, Problem
from svmcore.solution import Status
from svmcore.solvers._smo_passes import extremes, gather_square, place_strip, solve_box, solve_pairs
from svmcore.solvers._squares import gather_known, squares
from svmcore.solvers.base import Outcome, Solver

__all__ = ["SMO", "MemoryState", "WorkingSet", "WorkingSetState"]

NEST = 4096  # rows from which a nested start pays
PADDING = 16
WHOLE = 1024  # rows up to which a problem in memory is one working set
STEPS = 1 << 27  # members x pair steps of a round: about 0.1 s, after which the monitor is asked
AIM = 0.7  # of tol, with float32 columns: their rounding moves the true gap by up to about a quarter of tol
FLOAT32_DIGITS = 2e-6  # a gap below this times the largest score is solved for in float64
HULL_DISTANCE = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-9}  # relative, see `_not_separable`


class WorkingSetState(Protocol):
    """What a round talks to: it holds y, upper, ridge and scores for its rows."""

    def extremes(self) -> tuple[float, float]:
        """m(alpha), M(alpha) over all rows."""

    def candidates(self, q: int, outside: Floats) -> Floats:
        """Indices of at most q rows of the mask `outside`: the worst violators from both ends."""

    def square(self, idx: Floats, members: Floats, out: Floats) -> None:
        """out[r, c] = K[idx[r], members[c]]."""

    def apply(self, idx: Floats, beta: Floats) -> None:
        """Set beta = y alpha at `idx` and bring the scores of all rows up to date."""


class MemoryState:
    """Working-set state over columns in memory: scores s = -y g and signed variables beta = y alpha, float64."""

    def __init__(self, problem: Problem, alpha: Floats, gradient: Floats | None) -> None:
        y, upper = problem.y, problem.upper
        self.problem = problem
        self.lo = np.where(y > 0, 0.0, -upper)
        self.hi = np.where(y > 0, upper, 0.0)
        self.beta = y * alpha
        self._extremes: tuple[float, float] | None = None  # until the next `apply`
        if gradient is not None:
            self.score = -y * gradient
            return
        self.score = y.copy()
        moved = np.flatnonzero(alpha)
        step = min(256, getattr(problem.columns, "capacity", 256))
        for start in range(0, len(moved), step):
            part = moved[start : start + step]
            self._update_scores(part, self.beta[part])

    def _update_scores(self, idx: Floats, delta: Floats) -> None:
        matrix, rows = lookup(self.problem.columns, idx)
        add_columns(matrix, rows, -delta, self.score)
        self.score[idx] -= self.problem.ridge[idx] * delta
        if self.problem.shift:
            self.score -= self.problem.shift * delta.sum()

    def extremes(self) -> tuple[float, float]:
        """Return m(alpha) and M(alpha); without the equality both are taken together with 0."""
        if self._extremes is None:
            self._extremes = self._scan_extremes()
        return self._extremes

    def _scan_extremes(self) -> tuple[float, float]:
        m, low = extremes(self.score, self.beta, self.lo, self.hi)
        return (m, low) if self.problem.bias is Bias.FREE else (max(m, 0.0), min(low, 0.0))

    def kkt_gap(self) -> float:
        """Return m - M, at least 0; without the equality, the larger of the two violations."""
        m, low = self.extremes()
        return max(m - low, 0.0) if self.problem.bias is Bias.FREE else max(m, -low)

    def candidates(self, q: int, outside: Floats) -> Floats:
        """Up to q / 2 of the worst violators from each end."""
        m, low = self.extremes()
        if self.problem.bias is not Bias.FREE:
            m = low = 0.0
        up = np.flatnonzero((self.beta < self.hi) & (self.score > low) & outside)
        down = np.flatnonzero((self.beta > self.lo) & (self.score < m) & outside)
        half = q // 2
        return np.union1d(_largest(up, self.score, half), _largest(down, -self.score, half))

    def square(self, idx: Floats, members: Floats, out: Floats) -> None:
        """out[r, c] = K[idx[r], members[c]] + shift."""
        matrix, rows = lookup(self.problem.columns, idx)
        gather_square(matrix, rows, members, out)
        if self.problem.shift:
            out += self.problem.shift

    def apply(self, idx: Floats, beta: Floats) -> None:
        """Scores of all rows after beta[idx] = beta: only columns that changed are read."""
        delta = beta - self.beta[idx]
        moved = delta != 0
        self.beta[idx] = beta
        self._extremes = None
        self._update_scores(idx[moved], delta[moved])

    def importance(self, idx: Floats) -> Floats:
        """How much each row is worth keeping in the set: free support vectors first, then the worst violators."""
        m, low = self.extremes()
        beta, score = self.beta[idx], self.score[idx]
        can_grow, can_shrink = beta < self.hi[idx], beta > self.lo[idx]
        worth = np.where(can_grow & can_shrink, np.inf, -np.inf)
        worth = np.where(can_grow & ~can_shrink, score - low, worth)
        return np.where(can_shrink & ~can_grow, m - score, worth)


def _largest(idx: Floats, values: Floats, count: int) -> Floats:
    """The `count` indices of `idx` with the largest `values`, O(len(idx))."""
    if len(idx) <= count:
        return idx
    return idx[np.argpartition(values[idx], len(idx) - count)[len(idx) - count :]]


class WorkingSet:
    """The rows of a working set in fixed places of one square of K, so that only newcomers are gathered."""

    precision = 0.1  # of the KKT gap on all rows, to which a round solves: more would be wasted on a part

    def __init__(self, state: MemoryState, capacity: int, dtype: np.dtype) -> None:
        problem = state.problem
        self.state, self.capacity = state, capacity
        self.members = np.empty(0, dtype=np.int64)
        self.outside = np.ones(problem.n, dtype=bool)
        self.known = squares().known(problem.columns, problem.shift)
        self.known_places = None if self.known is None else self.known.places(problem.n)
        # the padding keeps a column of the square from falling into one set of the cache
        self.memory = squares().take(capacity * (capacity + PADDING), dtype)
        self.square = self.memory[: capacity * (capacity + PADDING)].reshape(capacity, capacity + PADDING)

    def release(self) -> None:
        """Leave the square to the next solve of this thread; it is not written to any more."""
        problem = self.state.problem
        squares().keep(problem.columns, problem.shift, self.members, self.square, self.memory)

    def advance(self, newcomers: int) -> None:
        """Admit about so many of the worst violators outside; at least half of a full set stays."""
        count = min(max(newcomers, len(self.members) // 4), 4 * newcomers, max(2, self.capacity // 2))
        self.admit(self.state.candidates(count, self.outside))

    def admit(self, newcomers: Floats) -> None:
        """Add rows; where the set is full they take the places of the least important members."""
        q = len(self.members)
        fresh = np.arange(q, min(q + len(newcomers), self.capacity))
        worth = self.state.importance(self.members)
        surplus = len(newcomers) - len(fresh)
        leaving = np.argpartition(worth, surplus - 1)[:surplus] if surplus else np.empty(0, dtype=np.int64)
        places = np.concatenate([fresh, leaving])
        self.outside[self.members[leaving]] = True
        self.outside[newcomers] = False
        self.members = np.concatenate([self.members, newcomers[: len(fresh)]])
        self.members[places] = newcomers
        self._gather(places, newcomers)

    def _gather(self, places: Floats, newcomers: Floats) -> None:
        q = len(self.members)
        if np.array_equal(newcomers, self.members):  # all are new, in order: the square is the strip
            self._strip(newcomers, self.square[:q, :q])
            return
        strip = np.empty((len(newcomers), q), self.square.dtype)
        self._strip(newcomers, strip)
        place_strip(strip, places, self.square)

    def _strip(self, newcomers: Floats, out: Floats) -> None:
        if self.known is None:
            self.state.square(newcomers, self.members, out)
            return
        matrix, rows = lookup(self.state.problem.columns, newcomers)
        shift = matrix.dtype.type(self.known.shift)
        gather_known(matrix, rows, self.members, shift, self.known.square, self.known_places, out)


class WholeSet:
    """All rows of a small problem whose K is in memory, as one working set: nothing is selected, nothing copied."""

    precision = 0.0

    def __init__(self, problem: Problem, K: Floats) -> None:
        self.members = np.arange(problem.n)
        self.square = K + problem.shift if problem.shift else K

    def advance(self, newcomers: int) -> None:
        """Nothing is outside."""

    def release(self) -> None:
        """Nothing was taken."""


@dataclasses.dataclass(frozen=True)
class SMO(Solver):
    """Sequential minimal optimisation with second-order working sets.

    Parameters
    ----------
    tol, max_iter, time_limit
        See `Solver`; `max_iter` counts pair steps.
    working_set
        Most rows of a working set.
    newcomers
        Rows that a round adds to it, more where the set is large already.

    References
    ----------
    Fan, Chen, Lin (2005), Working set selection using second order information, JMLR 6, WSS 2; the rounds are those
    of Joachims (1999), Making large-scale SVM learning practical.

    >>> from svmcore.columns import ResidentGram
    >>> from svmcore.problem import Problem
    >>> problem = Problem(ResidentGram(np.array([[1.0, -1.0], [-1.0, 1.0]])), np.array([1.0, -1.0]), C=10.0)
    >>> SMO().solve(problem).alpha
    array([0.5, 0.5])
    """

    name: ClassVar[str] = "smo"
    working_set: int = 4096
    newcomers: int = 256

    def _solve(self, problem: Problem, alpha: Floats, gradient: Floats | None, monitor: Monitor) -> Outcome:
        if gradient is None and not alpha.any():
            alpha = self._nested_start(problem, alpha, monitor)
        state = MemoryState(problem, alpha, gradient)
        working = self._start_set(problem, state)
        outcome = self._rounds(problem, state, working, monitor)
        working.release()
        return outcome

    def _start_set(self, problem: Problem, state: MemoryState) -> WorkingSet | WholeSet:
        if problem.n <= WHOLE and isinstance(problem.columns, ResidentGram):
            return WholeSet(problem, problem.columns.matrix)
        working = WorkingSet(state, self._set_size(problem), problem.columns.dtype)
        support = np.flatnonzero(state.beta)
        if 0 < len(support) <= working.capacity // 2:  # a warm start: most of them will move
            working.admit(support)
        return working

    def _rounds(
        self, problem: Problem, state: MemoryState, working: WorkingSet | WholeSet, monitor: Monitor
    ) -> Outcome:
        n_iter, wide = 0, False
        while True:
            gap = state.kkt_gap()
            status = self._ends(problem, state, gap, n_iter, monitor)
            if status is not None:
                return Outcome(status, n_iter, np.abs(state.beta))
            steps, unbounded = self._round(problem, state, working, gap, wide, n_iter)
            n_iter += steps
            if unbounded:
                return Outcome(Status.INFEASIBLE, n_iter, np.abs(state.beta))
            if steps == 0:
                if wide:
                    return Outcome(Status.STALLED, n_iter, np.abs(state.beta))
                wide = True

    def _nested_start(self, problem: Problem, alpha: Floats, monitor: Monitor) -> Floats:
        """Alpha of a random quarter of the rows (itself begun on a quarter), solved roughly: few columns are wasted."""
        rows = np.flatnonzero(problem.upper > 0)
        costly = not isinstance(problem.columns, ResidentGram) and hasattr(problem.columns, "take")
        if len(rows) < NEST or not costly:
            return alpha
        rows = np.sort(np.random.default_rng(len(rows)).choice(rows, len(rows) // 4, replace=False))
        part = Problem(
            problem.columns.take(rows),  # type: ignore[attr-defined]
            problem.y[rows],
            np.asarray(problem.C)[rows],
            problem.loss,
            problem.bias,
            problem.psd,
        )
        rough = dataclasses.replace(self, tol=max(10 * self.tol, 1e-2))
        alpha[rows] = rough._solve(part, np.zeros(len(rows)), None, monitor).alpha
        return alpha

    def _ends(self, problem: Problem, state: MemoryState, gap: float, n_iter: int, monitor: Monitor) -> Status | None:
        if gap <= self._aim(problem):
            return Status.CONVERGED
        if 0 <= self.max_iter <= n_iter:
            return Status.MAX_ITER
        if problem.hard_margin and _not_separable(problem, state):
            return Status.INFEASIBLE
        return monitor.stops(n_iter, gap)

    def _round(
        self, problem: Problem, state: MemoryState, working: WorkingSet | WholeSet, gap: float, wide: bool, n_iter: int
    ) -> tuple[int, bool]:
        """Admit violators, solve on the square, apply. Returns steps taken and whether one was unbounded."""
        working.advance(self.newcomers)
        idx, K = working.members, working.square  # K of the members is the square's first q rows and columns
        target = max(0.7 * self._aim(problem), working.precision * gap)
        score, beta = state.score[idx] - self._centre(problem, state), state.beta[idx]
        if wide or FLOAT32_DIGITS * float(np.abs(score).max()) > target:
            K = K[: len(idx), : len(idx)].astype(np.float64)
        score = score.astype(K.dtype)
        limit = STEPS // (len(idx) + 256)
        if self.max_iter >= 0:
            limit = min(limit, self.max_iter - n_iter)
        solve = solve_pairs if problem.bias is Bias.FREE else solve_box
        steps, _, unbounded = solve(K, problem.ridge[idx], score, beta, state.lo[idx], state.hi[idx], target, limit)
        state.apply(idx, beta)
        return steps, unbounded

    @staticmethod
    def _centre(problem: Problem, state: MemoryState) -> float:
        """Middle of m and M: less it, the scores that decide are small, and float32 tells them well apart."""
        return 0.5 * sum(state.extremes()) if problem.bias is Bias.FREE else 0.0

    def _aim(self, problem: Problem) -> float:
        return self.tol * (AIM if problem.columns.dtype == np.float32 else 1.0)

    def _set_size(self, problem: Problem) -> int:
        return min(self.working_set, problem.n, getattr(problem.columns, "capacity", problem.n))


def _not_separable(problem: Problem, state: MemoryState) -> bool:
    """Whether the convex hulls of the classes touch, as far as the columns' precision tells.

    alpha'Q alpha / (sum alpha / 2)^2 is the squared distance of two points of the hulls; with an infinite C the dual
    grows without bound exactly when it reaches 0. Relative to max K_ii.
    """
    total = float(np.abs(state.beta).sum())
    if total == 0.0:
        return False
    w2 = float(state.beta @ (problem.y - state.score - problem.ridge * state.beta))
    distance2 = 4.0 * w2 / total**2
    return distance2 < HULL_DISTANCE[np.dtype(problem.columns.dtype)] * float(problem.diagonal.max())
