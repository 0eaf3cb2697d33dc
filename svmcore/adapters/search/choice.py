"""The choice of C of a finished search, proved: what its trainings say of every C between those of the grid."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from svmcore.adapters.search.plan import Ready
from svmcore.errors import Unsupported
from svmcore.kernels import Precomputed
from svmcore.points import Floats
from svmcore.sources import ComputedColumns
from svmcore.train.choice import Choice, End, Fewest, Rows, objection, output_error
from svmcore.train.control import Control
from svmcore.train.posing.plan import EXACT_ROWS
from svmcore.train.shared import Found
from svmcore.train.training import Work

__all__ = ["Along", "along_C", "proved"]

ROUNDING = 1e-12  # of decision values


@dataclasses.dataclass(frozen=True, eq=False)
class Along:
    """The candidates that differ from the best in C alone.

    Attributes
    ----------
    chosen
        The C of the best.
    trained
        By C, ascending, (training, accuracy) of each fold.
    labels
        Of the rows that each fold holds out.
    """

    chosen: float
    trained: dict[float, list[tuple[Found, float]]]
    labels: list[Floats]


def along_C(ready: Ready, results: dict[str, Any], best: int, labels: list[Floats], metric: str) -> Along | None:
    """The candidates of a finished search whose trainings were shared; None if those of the `best` were not."""
    trained = {place: each.found for place, each in zip(ready.places, ready.trainings, strict=True)}
    every, found, folds = results["params"], {}, range(len(labels))
    for c, params in enumerate(every):
        parts = [trained[place] for fold in folds if (place := c * len(labels) + fold) in trained]
        if _but_C(params) == _but_C(every[best]) and len(parts) == len(labels):
            scores = [float(results[f"split{fold}_test_{metric}"][c]) for fold in folds]
            found[c] = list(zip(parts, scores, strict=True))
    if best not in found:
        return None
    by_C = sorted(found.values(), key=lambda each: each[0][0].recipe.C)
    return Along(found[best][0][0].recipe.C, {each[0][0].recipe.C: each for each in by_C}, labels)


def _but_C(params: dict[str, Any]) -> str:
    return repr({name: value for name, value in params.items() if name.rpartition("__")[2] != "C"})


def proved(along: Along) -> Choice:
    """What is proved of every C between these.

    Raises
    ------
    Unsupported
        Saying why, where nothing is.
    """
    if len(along.trained) < 2 or not np.isfinite([*along.trained]).all():
        raise Unsupported("a second finite C is needed, with the same other parameters")
    recipe = along.trained[along.chosen][0][0].recipe
    why = objection(recipe.task, recipe.kernel, recipe.solver)
    if why or isinstance(recipe.kernel, Precomputed):
        raise Unsupported(why or "the rows behind a precomputed kernel are not known")
    every = along.trained.values()
    left = [_fewest([folds[k][0] for folds in every], held) for k, held in enumerate(along.labels)]
    solved = [(C, _errors(folds, along.labels)) for C, folds in along.trained.items()]
    least = [int(n) for n in np.sum(left, axis=0).min(axis=1)]
    return Choice.of(along.chosen, solved, least, sum(map(len, along.labels)))


def _errors(folds: Sequence[tuple[Found, float]], labels: Sequence[Floats]) -> int:
    return sum(round((1.0 - score) * len(held)) for (_, score), held in zip(folds, labels, strict=True))


def _fewest(along: Sequence[Found], held: Floats) -> Floats:
    """Errors (n_C - 1, parts) that are left at the rows that a fold holds out, whose labels are `held`."""
    first = along[0]
    classes, n = first.fold.classes, len(held)
    codes = np.minimum(np.searchsorted(classes, held), len(classes) - 1)
    known = classes[codes] == held  # the others are wrong whatever C is
    work = Work(dataclasses.replace(first.recipe, C=1.0), first.distinct, classes, Control())
    columns = _columns(first)
    norm = np.sqrt(np.maximum(columns.diagonal(), 0.0))
    asked_norm = norm[first.asked[:n]][known]
    found = Fewest(len(along), codes[known], np.ones(int(known.sum())), len(classes), first.recipe.scheme)
    for k, goal in enumerate(work.goals):
        at = np.flatnonzero((goal.y != 0) & (work.C > 0))
        rows = Rows(goal.y[at], work.C[at], norm[at], asked_norm, columns.is_positive)
        place = slice(None) if work.pairs else at
        found.add(k, rows, (_end(each, k, (at, place, np.flatnonzero(known)), rows, columns) for each in along))
    return found.counts() + int((~known).sum())


def _columns(found: Found) -> ComputedColumns:
    """What is known of the K of a training, without any of its values."""
    recipe, rows = found.recipe, found.distinct.rows
    dtype = np.dtype(np.float64 if rows.shape[0] <= EXACT_ROWS else recipe.solver.column_dtype)
    return ComputedColumns(recipe.served, recipe.served.prepare_gram(rows, dtype), dtype)


def _end(found: Found, k: int, places: tuple[Any, Any, Any], rows: Rows, columns: ComputedColumns) -> End:
    """Problem `k` at the distinct rows and the places among its decision values, and at those that are asked for."""
    (at, place, asked), solution = places, found.solutions[k]
    beta, bias = found.coef[[k]].toarray()[0, at], float(solution.multipliers.mean())
    values = found.decisions[asked, k] - bias
    error = output_error(columns.rounding, rows, beta) + ROUNDING * float(np.abs(values).max(initial=1.0))
    return End(found.recipe.C, beta, solution.decision[place] - bias, values, error)
