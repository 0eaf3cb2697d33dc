"""A primal-dual interior point for the signed program: Newton steps through K = G G' or a dense K, no labels.

Mehrotra's predictor and corrector with lengths of their own for the two sides. The iterate is never the answer: its
variables are snapped to the bounds that hold them, the free ones solved for exactly, the sums repaired, and that beta
is judged by its own KKT gap in float64.

References
----------
Mehrotra (1992), On the implementation of a primal-dual interior point method; Fine, Scheinberg (2001), Efficient SVM
training using low-rank kernel representations, JMLR 2; Ferris, Munson (2002), Interior-point methods for massive
support vector machines; Woodsend, Gondzio (2009), Hybrid MPI/OpenMP parallel linear SVM training, JMLR 10.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from svmcore.passes.kernel.row_products import least_rates
from svmcore.solvers.interior.polish import Polish
from svmcore.solvers.interior.program import Newton, Program
from svmcore.solvers.interior.systems import Dense, Floats, LowRank, System

__all__ = ["Answer", "Dense", "LowRank", "minimise"]

Step: TypeAlias = tuple[Floats, Floats, Floats]  # dx (n,), db (k,), dz (2, n)
Status: TypeAlias = Literal["converged", "stopped", "stalled", "infeasible"]

_CONVERGED: Status = "converged"
MOST_PASSES = 200
PATIENCE = 30  # passes in which the median of mu or of the residual should halve
PLAIN = 0.1  # least share of mu that plain path following aims at
TO_THE_WALL = 0.995
FLAT = 1e-3  # share of tol below which a multiplier counts as this share of tol in the matrix
WEIGHTS = 5  # of the second order that are tried
ACCURACY = 1e-2  # share of tol to which the equations of a step are solved
LEAST_PROXIMAL, MOST_PROXIMAL = 1e-13, 1e-9  # shares of K's mean diagonal
FAR = 1e10  # radius of the data over a margin that is proved smaller: nothing separates them


@dataclass(frozen=True)
class Answer:
    """`beta` (n,) in its box with its sums, the groups' `multipliers` (k,), and how it ended.

    `kkt_gap` is that of `beta`, in float64; `status` is converged only where it is at most tol.
    """

    beta: Floats
    multipliers: Floats
    n_iter: int
    status: Status
    kkt_gap: float


def minimise(
    system: System,
    p: Floats,
    lo: Floats,
    hi: Floats,
    ridge: Floats,
    codes: Floats,
    sums: Floats,
    tol: float,
    stops: Callable[[], bool] | None = None,
    start: Floats | None = None,
) -> Answer:
    """Minimise 1/2 beta'K beta + 1/2 sum ridge beta^2 - p'beta over a box and at most two sums, to a KKT gap of `tol`.

    Parameters
    ----------
    system
        K, as `LowRank(G)` or `Dense(K)`.
    p, lo, hi, ridge
        (n,) each; the bounds may be infinite, and a variable with lo = hi stays where it is.
    codes, sums
        The group of each variable, (n,) of integers, -1 for none, and the sum d_g of each group, (k,).
    tol
        Bound of the KKT gap of the answer.
    stops
        Asked once a pass; the answer is the best so far when it says yes.
    start
        A point (n,) of the box that may be near the answer.

    Examples
    --------
    >>> import numpy as np
    >>> G, y = np.array([[-1.0], [0.5], [2.0]]), np.array([-1.0, 1.0, 1.0])
    >>> zero, group = np.zeros(3), np.zeros(3, np.int64)
    >>> answer = minimise(LowRank(G), y, np.minimum(10 * y, 0), np.maximum(10 * y, 0), zero, group, np.zeros(1), 1e-6)
    >>> answer.status, answer.beta.round(3) + 0.0
    ('converged', array([-0.889,  0.889,  0.   ]))
    """
    P, L, U, R = (np.asarray(a, dtype=np.float64) for a in (p, lo, hi, ridge))
    whole = Program(system, P, L, U, R, np.asarray(codes), np.asarray(sums, dtype=np.float64))
    moving, fixed = whole.settled()
    program = whole if moving.all() else whole.fixed_out(moving, fixed)
    beta, n_iter, status = fixed, 0, _CONVERGED
    if program.n:
        with np.errstate(all="ignore"):
            run = _Descent(program, tol, stops).run(None if start is None else np.asarray(start)[moving])
        beta[moving], n_iter, status = run
    gap, multipliers = whole.kkt_gap(beta, whole.scores(beta))
    if status == "converged" and not gap <= tol:
        status = "stalled"
    return Answer(beta, multipliers, n_iter, status, gap)


@dataclass
class Iterate:
    """A strictly interior point: distances t (2, n) to the two bounds, multipliers z (2, n), and b (k,) of the sums.

    `held` (2, n) says which sides have a bound; the others have t = 1 and z = 0.
    """

    beta: Floats
    t: Floats
    z: Floats
    b: Floats
    held: Floats

    def distances(self, dx: Floats) -> Floats:
        """How the distances t (2, n) change with beta by `dx` (n,)."""
        return np.stack([dx, -dx]) * self.held

    @property
    def mu(self) -> float:
        """Mean of t z over the bounds."""
        return float(np.vdot(self.t, self.z) / max(self.held.sum(), 1))


class Watch:
    """Tells a run that gains from one that circles, by medians: mu and the dual residual may leap on the way.

    Two step lengths and a second order take half the passes of plain path following, and can circle: `plain` asks for
    that, and only where it does not help either is the run given up.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []
        self.plain = False

    def gave_up(self, mu: float, residual: float) -> bool:
        """Whether neither has halved; numbers that are none never do."""
        self.seen.append((mu, residual))
        if len(self.seen) < 2 * PATIENCE:
            return False
        before, now = (np.median(part, axis=0) for part in np.split(np.array(self.seen[-2 * PATIENCE :]), 2))
        circles = not bool((now < 0.5 * before).any())
        if circles and not self.plain:
            self.plain, self.seen, circles = True, [], False
        return circles


class _Descent:
    """One run of the interior point on variables that can all move."""

    def __init__(self, program: Program, tol: float, stops: Callable[[], bool] | None) -> None:
        self.program, self.tol, self.stops = program, tol, stops or (lambda: False)
        self.polish = Polish(program, tol)
        self.watch = Watch()
        self.proximal, self._goal = 0.0, ACCURACY * tol

    def run(self, start: Floats | None) -> tuple[Floats, int, Status]:
        """Pass by pass; the best feasible point, the passes taken, how it ended."""
        if self.polish.best.gap <= self.tol or (start is not None and self.polish.from_point(start)):
            return self.polish.best.beta, 0, "converged"
        if not self.program.system.is_convex:
            return self.polish.best.beta, 0, "stalled"
        at, n_iter = _first(self.program), 0
        residual = self.dual_residual(at)
        while (ended := self._ended(at, residual, n_iter)) is None:
            self._pass(at, residual)
            residual, n_iter = self.dual_residual(at), n_iter + 1
        if ended in ("stopped", "stalled"):
            self.polish.at_last(at.beta, at.t, at.z)
        if ended == "infeasible":  # the way out itself, which anybody can check
            beta = self.program.clip(at.beta)
            return self.program.with_sums(beta, self.program.scores(beta)), n_iter, ended
        return self.polish.best.beta, n_iter, ended

    def _ended(self, at: Iterate, residual: Floats, n_iter: int) -> Status | None:
        if self.polish.from_iterate(at.beta, at.t, at.z, at.b, residual):
            return "converged"
        if self.stops():
            return "stopped"
        if _unbounded(self.program, at.beta):
            return "infeasible"
        gave_up = not np.isfinite(residual).all() or self.watch.gave_up(at.mu, float(np.abs(residual).max()))
        return "stalled" if gave_up or n_iter >= MOST_PASSES else None

    def dual_residual(self, at: Iterate) -> Floats:
        """Scores less what the multipliers account for (n,)."""
        return self.program.scores(at.beta) - self.program.members @ at.b + at.z[0] - at.z[1]

    def _pass(self, at: Iterate, residual: Floats) -> None:
        """One predictor and corrector, in place."""
        mu = at.mu
        sums = self.program.sums - at.beta @ self.program.members
        newton, step = self._predictor(at, residual, sums)
        primal, dual = (min(1.0, length) for length in _lengths(at, step))
        ahead = _mu_after(at, primal, dual, step)
        sigma = (ahead / mu) ** 3 if mu > 0 else 0.0
        sigma = max(sigma, PLAIN) if self.watch.plain else sigma
        pull = -at.distances(step[0]) * step[2] / at.t
        _add(step, 1.0, _direction(newton, at, sigma * mu / at.t * at.held, self._goal, 0.0 * sums)[0])
        second, _ = _direction(newton, at, pull, self._goal, 0.0 * sums)
        del pull
        _add(step, 0.0 if self.watch.plain else _weight(at, step, second), second)
        primal, dual = (min(1.0, TO_THE_WALL * length) for length in _lengths(at, step))
        if self.watch.plain:
            primal = dual = min(primal, dual)
        _move(self.program, at, primal, dual, step)

    def _predictor(self, at: Iterate, residual: Floats, sums: Floats) -> tuple[Newton, Step]:
        """Newton's matrix and its step towards t z = 0; D is raised while rounding spoils it and more D helps."""
        newton, step, error = self._attempt(at, residual, sums)
        while error > max(0.1 * self.tol, 0.01 * np.abs(residual).max()) and self.proximal < MOST_PROXIMAL:
            before, self.proximal = self.proximal, max(100.0 * self.proximal, LEAST_PROXIMAL)
            again = self._attempt(at, residual, sums)
            if not again[2] < 0.5 * error:
                self.proximal = before
                break
            newton, step, error = again
        return newton, step

    def _attempt(self, at: Iterate, residual: Floats, sums: Floats) -> tuple[Newton, Step, float]:
        """Newton's matrix, its step, and what is left of the residual.

        Multipliers count as a thousandth of tol at least, and D as a share of K: proximal terms, which slow the steps
        along which K is flat and change nothing at their end.
        """
        D = self.program.ridge + (np.maximum(at.z, FLAT * self.tol) * at.held / at.t).sum(axis=0)
        newton = Newton(self.program, np.maximum(D, self.proximal * float(self.program.curvature.mean())))
        del D
        return newton, *_direction(newton, at, -at.z * at.held, self._goal, sums, residual)


def _direction(
    newton: Newton, at: Iterate, pull: Floats, goal: float, sums: Floats, residual: Floats | float = 0.0
) -> tuple[Step, float]:
    """The step that gains `pull` (2, n) of dz + (z / t) dt, `sums` and `residual`; and the error of the last."""
    dx, db, error = newton.solve(residual + pull[0] - pull[1], sums, goal)
    return (dx, db, pull - at.z / at.t * at.distances(dx)), error


def _mu_after(at: Iterate, primal: float, dual: float, step: Step) -> float:
    """Mean of (t + primal dt) (z + dual dz) over the bounds; without one all but t are 0."""
    dt, dz = at.distances(step[0]), step[2]
    total = np.vdot(at.t, at.z) + dual * np.vdot(at.t, dz) + primal * (np.vdot(dt, at.z) + dual * np.vdot(dt, dz))
    return float(total / max(at.held.sum(), 1))


def _add(step: Step, weight: float, more: Step) -> None:
    """Step += weight more, in place."""
    for one, other in zip(step, more, strict=True):
        one += weight * other if weight != 1.0 else other


def _weight(at: Iterate, step: Step, second: Step) -> float:
    """Share of the second-order step with which the lengths are largest.

    All of it, far from the central path, can throw a variable from wall to wall for ever; weighing the step to the
    centre as well would let the centre go, and the run creep.

    References
    ----------
    Colombo, Gondzio (2008), Further development of multiple centrality correctors for interior point methods.
    """
    weights, best, longest = np.linspace(1.0, 0.0, WEIGHTS), 1.0, -1.0
    distances = (at.distances(dx) for dx in (step[0], second[0]))
    rates = (least_rates(at.t, *distances, weights), least_rates(at.z, step[2], second[2], weights))
    for weight, primal, dual in zip(weights, *rates, strict=True):
        reach = min(_reach(primal), 1.0) * min(_reach(dual), 1.0)
        if reach > 1.01 * longest:
            best, longest = float(weight), reach
    return best


def _lengths(at: Iterate, step: Step) -> tuple[float, float]:
    """Longest steps that keep t and z positive, at most 1 over the share that is taken."""
    whole, dt, dz = np.zeros(1), at.distances(step[0]), step[2]
    primal, dual = (float(least_rates(old, new, new, whole)[0]) for old, new in ((at.t, dt), (at.z, dz)))
    return _reach(primal), _reach(dual)


def _reach(rate: float) -> float:
    """Longest step where the least relative change of a step of 1 is `rate`."""
    return min(1.0 / TO_THE_WALL, 1.0 / max(-rate, 1e-300))


def _move(program: Program, at: Iterate, primal: float, dual: float, step: Step) -> None:
    """The step, in place; beta follows its nearer bound, so that no digit of a small distance is lost."""
    dx, db, dz = step
    at.t += primal * at.distances(dx)
    at.z += dual * dz
    at.b = at.b + dual * db
    beta = at.beta + primal * dx
    nearer = at.held[0] & (~at.held[1] | (at.t[0] <= at.t[1]))
    beta = np.where(nearer, program.lo + at.t[0], beta)
    at.beta = np.where(at.held[1] & ~nearer, program.hi - at.t[1], beta)


def _first(program: Program) -> Iterate:
    """A point near zero with all multipliers alike: K beta and z both of the size of the scores.

    In the middle of the box K beta would be C n times larger; multipliers that leave no dual residual, or balanced
    products t z, take a quarter more passes on real tables.
    """
    lo, hi = program.lo, program.hi
    held = np.stack([np.isfinite(lo), np.isfinite(hi)])
    width = np.where(held.all(axis=0), hi - lo, np.inf)
    scale, low = program.score_scale, held[0] & (~held[1] | (np.abs(lo) <= np.abs(hi)))
    step = np.minimum(scale / float(program.curvature.mean()), width / 2)
    beta = np.where(low, lo + step, np.where(held[1], hi - step, 0.0))
    far = np.where(np.isfinite(width), width - step, 1.0)
    t = np.where(held, np.stack([np.where(low, step, far), np.where(low, far, step)]), 1.0)
    return Iterate(beta, t, scale * held, np.zeros(len(program.sums)), held)


def _unbounded(program: Program, beta: Floats) -> bool:
    """Whether `beta` (n,) points where the objective falls without end.

    A direction delta of unbounded, unridged variables with A delta = 0 proves that the norm of every classifier with
    the margins p is at least p'delta / ||G'delta||: far above 1 over the radius of the data, there is none.
    """
    free = (~np.isfinite(program.lo) | ~np.isfinite(program.hi)) & (program.ridge == 0)
    if not free.any():
        return False
    delta = np.where(free, beta, 0.0)
    size, gain = np.abs(delta).sum(), program.p @ delta
    if not gain > 0.0 or np.abs(delta @ program.members).max(initial=0.0) > 1e-8 * size:
        return False
    norm2 = max(float(delta @ program.system.times(delta)), 0.0)
    radius2 = float(np.abs(program.system.diagonal).max())
    return bool(radius2 * gain * gain > FAR * FAR * norm2 * max(float(np.abs(program.p).max()), 1e-300) ** 2)
