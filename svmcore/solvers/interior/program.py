r"""The signed program on plain arrays, its KKT gap, and the linear systems of its optimality conditions.

.. math::  \min_\beta \; \tfrac12 \beta'K\beta + \tfrac12 \sum_v r_v \beta_v^2 - p'\beta, \quad
           l \le \beta \le u, \quad \sum_{v \in g} \beta_v = d_g \text{ for each group } g.

With scores s = p - K beta - r beta, group multipliers b and z_l, z_u >= 0 of the bounds: s = A'b - z_l + z_u.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svmcore.solvers.interior.systems import Floats, System

__all__ = ["Newton", "Program"]

REFINEMENTS = 5
SUM_ERROR = 1e-15  # of a group's sum, as a share of the sum of the absolute values: what a repair aims at,
MOST_SUM_ERROR = 5e-13  # and what it may leave


@dataclass(frozen=True)
class Program:
    """The data of the program: K as a system, the others (n,) but `sums` (k,); code -1 is a variable in no group."""

    system: System
    p: Floats
    lo: Floats
    hi: Floats
    ridge: Floats
    codes: Floats
    sums: Floats
    elsewhere: float = 0.0  # sum of the absolute values of variables that are fixed and not here

    @property
    def n(self) -> int:
        """Number of variables."""
        return len(self.p)

    @cached_property
    def members(self) -> Floats:
        """A' (n, k): one where the variable belongs to the group."""
        return (self.codes[:, None] == np.arange(len(self.sums))).astype(float)

    @cached_property
    def curvature(self) -> Floats:
        """K_vv + ridge_v (n,), at least a millionth of the mean: what tells a steep bound from a flat one."""
        diagonal = np.abs(self.system.diagonal) + self.ridge
        return np.maximum(diagonal, max(1e-6 * float(diagonal.mean()), np.finfo(float).tiny))

    @cached_property
    def score_scale(self) -> float:
        """Size of the scores near the answer: at the point of the box next to zero, or at betas with the given sums."""
        typical = float(np.abs(self.sums).sum()) / max(self.n, 1)
        nearest = self.scores(self.clip(np.zeros(self.n)))
        return max(float(np.abs(nearest).max(initial=0.0)), typical * float(self.curvature.mean())) or 1.0

    def scores(self, beta: Floats) -> Floats:
        """P - K beta - ridge beta (n,)."""
        return self.p - self.system.times(beta) - self.ridge * beta

    def residuals(self, beta: Floats) -> Floats:
        """d_g - sum_g beta (k,), summed in extended precision."""
        held = self.members.any(axis=0)
        wide = beta.astype(np.longdouble)
        error = [float(d - wide[self.codes == g].sum()) for g, d in enumerate(self.sums)]
        return np.where(held, error, 0.0)

    def settled(self) -> tuple[Floats, Floats]:
        """Which variables can move (n,) bool, and where the others are (n,), zero for those that can.

        A sum that only one corner of the box has leaves its group no room: nu at its largest, with no interior.
        """
        moving, fixed = self.lo < self.hi, np.where(self.lo < self.hi, 0.0, self.lo)
        for g, total in enumerate(self.sums):
            inside = self.codes == g
            for corner in (self.lo[inside], self.hi[inside]):
                if abs(total - math.fsum(corner)) <= SUM_ERROR * np.abs(corner).sum() < np.inf:
                    moving[inside], fixed[inside] = False, corner
        return moving, fixed

    def sums_hold(self, beta: Floats) -> bool:
        """Whether the sums are right to 1e-12 of the sum of the absolute values."""
        size = np.abs(beta).sum() + self.elsewhere
        return bool(np.abs(self.residuals(beta)).max(initial=0.0) <= MOST_SUM_ERROR * size)

    def clip(self, beta: Floats) -> Floats:
        """The nearest point of the box (n,)."""
        return np.minimum(np.maximum(beta, self.lo), self.hi)

    def kkt_gap(self, beta: Floats, scores: Floats) -> tuple[float, Floats]:
        """Largest gap of a group or projected gradient of a variable in none, and the multipliers (k,)."""
        up, down = scores[beta < self.hi], scores[beta > self.lo]
        up_codes, down_codes = self.codes[beta < self.hi], self.codes[beta > self.lo]
        gap = max(up[up_codes < 0].max(initial=0.0), -down[down_codes < 0].min(initial=0.0))
        multipliers = np.zeros(len(self.sums))
        for g in range(len(self.sums)):
            top, bottom = up[up_codes == g].max(initial=-np.inf), down[down_codes == g].min(initial=np.inf)
            gap = max(gap, top - bottom)
            ends = [end for end in (top, bottom) if np.isfinite(end)]
            multipliers[g] = sum(ends) / len(ends) if ends else 0.0
        return float(gap), multipliers

    def fixed_out(self, keep: Floats, beta: Floats) -> "Program":
        """The program of the variables `keep` (n,) bool while the others stay at `beta` (n,)."""
        rest = np.where(keep, 0.0, beta)
        p = (self.p - self.system.times(rest))[keep] if rest.any() else self.p[keep]
        sums, part = self.residuals(rest), self.rows(keep)
        return Program(part.system, p, part.lo, part.hi, part.ridge, part.codes, sums, float(np.abs(rest).sum()))

    def rows(self, keep: Floats) -> "Program":
        """The same for the variables `keep` (n,) bool alone, as if the others were zero."""
        p, lo, hi, ridge, codes = (field[keep] for field in (self.p, self.lo, self.hi, self.ridge, self.codes))
        return Program(self.system.rows(keep), p, lo, hi, ridge, codes, self.sums)

    def with_sums(self, beta: Floats, scores: Floats) -> Floats:
        """`beta` (n,) with the sums repaired to rounding: the variables that it costs least move, room permitting."""
        beta = beta.copy()
        for g, error in enumerate(self.residuals(beta)):
            inside = np.flatnonzero(self.codes == g)
            if len(inside):
                _shift(self, beta, scores, inside, error)
        return beta


def _shift(program: Program, beta: Floats, scores: Floats, group: Floats, error: float) -> None:
    """Move variables of `group` until their sum has grown by `error`, in place.

    A free variable takes it if one has the room: its equals have the same score. Else in the order of the scores.
    """
    for _ in range(4):
        if abs(error) <= SUM_ERROR * np.abs(beta[group]).sum():
            return
        rising = error > 0
        wall = (program.hi if rising else program.lo)[group]
        room = np.minimum(beta[group] - program.lo[group], program.hi[group] - beta[group])
        if room.max() > abs(error):
            beta[group[room.argmax()]] += error
        else:
            order = np.argsort(-scores[group] if rising else scores[group], kind="stable")
            v, ends = group[order], wall[order]
            ahead = np.cumsum(np.abs(ends - beta[v]))
            full = ahead <= abs(error)
            part = int(full.sum())
            if part < len(v):
                beta[v[part]] += math.copysign(abs(error) - (ahead[part - 1] if part else 0.0), error)
            beta[v[full]] = ends[full]
            beta[group] = np.clip(beta[group], program.lo[group], program.hi[group])
        error = program.residuals(beta)[program.codes[group[0]]]


class Newton:
    """Solves (K + diag D) dx + A'dy = r, A dx = e; refined until the residual stands still.

    The border sqrt(rho) A' inside the factor changes nothing where A dx is known, and makes definite what has as many
    free variables as K has rank, plus one for each group.
    """

    def __init__(self, program: Program, D: Floats) -> None:
        self.system, self.A, self.D = program.system, program.members.T, D
        self.rho = float(np.abs(program.system.diagonal).mean()) or float(program.curvature.mean())
        self.factor = self.system.factorise(D, math.sqrt(self.rho) * program.members)
        self.solved = np.array([self.factor.solve(a) for a in self.A]).reshape(self.A.shape)
        schur = self.A @ self.solved.T
        self.schur = np.linalg.pinv(schur) if np.isfinite(schur).all() else schur  # of a group without members: zero

    def _once(self, r: Floats, e: Floats) -> tuple[Floats, Floats]:
        x = self.factor.solve(r + self.rho * (e @ self.A))
        if not len(e):
            return x, e
        y = self.schur @ (self.A @ x - e)
        return x - y @ self.solved, y

    def solve(self, r: Floats, e: Floats, goal: float = 0.0) -> tuple[Floats, Floats, float]:
        """The steps dx (n,) and dy (k,), and the largest residual that is left in the first equation.

        Refined while that pays and the residual is above `goal`.
        """
        x, y = self._once(r, e)
        best, error, goal = (x, y), np.inf, max(goal, 1e-14 * float(np.abs(r).max(initial=0.0)))
        for _ in range(REFINEMENTS):
            left = r - self.system.times(x) - self.D * x - y @ self.A
            before, now = error, float(np.abs(left).max())
            if not now < error:
                break
            best, error = (x, y), now
            if now <= goal or now > 0.5 * before:
                break
            dx, dy = self._once(left, e - self.A @ x)
            x, y = x + dx, y + dy
        return *best, error
