"""From rows and targets to a training: one call for whatever is trained, exactly or through a factor of low rank."""

import dataclasses
from typing import TypeVar

import numpy as np

from svmcore.points import Floats, Rows
from svmcore.runtime.threads import one_blas_thread
from svmcore.solvers import SMO
from svmcore.squares import give_back
from svmcore.train.control import Control
from svmcore.train.low_rank import LowRankWork
from svmcore.train.posing.distinct import distinct_rows
from svmcore.train.posing.posed import resolved
from svmcore.train.posing.recipe import Recipe
from svmcore.train.trained import Training
from svmcore.train.training import Work

__all__ = ["train"]

WorkType = TypeVar("WorkType", bound=Work)


@one_blas_thread()
def train(
    recipe: Recipe,
    X: Rows,
    codes: Floats,
    classes: Floats,
    weights: Floats | None = None,
    control: Control | None = None,
    start: Floats | None = None,
) -> Training:
    """Train on rows `X` (n, p) with codes (n,), sample weights (n,) and, to start from, coefficients (k, n).

    `classes` says what the codes stand for: labels (n_classes,), or the targets (n_codes, k) of k regressions on one K.
    The coefficients of a start are those of the programs: a model's times its scale.

    Raises
    ------
    InvalidProblem
        If fewer than two classes have a row of positive weight, or a machine refuses its targets.
    """
    control = control or Control()
    in_sequence = recipe.reads_rows(X.shape[0], X.shape[1], len(classes))
    about = np.asarray(codes), weights, recipe.pairs and not in_sequence, in_sequence
    distinct = distinct_rows(recipe.kernel, X, *about)
    recipe, posed = resolved(recipe, distinct, X.shape[1]), (distinct, np.asarray(classes), control)
    first = None if start is None else distinct.at_distinct(start)
    if recipe.approximation is None:
        return _solved(Work(recipe, *posed), first).training(X.shape[1])
    low = _solved(LowRankWork(recipe, *posed), first)
    if not recipe.approximation.polish:
        return low.training(X.shape[1])
    solver = SMO(tol=recipe.solver.tol, max_iter=recipe.solver.max_iter, time_limit=recipe.solver.time_limit)
    exact = dataclasses.replace(recipe, approximation=None, solver=solver)
    return _solved(Work(exact, *posed), low.coef).training(X.shape[1])


def _solved(work: WorkType, start: Floats | None) -> WorkType:
    """The programs of a training, solved from coefficients (k, m) if they are given."""
    work.start = start
    try:
        work.open()
        work.solve()
    finally:
        give_back()
    return work
