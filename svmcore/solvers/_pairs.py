r"""What the SMO family shares: alpha, the f-cache, and the exact step on one pair.

.. math::  f_i = \sum_j \alpha_j y_j K_{ij} + ridge_i \alpha_i y_i - y_i = y_i g_i

A step grows beta_i = y_i alpha_i and shrinks beta_j by the same t, which keeps y'alpha = 0; in the bounds
A_i <= beta_i <= B_i it is t = min(B_i - beta_i, beta_j - A_j, (f_j - f_i) / eta). Which pair, and when to stop, is what
the solvers differ in.

References
----------
Keerthi, Shevade, Bhattacharyya, Murthy (2001), Improvements to Platt's SMO algorithm, Neural Computation 13.
"""

from typing import Any

import numpy as np

from svmcore._numba import njit
from svmcore.columns import CachedColumns, KernelColumns, lookup
from svmcore.points import Floats
from svmcore.problem import Problem
from svmcore.solution import Status
from svmcore.solvers.base import gradient_at

__all__ = ["PairState", "next_violator", "not_separable", "with_lookup"]

CACHE_BYTES = 256 << 20  # of columns, for a source that keeps none
CURVATURE = 1e-12  # eta below this times the diagonal counts as none, as duplicate points give
HULL_DISTANCE = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-9}  # relative, see `not_separable`


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
        self.problem, self.alpha, self.hard_margin = problem, alpha, problem.hard_margin
        self.columns = with_lookup(problem.columns)
        self.diagonal = problem.diagonal + problem.ridge
        self.f = problem.y * (gradient_at(problem, alpha) if gradient is None else gradient)
        i, j, _ = self.extremes()
        self.threshold, self.unbounded = -0.5 * float(self.f[i] + self.f[j]), False

    def extremes(self) -> tuple[int, int, float]:
        """Return (i_up, i_low, b_low - b_up): the smallest f of I_up, the largest of I_low, and the KKT gap."""
        i, j, gap = _extremes(self.f, self.problem.y, self.alpha, self.problem.upper)
        return i, j, gap if i >= 0 and j >= 0 else 0.0

    def kkt_gap(self) -> float:
        """b_low - b_up, at least 0."""
        return max(self.extremes()[2], 0.0)

    def step(self, i: int, j: int, min_change: float = 0.0) -> float:
        """Minimise the dual over alpha_i and alpha_j exactly.

        Returns how far beta_i moved: 0 where it cannot, or would by less than `min_change`.
        """
        K, rows = lookup(self.columns, np.array((i, j)))
        p = self.problem
        t, b = _step(
            i, j, K[rows[0]], K[rows[1]], min_change, self.diagonal, p.shift, p.ridge, p.y, p.upper, self.alpha, self.f
        )
        if t == np.inf:
            self.unbounded = True
            return 0.0
        if t != 0.0:
            self.threshold = b
        return t

    def infeasible(self, n_iter: int = 0) -> Status | None:
        """INFEASIBLE if the hard margin has no solution, looked into every 64 steps (the clock has no say in it)."""
        looks = self.hard_margin and n_iter % 64 == 0
        if self.unbounded or (looks and not_separable(self.problem, self.alpha, self.f)):
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

    alpha_i < upper_i needs y_i E_i >= -tau, alpha_i > 0 needs y_i E_i <= tau, with E_i = f_i + b; unless
    `examine_all`, only rows off their bounds are looked at.
    """
    p = state.problem
    return int(_next_violator(start, state.threshold, tau, examine_all, state.f, p.y, state.alpha, p.upper))


def with_lookup(columns: KernelColumns) -> Any:
    """The source itself if it keeps columns, else a cache over it."""
    return columns if hasattr(columns, "lookup") else CachedColumns(columns, CACHE_BYTES)


@njit
def _extremes(f, y, alpha, upper):  # type: ignore[no-untyped-def]
    """(argmin of f over I_up, argmax of f over I_low, their difference); -1 for an empty set."""
    i_up, i_low, b_up, b_low = -1, -1, np.inf, -np.inf
    for t in range(len(f)):
        can_grow, can_shrink = alpha[t] < upper[t], alpha[t] > 0.0
        if f[t] < b_up and (can_grow if y[t] > 0 else can_shrink):
            i_up, b_up = t, f[t]
        if f[t] > b_low and (can_shrink if y[t] > 0 else can_grow):
            i_low, b_low = t, f[t]
    return i_up, i_low, b_low - b_up


@njit
def _next_violator(start, b, tau, examine_all, f, y, alpha, upper):  # type: ignore[no-untyped-def]
    for i in range(start, len(f)):
        can_grow, can_shrink = alpha[i] < upper[i], alpha[i] > 0.0
        if examine_all or (can_grow and can_shrink):
            error = y[i] * (f[i] + b)
            if (can_grow and error < -tau) or (can_shrink and error > tau):
                return i
    return len(f)


@njit
def _room(i, sign, y, alpha, upper):  # type: ignore[no-untyped-def]
    """How far beta_i can go in the direction `sign`."""
    return upper[i] - alpha[i] if sign * y[i] > 0 else alpha[i]


@njit
def _pair_length(i, j, eta, f, y, alpha, upper):  # type: ignore[no-untyped-def]
    """T that minimises Phi(t) = (f_i - f_j) t + eta t^2 / 2 on the segment; without curvature, its lower end."""
    slope = f[i] - f[j]
    ahead = min(_room(i, 1.0, y, alpha, upper), _room(j, -1.0, y, alpha, upper))
    behind = min(_room(i, -1.0, y, alpha, upper), _room(j, 1.0, y, alpha, upper))
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
def _move(i, t, y, upper, alpha):  # type: ignore[no-untyped-def]
    """beta_i += t; a variable that reaches its bound is put on it exactly."""
    if abs(t) >= _room(i, t, y, alpha, upper):
        alpha[i] = upper[i] if t * y[i] > 0 else 0.0
    else:
        alpha[i] += y[i] * t


@njit
def _threshold(i, j, f, alpha, upper):  # type: ignore[no-untyped-def]
    """Value of b that makes E_i = 0 if alpha_i is off its bounds, else E_j = 0 if alpha_j is, else their mean."""
    if 0.0 < alpha[i] < upper[i]:
        return -f[i]
    return -f[j] if 0.0 < alpha[j] < upper[j] else -0.5 * (f[i] + f[j])


@njit
def _step(i, j, k_i, k_j, min_change, diagonal, shift, ridge, y, upper, alpha, f):  # type: ignore[no-untyped-def]
    """beta_i += t, beta_j -= t, and f of every row, from two columns of K; returns (t, threshold after it)."""
    eta = diagonal[i] + diagonal[j] - 2.0 * (np.float64(k_i[j]) + shift)
    if abs(eta) <= CURVATURE * (diagonal[i] + diagonal[j]):
        eta = 0.0
    t = _pair_length(i, j, eta, f, y, alpha, upper)
    if abs(t) < min_change or t == 0.0 or t == np.inf:
        return t if t == np.inf else 0.0, 0.0
    _move(i, t, y, upper, alpha)
    _move(j, -t, y, upper, alpha)
    for r in range(len(f)):
        f[r] += t * (np.float64(k_i[r]) - np.float64(k_j[r]))
    f[i] += t * ridge[i]
    f[j] -= t * ridge[j]
    return t, _threshold(i, j, f, alpha, upper)
