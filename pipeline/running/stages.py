"""Stages of one experiment: ingest -> kernel -> solve -> score.

Each is a plain function of the session and of the small records before it; the records are JSON-able, arrays stay on
storage. A scheduler may wrap every stage (`Step`), and nothing here knows which one does.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pipeline.answers.problem import ProblemTask
from pipeline.answers.result import read_result, stored_decision
from pipeline.answers.solve import solve_problems
from pipeline.compute.workers import VERSION, InlineWorkers, Workers
from pipeline.kernel.choose import KernelPlan, plan_kernel, served_kernel
from pipeline.kernel.columns import columns_for
from pipeline.kernel.gram import compute_gram, open_gram
from pipeline.layout.parts import Ingested, task_for
from pipeline.model import assemble as scoring
from pipeline.model import decisions, evaluation
from pipeline.model.stored import save_model
from pipeline.rows import dataset as datasets
from pipeline.running.session import Session
from pipeline.storage.files import write_json
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.multiclass import Target, targets

__all__ = [
    "Scored",
    "Solved",
    "Step",
    "ingest",
    "kernel",
    "score",
    "scorers",
    "solve",
    "workers_for",
]

Step = Callable[..., Any]  # step(name, stage, *args)


# --- what the stages hand on ----------------------------------------------------------------------------------------


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


def solve(session: Session, data: Ingested, plan: KernelPlan) -> Solved:
    """Every class (or pair) on the one kernel; finished answers are found again."""
    with session.clock("solve"):
        dataset = datasets.open_dataset(data.path)
        goals = targets(np.asarray(dataset.codes()), len(data.classes), session.exp.multiclass)
        labels = [target_label(goal, data.classes) for goal in goals]
        tasks = [task_for(session.exp, session.root, data, plan, index) for index in range(len(goals))]
        results = solve_problems(
            tasks,
            workers=session.workers if session.exp.cluster.remote and plan.gram else None,
            progress=session.progress,
            source=None if plan.gram else columns_for(session.exp, dataset, plan, session.workers),
            labels=labels,
            mirror=session.store,
        )
    n_reused = sum(result.reused for result in results)
    return Solved([dataclasses.asdict(task) for task in tasks], labels, n_reused)


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
