"""Many rows of few features: nearly all variables end at a bound, and a sample of the rows tells which.

A sample, its boxes widened to the weight of all rows, gives scores of all variables that are right to its own error.
Those far from 0 hold their variables at a bound; the interior point solves for the others; one pass over all rows tells
who was held wrongly, and they are solved for too, or, where they are many, more of those near 0. What is judged at the
end is the whole program.

References
----------
Joachims (1998), Making large-scale SVM learning practical, for the decomposition; Woodsend, Gondzio (2009), Hybrid
MPI/OpenMP parallel linear SVM training, JMLR 10, for the interior point that it saves passes of.
"""

from collections.abc import Callable

import numpy as np

from svmcore.solvers.interior.iterate import Answer, minimise
from svmcore.solvers.interior.polish import Polish
from svmcore.solvers.interior.program import Program
from svmcore.solvers.interior.systems import Floats

__all__ = ["minimise_narrowed", "narrows"]

MANY, ROWS_OF_A_COLUMN = 50_000, 400  # variables, and times the rank of K, from which on a sample is worth its passes
SAMPLED = 1.0 / 16.0  # of the variables
NEAR = 1.0 / 8.0  # of the variables, those of the smallest scores, are solved for first
MOST = 0.5  # of them: where more are in doubt nothing is saved
ROUNDS = 10
LOOSE = 10.0  # times tol will do for the sample


def narrows(program: Program, rank: int) -> bool:
    """Whether a sample may tell who is at which bound: many variables of few features, in finite boxes, sums of 0."""
    many = program.n >= max(MANY, ROWS_OF_A_COLUMN * rank)
    bounded = many and bool(np.isfinite(program.hi - program.lo).all())
    return bool(bounded and not program.sums.any() and not program.ridge.any())


def minimise_narrowed(program: Program, tol: float, stops: Callable[[], bool], start: Floats) -> Answer | None:
    """The answer of the whole program, `start` (n,) itself if little is missing; None where too many stay in doubt.

    An answer that was stopped is the best so far.
    """
    if start.any() and (polish := Polish(program, tol)).from_point(start):
        best = polish.best
        return Answer(best.beta, program.kkt_gap(best.beta, best.scores)[1], 0, "converged", best.gap)
    found = _sampled(program, tol, stops)
    first, n_iter = program.scores(found.beta) - program.members @ found.multipliers, found.n_iter
    scores, share = first, NEAR
    free = _nearest(first, share)
    for _ in range(ROUNDS):
        found = _solved(program, scores, free, tol, stops)
        n_iter, whole = n_iter + found.n_iter, program.scores(found.beta)
        gap, multipliers = program.kkt_gap(found.beta, whole)
        if gap <= tol or found.status == "stopped":
            return Answer(found.beta, multipliers, n_iter, "converged" if gap <= tol else "stopped", gap)
        scores = whole - program.members @ found.multipliers
        wrong = ~free & np.where(scores > 0.0, found.beta < program.hi, found.beta > program.lo)
        if found.status != "converged" or wrong.sum() > free.sum():  # too few to make good what the others are off
            scores, share = first, 2.0 * share
            wrong = _nearest(first, share)
        elif not wrong.any():
            return None
        free |= wrong
        if free.mean() > MOST:
            return None
    return None


def _nearest(scores: Floats, share: float) -> Floats:
    """Which variables (n,) are next to the hinge."""
    distance = np.abs(scores)
    return distance <= np.quantile(distance, min(share, 1.0))


def _held(program: Program, scores: Floats, free: Floats) -> Floats:
    """All variables (n,) at the bound that their scores point to, 0 for those that are `free`."""
    return np.where(free, 0.0, np.where(scores > 0.0, program.hi, program.lo))


def _sampled(program: Program, tol: float, stops: Callable[[], bool]) -> Answer:
    """The answer of a sample that stands for all, as variables (n,) of the whole."""
    size = int(SAMPLED * program.n)
    some = np.sort(np.random.default_rng(0).choice(program.n, size, replace=False))
    part, weight = program.rows(some), program.n / size
    box = part.p, weight * part.lo, weight * part.hi, part.ridge, part.codes, part.sums
    found = minimise(part.system, *box, LOOSE * tol, stops)
    beta = np.zeros(program.n)
    beta[some] = found.beta
    return Answer(beta, found.multipliers, found.n_iter, found.status, found.kkt_gap)


def _solved(program: Program, scores: Floats, free: Floats, tol: float, stops: Callable[[], bool]) -> Answer:
    """The answer where all but the variables `free` (n,) bool are held at a bound."""
    beta = _held(program, scores, free)
    part = program.fixed_out(free, beta)
    found = minimise(part.system, part.p, part.lo, part.hi, part.ridge, part.codes, part.sums, tol, stops)
    beta[free] = found.beta
    return Answer(beta, found.multipliers, found.n_iter, found.status, found.kkt_gap)
