r"""Newton's method on the primal of the squared hinge, with a kernel or, where the rows are few-dimensional, linear.

With A the rows inside the margin, y_i f(x_i) < 1, a full Newton step minimises the quadratic that the primal is as long
as A does not change. In feature space, with w = sum_i beta_i phi(x_i),

.. math::  (K_{AA} + \mathrm{diag}(1 / 2 C_i)) \, \beta_A + b = y_A, \qquad \beta_i = 0 \text{ elsewhere,}

which is (K + 2 C S) beta = 2 C v with the singular factor K cancelled; a linear kernel with p < n solves
(I + 2 X_A' C X_A) w = 2 X_A' C y_A instead and has beta_A = 2 C (y_A - f_A). A free bias adds e'beta = 0.
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import linalg

from svmcore.columns import lookup, matvec
from svmcore.errors import Unsupported
from svmcore.losses import SquaredHinge
from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.problem import Bias, Problem
from svmcore.solution import Status
from svmcore.solvers._linear import LinearRows
from svmcore.solvers._pairs import with_lookup
from svmcore.solvers._smo_passes import gather_square
from svmcore.solvers.base import Outcome, Solver, Solves, box_gap

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

    K is float64: rounded to float32 it can be indefinite. At the optimum alpha = y beta = 2 C max(0, 1 - y f) exactly,
    which is the feasible dual point of the certificate. One step costs the Cholesky factor of the
    rows inside the margin, all of them in the first: n = 10,000 takes about a minute. `max_iter` counts Newton steps.

    References
    ----------
    Zaki, Meira (2014), Data mining and analysis, Algorithms 23.2 and 23.3; Chapelle (2007), Training a support vector
    machine in the primal, Neural Computation 19.
    """

    name: ClassVar[str] = "primal-newton"
    solves: ClassVar[Solves] = Solves(losses=(SquaredHinge,), hard_margin=False, psd_only=True, float32=False)

    def _solve(self, problem: Problem, alpha: Floats, gradient: Floats | None, monitor: Monitor) -> Outcome:
        system, n_iter = _system(self.name, problem), 0
        now = goal = _start(problem, system, alpha)
        while True:
            alpha, gap = _dual_point(problem, system, goal)
            status = self.ends(gap, n_iter, monitor)
            if status is not None:
                return Outcome(status, n_iter, self._feasible(problem, alpha))
            goal = system.minimiser(_inside(problem, now), now.bias)
            step = _line_search(problem, now, goal)
            if step is None:
                return Outcome(Status.STALLED, n_iter, self._feasible(problem, alpha))
            now, n_iter = step, n_iter + 1


class KernelSystem:
    """Newton steps through the square of K at the rows inside the margin."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.columns = problem, with_lookup(problem.columns)

    def outputs(self, beta: Floats) -> Floats:
        """(K + shift) beta (n,)."""
        return matvec(self.columns, beta) + self.problem.shift * beta.sum()

    def minimiser(self, inside: Floats, bias: float) -> Iterate:
        """The minimum of the primal while the rows `inside` the margin stay the same."""
        p, beta = self.problem, np.zeros(self.problem.n)
        if len(inside):
            solved = _solve(self._square(inside), np.column_stack([p.y[inside], np.ones(len(inside))]))
            if p.bias is Bias.FREE:
                bias = solved[:, 0].sum() / solved[:, 1].sum()
            beta[inside] = solved[:, 0] - bias * solved[:, 1]
        return Iterate(beta, self.outputs(beta), float(bias))

    def _square(self, inside: Floats) -> Floats:
        """K_AA + shift + diag(1 / 2 C_A)."""
        H = np.empty((len(inside), len(inside)))
        step = getattr(self.columns, "capacity", len(inside))
        for start in range(0, len(inside), step):
            matrix, rows = lookup(self.columns, inside[start : start + step])
            gather_square(matrix, rows, inside, H[start : start + step])
        H += self.problem.shift
        H.flat[:: len(H) + 1] += self.problem.ridge[inside]
        return H


class LinearSystem:
    """Newton steps in the p weights of a linear kernel; the last one is a free bias, outside the norm."""

    def __init__(self, problem: Problem, rows: LinearRows) -> None:
        self.problem, self.X = problem, rows.X
        self.free = problem.bias is Bias.FREE

    def outputs(self, beta: Floats) -> Floats:
        """X X'beta (n,)."""
        return self.X @ (self.X.T @ beta)

    def minimiser(self, inside: Floats, bias: float) -> Iterate:
        """The minimum of the primal while the rows `inside` the margin stay the same."""
        p, beta = self.problem, np.zeros(self.problem.n)
        X, y, weights = self.X[inside], p.y[inside], 2.0 * np.asarray(p.C)[inside]
        if self.free and len(inside):
            X = np.column_stack([X, np.ones(len(X))])
        H = X.T @ (weights[:, None] * X)
        H.flat[: self.X.shape[1] * (len(H) + 1) : len(H) + 1] += 1.0
        w = _solve(H, X.T @ (weights * y))
        beta[inside] = weights * (y - X @ w)
        if self.free and len(inside):
            w, bias = w[:-1], w[-1]
        return Iterate(beta, self.X @ w, float(bias))


def _system(solver: str, problem: Problem) -> KernelSystem | LinearSystem:
    """The smaller of the two systems; the linear one needs the rows of a linear kernel."""
    try:
        rows = LinearRows(solver, problem)
    except Unsupported:
        return KernelSystem(problem)
    return LinearSystem(problem, rows) if rows.X.shape[1] < problem.n else KernelSystem(problem)


def _solve(H: Floats, right: Floats) -> Floats:
    """H^-1 right by Cholesky; a ridge, growing tenfold, makes H positive definite where rounding has it singular."""
    ridge = 0.0
    while True:
        try:
            return linalg.cho_solve(linalg.cho_factor(H, lower=True, check_finite=False), right, check_finite=False)
        except linalg.LinAlgError:
            more = RIDGE * max(float(np.abs(H.diagonal()).max()), 1e-300) if ridge == 0.0 else 9.0 * ridge
            ridge += more
            H.flat[:: len(H) + 1] += more


def _start(problem: Problem, system: KernelSystem | LinearSystem, alpha: Floats) -> Iterate:
    """The classifier of `alpha` (n,); a free bias is the mean of what its support vectors say."""
    beta = problem.y * alpha
    outputs, support = system.outputs(beta), np.flatnonzero(alpha)
    bias = 0.0
    if problem.bias is Bias.FREE and len(support):
        bias = float((problem.y - outputs - problem.ridge * beta)[support].mean())
    return Iterate(beta, outputs, bias)


def _margins(problem: Problem, at: Iterate) -> Floats:
    return problem.y * (at.outputs + at.bias)


def _inside(problem: Problem, at: Iterate) -> Floats:
    """Indices of the rows inside the margin."""
    return np.flatnonzero((_margins(problem, at) < 1.0) & (problem.upper > 0))


def _dual_point(problem: Problem, system: KernelSystem | LinearSystem, at: Iterate) -> tuple[Floats, float]:
    """Feasible alpha = max(0, y beta) (n,) and its KKT gap."""
    alpha = np.maximum(problem.y * at.beta, 0.0)
    clipped = problem.y * alpha
    outputs = at.outputs if np.array_equal(clipped, at.beta) else system.outputs(clipped)
    gradient = problem.y * (outputs + at.bias) + problem.ridge * alpha - 1.0
    ends = 2.0 if problem.bias is Bias.FREE else 1.0  # m - M counts the violations of both signs
    return alpha, ends * box_gap(gradient, alpha, problem.upper)


def _line_search(problem: Problem, now: Iterate, goal: Iterate) -> Iterate | None:
    """The minimum of the primal on the ray from `now` through `goal`; None if rounding leaves no descent."""
    from scipy import optimize  # a quarter of a second that other solvers do not need

    C, margins = np.asarray(problem.C), _margins(problem, now)
    change = _margins(problem, goal) - margins
    direction = goal.beta - now.beta
    linear, quadratic = direction @ now.outputs, direction @ (goal.outputs - now.outputs)

    def slope(t: float) -> float:
        return float(linear + t * quadratic - 2.0 * (C * change) @ np.maximum(0.0, 1.0 - margins - t * change))

    far = 1.0
    while slope(far) < 0.0 and far < FARTHEST:
        far *= 2.0
    return now.towards(goal, float(optimize.brentq(slope, 0.0, far))) if slope(0.0) < 0.0 <= slope(far) else None
