"""Problems on a shared kernel: what each needs, and the program that it is.

A `ProblemTask` names its data and kernel by path and fingerprint, so it travels as a few hundred bytes. Targets become
programs here and nowhere else; a solver sees the signed program alone. Nothing here knows what a run is.
"""

import dataclasses
import functools
import hashlib
import json
import math
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.kernel.columns import computed_columns
from pipeline.kernel.factor import open_factor
from pipeline.kernel.gram import open_gram
from pipeline.rows.dataset import dataset_at
from pipeline.rows.folds import plain_folds, stratified_folds
from svmcore.errors import InvalidProblem
from svmcore.kernels import Kernel
from svmcore.model import Target
from svmcore.qp import SignedQP
from svmcore.sources import FactorRows, ResidentGram, Source
from svmcore.tasks import Task
from svmcore.train.posing.plan import served_kernel

__all__ = [
    "ProblemTask",
    "bounds",
    "check_feasible",
    "fold_codes",
    "held_out_counts",
    "part_of",
    "problem_of",
    "stored_source",
    "target_of",
    "targets_of",
    "training_counts",
]

FORMAT = 6


@dataclasses.dataclass(frozen=True)
class ProblemTask:
    """One problem: a class (or pair) or the values, a machine, a C, a fold, on one kernel of one dataset.

    Attributes
    ----------
    root, dataset, gram
        Paths: the cache, the dataset, and K if it is on storage (None: columns are computed on demand).
    data, kernel_id
        Fingerprints of the data and of the kernel's values (kernel, precision, block partition).
    kernel
        Spec of the model's kernel, with numbers; K is of its `served_kernel`.
    machine
        Spec of the `svmcore.Task`.
    target
        Index into the goals of its kind.
    C
        Before counts and class weights; None is a hard margin. 1 for a machine that knows none.
    class_weight
        "balanced", or one weight per class code, or None.
    fold
        (folds, seed, index): the rows of that fold have C_i = 0; 0 folds are those of the dataset's fold column.
    warm
        Fingerprint of the problem whose beta is the start.
    probability
        Whether a sigmoid is fitted to its decision values.
    approximation
        Spec of what stands for K: `gram` is its factor then.
    """

    root: str
    dataset: str
    gram: str | None
    data: str
    kernel_id: str
    kernel: dict[str, Any]
    machine: dict[str, Any]
    multiclass: str
    target: int
    C: float | None
    class_weight: Any
    solver: dict[str, Any]
    fold: tuple[int, int, int] | None = None
    warm: str | None = None
    probability: bool = False
    approximation: dict[str, Any] | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What the answer depends on: everything but paths, and a time limit, which no finished answer met."""
        names = (field.name for field in dataclasses.fields(self))
        elsewhere = ("root", "dataset", "gram", *(("approximation",) if self.approximation is None else ()))
        facts = {name: getattr(self, name) for name in names if name not in elsewhere}
        return facts | {"solver": {k: v for k, v in self.solver.items() if k != "time_limit"}}

    @functools.cached_property
    def fingerprint(self) -> str:
        """Sha256 of the identity."""
        canonical = json.dumps({**self.identity, "format": FORMAT}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @functools.cached_property
    def built(self) -> Task:
        """The machine."""
        return Task.create(self.machine)

    @property
    def file(self) -> Path:
        """Where the answer lies."""
        return Path(self.root) / part_of(self.fingerprint)


def part_of(fingerprint: str) -> str:
    """Name of an answer among the parts of a cache."""
    return f"problems/{fingerprint[:32]}"


# --- the source of K ------------------------------------------------------------------------------------------------


_opening = threading.Lock()  # a cache alone lets threads that come at once each make the same


def stored_source(task: ProblemTask) -> Source:
    """K on storage, or its factor, mapped once per process: each mapping counts its pages as memory of its own."""
    with _opening:
        if task.approximation is not None:
            return _factor(str(task.gram))
        return _resident(str(task.gram), task.dataset, served_kernel(Kernel.create(task.kernel), task.built))


@functools.lru_cache(maxsize=2)
def _resident(gram: str, dataset: str, kernel: Kernel) -> ResidentGram:
    K = open_gram(gram)
    return ResidentGram(K, computed_columns(dataset, kernel, K.dtype))


@functools.lru_cache(maxsize=2)
def _factor(folder: str) -> FactorRows:
    return FactorRows(np.asarray(open_factor(folder)))


# --- targets, copies and bounds --------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=4)
def targets_of(path: str) -> tuple[Any, Any]:
    """Targets (m,) and counts (m,) of the merged rows."""
    dataset = dataset_at(path)
    return np.asarray(dataset.targets()), np.asarray(dataset.counts(), np.float64)


@functools.lru_cache(maxsize=2)
def fold_codes(path: str, folds: int, seed: int) -> Any:
    """Fold (n_train,) of every original row: by lot, or with 0 folds, those of the dataset's fold column."""
    dataset = dataset_at(path)
    if not folds:
        return dataset.folds()
    if not dataset.kind.stratified:
        return plain_folds(dataset.n_train, folds, seed)
    return stratified_folds(np.asarray(dataset.targets())[dataset.inverse()], folds, seed)


def target_of(task: ProblemTask) -> Target:
    """What this task is trained on, over the merged rows."""
    return _goal(task.dataset, task.multiclass, task.target)


@functools.lru_cache(maxsize=4)
def _goal(path: str, multiclass: str, target: int) -> Target:
    return _goals(path, multiclass)[target]


@functools.lru_cache(maxsize=1)
def _goals(path: str, multiclass: str) -> Sequence[Target]:
    dataset = dataset_at(path)
    return dataset.kind.goals(targets_of(path)[0], len(dataset.classes), multiclass)


def training_counts(task: ProblemTask) -> Any:
    """Copies (m,) of every merged row that are trained on: all, or those outside the fold."""
    _, counts = targets_of(task.dataset)
    return counts if task.fold is None else counts - held_out_counts(task.dataset, task.fold)


@functools.lru_cache(maxsize=64)
def held_out_counts(path: str, fold: tuple[int, int, int]) -> Any:
    """Copies (m,) of every merged row that the fold holds out: a row may have copies on both sides."""
    folds, seed, index = fold
    dataset = dataset_at(path)
    held_out = dataset.inverse()[fold_codes(path, folds, seed) == index]
    return np.bincount(held_out, minlength=dataset.n_merged).astype(np.float64)


def bounds(task: ProblemTask) -> Any:
    """C_i (m,) = C x trained copies of row i x weight of its class; 0 leaves a row out, also for C = inf."""
    share = training_counts(task)
    if dataset_at(task.dataset).kind.answers == "labels":
        share = share * _class_weights(task, share) * (target_of(task).y != 0)
    C = math.inf if task.C is None else task.C
    return np.multiply(C, share, out=np.zeros(len(share)), where=share > 0)


def _class_weights(task: ProblemTask, counts: Any) -> Any:
    """Weight (m,) of the class of each row."""
    codes, _ = targets_of(task.dataset)
    n_classes, given = len(dataset_at(task.dataset).classes), task.class_weight
    if given is None:
        return np.ones(len(codes))
    if given == "balanced":
        totals = np.bincount(codes, weights=counts, minlength=n_classes)
        given = totals.sum() / (n_classes * np.maximum(totals, 1.0))
    return np.asarray(given, np.float64)[codes]


def problem_of(task: ProblemTask, source: Source) -> SignedQP:
    """The task's program over a source of its K."""
    return task.built.program(source, target_of(task).y, bounds(task))


def check_feasible(tasks: Iterable[ProblemTask]) -> None:
    """Refuse machines that their targets make infeasible, before any kernel work.

    Raises
    ------
    InvalidProblem
        With what was given, what would be feasible, and of which class.
    """
    for task in tasks:
        if type(task.built).check is Task.check:  # most machines object to nothing
            continue
        goal, dataset = target_of(task), dataset_at(task.dataset)
        try:
            task.built.check(goal.y, bounds(task))
        except InvalidProblem as error:
            fold = "" if task.fold is None else f", without fold {task.fold[2]}"
            raise InvalidProblem(f"{error} ({_about(goal, dataset.kind.label(goal, dataset.classes))}{fold})") from None


def _about(goal: Target, label: Any) -> str:
    if isinstance(label, list):
        return f"classes {label[0]} and {label[1]}"
    return f"class {label} against the rest" if goal.negative < 0 else f"class {label}"
