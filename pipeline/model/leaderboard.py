"""What the points of a sweep scored: cross-validation from the answers on storage, ranking, results.csv.

A fold's scores are those of the rows it holds out, from the decision values that the solver already had. The best
point has the highest mean; then the fewest support vectors; then it comes first in the config. No times in results.csv,
so that equal answers are equal bytes.
"""

import csv
import dataclasses
import io
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.answers.problem import ProblemTask, held_out_counts, targets_of, training_counts
from pipeline.answers.result import ProblemResult, read_answers, sigmoids_of
from pipeline.config.keys import as_json
from pipeline.kinds.base import Outputs
from pipeline.model.metrics import worst, worst_status

__all__ = ["Entry", "cross_validated", "entry_of", "ranked", "results_csv"]

DIGITS = 12  # means that agree so far are a tie: the order of a sum is no merit


@dataclasses.dataclass(frozen=True)
class Entry:
    """One point's line of the leaderboard.

    Attributes
    ----------
    index, params
        Its place in the config's order, and its parameters.
    scores
        By name, that which ranks first: of each fold; without folds one, of the test (or else the training) rows. None
        where a score is not defined.
    n_support
        Original training rows in the models of a fold (the union over the classes), the mean over the folds.
    kkt_gap, relative_gap, status
        The worst of its `n_fits` problems.
    seconds
        Time inside the solver, all its problems together.
    """

    index: int
    params: dict[str, Any]
    scores: dict[str, tuple[float | None, ...]]
    n_support: float
    kkt_gap: float | None
    relative_gap: float | None
    status: str
    n_fits: int
    seconds: float

    @property
    def ranked_by(self) -> str:
        """Name of the score that ranks."""
        return next(iter(self.scores))

    @property
    def fold_scores(self) -> tuple[float | None, ...]:
        """Those that rank."""
        return self.scores[self.ranked_by]

    @property
    def mean_score(self) -> float | None:
        """Mean over the folds; None where a fold has none."""
        return _over(np.mean, self.fold_scores)

    @property
    def std_score(self) -> float | None:
        """Standard deviation over the folds, as scikit-learn's: of the population."""
        return _over(np.std, self.fold_scores)

    @property
    def others(self) -> dict[str, tuple[float | None, float | None]]:
        """Mean and deviation of the other scores, by name."""
        return {name: (_over(np.mean, s), _over(np.std, s)) for name, s in list(self.scores.items())[1:]}

    def record(self) -> dict[str, Any]:
        """As an entry of `points` in the metrics."""
        kept = ("n_support", "kkt_gap", "relative_gap", "status", "n_fits", "seconds")
        scores = {"mean_score": self.mean_score, "std_score": self.std_score, "fold_scores": list(self.fold_scores)}
        others = {name: {"mean": mean, "std": std} for name, (mean, std) in self.others.items()}
        more = {"scores": others} if others else {}
        return {"params": as_json(self.params), **scores, **more} | {key: getattr(self, key) for key in kept}


def _over(of: Any, scores: Sequence[float | None]) -> float | None:
    """Mean or deviation of the scores of all folds."""
    known = [score for score in scores if score is not None]
    return float(of(known)) if len(known) == len(scores) else None


def ranked(entries: Sequence[Entry]) -> list[Entry]:
    """Best first, those without a score last; a share of rejected rows is no merit and ranks nothing."""

    def key(entry: Entry) -> tuple[float, float, int]:
        if entry.ranked_by == "rejected":
            return 0.0, 0.0, entry.index
        score = math.inf if entry.mean_score is None else -round(entry.mean_score, DIGITS)
        return score, entry.n_support, entry.index

    return sorted(entries, key=key)


# --- scores ---------------------------------------------------------------------------------------------------------
def cross_validated(
    dataset: Any, index: int, params: dict[str, Any], tasks: list[list[ProblemTask]], names: Sequence[str]
) -> Entry:
    """Entry of a point from its answered problems `tasks[fold][target]`, with the scores of these names."""
    scores, results = [], []
    for fold in tasks:
        answers, decision = read_answers(fold, ("rows",))
        scores.append(_fold_scores(dataset, fold, names, decision, sigmoids_of(answers)))
        results.append(answers)
    return entry_of(index, params, scores, tasks, results)


def _fold_scores(
    dataset: Any, tasks: Sequence[ProblemTask], names: Sequence[str], decision: Any, sigmoids: Any
) -> dict[str, float | None]:
    """Scores of held-out original rows from decision values (h, k) at the merged rows with copies held out."""
    fold = tasks[0].fold
    targets, copies = targets_of(str(dataset.path))
    counts = held_out_counts(str(dataset.path), fold) if fold else copies
    rows = np.flatnonzero(counts)
    outputs = Outputs(targets[rows], decision, dataset.classes, tasks[0].multiclass, counts[rows], sigmoids)
    found: dict[str, float | None] = dataset.kind.scored(names, outputs)
    return found


def entry_of(
    index: int,
    params: dict[str, Any],
    scores: Sequence[dict[str, float | None]],
    tasks: Sequence[Sequence[ProblemTask]],
    results: Sequence[Sequence[ProblemResult]],
) -> Entry:
    """Entry of a point with scores of each fold, whose problems `tasks[fold][target]` gave `results`."""
    flat = [result for fold in results for result in fold]
    sizes = [_n_support(fold[0], found) for fold, found in zip(tasks, results, strict=True)]
    return Entry(
        index=index,
        params=params,
        scores={name: tuple(fold[name] for fold in scores) for name in scores[0]},
        n_support=sum(sizes) / len(sizes),
        kkt_gap=worst([result.certificate["kkt_gap"] for result in flat]),
        relative_gap=worst([result.certificate["relative_gap"] for result in flat]),
        status=worst_status([result.status for result in flat]),
        n_fits=len(flat),
        seconds=sum(result.seconds for result in flat),
    )


def _n_support(task: ProblemTask, results: Sequence[ProblemResult]) -> int:
    union = np.unique(np.concatenate([result.rows for result in results]))
    return int(training_counts(task)[union].sum())


# --- results.csv ----------------------------------------------------------------------------------------------------
def results_csv(entries: Sequence[Entry]) -> str:
    """Text of results.csv: a row per point in the order given; a parameter that a point does not set is empty."""
    names = list(dict.fromkeys(name for entry in sorted(entries, key=lambda e: e.index) for name in entry.params))
    n_scores = max(len(entry.fold_scores) for entry in entries)
    others = [f"{what}_{name}" for name in entries[0].others for what in ("mean", "std")]
    folds = [f"fold_{k}_score" for k in range(n_scores)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, "mean_score", "std_score", *folds, *others, "n_support", "kkt_gap", "n_fits", "status"])
    for entry in entries:
        given = [_cell(entry.params[name]) if name in entry.params else "" for name in names]
        found = (entry.mean_score, entry.std_score, *entry.fold_scores, *itertools.chain(*entry.others.values()))
        scores = [_cell(value) for value in found]
        writer.writerow([*given, *scores, _cell(entry.n_support), _cell(entry.kkt_gap), entry.n_fits, entry.status])
    return text.getvalue()


def _cell(value: Any) -> str:
    """A value in one cell: numbers in full, mappings as JSON.

    >>> _cell(0.1), _cell("scale"), _cell({"name": "rbf"}), _cell(None), _cell(math.inf)
    ('0.1', 'scale', '{"name": "rbf"}', '', '.inf')
    """
    value = as_json(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
