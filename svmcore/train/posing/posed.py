r"""The programs of one training set as they are posed: rows, targets, C_i and machines, before anything is solved.

With sample weights s_i and class weights c_k a program has C_i = C c_{k(i)} s_i. Rows with s_i <= 0 are left out, as
LIBSVM does.
"""

import dataclasses
import functools
import warnings
from collections.abc import Sequence

import numpy as np

from svmcore.errors import InvalidProblem
from svmcore.kernels import Linear, Precomputed
from svmcore.model import Target, targets
from svmcore.model.multiclass import labels_of_pairs, rows_of_pairs
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solvers import Solver
from svmcore.sources import CachedColumns, ResidentGram, Source
from svmcore.tasks import Task
from svmcore.train.posing.copies import Copies
from svmcore.train.posing.distinct import Distinct
from svmcore.train.posing.recipe import Recipe

__all__ = ["Posed", "resolved", "smallest"]

PAIR = np.array([1.0, -1.0])  # targets of the smallest program of a machine


@functools.lru_cache(maxsize=64)  # all fits of a search have the same one
def smallest(task: Task, C: float) -> SignedQP:
    """The smallest program of a machine, of two rows: what solvers can object to shows in it."""
    return task.program(ResidentGram(np.eye(2)), PAIR, C)


def resolved(recipe: Recipe, distinct: Distinct, n_features: int) -> Recipe:
    """The recipe with numbers for the parameters of its kernel, checked before any kernel work."""
    variance = distinct.variance(recipe.kernel)
    if not np.isfinite(variance):
        raise InvalidProblem(
            "The dual coefficients or intercepts are not finite: scale the data, its variance overflows"
        )
    kernel = recipe.kernel.resolved(n_features, variance)
    named = None if isinstance(kernel, Precomputed) else kernel  # of a given K the source tells
    if recipe.approximation is not None:
        recipe.approximation.admits(kernel)
        named = Linear()  # of the factor's rows
    alike = 1.0 if 0.0 < recipe.C < np.inf else recipe.C  # no solver objects to the size of C
    recipe.solver.check(smallest(recipe.task, alike), named)
    return recipe if kernel is recipe.kernel else dataclasses.replace(recipe, kernel=kernel)


def _goals(recipe: Recipe, distinct: Distinct, classes: Floats) -> Sequence[Target]:
    """Targets of the distinct rows, one of each program; classes are looked at once for all trainings on them."""
    key = recipe.task.answers, recipe.scheme, len(classes)
    if recipe.task.answers != "labels":
        return _made_goals(recipe, distinct, classes)
    if key not in distinct.goals:
        distinct.goals[key] = _made_goals(recipe, distinct, classes)
    return distinct.goals[key]


def _made_goals(recipe: Recipe, distinct: Distinct, classes: Floats) -> Sequence[Target]:
    if recipe.task.answers == "values":
        return [Target(k, -1, target) for k, target in enumerate(classes[distinct.codes].T)]
    ones = np.ones(len(distinct.codes))
    if recipe.task.answers == "novelty":
        return [Target(0, -1, ones)]
    trained = distinct.total > 0
    present = np.count_nonzero(np.bincount(distinct.codes[trained], minlength=len(classes)))
    if present < len(classes):
        raise InvalidProblem(f"each of the {len(classes)} classes needs a row of positive weight")
    if present < 2:
        recipe.task.check(ones, distinct.total)
        raise InvalidProblem("Invalid input - all samples with positive weights belong to the same class.")
    return targets(np.where(trained, distinct.codes, -1), len(classes), recipe.scheme)


class Posed:
    """The programs of one training set, each on its part of the distinct rows; those of weight 0 are left out.

    Attributes
    ----------
    goals, tasks
        Targets and the machine of each.
    pairs
        Whether each is about the rows of two classes alone.
    C
        C_i (m,) of the distinct rows.
    """

    def __init__(self, recipe: Recipe, distinct: Distinct, classes: Floats) -> None:
        self.recipe, self.distinct, self.classes = recipe, distinct, classes
        self.goals = _goals(recipe, distinct, classes)
        self.pairs = recipe.pairs and len(self.goals) > 1
        weight = np.ones(distinct.codes.max() + 1) if recipe.class_weight is None else np.asarray(recipe.class_weight)
        self.copies = Copies(distinct, recipe.C * weight)
        self.C = self.copies.C
        self.tasks = [self._task(k) for k in range(len(self.goals))]

    def rows(self, k: int) -> Floats:
        """Distinct rows of problem `k`."""
        return self._pair_rows[k] if self.pairs else np.arange(len(self.C))

    @functools.cached_property
    def _pair_rows(self) -> list[Floats]:
        """Of each pair of classes: made once for all trainings on these rows."""
        made: list[Floats] = self.distinct.goals.setdefault(("rows", *self.recipe.scheme), [])
        if not made:
            made += rows_of_pairs(np.where(self.distinct.total > 0, self.distinct.codes, -1), len(self.classes))
        return made

    def _task(self, k: int) -> Task:
        """The machine of problem `k`, feasible; a warning tells where it is not the one that was asked for."""
        task, rows = self.recipe.task, self.rows(k)
        if type(task).check is Task.check:  # most machines object to nothing
            return task
        y, C = self.targets([k]), self.C[rows]
        error = _objection(task, y, C)
        if not error:
            return task
        near = task.nearest(y, C, self.distinct.total[rows])
        message = f"{error} ({self._about(k)})"
        if near == task or not self.recipe.nearest:
            raise InvalidProblem(message)
        warnings.warn(f"{message}. It was not chosen, so this is trained: {near}", stacklevel=9)
        return near

    def _about(self, k: int) -> str:
        goal = self.goals[k]
        if self.recipe.task.answers != "labels":
            return f"target {goal.positive}"
        if goal.negative < 0:
            return f"class {self.classes[goal.positive]!s} against the rest"
        return f"classes {self.classes[goal.negative]!s} and {self.classes[goal.positive]!s}"

    def targets(self, every: Sequence[int]) -> Floats:
        """Of the rows of the problems `every`, one after the other."""
        if self.pairs:
            return labels_of_pairs(self.distinct.codes, len(self.classes), every, [self.rows(k) for k in every])
        return np.concatenate([self.goals[k].y for k in every])

    def program(self, k: int, source: Source) -> SignedQP:
        """Problem `k` over the K of its rows."""
        return self.tasks[k].program(source, self.targets([k]), self.C[self.rows(k)])

    def solver(self, k: int) -> Solver:
        """The solver, with a smaller tol where a machine that gave way has smaller sums."""
        solver, share = self.recipe.solver, self.tasks[k].unit / self.recipe.task.unit
        return solver if share == 1.0 else dataclasses.replace(solver, tol=solver.tol * share)

    def apart(self, source: CachedColumns) -> bool:
        """Whether problems are best solved in columns of their own, at the same time: the largest one is asked."""
        k = max(range(len(self.goals)), key=lambda k: len(self.rows(k)))
        part = source.take(self.rows(k)) if self.pairs else source
        return self.solver(k).shares(self.program(k, part)) > 0


def _objection(task: Task, y: Floats, C: Floats) -> str:
    """What a machine says against its targets and C_i, or an empty string."""
    try:
        task.check(y, C)
    except InvalidProblem as error:
        return str(error)
    return ""
