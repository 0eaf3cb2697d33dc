"""The solver that the source of K asks for: the default of configs and estimators."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from scipy import sparse

from svmcore.errors import Unsupported
from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import Bias, SignedQP
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, Solver, Solves
from svmcore.solvers.dual_ascent import DualAscent
from svmcore.solvers.interior_point import InteriorPoint
from svmcore.solvers.linear.parts import solve_in_parts
from svmcore.solvers.primal_newton import PrimalNewton
from svmcore.solvers.smo import SMO
from svmcore.tasks.losses import Loss

__all__ = ["Auto"]

RANK = 256  # of a factor of K up to which an interior point is the better way
SMALL = 2048  # variables up to which pairs are tried first: most small problems end in fewer steps than one pass costs;
TWICE = 2  # times as many where steps on the primal, which are sooner done than an interior point's, do not serve
NEWTON = 0.5  # of tol is what steps on the primal aim at: the proof adds its uncertainty
NEWTON_STEPS = 50  # ends within ten where float64 is no obstacle
TRIES = 30  # pair steps for each variable, after which they count as crawling,
MOST_TRIES = 60_000  # as after so many, which take as long as an interior point does on thousands of rows,
MOST_PRODUCTS = 1e11  # of numbers in one pass of an interior point: it takes a minute then
STEP_PRODUCTS = 4e3  # of such a pass are worth a pair step, so that both take as long,
VISITS = 0.3  # and so many visits of all variables one of its features
PATIENCE = 1 << 22  # or members x pair steps that take as long as an interior point does however few the variables


Stage: TypeAlias = Callable[[SignedQP, Floats, Floats | None, Monitor, int], Outcome]


@dataclass(frozen=True)
class Auto(Solver):
    """`interior-point` where K has a factor of rank up to 256 (a linear kernel of few features), else `smo`.

    A linear problem of more features and many rows goes to `dual-ascent`. A small one is given to pairs first, for
    about as long as others take, and a large one of the squared hinge to `primal-newton`, which takes some few passes
    over the rows.
    Runs write down the solver that was chosen, so that a repetition takes the same.
    """

    name: ClassVar[str] = "auto"
    solves: ClassVar[Solves] = Solves(shared_rows=True, two_groups=True)

    def resolved(
        self, kernel: Any, n_features: int, loss: Loss, bias: Bias, hard_margin: bool = False, near: bool = True
    ) -> Solver:
        """The solver for rows of `n_features` under `kernel`, with the same tol, max_iter and time_limit.

        Itself where more than the kernel tells: for a linear one of many features, unless rows are not `near`, but in
        shards.
        """
        limits: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter, "time_limit": self.time_limit}
        few = kernel.is_linear and n_features <= RANK
        chosen: Solver = InteriorPoint(**limits) if few else self if kernel.is_linear and near else SMO(**limits)
        chosen.admits(loss, bias, kernel, hard_margin)
        return chosen

    def for_factor(self, qp: SignedQP, rank: int) -> Solver:
        """The solver for many rows on a factor of `rank` columns, where `qp` is any program of the machine."""
        limits: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter, "time_limit": self.time_limit}
        if rank <= RANK:
            return InteriorPoint(**limits)
        ascent = DualAscent(**limits)
        return ascent if _takes(ascent, qp) else SMO(**limits)

    def takes_factor(self, qp: SignedQP, rank: int) -> bool:
        """Where that which it chooses does."""
        return self.for_factor(qp, rank).takes_factor(qp, rank)

    def shares(self, qp: SignedQP) -> int:
        """As pairs have it, which it chooses where columns are all that is known of K."""
        return self._pairs.shares(qp) if qp.source.rank is None else 0

    def begins_anew(self, qp: SignedQP) -> bool:
        """As pairs do, where it chooses them."""
        return qp.source.rank is None and self._pairs.begins_anew(qp)

    @cached_property
    def _pairs(self) -> SMO:
        """What it chooses most often."""
        return SMO(tol=self.tol, max_iter=self.max_iter, time_limit=self.time_limit)

    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        *tries, last = self._stages(qp)
        for attempt in tries:
            tried = attempt(qp, beta, score, monitor, n_iter)
            if tried.status is not Status.MAX_ITER or 0 <= self.max_iter <= tried.n_iter:
                return tried
            beta, score, n_iter = tried.beta, None, tried.n_iter
        return last(qp, beta, score, monitor, n_iter)

    def _stages(self, qp: SignedQP) -> "list[Stage]":
        """Who solves it: each for about as long as the last takes, which has no limit."""
        limits: dict[str, Any] = {"tol": self.tol, "time_limit": self.time_limit}
        rank, last = qp.source.rank if qp.source.psd else None, InteriorPoint(**limits)._solve
        if rank is None or (rank > RANK and qp.m <= SMALL):
            return [self._pairs._solve]
        stages: list[Stage] = []
        if rank <= RANK:
            newton = _takes(self._newton, qp)
            if qp.m <= SMALL or (qp.m <= TWICE * SMALL and not newton):
                stages.append(self._try_pairs)
            return [*stages, self._try_newton, last] if newton else [*stages, last]
        ascent = DualAscent(max_iter=self.max_iter, **limits)
        sooner = self.max_iter < 0 and _within_reach(qp)
        if not _takes(ascent, qp):  # pairs finish working sets directly where they crawl, but sets have an end
            return [self._try_pairs, last] if sooner and qp.m > TWICE * SMALL else [self._pairs._solve]
        if qp.m <= TWICE * SMALL or qp.source.whole is not None:  # all columns are there
            stages.append(self._try_pairs)
        return [*stages, self._try_ascent, last] if sooner else [*stages, ascent._solve]

    def _try_pairs(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        """So many pair steps as take as long as other solvers."""
        few = qp.source.rank is not None and qp.source.rank <= RANK
        most = n_iter + max(min(TRIES * qp.m, MOST_TRIES if few else sys.maxsize), PATIENCE // (qp.m + 256))
        most = most if self.max_iter < 0 else min(most, self.max_iter)
        return replace(self._pairs, max_iter=most)._solve(qp, beta, score, monitor, n_iter)

    @property
    def _newton(self) -> PrimalNewton:
        """Steps on the primal of the squared hinge."""
        return PrimalNewton(tol=NEWTON * self.tol, time_limit=self.time_limit)

    def _try_newton(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        """Some steps on the primal; where they end short of the aim, others go on."""
        tried = replace(self._newton, max_iter=n_iter + NEWTON_STEPS)._solve(qp, beta, None, monitor, n_iter)
        if tried.status is Status.STALLED:
            tried.status = Status.MAX_ITER
        return tried

    def _try_ascent(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        """Steps on single variables in the time of an interior point."""
        rank = qp.source.rank or 0
        tried = solve_in_parts(qp, beta, self.tol, monitor, int(qp.m * rank**2 / STEP_PRODUCTS))
        if tried is not None:
            return tried
        return DualAscent(tol=self.tol).visit(qp, beta, score, monitor, n_iter, VISITS * rank)


def _within_reach(qp: SignedQP) -> bool:
    """Whether an interior point takes no more than a minute, however hard the program is."""
    factor, products = qp.source.factor(), qp.m * float(qp.source.rank or 0) ** 2
    dense = factor is not None and not sparse.issparse(factor.rows)
    return dense and products <= MOST_PRODUCTS and _takes(InteriorPoint(), qp)


def _takes(solver: Solver, qp: SignedQP) -> bool:
    """Whether the solver admits the program."""
    try:
        solver.check(qp)
    except Unsupported:
        return False
    return True
