"""Everything that a run has to solve, laid out and then solved: datasets, kernels and chains once for all points.

A run without a sweep is a batch of one point. The whole batch is laid out before any kernel is computed, so what cannot
work is refused first, and a K whose problems are all answered is not computed again. While one group of kernels is
solved on, workers compute the next.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pipeline.answers.problem import part_of
from pipeline.answers.solve import finished, solve_chains
from pipeline.compute.workers import InlineWorkers, Workers
from pipeline.config.schema import Experiment
from pipeline.kernel.choose import planned_alone
from pipeline.kernel.columns import columns_for
from pipeline.kernel.factor import compute_factor
from pipeline.kernel.gram import Gram, compute_grams, open_gram
from pipeline.kernel.shards import open_shards
from pipeline.layout.parts import Ingested, Part, Waiting, bundles, parts_of
from pipeline.layout.sweep import Chain, Point, data_groups, expand
from pipeline.rows import dataset as datasets
from pipeline.running.session import Session
from pipeline.running.steps import silently
from pipeline.storage.cache import claim, discard
from svmcore.approximation import Approximation
from svmcore.errors import InputError
from svmcore.sources import Source

__all__ = ["Batch", "Counts", "lay_out", "of_one", "placed", "solve"]

MOST_TOLD = 50  # parts of a batch that are told one by one


@dataclasses.dataclass(frozen=True)
class Batch:
    """Everything that is to be solved."""

    points: tuple[Point, ...]
    parts: tuple[Part, ...]

    def part_of(self, point: Point) -> Part:
        """The part that holds the problems of a point."""
        return next(part for part in self.parts if point.index in part.tasks)


@dataclasses.dataclass(frozen=True)
class Counts:
    """Work done and found done."""

    problems: int = 0
    problems_reused: int = 0
    blocks: int = 0
    blocks_reused: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))


# --- layout ---------------------------------------------------------------------------------------------------------
def lay_out(session: Session) -> Batch:
    """Read the data of every point and name every kernel and problem; computes neither."""
    session.exp = placed(session, session.exp)
    points = expand(session.exp)
    parts = []
    for alike in data_groups(points):
        data = _ingest(session, alike[0].exp)
        _check_scores(session.exp, data)
        if session.exp.sweep is None:  # a sweep's points may need solvers of their own
            session.exp = planned_alone(session.exp.with_solver_for(data.n_features), data)
            alike = points = expand(session.exp)
        with session.clock("ingest"):
            parts += parts_of(session.exp, session.root, data, alike)
    return Batch(tuple(points), tuple(parts))


def placed(session: Session, exp: Experiment) -> Experiment:
    """The experiment with shards for its plan where workers do not see the store: K on storage is for those who do."""
    exact = exp.plan == "auto" and exp.approximation is None
    if exact and exp.cluster.remote and not session.store.is_shared:
        return exp.model_copy(update={"plan": "shards"})
    return exp


def _check_scores(exp: Experiment, data: Ingested) -> None:
    """Refuse scores that these classes do not have: the config knew no classes."""
    if not (data.classes or exp.scoring is None or exp.scores == ["rejected"]) and exp.kind.optional:
        raise InputError(f"scoring {', '.join(exp.scores)}: {exp.data.source} has no labels; accepted: rejected")
    exp.kind.check_scores(exp.scores, exp.task, len(data.classes), exp.multiclass, exp.probability)


def of_one(session: Session, data: Ingested, exp: Experiment) -> Batch:
    """The batch of one point on all rows."""
    points = (Point(0, {}, exp),)
    return Batch(points, tuple(parts_of(exp, session.root, data, points, folds=[])))


def _ingest(session: Session, exp: Experiment) -> Ingested:
    """Rows into the dataset on storage, or find it there."""
    with session.clock("ingest"):
        data = datasets.ingest(exp, session.root, session.progress)
    return Ingested.of(data)


# --- kernels and problems -------------------------------------------------------------------------------------------
def solve(session: Session, batch: Batch, names: dict[str, str] | None = None) -> Counts:
    """Solve every problem that has no answer, each K computed just before it is needed.

    `names` are what progress reports call the problems, by their fingerprints.
    """
    chains = [part.chains for part in batch.parts]
    with session.clock("solve"):
        claim(session.root, (part_of(task.fingerprint) for of_part in chains for chain in of_part for task in chain))
        open_ = [[chain for chain in of_part if not finished(chain)] for of_part in chains]
    total = sum(len(chain) for of_part in chains for chain in of_part)
    done = total - sum(len(chain) for of_part in open_ for chain in of_part)
    counts = Counts(problems=total, problems_reused=done)
    waiting = [(part, of_part) for part, of_part in zip(batch.parts, open_, strict=True) if of_part]
    crowded = sum(part.kernel_bytes for part, _ in waiting if part.plan.gram) > session.exp.cache.disk
    if not waiting:
        session.progress("solve", total, total, reused=total)
    for number, (part, todo, gram) in enumerate(_with_grams(session, waiting), start=1):
        with session.clock("solve"), _told(session, part, number, len(waiting)):
            told: dict[str, Any] = {"progress": session.progress, "done": done, "total": total, "names": names}
            with _solved_by(session, part) as where:
                ended = solve_chains(todo, **where, **told)
        if gram is not None and crowded:  # the next kernels need the room
            discard(session.root, gram.path)
        done += len(ended)
        reused = sum(one.reused for one in ended)
        counts += Counts(0, reused, gram.n_blocks if gram else 0, gram.n_reused if gram else 0)
    return counts


@contextlib.contextmanager
def _told(session: Session, part: Part, number: int, n: int) -> Iterator[None]:
    """Tell of a part of a batch as of a step, unless there is one part, or very many."""
    tell = session.tell if 1 < n <= MOST_TOLD else silently
    kernel = part.plan.kernel
    numbers = [f"{key}={value:.4g}" for key, value in kernel.items() if isinstance(value, float)]
    name = " ".join([f"part {number} of {n}:", kernel["name"], *numbers])
    tell(name, "running")
    try:
        yield
    except BaseException as error:
        tell(name, "ended", error)
        raise
    tell(name, "completed")


@contextlib.contextmanager
def _solved_by(session: Session, part: Part) -> Iterator[dict[str, Any]]:
    """Where the problems of a part are solved: on the workers, on threads over a K, or one by one over a column cache.

    The few problems of one point are solved on threads, unless the workers are other machines.
    """
    if part.plan.gram is None:
        with contextlib.closing(_source_of(session, part)) as source:
            yield {"source": source}
        return
    cluster = session.exp.cluster
    here = cluster.kind == "inline" or (session.exp.sweep is None and not cluster.remote)
    yield {"workers": None if here else session.workers}


def _source_of(session: Session, part: Part) -> Source:
    """Columns in this process, all or a cache of them, or in shards on the workers."""
    exp, dataset = part.group.points[0].exp, datasets.open_dataset(part.data.path)
    if part.plan.plan == "columns":
        with session.clock("kernel"):
            return columns_for(exp, dataset, part.plan, session.workers)
    address = session.store.shown(f"data/{dataset.path.name}")
    return open_shards(exp, address, dataset, part.plan, session.workers)


def _workers_for(session: Session, grams: Sequence[str]) -> Workers:
    """Return this process if every K is there: to check its strips needs no cluster."""
    try:
        for gram in grams:
            open_gram(gram)
    except InputError:
        return session.workers
    return InlineWorkers()


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
        if first.plan.approximation is not None:
            about = first.group.kernel, Approximation.create(first.plan.approximation), first.plan.dtype
            return [compute_factor(dataset, *about, self.session.root, self.session.workers, self._tell)]
        workers = _workers_for(self.session, [str(part.plan.gram) for part, _ in bundle])
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
