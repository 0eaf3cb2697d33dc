"""Decision values of rows by models that have not seen them, on the K of all rows: what probabilities are fitted to."""

import dataclasses

import numpy as np

from svmcore.points import Floats
from svmcore.solvers import Solver
from svmcore.sources.base import Source
from svmcore.tasks import Task

__all__ = ["held_out_decisions"]

FOLDS = 5
HALVES = 1000  # rows from which two folds will do: a model of half of them says nearly what that of all does
ENOUGH = 2000  # rows of the smaller class that two parameters are fitted to; folds after that are left out
ROUGH = 0.35  # of the margin: a KKT gap that probabilities hardly feel (docs/probabilities.md has their log loss)


def held_out_decisions(
    task: Task,
    source: Source,
    y: Floats,
    C: Floats,
    inverse: Floats,
    weights: Floats,
    solver: Solver,
    rng: np.random.Generator,
    support: Floats,
    gap: float = ROUGH,
) -> tuple[Floats, Floats]:
    """Original rows of a classifier, ascending, and their decision values, each by a model that has not seen it.

    Original row t is row `inverse[t]` of the source, with the share `weights[t]` of its C (m,): a fold is a smaller C.
    All rows are held out, or those of the first folds where there are enough. A model of a fold has no proof: it is
    solved to a KKT gap that is a part `gap` of the margin, or to `solver.tol` where no margin is known beforehand.
    Each solve starts from nothing: where all variables end at their bounds the bias is an interval, and a start from
    the solution of all rows leaves it at one of its ends, another one in each fold. But the variables `support` that
    are not 0 in that solution are the first that it looks at.
    A training part of one class alone gives its sign, an empty one 0, as in LIBSVM.
    """
    n = len(inverse)
    parts = np.array_split(rng.permutation(n), FOLDS if n < HALVES else 2)
    positive, told = y[inverse] > 0, np.full(n, np.nan)
    whole = np.bincount(inverse, weights=weights, minlength=len(y))
    for held in parts:
        left = np.ones(n, dtype=bool)
        left[held] = False
        part = np.bincount(inverse[left], weights=weights[left], minlength=len(y))
        with np.errstate(invalid="ignore"):  # an infinite C times 0
            costs = np.where(part > 0, C * (part / whole), 0.0)
        told[held] = _without(task, source, y, costs, solver, support, gap)[inverse[held]]
        found = np.flatnonzero(~np.isnan(told))
        if min(positive[found].sum(), (~positive[found]).sum()) >= ENOUGH:
            break
    return found, told[found]


def _without(
    task: Task, source: Source, y: Floats, costs: Floats, solver: Solver, support: Floats, gap: float
) -> Floats:
    """Decision values (m,) of the machine, or the nearest that is feasible, for targets and costs (m,)."""
    signs = np.unique(np.sign(y[costs > 0]))
    if len(signs) < 2:
        return np.full(len(y), signs.sum())
    qp = task.nearest(y, costs).program(source, y, costs)
    qp = dataclasses.replace(qp, likely=support[costs[support] > 0])
    rough = dataclasses.replace(solver, tol=max(solver.tol, gap * 0.5 * float(np.ptp(qp.p))))
    solution = rough.estimate(qp)
    return np.asarray(solution.decision / task.answer(qp, solution).scale)
