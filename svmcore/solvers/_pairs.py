r"""What the SMO family shares: alpha, the f-cache, and the exact step on one pair.

.. math::  f_i = \sum_j \alpha_j y_j K_{ij} + ridge_i \alpha_i y_i - y_i = y_i g_i

A step grows beta_i = y_i alpha_i and shrinks beta_j by the same t, which keeps y'alpha = 0; in the bounds
A_i <= beta_i <= B_i it is t = min(B_i - beta_i, beta_j - A_j, (f_j - f_i) / eta). Which pair, and when to stop, is what
the solvers differ in.

References
----------
Keerthi, Shevade, Bhattacharyya, Murthy (2001), Improvements to Platt's SMO algorithm, Neural Computation 13.
"""

from typing import Any, NamedTuple

import numpy as np

from svmcore._numba import njit
from svmcore.columns import CachedColumns, KernelColumns, ResidentGram, lookup
from svmcore.points import Floats
from svmcore.problem import Problem
from svmcore.solution import Status
from svmcore.solvers.base import gradient_at

__all__ = ["PairState", "farthest", "next_violator", "not_separable", "with_lookup"]

CACHE_BYTES = 256 << 20  # of columns, for a source that keeps none
PASS_FLOPS = 1e7  # of one compiled pass: a few milliseconds
LOOKS = 64  # steps of a hard margin between two looks whether the classes can be separated
BLOCK = 512  # rows that a scan takes the minimum of at once
LARGEST = np.int64(0x7FFFFFFFFFFFFFFF)
FAR = 1e300  # keeps a row out of a scan
CURVATURE = 1e-12  # eta below this times the diagonal counts as none, as duplicate points give
HULL_DISTANCE = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-9}  # relative, see `not_separable`


class PairArrays(NamedTuple):
    """What the compiled passes work on, all (n,) float64; alpha, f, up, low change in place.

    `up` is 0 for the rows whose beta can grow (I_up), `low` for those whose beta can shrink (I_low), else FAR: a scan
    adds them instead of branching.
    """

    alpha: Floats
    f: Floats
    up: Floats
    low: Floats
    y: Floats
    upper: Floats
    ridge: Floats
    diagonal: Floats


class PairState:
    """alpha (n,), changed in place, and f (n,) of one problem.

    Attributes
    ----------
    threshold
        b of f(x) + b, from the last pair: the mean of those that make the errors of i and of j zero, or the one whose
        alpha is off its bounds.
    unbounded
        Whether a step met no bound and no curvature: a hard margin that nothing separates.
    """

    def __init__(self, problem: Problem, alpha: Floats, gradient: Floats | None) -> None:
        self.problem, self.hard_margin = problem, problem.hard_margin
        self.columns = with_lookup(problem.columns)
        self.gram = self.columns.matrix if isinstance(self.columns, ResidentGram) else None
        y, grows, shrinks = problem.y, alpha < problem.upper, alpha > 0.0
        self.arrays = PairArrays(
            alpha=alpha,
            f=y * (gradient_at(problem, alpha) if gradient is None else gradient),
            up=np.where(np.where(y > 0, grows, shrinks), 0.0, FAR),
            low=np.where(np.where(y > 0, shrinks, grows), 0.0, FAR),
            y=y,
            upper=problem.upper,
            ridge=problem.ridge,
            diagonal=problem.diagonal + problem.ridge,
        )
        i, j, _ = self.extremes()
        self.threshold, self.unbounded = -0.5 * float(self.arrays.f[i] + self.arrays.f[j]), False

    def extremes(self) -> tuple[int, int, float]:
        """Return (i_up, i_low, b_low - b_up): the smallest f of I_up, the largest of I_low, and the KKT gap."""
        f, up, low = self.arrays.f, self.arrays.up, self.arrays.low
        i, j = _extremes(f, up, low)
        return i, j, float(f[j] - f[i]) if up[i] == low[j] == 0.0 else 0.0

    def kkt_gap(self) -> float:
        """b_low - b_up, at least 0."""
        return max(self.extremes()[2], 0.0)

    def step(self, i: int, j: int, min_change: float = 0.0) -> float:
        """Minimise the dual over alpha_i and alpha_j exactly.

        Returns how far beta_i moved: 0 where it cannot, or would by less than `min_change`.
        """
        if self.gram is not None:
            K_i, K_j = self.gram[i], self.gram[j]
        else:
            matrix, rows = lookup(self.columns, np.array((i, j)))
            K_i, K_j = matrix[rows[0]], matrix[rows[1]]
        t, b = _step(i, j, K_i, K_j, self.problem.shift, min_change, self.arrays)
        if t == np.inf:
            self.unbounded = True
        elif t != 0.0:
            self.threshold = b
        return 0.0 if self.unbounded else t

    def maximal_steps(self, tol: float, limit: int) -> int:
        """Steps on the maximal violating pair: a few milliseconds of them where K is in memory, else one."""
        if self.gram is None:
            i, j, _ = self.extremes()
            return int(self.step(i, j) != 0.0)
        limit = min(limit, self._steps_in_a_pass())
        steps, self.unbounded = maximal_pass(self.gram, self.problem.shift, tol, limit, self.arrays)
        return steps

    def sweep_steps(self, start: int, tau: float, examine_all: bool, limit: int) -> tuple[int, int]:
        """Steps of a sweep of Platt's from row `start` on: returns (steps, the row to go on from); as above."""
        if self.gram is None:
            i = next_violator(self, start, tau, examine_all)
            j = farthest(self, i) if i < self.problem.n else -1
            return int(j >= 0 and self.step(i, j) != 0.0), i + 1
        limit = min(limit, self._steps_in_a_pass())
        steps, start, self.threshold, self.unbounded = sweep_pass(
            self.gram, self.problem.shift, start, self.threshold, tau, examine_all, limit, self.arrays
        )
        return steps, start

    def _steps_in_a_pass(self) -> int:
        return LOOKS if self.hard_margin else max(1, int(PASS_FLOPS / self.problem.n))

    def infeasible(self) -> Status | None:
        """INFEASIBLE if the hard margin has no solution, as far as can be seen."""
        looks = self.hard_margin and not self.unbounded
        if self.unbounded or (looks and not_separable(self.problem, self.arrays.alpha, self.arrays.f)):
            return Status.INFEASIBLE
        return None


def not_separable(problem: Problem, alpha: Floats, f: Floats) -> bool:
    """Whether the convex hulls of the classes touch, as far as the columns' precision tells.

    4 w'w / (sum_i alpha_i)^2 is the squared distance of two points of the hulls; with an infinite C the dual grows
    without bound exactly when it reaches 0. Relative to max K_ii.
    """
    total = float(alpha.sum())
    if total == 0.0:
        return False
    coef = problem.y * alpha
    norm2 = float(coef @ (f + problem.y - problem.ridge * coef))
    limit = HULL_DISTANCE[np.dtype(problem.columns.dtype)] * float(problem.diagonal.max())
    return 4.0 * norm2 / total**2 < limit


def next_violator(state: PairState, start: int, tau: float, examine_all: bool) -> int:
    """First row >= `start` that violates its KKT condition at the threshold by more than tau, or n.

    Rows of I_up need E_i >= -tau, rows of I_low need E_i <= tau, with E_i = f_i + b; unless `examine_all`, only rows
    off their bounds, in both sets, are looked at.
    """
    return int(_next_violator(start, state.threshold, tau, examine_all, state.arrays))


def farthest(state: PairState, i: int) -> int:
    """Row with the largest abs(E_i - E_j) that can move with the violator i, or -1; the threshold cancels."""
    return int(_farthest(i, state.threshold, state.arrays))


def with_lookup(columns: KernelColumns) -> Any:
    """The source itself if it keeps columns, else a cache over it."""
    return columns if hasattr(columns, "lookup") else CachedColumns(columns, CACHE_BYTES)


@njit
def _key(x):  # type: ignore[no-untyped-def]
    """An integer in the order of the floats: integer minima vectorise, float minima do not."""
    bits = np.float64(x).view(np.int64)
    return bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFFFFFFFFFFFFFF))


@njit
def _find(sign, f, penalty, block, best):  # type: ignore[no-untyped-def]
    """First index of the block whose key is `best`."""
    for t in range(block, min(block + BLOCK, len(f))):
        if _key(sign * f[t] + penalty[t]) == best:
            return t
    return 0


@njit
def _argmin(sign, f, penalty):  # type: ignore[no-untyped-def]
    """Index of the smallest sign f + penalty; the index is looked for in the winning block alone."""
    best, winner = LARGEST, 0
    for block in range(0, len(f), BLOCK):
        score, far = f[block : block + BLOCK], penalty[block : block + BLOCK]
        least = LARGEST
        for c in range(len(score)):
            least = min(least, _key(sign * score[c] + far[c]))
        if least < best:
            best, winner = least, block
    return _find(sign, f, penalty, winner, best)


@njit
def _extremes(f, up, low):  # type: ignore[no-untyped-def]
    """(argmin of f over I_up, argmax of f over I_low)."""
    return _argmin(1.0, f, up), _argmin(-1.0, f, low)


@njit
def _update_and_extremes(f, t, k_i, k_j, up, low):  # type: ignore[no-untyped-def]
    """F += t (k_i - k_j) and `_extremes` of the new f, in one sweep over memory."""
    best_up, best_low, winner_up, winner_low = LARGEST, LARGEST, 0, 0
    for block in range(0, len(f), BLOCK):
        stop = block + BLOCK
        score, a, b, far_up, far_low = f[block:stop], k_i[block:stop], k_j[block:stop], up[block:stop], low[block:stop]
        least_up, least_low = LARGEST, LARGEST
        for c in range(len(score)):
            x = score[c] + t * (np.float64(a[c]) - np.float64(b[c]))
            score[c] = x
            least_up = min(least_up, _key(x + far_up[c]))
            least_low = min(least_low, _key(far_low[c] - x))
        if least_up < best_up:
            best_up, winner_up = least_up, block
        if least_low < best_low:
            best_low, winner_low = least_low, block
    return _find(1.0, f, up, winner_up, best_up), _find(-1.0, f, low, winner_low, best_low)


@njit
def _next_violator(start, b, tau, examine_all, arrays):  # type: ignore[no-untyped-def]
    f, up, low = arrays.f, arrays.up, arrays.low
    for i in range(start, len(f)):
        if ((f[i] + b < -tau and up[i] == 0.0) or (f[i] + b > tau and low[i] == 0.0)) and (
            examine_all or up[i] + low[i] == 0.0
        ):
            return i
    return len(f)


@njit
def _farthest(i, b, arrays):  # type: ignore[no-untyped-def]
    f, up, low = arrays.f, arrays.up, arrays.low
    if f[i] + b < 0.0:
        j = _argmin(-1.0, f, low)
        return j if low[j] == 0.0 and f[j] > f[i] else -1
    j = _argmin(1.0, f, up)
    return j if up[j] == 0.0 and f[j] < f[i] else -1


@njit
def _room(i, sign, arrays):  # type: ignore[no-untyped-def]
    """How far beta_i can go in the direction `sign`."""
    return arrays.upper[i] - arrays.alpha[i] if sign * arrays.y[i] > 0 else arrays.alpha[i]


@njit
def _pair_length(i, j, eta, arrays):  # type: ignore[no-untyped-def]
    """T that minimises Phi(t) = (f_i - f_j) t + eta t^2 / 2 on the segment; without curvature, its lower end."""
    slope = arrays.f[i] - arrays.f[j]
    ahead = min(_room(i, 1.0, arrays), _room(j, -1.0, arrays))
    behind = min(_room(i, -1.0, arrays), _room(j, 1.0, arrays))
    if eta > 0.0:
        return min(max(-slope / eta, -behind), ahead)
    downhill, uphill = (ahead, -behind) if slope < 0.0 else (-behind, ahead)
    if slope == 0.0 and eta == 0.0:
        return 0.0
    if np.isinf(downhill) or eta == 0.0:
        return abs(downhill) if np.isinf(downhill) else downhill
    rise = slope * (uphill - downhill) + 0.5 * eta * (uphill**2 - downhill**2)
    return uphill if rise < 0.0 else downhill


@njit
def _move(i, t, arrays):  # type: ignore[no-untyped-def]
    """beta_i += t; a variable that reaches its bound is put on it exactly, and leaves I_up or I_low."""
    alpha, grows = arrays.alpha, t * arrays.y[i] > 0
    if abs(t) >= _room(i, t, arrays):
        alpha[i] = arrays.upper[i] if grows else 0.0
    else:
        alpha[i] += arrays.y[i] * t
    can_grow, can_shrink = alpha[i] < arrays.upper[i], alpha[i] > 0.0
    arrays.up[i] = 0.0 if (can_grow if arrays.y[i] > 0 else can_shrink) else FAR
    arrays.low[i] = 0.0 if (can_shrink if arrays.y[i] > 0 else can_grow) else FAR


@njit
def _threshold(i, j, arrays):  # type: ignore[no-untyped-def]
    """Value of b that makes E_i = 0 if alpha_i is off its bounds, else E_j = 0 if alpha_j is, else their mean."""
    if arrays.up[i] + arrays.low[i] == 0.0:
        return -arrays.f[i]
    return -arrays.f[j] if arrays.up[j] + arrays.low[j] == 0.0 else -0.5 * (arrays.f[i] + arrays.f[j])


@njit
def _change(i, j, K_ij, shift, min_change, arrays):  # type: ignore[no-untyped-def]
    """beta_i += t, beta_j -= t by the best t, which is returned: 0 for no step, inf for no bound; f but for K."""
    scale = arrays.diagonal[i] + arrays.diagonal[j]
    eta = scale - 2.0 * (np.float64(K_ij) + shift)
    t = _pair_length(i, j, 0.0 if abs(eta) <= CURVATURE * scale else eta, arrays)
    if abs(t) < min_change or t == 0.0 or t == np.inf:
        return t if t == np.inf else 0.0
    _move(i, t, arrays)
    _move(j, -t, arrays)
    arrays.f[i] += t * arrays.ridge[i]
    arrays.f[j] -= t * arrays.ridge[j]
    return t


@njit
def _step(i, j, k_i, k_j, shift, min_change, arrays):  # type: ignore[no-untyped-def]
    """`_change`, and f of every row from two columns of K; returns (t, threshold after it)."""
    t = _change(i, j, k_i[j], shift, min_change, arrays)
    if t == 0.0 or t == np.inf:
        return t, 0.0
    f = arrays.f
    for r in range(len(f)):
        f[r] += t * (np.float64(k_i[r]) - np.float64(k_j[r]))
    return t, _threshold(i, j, arrays)


@njit
def maximal_pass(K, shift, tol, limit, arrays):  # type: ignore[no-untyped-def]
    """At most `limit` steps on the maximal violating pair; returns (steps, whether one was unbounded)."""
    f, up, low = arrays.f, arrays.up, arrays.low
    i, j = _extremes(f, up, low)
    for steps in range(limit):
        if up[i] > 0.0 or low[j] > 0.0 or f[j] - f[i] <= tol:
            return steps, False
        t = _change(i, j, K[i, j], shift, 0.0, arrays)
        if t == 0.0 or t == np.inf:
            return steps, t == np.inf
        i, j = _update_and_extremes(f, t, K[i], K[j], up, low)
    return limit, False


@njit
def sweep_pass(K, shift, start, b, tau, examine_all, limit, arrays):  # type: ignore[no-untyped-def]
    """At most `limit` steps with the violators from `start` on; returns (steps, next row, threshold, unbounded)."""
    steps = 0
    i = _next_violator(start, b, tau, examine_all, arrays)
    while i < len(arrays.f) and steps < limit:
        j = _farthest(i, b, arrays)
        if j >= 0:
            t, threshold = _step(i, j, K[i], K[j], shift, 0.0, arrays)
            if t == np.inf:
                return steps, i, b, True
            if t != 0.0:
                b = threshold
                steps += 1
        i = _next_violator(i + 1, b, tau, examine_all, arrays)
    return steps, i, b, False
