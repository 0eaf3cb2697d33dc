"""Stages of one experiment: ingest -> kernel -> solve -> score.

Each is a plain function of the session and of the small records before it; the records are JSON-able, arrays stay on
storage. A scheduler may wrap every stage (`Step`), and nothing here knows which one does.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import dataset as datasets
from pipeline import decisions, evaluation, scoring
from pipeline.answers import read_result, stored_decision
from pipeline.artifacts import save_model
from pipeline.columns import WorkerColumns
from pipeline.config import Experiment
from pipeline.gram import compute_gram, gram_fingerprint, gram_folder, open_gram
from pipeline.json_values import sha256_of_json, write_json
from pipeline.labels import class_weights
from pipeline.problems import ProblemTask, computed_columns, served_kernel
from pipeline.session import REMOTE, Session
from pipeline.solve import solve_problems
from pipeline.workers import VERSION, InlineWorkers, Workers
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.multiclass import Target, targets
from svmcore.solvers import SMO
from svmcore.sources import CachedColumns, Source

__all__ = [
    "Ingested",
    "KernelPlan",
    "Scored",
    "Solved",
    "Step",
    "choose_plan",
    "columns_for",
    "ingest",
    "kernel",
    "plan_kernel",
    "score",
    "scorers",
    "solve",
    "task_for",
    "workers_for",
]

Step = Callable[..., Any]  # step(name, stage, *args)


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
    kernel: dict[str, Any]  # of the model; K is of its `problems.served_kernel`
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


# --- stages ---------------------------------------------------------------------------------------------------------
def ingest(session: Session) -> Ingested:
    """Rows into the dataset on storage, or find it there."""
    with session.clock("ingest"):
        data = datasets.ingest(session.exp, session.root, session.progress, session.store)
    if session.exp.sweep is None:  # a sweep's points may need solvers of their own
        session.exp = session.exp.with_solver_for(data.n_features)
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
        served, dtype = served_kernel(Kernel.create(plan.kernel), session.exp.bias), np.dtype(plan.dtype)
        workers = workers_for(session, [plan.gram])
        gram = compute_gram(dataset, served, dtype, session.root, workers, session.progress)
    return dataclasses.replace(plan, n_blocks=gram.n_blocks, n_reused=gram.n_reused)


def plan_kernel(exp: Experiment, dataset: Any, root: Path) -> KernelPlan:
    """Which K an experiment needs, and where it is or will be: nothing is computed."""
    resolved = exp.build_kernel().resolved(dataset.n_features, dataset.variance)
    served = served_kernel(resolved, exp.bias)
    dtype = np.dtype(exp.solver_for(dataset.n_features).column_dtype)
    plan = choose_plan(exp, dataset, dtype.itemsize)
    if plan == "columns":
        kernel_id = sha256_of_json([dataset.fingerprint, served.spec(), dtype.name, "columns"])
        return KernelPlan(plan, resolved.spec(), dtype.name, kernel_id, None, 0, 0)
    kernel_id = gram_fingerprint(dataset, served, dtype)
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


def choose_plan(exp: Experiment, dataset: Any, itemsize: int) -> str:
    """Return resident if K (n, n) fits both budgets (memory to map it into, disk to lie on); else columns.

    A solver of linear classifiers needs the rows behind the columns, which a K on storage does not have.
    """
    fits = dataset.n_merged**2 * itemsize <= min(exp.cache.limit, exp.cache.disk)
    return "resident" if fits and not exp.solver_for(dataset.n_features).solves.linear_only else "columns"


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
            source=None if plan.gram else columns_for(session, dataset, plan),
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
        kernel=plan.kernel,
        multiclass=exp.multiclass,
        target=target,
        C=exp.C if math.isfinite(exp.C) else None,
        class_weight=class_weights(exp.class_weight, data.classes),
        loss=exp.loss,
        bias=exp.bias,
        solver=exp.solver_for(data.n_features).spec(),
    )


def columns_for(session: Session, dataset: Any, plan: KernelPlan) -> Source:
    """Columns on demand, one cache for all problems of the run."""
    dtype, served = np.dtype(plan.dtype), served_kernel(Kernel.create(plan.kernel), session.exp.bias)
    local = computed_columns(str(dataset.path), served, dtype)
    remote = session.exp.cluster.kind in REMOTE and not session.exp.solver_for(dataset.n_features).solves.linear_only
    source = WorkerColumns(local, str(dataset.path), session.workers) if remote else local
    limit = session.exp.cache.limit
    return CachedColumns(source, limit, None, min(limit // 4, SMO.square_bytes(source.n, dtype)))


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
