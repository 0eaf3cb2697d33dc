"""The production solver: SMO on working sets, over any source of columns.

A round takes the worst violators of both ends, solves the problem restricted to them on the contiguous square of K
with compiled second-order SMO (`_smo_passes`), and applies what changed to the gradient of all rows in one pass. The
loop talks to the n-vectors only through `WorkingSetState`, so they may live in memory or in shards.
"""

import dataclasses
from typing import ClassVar, Protocol

import numpy as np

from svmcore.columns import add_columns, lookup
from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.problem import Bias, Problem
from svmcore.solution import Status
from svmcore.solvers._smo_passes import gather_square, solve_box, solve_pairs
from svmcore.solvers.base import Outcome, Solver

__all__ = ["SMO", "MemoryState", "WorkingSetState"]

FLOAT32_DIGITS = 2e-6  # a gap below this times the largest score is solved for in float64
HULL_DISTANCE = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-9}  # relative, see `_not_separable`


class WorkingSetState(Protocol):
    """What a round talks to: it holds y, upper, ridge, gradient for its rows."""

    def extremes(self) -> tuple[float, float]:
        """m(alpha), M(alpha) over all rows."""

    def candidates(self, q: int) -> Floats:
        """Indices of at most q rows: the worst violators from both ends."""

    def square(self, idx: Floats, dtype: np.dtype) -> Floats:
        """K[idx, idx], contiguous."""

    def apply(self, idx: Floats, delta: Floats) -> None:
        """Add `delta` to beta = y alpha at `idx` and bring the scores of all rows up to date."""


class MemoryState:
    """Working-set state over columns in memory: scores s = -y g and signed variables beta = y alpha, float64."""

    def __init__(self, problem: Problem, alpha: Floats, gradient: Floats | None) -> None:
        y, upper = problem.y, problem.upper
        self.problem = problem
        self.lo = np.where(y > 0, 0.0, -upper)
        self.hi = np.where(y > 0, upper, 0.0)
        self.beta = y * alpha
        self.previous = np.empty(0, dtype=np.int64)
        if gradient is not None:
            self.score = -y * gradient
        else:
            self.score = y.copy()
            moved = np.flatnonzero(alpha)
            for start in range(0, len(moved), 256):
                part = moved[start : start + 256]
                self._update_scores(part, self.beta[part])

    def _update_scores(self, idx: Floats, delta: Floats) -> None:
        matrix, rows = lookup(self.problem.columns, idx)
        add_columns(matrix, rows, -delta, self.score)
        self.score[idx] -= self.problem.ridge[idx] * delta
        if self.problem.shift:
            self.score -= self.problem.shift * delta.sum()

    def extremes(self) -> tuple[float, float]:
        """m(alpha) and M(alpha); without the equality, the largest violations of growing and of shrinking."""
        m = float(np.where(self.beta < self.hi, self.score, -np.inf).max())
        low = float(np.where(self.beta > self.lo, self.score, np.inf).min())
        if self.problem.bias is not Bias.FREE:
            return max(m, 0.0), min(low, 0.0)
        return m, low

    def kkt_gap(self) -> float:
        """M - M, at least 0; without the equality, the larger of the two violations."""
        m, low = self.extremes()
        return max(m - low, 0.0) if self.problem.bias is Bias.FREE else max(m, -low)

    def candidates(self, q: int) -> Floats:
        """Up to q / 2 worst violators from each end, then the free members of the previous set."""
        m, low = self.extremes()
        up = np.where((self.beta < self.hi) & (self.score > low), self.score, -np.inf)
        down = np.where((self.beta > self.lo) & (self.score < m), -self.score, -np.inf)
        kept = self.previous[: q // 2]
        half = (q - len(kept)) // 2
        chosen = np.unique(np.concatenate([_largest(up, half), _largest(down, half)]))
        self.previous = np.concatenate([chosen, np.setdiff1d(kept, chosen, assume_unique=True)])
        return self.previous

    def square(self, idx: Floats, dtype: np.dtype) -> Floats:
        """K[idx, idx] + shift, contiguous, of the asked type."""
        matrix, rows = lookup(self.problem.columns, idx)
        out = np.empty((len(idx), len(idx)), dtype)
        gather_square(matrix, rows, idx, out)
        if self.problem.shift:
            out += self.problem.shift
        return out

    def apply(self, idx: Floats, delta: Floats) -> None:
        """Scores of all rows after beta[idx] += delta: only columns that changed are read."""
        moved = delta != 0
        self._update_scores(idx[moved], delta[moved])


def _largest(values: Floats, count: int) -> Floats:
    """Indices of the `count` largest finite values, O(n)."""
    count = min(count, len(values))
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    top = np.argpartition(values, len(values) - count)[len(values) - count :]
    return top[np.isfinite(values[top])]


@dataclasses.dataclass(frozen=True)
class SMO(Solver):
    """Sequential minimal optimisation with second-order working sets.

    Parameters
    ----------
    tol, max_iter, time_limit
        See `Solver`; `max_iter` counts pair steps.
    working_set
        Rows of a working set.

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
    working_set: int = 1024

    def _solve(self, problem: Problem, alpha: Floats, gradient: Floats | None, monitor: Monitor) -> Outcome:
        state = MemoryState(problem, alpha, gradient)
        n_iter, wide = 0, problem.columns.dtype == np.float64
        while True:
            gap = state.kkt_gap()
            status = self._ends(problem, state, gap, n_iter, monitor)
            if status is not None:
                return Outcome(status, n_iter, problem.y * state.beta)
            steps, unbounded = self._round(problem, state, gap, wide, n_iter)
            n_iter += steps
            if unbounded:
                return Outcome(Status.INFEASIBLE, n_iter, problem.y * state.beta)
            if steps == 0:
                if wide:
                    return Outcome(Status.STALLED, n_iter, problem.y * state.beta)
                wide = True

    def _ends(self, problem: Problem, state: MemoryState, gap: float, n_iter: int, monitor: Monitor) -> Status | None:
        if gap <= self.tol:
            return Status.CONVERGED
        if 0 <= self.max_iter <= n_iter:
            return Status.MAX_ITER
        if problem.hard_margin and _not_separable(problem, state):
            return Status.INFEASIBLE
        return monitor.stops(n_iter, gap)

    def _round(self, problem: Problem, state: MemoryState, gap: float, wide: bool, n_iter: int) -> tuple[int, bool]:
        """One working set: select, solve on its square, apply. Returns steps taken and whether one was unbounded."""
        idx = state.candidates(self._set_size(problem))
        target = max(0.5 * self.tol, 0.1 * gap)
        wide = wide or FLOAT32_DIGITS * float(np.abs(state.score[idx]).max()) > target
        K = state.square(idx, np.dtype(np.float64 if wide else problem.columns.dtype))
        score, beta = state.score[idx].astype(K.dtype), state.beta[idx]
        limit = 200 * len(idx)
        if self.max_iter >= 0:
            limit = min(limit, self.max_iter - n_iter)
        solve = solve_pairs if problem.bias is Bias.FREE else solve_box
        steps, _, unbounded = solve(K, problem.ridge[idx], score, beta, state.lo[idx], state.hi[idx], target, limit)
        delta = beta - state.beta[idx]
        state.beta[idx] = beta
        state.apply(idx, delta)
        return steps, unbounded

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
