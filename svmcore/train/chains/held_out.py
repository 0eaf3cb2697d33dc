"""Decision values of rows by models that have not seen them, on the K of all rows: what probabilities are fitted to."""

import dataclasses

import numpy as np

from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solution import Solution
from svmcore.solvers import Solver
from svmcore.sources.base import Source
from svmcore.tasks import Task
from svmcore.train.chains.loop import Problem

__all__ = ["held_out_decisions"]

FOLDS = 5


@dataclasses.dataclass(eq=False)
class _Costed(Problem[Floats]):
    """A machine for targets and costs (m,), or the nearest that is feasible; decision values (m,) are kept of it."""

    task: Task
    source: Source
    y: Floats
    costs: Floats
    solver: Solver

    def program(self) -> SignedQP:
        """Its program."""
        return self.task.nearest(self.y, self.costs).program(self.source, self.y, self.costs)

    def keep(self, qp: SignedQP, solution: Solution) -> Floats:
        """Decision values (m,)."""
        return np.asarray(solution.decision / self.task.answer(qp, solution).scale)


def held_out_decisions(
    task: Task,
    source: Source,
    y: Floats,
    C: Floats,
    inverse: Floats,
    weights: Floats,
    solver: Solver,
    rng: np.random.Generator,
) -> Floats:
    """Decision values (n,) of the original rows of a classifier, each by a model that has not seen it.

    Original row t is row `inverse[t]` of the source, with the share `weights[t]` of its C (m,): a fold is a smaller C.
    Each solve starts from nothing: where all variables end at their bounds the bias is an interval, and a start from
    the solution of all rows leaves it at one of its ends, another one in each fold.
    A training part of one class alone gives its sign, an empty one 0, as in LIBSVM.
    """
    n, m = len(inverse), len(y)
    order = rng.permutation(n)
    decision = np.empty(n)
    whole = np.bincount(inverse, weights=weights, minlength=m)
    for fold in range(FOLDS):
        held = order[fold * n // FOLDS : (fold + 1) * n // FOLDS]
        if not len(held):
            continue
        left = np.ones(n, dtype=bool)
        left[held] = False
        part = np.bincount(inverse[left], weights=weights[left], minlength=m)
        signs = np.sign(y[part > 0])
        if len(set(signs.tolist())) < 2:
            decision[held] = signs[0] if len(signs) else 0.0
            continue
        with np.errstate(invalid="ignore"):  # an infinite C times 0
            costs = np.where(part > 0, C * (part / whole), 0.0)
        decision[held] = _Costed(task, source, y, costs, solver).answer()[inverse[held]]
    return decision
