r"""Newton's method on the primal of the squared hinge, with a kernel or, where the rows are few-dimensional, linear.

With r_v = sign_v (p_v - f_v) the loss of a variable with a ridge is max(0, r_v)^2 / (2 ridge_v), sign_v the side of its
box. With A the variables that have a loss, a full Newton step minimises the quadratic that the primal is as long as A
does not change. In feature space, with w = sum_v beta_v phi(x_v),

.. math::  (K_{AA} + \mathrm{diag}(ridge)) \, \beta_A + b = p_A, \qquad \beta_v = 0 \text{ elsewhere,}

which is (K + 2 C S) beta = 2 C v with ridge = 1 / (2 C) and the singular factor K cancelled; a linear kernel with
r < n features solves (I + G_A' ridge^-1 G_A) w = G_A' ridge^-1 p_A instead and has beta_A = (p_A - f_A) / ridge. A free
bias adds the sum of the group.
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import linalg

from svmcore.monitor import Monitor
from svmcore.passes.matrix.gather import gather_square
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, Solver, Solves, box_gap, linear_rows
from svmcore.solvers.textbook.pairs import CACHE_BYTES
from svmcore.sources import RowMap
from svmcore.sources.base import matvec
from svmcore.sources.cached import kept
from svmcore.tasks.losses import SquaredHinge

__all__ = ["PrimalNewton"]

FARTHEST = 1e6  # multiple of a Newton step that a line search looks at
RIDGE = 1e-12  # relative, added to a matrix that is not positive definite


@dataclass(eq=False)
class Iterate:
    """A classifier: w = sum_i beta_i phi(x_i), its outputs K beta (n,) without the bias, and the bias."""

    beta: Floats
    outputs: Floats
    bias: float

    def towards(self, other: "Iterate", t: float) -> "Iterate":
        """The point (1 - t) self + t other."""
        mix = [(1.0 - t) * getattr(self, f.name) + t * getattr(other, f.name) for f in dataclasses.fields(self)]
        return Iterate(*mix)


@dataclass(frozen=True)
class PrimalNewton(Solver):
    """Newton directions on the primal, each followed to the lowest point of its ray.

    K is float64: rounded to float32 it can be indefinite. At the optimum y beta = 2 C max(0, 1 - y f) exactly, which is
    the feasible point that the certificate judges. One step costs the Cholesky factor of the rows inside the margin,
    all of them in the first: n = 10,000 takes about a minute. `max_iter` counts Newton steps.

    References
    ----------
    Zaki, Meira (2014), Data mining and analysis, Algorithms 23.2 and 23.3; Chapelle (2007), Training a support vector
    machine in the primal, Neural Computation 19.
    """

    name: ClassVar[str] = "primal-newton"
    solves: ClassVar[Solves] = Solves(losses=(SquaredHinge,), hard_margin=False, psd_only=True, float32=False)

    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        model = _Primal(qp)
        system = _system(self.name, model)
        now = goal = model.start(system, beta)
        while True:
            beta, gap = model.dual_point(system, goal)
            status = self.ends(gap, n_iter, monitor)
            if status is not None:
                return Outcome(status, n_iter, qp.feasible(beta))
            goal = system.minimiser(model.short(now), now.bias)
            step = model.line_search(now, goal)
            if step is None:
                return Outcome(Status.STALLED, n_iter, qp.feasible(beta))
            now, n_iter = step, n_iter + 1


class _Primal:
    """The primal of a program whose variables all have a ridge and a box on one side of 0."""

    def __init__(self, qp: SignedQP) -> None:
        self.qp, self.free = qp, bool(qp.groups.sums)
        self.total = qp.groups.sums[0] if self.free else 0.0
        self.used = qp.hi > qp.lo
        self.sign = np.where(qp.hi > 0, 1.0, -1.0)
        self.weight = np.divide(1.0, qp.ridge, out=np.zeros(qp.m), where=self.used)  # 2 C

    def residual(self, at: Iterate) -> Floats:
        """Sign (p - f) (m,): above 0 it costs a loss."""
        return self.sign * (self.qp.p - at.outputs - at.bias)

    def short(self, at: Iterate) -> Floats:
        """Indices of the variables with a loss."""
        return np.flatnonzero((self.residual(at) > 0.0) & self.used)

    def start(self, system: "KernelSystem | LinearSystem", beta: Floats) -> Iterate:
        """The function of `beta` (m,); a free bias is the mean of what its support vectors say."""
        outputs, support = system.outputs(beta), np.flatnonzero(beta)
        bias = 0.0
        if self.free and len(support):
            bias = float((self.qp.p - outputs - self.qp.ridge * beta)[support].mean())
        return Iterate(beta, outputs, bias)

    def dual_point(self, system: "KernelSystem | LinearSystem", at: Iterate) -> tuple[Floats, float]:
        """Feasible beta (m,), on its side of 0, and its KKT gap."""
        qp = self.qp
        beta = self.sign * np.maximum(self.sign * at.beta, 0.0)
        outputs = at.outputs if np.array_equal(beta, at.beta) else system.outputs(beta)
        score = qp.p - outputs - at.bias - qp.ridge * beta
        ends = 2.0 if self.free else 1.0  # max - min counts the violations of both signs
        return beta, ends * box_gap(score, beta, qp.lo, qp.hi)

    def line_search(self, now: Iterate, goal: Iterate) -> Iterate | None:
        """The minimum of the primal on the ray from `now` through `goal`; None if rounding leaves no descent."""
        from scipy import optimize  # a quarter of a second that other solvers do not need

        residual = self.residual(now)
        change = self.residual(goal) - residual
        direction, pull = goal.beta - now.beta, self.weight * change
        linear = float(direction @ now.outputs) + (goal.bias - now.bias) * self.total
        quadratic = float(direction @ (goal.outputs - now.outputs))

        def slope(t: float) -> float:
            return float(linear + t * quadratic + pull @ np.maximum(0.0, residual + t * change))

        far = 1.0
        while slope(far) < 0.0 and far < FARTHEST:
            far *= 2.0
        return now.towards(goal, float(optimize.brentq(slope, 0.0, far))) if slope(0.0) < 0.0 <= slope(far) else None


class KernelSystem:
    """Newton steps through the square of K at the variables with a loss."""

    def __init__(self, model: _Primal) -> None:
        self.model, self.source = model, kept(model.qp.source, CACHE_BYTES)

    def outputs(self, beta: Floats) -> Floats:
        """(K + shift) beta (n,)."""
        return matvec(self.source, beta) + self.model.qp.shift * beta.sum()

    def minimiser(self, short: Floats, bias: float) -> Iterate:
        """The minimum of the primal while the variables with a loss stay the same."""
        model, beta = self.model, np.zeros(self.model.qp.m)
        if len(short):
            solved = _solve(self._square(short), np.column_stack([model.qp.p[short], np.ones(len(short))]))
            if model.free:
                bias = (solved[:, 0].sum() - model.total) / solved[:, 1].sum()
            beta[short] = solved[:, 0] - bias * solved[:, 1]
        return Iterate(beta, self.outputs(beta), float(bias))

    def _square(self, short: Floats) -> Floats:
        """K_AA + shift + diag(ridge_A)."""
        qp, H = self.model.qp, np.empty((len(short), len(short)))
        step = self.source.capacity
        for start in range(0, len(short), step):
            matrix, rows = self.source.lookup(short[start : start + step])
            gather_square(matrix, rows, short, H[start : start + step])
        H += qp.shift
        H.flat[:: len(H) + 1] += qp.ridge[short]
        return H


class LinearSystem:
    """Newton steps in the r weights of K = GG'; the last one is a free bias, outside the norm."""

    def __init__(self, model: _Primal, rows: RowMap) -> None:
        self.model, self.rows = model, rows

    def outputs(self, beta: Floats) -> Floats:
        """G G'beta (n,)."""
        return self.rows.times(self.rows.weights(beta))

    def minimiser(self, short: Floats, bias: float) -> Iterate:
        """The minimum of the primal while the variables with a loss stay the same."""
        model, beta, part = self.model, np.zeros(self.model.qp.m), self.rows.take(short)
        solved = _solve(*self._normal(part, short, model.free and len(short) > 0))
        w, bias = solved[: self.rows.rank], (float(solved[-1]) if len(solved) > self.rows.rank else bias)
        beta[short] = model.weight[short] * (model.qp.p[short] - part.times(w) - bias)
        return Iterate(beta, self.outputs(beta), bias)  # of w they would be off by what rounding left of beta

    def _normal(self, part: RowMap, short: Floats, with_bias: bool) -> tuple[Floats, Floats]:
        """I + G_A' ridge^-1 G_A, with a row for the bias, and its right-hand side."""
        model, r = self.model, self.rows.rank
        p, weights = model.qp.p[short], model.weight[short]
        H, right = np.zeros((r + with_bias, r + with_bias)), np.zeros(r + with_bias)
        H[:r, :r], right[:r] = part.normal_matrix(weights), part.weights(weights * p)
        H.flat[: r * (len(H) + 1) : len(H) + 1] += 1.0
        if with_bias:
            H[r, :r] = H[:r, r] = part.weights(weights)
            H[r, r], right[r] = weights.sum(), weights @ p - model.total
        return H, right


def _system(solver: str, model: _Primal) -> KernelSystem | LinearSystem:
    """The smaller of the two systems; the linear one needs the rows of a linear kernel."""
    if model.qp.source.factor() is None:
        return KernelSystem(model)
    rows = linear_rows(solver, model.qp)
    return LinearSystem(model, rows) if rows.rank < model.qp.m else KernelSystem(model)


def _solve(H: Floats, right: Floats) -> Floats:
    """H^-1 right by Cholesky; a ridge, growing tenfold, makes H positive definite where rounding has it singular."""
    ridge = 0.0
    while True:
        try:
            return linalg.cho_solve(linalg.cho_factor(H, lower=True, check_finite=False), right, check_finite=False)
        except linalg.LinAlgError:
            more = RIDGE * max(float(np.abs(H.diagonal()).max()), 1e-300) if ridge == 0.0 else 9.0 * ridge
            ridge += more
            if not np.isfinite(ridge):  # not a number in H: what is solved is none either, and no step is taken
                return np.full_like(right, np.nan)
            H.flat[:: len(H) + 1] += more
