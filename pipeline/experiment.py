"""One experiment from its config to a published run: ingest -> kernel -> solve -> score -> publish.

Each stage is a plain function of the session and of the small records before it; the records are JSON-able, arrays stay
on storage. A scheduler may wrap every stage (`step`), and nothing here knows which one does.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import dataset as datasets
from pipeline import decisions, evaluation, metrics, scoring
from pipeline.artifacts import Store, open_store, run_id, save_model
from pipeline.cache import evict
from pipeline.cluster import ClusterLost, InlineWorkers, Workers, open_workers
from pipeline.columns import WorkerColumns
from pipeline.config import Experiment, load_experiment
from pipeline.gram import compute_gram, gram_fingerprint, gram_folder, open_gram
from pipeline.labels import class_weights
from pipeline.progress import Progress, silent
from pipeline.readers import check_sources
from pipeline.report import write_report
from pipeline.solve import ProblemTask, read_result, solve_problems, stored_decision
from pipeline.store import told_when_full
from pipeline.warm import warm_up
from svmcore.columns import CachedColumns, ComputedColumns, KernelColumns
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.multiclass import Target, targets

__all__ = ["Session", "check_inputs", "execute", "open_session", "run", "train"]

Step = Callable[..., Any]
VERSION = importlib.metadata.version("marginflow")
REMOTE = ("address", "scheduler_file", "factory")


# --- what the stages hand on ----------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Ingested:
    """The dataset on storage."""

    path: str
    fingerprint: str
    n_train: int
    n_merged: int
    n_test: int
    n_features: int
    classes: list[Any]
    index_base: int | None  # number of the first feature in LIBSVM text


@dataclasses.dataclass(frozen=True)
class KernelPlan:
    """The kernel with numbers for its parameters, and where its values are: a Gram on storage, or nowhere yet."""

    plan: str  # resident: K on storage, mapped;  columns: computed on demand, cached
    kernel: dict[str, Any]
    dtype: str
    kernel_id: str
    gram: str | None
    n_blocks: int
    n_reused: int


@dataclasses.dataclass(frozen=True)
class Solved:
    """The tasks whose answers are on storage, and the classes (or pairs) they tell apart."""

    tasks: list[dict[str, Any]]
    labels: list[Any]
    n_reused: int


@dataclasses.dataclass(frozen=True)
class Scored:
    """Scores; the model and evaluation.json are in the draft."""

    accuracy: float | None
    train_accuracy: float
    n_support: int
    per_class: list[dict[str, Any]]


# --- the session ----------------------------------------------------------------------------------------------------
class _LazyWorkers(Workers):
    """Workers that start when the first task is there, and again after they were lost."""

    def __init__(self, opened: Callable[[], Workers]) -> None:
        self._opened = functools.cache(opened)

    @property
    def n(self) -> int:  # type: ignore[override]
        return self._opened().n

    @property
    def client(self) -> Any:  # type: ignore[override]
        return self._opened().client

    def map(self, fn: Any, items: Sequence[Any], retries: int = 2) -> Iterator[tuple[int, Any]]:
        """As `Workers.map`; no items, no workers."""
        try:
            if items:
                yield from self._opened().map(fn, items, retries)
        except ClusterLost:
            self._opened.cache_clear()
            raise


@dataclasses.dataclass
class Session:
    """What the stages of one run share and no scheduler may serialise."""

    exp: Experiment
    store: Store
    folder: Path  # the draft
    workers: Workers
    clock: metrics.Clock
    progress: Progress = silent
    forecast: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def root(self) -> Path:
        """Cache of reusable blocks."""
        return self.store.cache


@contextlib.contextmanager
def open_session(
    exp: Experiment, store: Store, progress: Progress | None = None, started: float | None = None
) -> Iterator[Session]:
    """A draft folder and workers, both gone at the end; somebody else's cluster must answer at once."""
    clock = metrics.Clock(started)
    with told_when_full(store.cache), contextlib.ExitStack() as stack:

        def opened() -> Workers:
            with clock("start"):
                workers = stack.enter_context(open_workers(exp.cluster))
                if workers.client is not None:
                    workers.client.run(warm_up)
                return workers

        workers: Workers = _LazyWorkers(opened)
        if exp.cluster.kind in REMOTE:
            workers = opened()
        folder = stack.enter_context(store.draft())
        yield Session(exp, store, folder, workers, clock, progress or silent)


def check_inputs(exp: Experiment, store: str | None = None) -> Store:
    """Find what is wrong before any work: the store and the sources; returns the store."""
    opened = open_store(store or exp.store)
    check_sources(exp)
    return opened


# --- stages ---------------------------------------------------------------------------------------------------------
def ingest(session: Session) -> Ingested:
    """Rows into the dataset on storage, or find it there."""
    with session.clock("ingest"):
        data = datasets.ingest(session.exp, session.root, session.progress, session.store)
    return Ingested(
        path=str(data.path),
        fingerprint=data.fingerprint,
        n_train=data.n_train,
        n_merged=data.n_merged,
        n_test=data.n_test,
        n_features=data.n_features,
        classes=list(data.classes),
        index_base=data.index_base,
    )


def kernel(session: Session, data: Ingested) -> KernelPlan:
    """Kernel parameters as numbers, and K on storage if it fits; else columns will be computed on demand."""
    with session.clock("kernel"):
        dataset = datasets.open_dataset(data.path)
        plan = plan_kernel(session.exp, dataset, session.root)
        if plan.gram is None:
            return plan
        resolved, dtype = Kernel.create(plan.kernel), np.dtype(plan.dtype)
        workers = workers_for(session, [plan.gram])
        gram = compute_gram(dataset, resolved, dtype, session.root, workers, session.progress)
    return dataclasses.replace(plan, n_blocks=gram.n_blocks, n_reused=gram.n_reused)


def plan_kernel(exp: Experiment, dataset: Any, root: Path) -> KernelPlan:
    """Which K an experiment needs, and where it is or will be: nothing is computed."""
    resolved = exp.build_kernel().resolved(dataset.n_features, dataset.variance)
    dtype = np.dtype(exp.build_solver().column_dtype)
    plan = choose_plan(exp, dataset.n_merged, dtype.itemsize)
    if plan == "columns":
        kernel_id = digest(dataset.fingerprint, resolved.spec(), dtype.name, "columns")
        return KernelPlan(plan, resolved.spec(), dtype.name, kernel_id, None, 0, 0)
    kernel_id = gram_fingerprint(dataset, resolved, dtype)
    gram = str(gram_folder(root, kernel_id))
    return KernelPlan(plan, resolved.spec(), dtype.name, kernel_id, gram, 0, 0)


def workers_for(session: Session, grams: Sequence[str]) -> Workers:
    """Return this process if every K is there: to check its strips needs no cluster."""
    try:
        for gram in grams:
            open_gram(gram)
    except InputError:
        return session.workers
    return InlineWorkers()


def scorers(session: Session) -> Workers | None:
    """Who scores test rows if they are many: the session's workers, unless they are this process."""
    return None if session.exp.cluster.kind == "inline" else session.workers


def choose_plan(exp: Experiment, n: int, itemsize: int) -> str:
    """Return resident if K (n, n) fits both budgets (memory to map it into, disk to lie on); else columns.

    A solver of linear classifiers needs the rows behind the columns, which a K on storage does not have.
    """
    fits = n * n * itemsize <= min(exp.cache.limit, exp.cache.disk)
    return "resident" if fits and not exp.build_solver().solves.linear_only else "columns"


def solve(session: Session, data: Ingested, plan: KernelPlan) -> Solved:
    """Every class (or pair) on the one kernel; finished answers are found again."""
    with session.clock("solve"):
        dataset = datasets.open_dataset(data.path)
        goals = targets(np.asarray(dataset.codes()), len(data.classes), session.exp.multiclass)
        labels = [target_label(goal, data.classes) for goal in goals]
        tasks = [task_for(session, data, plan, index) for index in range(len(goals))]
        results = solve_problems(
            tasks,
            workers=session.workers if session.exp.cluster.kind in REMOTE and plan.gram else None,
            progress=session.progress,
            columns=None if plan.gram else columns_for(session, dataset, plan),
            labels=labels,
            mirror=session.store,
        )
    n_reused = sum(result.reused for result in results)
    return Solved([dataclasses.asdict(task) for task in tasks], labels, n_reused)


def task_for(session: Session, data: Ingested, plan: KernelPlan, target: int) -> ProblemTask:
    """The task of one class (or pair)."""
    exp = session.exp
    return ProblemTask(
        root=str(session.root),
        dataset=data.path,
        gram=plan.gram,
        data=data.fingerprint,
        kernel_id=plan.kernel_id,
        multiclass=exp.multiclass,
        target=target,
        C=exp.C if math.isfinite(exp.C) else None,
        class_weight=class_weights(exp.class_weight, data.classes),
        loss=exp.loss,
        bias=exp.bias,
        solver=exp.build_solver().spec(),
        psd=Kernel.create(plan.kernel).psd,
    )


def columns_for(session: Session, dataset: Any, plan: KernelPlan) -> KernelColumns:
    """Columns on demand, one cache for all problems of the run."""
    dtype, numeric = np.dtype(plan.dtype), Kernel.create(plan.kernel)
    source: KernelColumns = ComputedColumns(numeric, dataset.points(dtype), dtype)
    if session.exp.cluster.kind in REMOTE and not session.exp.build_solver().solves.linear_only:
        source = WorkerColumns(dataset, numeric, dtype, session.workers)
    return CachedColumns(source, session.exp.cache.limit)


def target_label(target: Target, classes: Sequence[Any]) -> Any:
    """Class told from the rest, or the pair of a one-vs-one problem: its second class is the positive one."""
    if target.negative < 0 or len(classes) == 2:
        return classes[target.positive]
    return [classes[target.negative], classes[target.positive]]


def score(session: Session, data: Ingested, plan: KernelPlan, solved: Solved) -> Scored:
    """Assemble the model into the draft and score it: on test rows, and on training rows by the solver's own values."""
    with session.clock("score"):
        dataset = datasets.open_dataset(data.path)
        tasks = [ProblemTask(**task) for task in solved.tasks]
        results = [read_result(task) for task in tasks]
        model, support = scoring.assemble(dataset, plan.kernel, tasks, results)
        per_class = scoring.class_entries(solved.labels, results, model)
        decision = np.stack([stored_decision(task) for task in tasks], axis=1)
        train = scoring.train_confusion(dataset, model, decision)
        recipe = decisions.Recipe.of(dataset, plan.kernel, tasks, model, support)
        tested = decisions.score_test_rows(dataset, model, session.progress, scorers(session), recipe)
        found = scoring.evaluation_of(dataset, model, decision, train, tested)
        found |= {"history": evaluation.curves(solved.labels, [r.history for r in results]), "tol": session.exp.tol}
        write_json(session.folder / "evaluation.json", found)
        scored = Scored(
            accuracy=evaluation.accuracy_of(tested[0]),
            train_accuracy=float(evaluation.accuracy_of(train) or 0.0),
            n_support=int(dataset.counts()[support].sum()),
            per_class=per_class,
        )
        metadata = _provenance(session, data, plan, tasks, scored)
        save_model(session.folder / "model.zarr", model, dataset.scaling, support, metadata)
    return scored


def _provenance(
    session: Session, data: Ingested, plan: KernelPlan, tasks: Sequence[ProblemTask], scored: Scored
) -> dict[str, Any]:
    """What `verify` compares with: the config and data trained on, and the certificates and scores found.

    Neither paths of this machine nor times, so that equal models are equal bytes.
    """
    config = session.exp.to_dict()
    elsewhere = ("store", "cluster", "cache")
    certificates = [{key: value for key, value in e.items() if key != "seconds"} for e in scored.per_class]
    return {
        "marginflow": VERSION,
        "config": {key: value for key, value in config.items() if key not in elsewhere},
        "data": data.fingerprint,
        "n_train": data.n_train,
        "n_features": data.n_features,
        "base": data.index_base,
        "dtype": plan.dtype,
        "tasks": [task.identity for task in tasks],
        "per_class": certificates,
        "accuracy": scored.accuracy,
        "train_accuracy": scored.train_accuracy,
    }


def publish(session: Session, data: Ingested, plan: KernelPlan, solved: Solved, scored: Scored) -> dict[str, Any]:
    """Write metrics, config and report into the draft and make the run visible; returns the metrics."""
    return publish_as(session, data, lambda address: record_of(session, address, data, plan, solved, scored))


def publish_as(session: Session, data: Ingested, record_at: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Publish the draft with the record of a run at the address it is given."""
    fingerprint = digest(session.exp.fingerprint(), data.fingerprint)
    base = f"{session.exp.name}/{run_id(fingerprint)}"
    (session.folder / "config.yaml").write_text(session.exp.to_yaml(), encoding="utf-8")
    while True:  # another run may take the name between the two
        key = session.store.free_key(base)
        record = record_at(session.store.address(key))
        write_json(session.folder / "metrics.json", record)
        write_report(session.folder)
        if session.store.publish(session.folder, key):
            return record


def record_of(
    session: Session, address: str, data: Ingested, plan: KernelPlan, solved: Solved, scored: Scored
) -> dict[str, Any]:
    """Keys of the contract first, then what the plan was and what was found ready."""
    entries = scored.per_class
    return {
        "run": address,
        "model": f"{address}/model.zarr",
        "status": metrics.worst_status([entry["status"] for entry in entries]),
        "n_train": data.n_train,
        "n_test": data.n_test,
        "n_features": data.n_features,
        "classes": data.classes,
        "accuracy": scored.accuracy,
        "train_accuracy": scored.train_accuracy,
        "n_support": scored.n_support,
        "relative_gap": metrics.worst([entry["relative_gap"] for entry in entries]),
        "kkt_gap": metrics.worst([entry["kkt_gap"] for entry in entries]),
        "seconds": session.clock.seconds(),
        "peak_memory_bytes": metrics.peak_memory_bytes(),
        "per_class": entries,
        "kernel": plan.kernel,
        "plan": {"kernel": plan.plan, "dtype": plan.dtype, "n_merged": data.n_merged} | session.forecast,
        "blocks": {"total": plan.n_blocks, "reused": plan.n_reused},
        "problems": {"total": len(solved.tasks), "reused": solved.n_reused},
    }


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON that every reader takes: no NaN, no Infinity."""
    path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


# --- a run ----------------------------------------------------------------------------------------------------------
def _plainly(name: str, stage: Callable[..., Any], *args: Any) -> Any:
    """Call the stage."""
    return stage(*args)


def train(session: Session, step: Step = _plainly) -> dict[str, Any]:
    """All stages in order; `step(name, stage, *args)` is how a scheduler wraps each."""
    if session.exp.sweep is not None:
        from pipeline.batch import train_batch

        return train_batch(session, step)
    from pipeline.plan import forecast_run

    data = step("ingest", ingest, session)
    session.forecast = forecast_run(session, data)
    plan = step("kernel", kernel, session, data)
    solved = step("solve", solve, session, data, plan)
    scored = step("score", score, session, data, plan, solved)
    return step("publish", publish, session, data, plan, solved, scored)


def execute(
    exp: Experiment,
    store: str | None = None,
    progress: Progress | None = None,
    step: Step = _plainly,
    started: float | None = None,
) -> dict[str, Any]:
    """Run a checked experiment; on an error nothing of it is listed, and no empty folder stays behind."""
    opened = check_inputs(exp, store)
    try:
        with open_session(exp, opened, progress, started) as session:
            record = train(session, step)
        evict(opened.cache, exp.cache.disk)
        return record
    finally:
        opened.tidy()


def run(
    config: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Sequence[str] = (),
    store: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train what a config (a path or a mapping) declares and publish it; returns the metrics, as `run --json` prints.

    Parameters
    ----------
    overrides
        Texts `KEY=VALUE` that win over the file, e.g. `("C=10", "kernel.gamma=0.1")`.
    store
        Folder of the runs; default the config's.
    progress
        Called as `progress(stage, done, total, **info)`.
    """
    return execute(load_experiment(config, overrides), store, progress)
