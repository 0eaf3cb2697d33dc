"""A batch from its sweep to a published run: datasets, kernels and chains once for all points, leaderboard, refit.

The whole batch is laid out before any kernel is computed, so what cannot work is refused first, and a K whose problems
are all answered is not computed again. While one group of kernels is solved on, workers compute the next.
"""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pipeline.answers.chains import finished, solve_chains
from pipeline.answers.result import part_of, read_answer
from pipeline.compute.progress import silent
from pipeline.config.schema import Experiment, Sweep
from pipeline.kernel.choose import KernelPlan
from pipeline.kernel.columns import columns_for
from pipeline.kernel.gram import Gram, compute_grams
from pipeline.layout.forecast import forecast
from pipeline.layout.parts import Ingested, Part, Waiting, bundles, parts_of
from pipeline.layout.sweep import (
    Chain,
    Point,
    data_groups,
    expand,
)
from pipeline.model import assemble as scoring
from pipeline.model import decisions, evaluation, metrics
from pipeline.model.leaderboard import Entry, cross_validated, entry_of, ranked, results_csv
from pipeline.rows import dataset as datasets
from pipeline.running import stages
from pipeline.running.clock import peak_memory_bytes
from pipeline.running.publish import publish_as
from pipeline.running.session import Session
from pipeline.running.stages import Scored, Solved, Step
from pipeline.storage.cache import discard
from pipeline.storage.files import write_json

__all__ = ["Batch", "lay_out", "train_batch"]


@dataclasses.dataclass(frozen=True)
class Batch:
    """Everything that is to be solved."""

    points: tuple[Point, ...]
    parts: tuple[Part, ...]


@dataclasses.dataclass(frozen=True)
class Counts:
    """Work done and found done."""

    problems: int = 0
    problems_reused: int = 0
    blocks: int = 0
    blocks_reused: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))


@dataclasses.dataclass(frozen=True)
class Refit:
    """The best point on all rows: its model is in the draft."""

    data: Ingested
    plan: KernelPlan
    scored: Scored
    counts: Counts


def train_batch(session: Session, step: Step) -> dict[str, Any]:
    """All stages of a batch; `step(name, stage, *args)` is how a scheduler wraps each."""
    batch = step("ingest", lay_out, session)
    session.forecast = forecast(session.exp, session.root, batch.parts)
    counts = step("solve", solve_batch, session, batch)
    entries = step("score", score_batch, session, batch)
    refit = step("refit", refit_best, session, batch, entries[0]) if _sweep(session.exp).refit else None
    return step("publish", publish_batch, session, batch, entries, counts, refit)


def _sweep(exp: Experiment) -> Sweep:
    assert exp.sweep is not None
    return exp.sweep


# --- layout ---------------------------------------------------------------------------------------------------------
def lay_out(session: Session) -> Batch:
    """Read the data of every point and name every kernel and problem; computes neither."""
    points = expand(session.exp)
    parts = []
    for alike in data_groups(points):
        data = stages.ingest(_as(session, alike[0].exp))
        with session.clock("ingest"):
            parts += parts_of(session.exp, session.root, data, alike)
    return Batch(tuple(points), tuple(parts))


def _as(session: Session, exp: Experiment) -> Session:
    """The session of one point."""
    return dataclasses.replace(session, exp=exp)


# --- kernels and problems -------------------------------------------------------------------------------------------
def solve_batch(session: Session, batch: Batch) -> Counts:
    """Solve every problem that has no answer, each K computed just before it is needed."""
    chains = [part.chains for part in batch.parts]
    with session.clock("solve"):
        session.store.sync(part_of(task.fingerprint) for of_part in chains for chain in of_part for task in chain)
        open_ = [[chain for chain in of_part if not finished(chain)] for of_part in chains]
    total = sum(len(chain) for of_part in chains for chain in of_part)
    done = total - sum(len(chain) for of_part in open_ for chain in of_part)
    counts = Counts(problems=total, problems_reused=done)
    waiting = [(part, of_part) for part, of_part in zip(batch.parts, open_, strict=True) if of_part]
    crowded = sum(part.kernel_bytes for part, _ in waiting if part.plan.gram) > session.exp.cache.disk
    for part, todo, gram in _with_grams(session, waiting):
        with session.clock("solve"):
            steps = solve_chains(
                todo,
                **_solved_by(session, part),
                progress=session.progress,
                done=done,
                total=total,
                mirror=session.store,
            )
        if gram is not None and crowded:  # the next kernels need the room
            discard(session.root, gram.path)
        done += len(steps)
        reused = sum(step.reused for step in steps)
        counts += Counts(0, reused, gram.n_blocks if gram else 0, gram.n_reused if gram else 0)
    return counts


def _solved_by(session: Session, part: Part) -> dict[str, Any]:
    """Where the problems of a part are solved: on the workers, on threads, or one by one over a column cache."""
    if part.plan.gram is None:
        dataset = datasets.open_dataset(part.data.path)
        return {"source": columns_for(part.group.points[0].exp, dataset, part.plan, session.workers)}
    return {"workers": None if session.exp.cluster.kind == "inline" else session.workers}


def _with_grams(session: Session, waiting: Sequence[Waiting]) -> Iterator[tuple[Part, list[Chain], Gram | None]]:
    """Yield each part when its K is there; the kernels after it are computed meanwhile."""
    with _Ahead(session) as ahead:
        following = iter(bundles(session.exp, waiting))
        coming = ahead.submit(next(following, None))
        while coming is not None:
            bundle, future = coming
            with session.clock("kernel"):
                grams = future.result()
            coming = ahead.submit(next(following, None))
            for (part, todo), gram in zip(bundle, grams, strict=True):
                yield part, todo, gram


class _Cancelled(Exception):
    """Kernels nobody waits for any more."""


class _Ahead:
    """Computes bundles of kernels: one ahead of the solver on the Dask workers, or when asked for in this process."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.cancelled = threading.Event()
        self.pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> "_Ahead":
        return self

    def __exit__(self, *error: object) -> None:
        self.cancelled.set()
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, bundle: list[Waiting] | None) -> "tuple[list[Waiting], Future[list[Gram | None]] | _Later] | None":
        """Start, or at least remember, what `result()` will give."""
        if bundle is None:
            return None
        if self.session.exp.cluster.kind == "inline" or bundle[0][0].plan.gram is None:
            return bundle, _Later(lambda: self._grams(bundle))
        _ = self.session.workers.n  # opened by the main thread, which handles signals
        self.pool = self.pool or ThreadPoolExecutor(1, thread_name_prefix="kernels")
        return bundle, self.pool.submit(self._grams, bundle)

    def _grams(self, bundle: Sequence[Waiting]) -> list[Gram | None]:
        first = bundle[0][0]
        if first.plan.gram is None:
            return [None] * len(bundle)
        dataset = datasets.open_dataset(first.data.path)
        kernels = [part.group.kernel for part, _ in bundle]
        workers = stages.workers_for(self.session, [str(part.plan.gram) for part, _ in bundle])
        return [*compute_grams(dataset, kernels, first.plan.dtype, self.session.root, workers, self._tell)]

    def _tell(self, stage: str, done: int, total: int, **info: Any) -> None:
        if self.cancelled.is_set():
            raise _Cancelled
        self.session.progress(stage, done, total, **info)


@dataclasses.dataclass(frozen=True)
class _Later:
    """A future whose work is done when its result is asked for."""

    work: Callable[[], list[Gram | None]]

    def result(self) -> list[Gram | None]:
        """Do the work."""
        return self.work()


# --- scores ---------------------------------------------------------------------------------------------------------
def score_batch(session: Session, batch: Batch) -> list[Entry]:
    """Leaderboard, best first, and results.csv in the draft."""
    by_index = {point.index: part for part in batch.parts for point in part.group.points}
    with session.clock("score"):
        entries = []
        for done, point in enumerate(batch.points, start=1):
            entries.append(_entry(session, by_index[point.index], point))
            session.progress("points", done, len(batch.points))
        entries = ranked(entries)
        (session.folder / "results.csv").write_text(results_csv(entries), encoding="utf-8")
    return entries


def _entry(session: Session, part: Part, point: Point) -> Entry:
    dataset = datasets.open_dataset(part.data.path)
    tasks = part.tasks[point.index]
    if tasks[0][0].fold is not None or not dataset.n_test:
        return cross_validated(dataset, point.index, point.params, tasks)
    results = [read_answer(task)[0] for task in tasks[0]]
    model, support = scoring.assemble(dataset, part.plan.kernel, tasks[0], results)
    recipe = decisions.Recipe.of(dataset, part.plan.kernel, tasks[0], model, support)
    tested = decisions.score_test_rows(dataset, model, silent, stages.scorers(session), recipe)
    score = evaluation.accuracy_of(tested[0])
    return entry_of(point.index, point.params, [score or 0.0], tasks, [results])


# --- the best on all rows -------------------------------------------------------------------------------------------
def refit_best(session: Session, batch: Batch, best: Entry) -> Refit:
    """Train the best point on all rows, exactly as a run of its own; found ready if there was one."""
    part = next(part for part in batch.parts if best.index in part.tasks)
    own = _as(session, batch.points[best.index].exp)
    plan = stages.kernel(own, part.data)
    solved: Solved = stages.solve(own, part.data, plan)
    scored = stages.score(own, part.data, plan, solved)
    return Refit(part.data, plan, scored, Counts(len(solved.tasks), solved.n_reused))


def publish_batch(
    session: Session, batch: Batch, entries: Sequence[Entry], counts: Counts, refit: Refit | None
) -> dict[str, Any]:
    """Write metrics, config and report beside results.csv and make the run visible; returns the metrics."""
    data = refit.data if refit else batch.parts[0].data
    if refit is None:
        found = {"classes": data.classes, "tol": session.exp.tol}
        write_json(session.folder / "evaluation.json", found)
    counts = counts + refit.counts if refit else counts
    return publish_as(session, data, lambda address: _record(session, address, batch, data, entries, counts, refit))


def _record(
    session: Session,
    address: str,
    batch: Batch,
    data: Ingested,
    entries: Sequence[Entry],
    counts: Counts,
    refit: Refit | None,
) -> dict[str, Any]:
    """Keys of the contract: of the refitted model where there is one, of all problems where it says worst."""
    per_class = refit.scored.per_class if refit else []
    records = [entry.record() for entry in entries]
    every: list[dict[str, Any]] = [*records, *per_class]
    return {
        "run": address,
        "model": f"{address}/model.zarr" if refit else None,
        "status": metrics.worst_status([one["status"] for one in every]),
        "n_train": data.n_train,
        "n_test": data.n_test,
        "n_features": data.n_features,
        "classes": data.classes,
        "accuracy": refit.scored.accuracy if refit else None,
        "train_accuracy": refit.scored.train_accuracy if refit else None,
        "n_support": refit.scored.n_support if refit else None,
        "relative_gap": metrics.worst([one["relative_gap"] for one in every]),
        "kkt_gap": metrics.worst([one["kkt_gap"] for one in every]),
        "seconds": session.clock.seconds(),
        "peak_memory_bytes": peak_memory_bytes(),
        "per_class": per_class,
        "points": records,
        "best": records[0],
        "scored_on": _scored_on(session.exp, data),
        "plan": session.forecast,
        "blocks": {"total": counts.blocks, "reused": counts.blocks_reused},
        "problems": {"total": counts.problems, "reused": counts.problems_reused},
    } | ({"kernel": refit.plan.kernel} if refit else {})


def _scored_on(exp: Experiment, data: Ingested) -> str:
    """Where the scores come from: folds, else the test rows, else the training rows."""
    if _sweep(exp).folds is not None:
        return "folds"
    return "test" if data.n_test else "train"
