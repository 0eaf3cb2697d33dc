"""What a sweep adds to a run: the scores of its points, and the best of them trained on all rows."""

import dataclasses
import functools
from typing import Any

from pipeline.answers.result import read_answers
from pipeline.config.schema import Experiment
from pipeline.config.sections import Sweep
from pipeline.kinds.base import Outputs
from pipeline.layout.parts import Part
from pipeline.layout.sweep import Point
from pipeline.model.leaderboard import Entry, cross_validated, entry_of, ranked, results_csv
from pipeline.rows import dataset as datasets
from pipeline.running.batch import Batch, Counts, of_one
from pipeline.running.score import Trained, assembled, score, solve_and_prove
from pipeline.running.session import Session

__all__ = ["rank", "refit", "scored_on", "sweep_of"]


def sweep_of(exp: Experiment) -> Sweep:
    """The sweep of an experiment that has one."""
    assert exp.sweep is not None
    return exp.sweep


def rank(session: Session, batch: Batch) -> list[Entry]:
    """Leaderboard, best first, and results.csv in the draft."""
    opened = functools.cache(datasets.open_dataset)
    with session.clock("score"):
        entries: list[Entry] = []
        for done, point in enumerate(batch.points, start=1):
            part = batch.part_of(point)
            entries.append(_entry(session, opened(part.data.path), part, point))
            session.progress("points", done, len(batch.points))
        entries = ranked(entries)
        (session.folder / "results.csv").write_text(results_csv(entries), encoding="utf-8")
    return entries


def _entry(session: Session, dataset: Any, part: Part, point: Point) -> Entry:
    tasks, names = part.tasks[point.index], session.exp.scores
    if tasks[0][0].fold is not None or not dataset.n_test:
        return cross_validated(dataset, point.index, point.params, tasks, names)
    results, _ = read_answers(tasks[0])
    model, _, tested = assembled(session, dataset, part, tasks[0], results)
    scores = dataset.kind.scored(
        names, Outputs(dataset.test_targets(), tested, dataset.classes, model.scheme, None, model.sigmoids)
    )
    return entry_of(point.index, point.params, [scores], tasks, [results])


# --- the best on all rows -------------------------------------------------------------------------------------------
def refit(session: Session, batch: Batch, best: Entry) -> tuple[Trained, Counts]:
    """Train the best point on all rows, exactly as a run of its own; found ready if there was one."""
    point = next(point for point in batch.points if point.index == best.index)
    own = dataclasses.replace(session, exp=point.exp)
    one = of_one(own, batch.part_of(point).data, point.exp)
    one, counts = solve_and_prove(own, one)
    return score(own, one), Counts(counts.problems, counts.problems_reused)


def scored_on(exp: Experiment, n_test: int) -> str:
    """Where the scores come from: folds, else the test rows, else the training rows."""
    if sweep_of(exp).folds is not None:
        return "folds"
    return "test" if n_test else "train"
