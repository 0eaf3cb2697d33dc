"""What a sweep adds to a run: the scores of its points, what is proved of other C, and the best on all rows."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.answers import choice
from pipeline.answers.problem import ProblemTask
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
from svmcore.kernels import Kernel
from svmcore.runtime.threads import n_threads, one_blas_thread, side_by_side
from svmcore.sources import ComputedColumns
from svmcore.train.choice import Choice, objection

__all__ = ["choice_of_C", "rank", "refit", "scored_on", "sweep_of"]


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


# --- the choice of C ------------------------------------------------------------------------------------------------
def choice_of_C(session: Session, batch: Batch, entries: Sequence[Entry]) -> dict[str, Any] | None:
    """What is proved of every C between those of the sweep, all else as in the best point, which comes first.

    None where C does not vary; `why` where nothing can be proved.
    """
    point = next(point for point in batch.points if point.index == entries[0].index)
    part = batch.part_of(point)
    points = _along_C(part.group.points, point)
    if len(points) < 2:
        return None
    if why := _unprovable(session, part, point):
        return {"why": why}
    with session.clock("score"):
        found = _proved(session, part, points, point, {each.index: each for each in entries})
    return dataclasses.asdict(found) | {"solved": [[*pair] for pair in found.solved], "least": [*found.least]}


def _along_C(points: Sequence[Point], best: Point) -> list[Point]:
    """Those that differ from the best in C alone, one of each finite C, ascending."""
    if not math.isfinite(best.exp.C):
        return []
    alike = {p.exp.C: p for p in points if p.exp.model_copy(update={"C": best.exp.C}) == best.exp}
    return [alike[C] for C in sorted(alike) if math.isfinite(C)]


def _unprovable(session: Session, part: Part, point: Point) -> str:
    """Why nothing can be proved of other C, or an empty string."""
    if session.exp.scores[0] != "accuracy":
        return f"errors alone are bounded, and {session.exp.scores[0]} ranks the points"
    if scored_on(session.exp, part.data.n_test) == "train":
        return "there are neither folds nor test rows"
    if part.plan.approximation is not None:
        return "the kernel is approximated"
    if part.plan.plan == "shards":
        return "the rows are in shards, and the norms of all are needed here"
    solver = point.exp.solver_for(part.data.n_features)
    return objection(point.exp.machine, Kernel.create(part.plan.kernel), solver)


def _proved(session: Session, part: Part, points: Sequence[Point], best: Point, entries: dict[int, Entry]) -> Choice:
    along = [part.tasks[point.index] for point in points]
    columns = choice.columns_of(along[0][0][0], part.plan.dtype)
    if along[0][0][0].fold is None:
        judges = [_tested(session, part, [tasks[0] for tasks in along], columns)]
    else:
        judges = [choice.held_out(fold[0], columns) for fold in along[0]]
    sizes = [int(each.copies.sum()) for each in judges]
    work = [
        functools.partial(choice.fewest_errors, [tasks[k] for tasks in along], columns, each)
        for k, each in enumerate(judges)
    ]
    with one_blas_thread():
        left = list(side_by_side(work, n_threads()))  # as they end: their sum knows no order
    solved = [(point.exp.C, _errors(entries[point.index], sizes)) for point in points]
    return Choice.of(best.exp.C, solved, [int(n) for n in np.sum(left, axis=0).min(axis=1)], sum(sizes))


def _errors(entry: Entry, sizes: Sequence[int]) -> int:
    """Of all folds, from their accuracies."""
    return sum(round((1.0 - (score or 0.0)) * n) for score, n in zip(entry.fold_scores, sizes, strict=True))


def _tested(
    session: Session, part: Part, along: Sequence[Sequence[ProblemTask]], columns: ComputedColumns
) -> choice.Judges:
    """The test rows with their values for each C, all of them in one pass over the support vectors."""
    dataset = datasets.open_dataset(part.data.path)
    flat = [task for tasks in along for task in tasks]
    results, _ = read_answers(flat)
    _, _, values = assembled(session, dataset, part, flat, results)
    return choice.tested(columns, dataset.test_blocks(), np.split(values, len(along), axis=1))


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
