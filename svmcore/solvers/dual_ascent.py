"""Stochastic gradient ascent on the dual: one variable a step, with the step that makes its gradient zero."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from svmcore.errors import InputError
from svmcore.monitor import Monitor
from svmcore.passes.steps.coordinates import coordinate_pass
from svmcore.points import Floats
from svmcore.qp import Bias, SignedQP
from svmcore.solution import Status
from svmcore.solvers.base import Outcome, Solver, Solves, box_gap
from svmcore.solvers.linear.face import relax
from svmcore.solvers.linear.parts import solve_in_parts
from svmcore.solvers.linear.weights import HeldWeights
from svmcore.solvers.textbook.pairs import CACHE_BYTES
from svmcore.sources.cached import kept
from svmcore.state import MemoryState

__all__ = ["DualAscent"]

STEP_FLOPS = 2e7  # of one compiled pass: a few milliseconds
CHUNK = 256  # columns looked up together
SHRINKS = 1024  # variables from which on those that a bound holds sit out
NEIGHBOURS = 16  # rows that are visited together: one fetch from memory brings the next ones
STEPS_TOGETHER = 100  # of conjugate gradients at a time
TOGETHER = 10  # times the visits of single steps are worth their products: those run on one thread
LOOKS = 0.5  # times the visits of all
SOLVED = 0.1  # of tol: scores that are small enough for conjugate gradients
AIM = 0.9  # of tol: the proof adds its uncertainty


@dataclass(frozen=True)
class DualAscent(Solver):
    """beta_k <- beta_k + eta_k s_k, clipped to the box; eta_k = 1 / (K_kk + ridge_k), s_k the score of `svmcore.qp`.

    For a classifier that is Algorithm 23.1's alpha_k <- alpha_k + eta_k (1 - y_k f(x_k) - ridge_k alpha_k). Where
    K_kk + ridge_k is not positive, the step goes to the end of the box.

    The rows come in a new random order every epoch, or as they are if not `shuffle`. The bias is inside w (K + 1) or
    zero, so the box is the only constraint. An epoch that saw no violation above tol ends it, once the gap over all
    rows agrees. `max_iter` counts epochs.

    Where K has a factor G (a linear kernel, an approximation), w = G'beta is kept in place of the scores: a step costs
    a row of G, and variables that their bound holds sit out, as in LIBLINEAR. Where single steps crawl, conjugate
    gradients move all variables inside their box together. A free bias is found by multipliers then. Where the rows
    are dense and many, and a sample of them foretells few support vectors, working sets of those that matter are
    solved instead, unless there is a `max_iter`.

    References
    ----------
    Zaki, Meira (2014), Data mining and analysis, Algorithm 23.1; there the loop ends when an epoch moves alpha by at
    most epsilon. Hsieh, Chang, Lin, Keerthi, Sundararajan (2008), A dual coordinate descent method for large-scale
    linear SVM, ICML.
    """

    name: ClassVar[str] = "dual-ascent"
    solves: ClassVar[Solves] = Solves(biases=(Bias.PENALISED, Bias.NONE), factor_biases=(Bias.FREE,), float32=False)
    shuffle: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.shuffle, bool):
            raise InputError(f"solver {self.name!r}: shuffle must be true or false; given {self.shuffle!r}")

    def takes_factor(self, qp: SignedQP, rank: int) -> bool:
        """Always."""
        return True

    def _solve(self, qp: SignedQP, beta: Floats, score: Floats | None, monitor: Monitor, n_iter: int) -> Outcome:
        found = solve_in_parts(qp, beta, self.tol, monitor) if self.max_iter < 0 else None
        return found or self.visit(qp, beta, score, monitor, n_iter)

    def visit(
        self,
        qp: SignedQP,
        beta: Floats,
        score: Floats | None,
        monitor: Monitor,
        n_iter: int,
        most: float = np.inf,
    ) -> Outcome:
        """Visit variables one by one, each `most` times on average: MAX_ITER if that is not enough."""
        rng, order, visits = np.random.default_rng(self.seed), np.flatnonzero(qp.hi > qp.lo), 0
        factor = qp.source.factor()
        ascent = _Ascent(qp, beta, score) if factor is None else _Weights(HeldWeights(qp, factor, beta), self.tol)
        gap = ascent.kkt_gap()
        while (status := self.ends(gap, n_iter, monitor)) is None:
            n_iter += 1
            among = ascent.among(order)
            visited = _mixed(rng, among, ascent.block) if self.shuffle else among
            gap, status = ascent.epoch(visited, n_iter, gap, monitor)
            visits += len(visited)
            if status is None and visits > most * len(order):
                status = Status.MAX_ITER
            if status is not None:
                break
            if gap <= self.tol:
                gap = ascent.kkt_gap()
        return Outcome(status, n_iter, beta)


def _mixed(rng: np.random.Generator, order: Floats, block: int) -> Floats:
    """`order` by blocks of neighbours, which stay together, in a random order; what is left over comes first."""
    left = len(order) % block
    return np.concatenate([order[:left], rng.permutation(order[left:].reshape(-1, block)).ravel()])


class _Ascent:
    """beta (n,), changed in place, and the scores (n,)."""

    block = 1

    def __init__(self, qp: SignedQP, beta: Floats, score: Floats | None) -> None:
        self.qp, self.beta = qp, beta
        self.score = MemoryState(qp, beta, score).part(np.arange(qp.m)).score
        self.source = kept(qp.source, CACHE_BYTES)
        self.step = max(1, min(CHUNK, self.source.capacity, int(STEP_FLOPS / qp.m)))

    def kkt_gap(self) -> float:
        """Largest projected gradient over all variables."""
        return box_gap(self.score, self.beta, self.qp.lo, self.qp.hi)

    def among(self, order: Floats) -> Floats:
        """Who is visited next: all."""
        return order

    def epoch(self, order: Floats, epoch: int, gap: float, monitor: Monitor) -> tuple[float, Status | None]:
        """Visit every variable of `order`; returns the largest violation met, and why the solve ends, if it does."""
        qp, worst, moved = self.qp, 0.0, 0
        for start in range(0, len(order), self.step):
            part = order[start : start + self.step]
            K, rows = self.source.lookup(part)
            worst, steps = coordinate_pass(
                K, rows, part, qp.diagonal, qp.shift, qp.ridge, qp.lo, qp.hi, self.beta, self.score, worst
            )
            moved += steps
            if worst == np.inf:
                return gap, Status.INFEASIBLE if qp.is_hard else Status.STALLED
            status = monitor.paced(epoch, gap)
            if status is not None:
                return gap, status
        return _judged(
            qp, self.beta, worst, moved, lambda: float(self.beta @ (qp.p - self.score - qp.ridge * self.beta))
        )


class _Weights:
    """The same steps with w kept, on variables that no bound holds until the others are done."""

    def __init__(self, held: HeldWeights, tol: float) -> None:
        self.held, self.tol, self.aim = held, tol, 1.0
        self.active: Floats | None = None
        self.block = NEIGHBOURS if held.qp.m > SHRINKS else 1
        self.bar, self.judged = np.inf, held.gap
        self.visits = self.unseen = 0  # since the last conjugate gradients, and since all were looked at

    def kkt_gap(self) -> float:
        """Of all variables; all of them are visited next, and looked at more closely if it is no smaller."""
        if self.active is not None:
            self.judged = self.held.refresh()
            self.aim *= 1.0 if self.judged <= self.tol or len(self.active) < self.held.qp.m else 0.5
        self.active, self.bar = None, np.inf
        return self.judged

    def among(self, order: Floats) -> Floats:
        """Who is visited next."""
        if self.active is None:
            self.active = order
        return self.active

    def epoch(self, order: Floats, epoch: int, gap: float, monitor: Monitor) -> tuple[float, Status | None]:
        """As that of `_Ascent`, on the variables `order`."""
        held, worst, moved, stays = self.held, 0.0, 0, np.ones(len(order), dtype=bool)
        for start in range(0, len(order), held.step):
            some = slice(start, start + held.step)
            violation, steps, stays[some] = held.part(order[some], self.bar)
            worst, moved = max(worst, violation), moved + steps
            if worst == np.inf:
                return gap, Status.INFEASIBLE if held.qp.is_hard else Status.STALLED
            if (status := monitor.paced(epoch, gap)) is not None:
                return gap, status
        if held.qp.m > SHRINKS:
            self.active, self.bar = np.sort(order[stays]), max(worst, self.tol)
            self._relax(len(order))
        change = held.multiply()
        worst, status = _judged(held.qp, held.beta, worst, moved + (change > 0.0), held.norm2)
        return (2.0 * worst + change if held.free else worst) / (AIM * self.aim), status

    def _relax(self, visited: int) -> None:
        """Conjugate gradients on who is inside the box, for some times the visits of the epochs since the last ones.

        Who sits out is looked at again after as much work as a look takes: bounds may not hold them any longer.
        """
        qp, beta = self.held.qp, self.held.beta
        self.visits, self.unseen = self.visits + visited, self.unseen + visited
        inside = np.count_nonzero((beta > qp.lo) & (beta < qp.hi))
        if not inside or TOGETHER * self.visits < STEPS_TOGETHER * inside:
            return
        relax(self.held, STEPS_TOGETHER, SOLVED * self.tol)
        self.visits = 0
        if self.unseen >= LOOKS * qp.m:
            self.active, self.unseen = self.held.not_held(self.bar), 0


def _judged(
    qp: SignedQP, beta: Floats, worst: float, moved: int, norm2: Callable[[], float]
) -> tuple[float, Status | None]:
    """The worst violation of an epoch, and how the solve ends where nothing moved or no minimum can be."""
    if qp.is_hard and not Solver.separates(qp, beta, norm2()):
        return worst, Status.INFEASIBLE
    return worst, None if moved or worst == 0.0 else Status.STALLED
