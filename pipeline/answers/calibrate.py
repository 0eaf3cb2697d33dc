"""The sigmoid of a problem: fitted to what each row that was trained on is told without it.

The problem's own solution tells it, or folds of its rows (`svmcore.model.left_out`). So the rows of a fold have a
sigmoid that has not seen them.
"""

import numpy as np

from pipeline.answers.problem import ProblemTask, bounds, target_of, training_counts
from svmcore.model.left_out import Told, told_without
from svmcore.model.probability import fit_sigmoid
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solvers import Solver
from svmcore.train.chains import held_out_decisions

__all__ = ["sigmoid_of"]

GAP = 0.03  # of the margin that folds are solved to: who verifies has K in other digits, and finds the same sigmoid


def sigmoid_of(task: ProblemTask, qp: SignedQP, beta: Floats, decision: Floats, scale: float) -> list[float] | None:
    """[A, B] for the decision values (m,) of a model that divides by `scale`; None where nobody asked for it."""
    if not task.probability:
        return None
    counts, y = training_counts(task), target_of(task).y
    trained = np.flatnonzero((counts > 0) & (y != 0))
    rows = np.repeat(trained, counts[trained].astype(np.int64))

    def folds() -> Told:
        solver, rng = Solver.create(task.solver), np.random.default_rng(task.target)
        of = task.built, qp.source, y, bounds(task), rows, np.ones(len(rows))
        return held_out_decisions(*of, solver, rng, np.flatnonzero(beta), GAP)

    found, told = told_without(qp, beta, decision, scale, rows, folds)
    return [*fit_sigmoid(told, y[rows[found]] > 0)]
