"""Binary problems on a shared kernel: what each needs, and the program that it is.

A `ProblemTask` names its data and kernel by path and fingerprint, so it travels as a few hundred bytes. Labels are made
here and nowhere else; a solver sees the signed program alone. Nothing here knows what a run is.
"""

import dataclasses
import functools
import hashlib
import json
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.kernel.choose import served_kernel
from pipeline.kernel.columns import computed_columns
from pipeline.kernel.gram import open_gram
from pipeline.rows.dataset import open_dataset
from pipeline.rows.folds import stratified_folds
from svmcore.kernels import Kernel
from svmcore.model import Target, targets
from svmcore.qp import Bias, SignedQP
from svmcore.sources import ResidentGram, Source
from svmcore.tasks import SVC

__all__ = [
    "ProblemTask",
    "bounds",
    "fold_codes",
    "held_out_counts",
    "labels_of",
    "problem_of",
    "resident_gram",
    "target_of",
    "training_counts",
]

FORMAT = 4


@dataclasses.dataclass(frozen=True)
class ProblemTask:
    """One binary problem: a class (or pair), a C, a fold, on one kernel of one dataset.

    Attributes
    ----------
    root, dataset, gram
        Paths: the cache, the dataset, and K if it is on storage (None: columns are computed on demand).
    data, kernel_id
        Fingerprints of the data and of the kernel's values (kernel, precision, block partition).
    kernel
        Spec of the model's kernel, with numbers; K is of its `served_kernel`.
    target
        Index into `svmcore.model.targets`.
    C
        Before counts and class weights; None is a hard margin.
    class_weight
        "balanced", or one weight per class code, or None.
    fold
        (folds, seed, index): the rows of that fold have C_i = 0; 0 folds are those of the dataset's fold column.
    warm
        Fingerprint of the problem whose beta is the start.
    """

    root: str
    dataset: str
    gram: str | None
    data: str
    kernel_id: str
    kernel: dict[str, Any]
    multiclass: str
    target: int
    C: float | None
    class_weight: Any
    loss: str
    bias: str
    solver: dict[str, Any]
    fold: tuple[int, int, int] | None = None
    warm: str | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What the answer depends on: everything but paths, and a time limit, which no finished answer met."""
        names = (field.name for field in dataclasses.fields(self))
        facts = {name: getattr(self, name) for name in names if name not in ("root", "dataset", "gram")}
        return facts | {"solver": {k: v for k, v in self.solver.items() if k != "time_limit"}}

    @functools.cached_property
    def fingerprint(self) -> str:
        """Sha256 of the identity."""
        canonical = json.dumps({**self.identity, "format": FORMAT}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def folder(self) -> Path:
        """Where the answer lies."""
        return Path(self.root) / "problems" / self.fingerprint[:32]


# --- the source of K ------------------------------------------------------------------------------------------------


_opening = threading.Lock()  # a cache alone lets threads that come at once each make the same


def resident_gram(task: ProblemTask) -> ResidentGram:
    """K on storage, mapped once per process: each mapping counts its pages as memory of its own."""
    with _opening:
        return _resident(str(task.gram), task.dataset, served_kernel(Kernel.create(task.kernel), task.bias))


@functools.lru_cache(maxsize=2)
def _resident(gram: str, dataset: str, kernel: Kernel) -> ResidentGram:
    K = open_gram(gram)
    return ResidentGram(K, computed_columns(dataset, kernel, K.dtype))


# --- labels, copies and bounds --------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=4)
def _dataset(path: str) -> Any:
    return open_dataset(path)


@functools.lru_cache(maxsize=4)
def labels_of(path: str) -> tuple[Any, Any]:
    """Codes (m,) and counts (m,) of the merged rows."""
    dataset = _dataset(path)
    return np.asarray(dataset.codes()), np.asarray(dataset.counts(), np.float64)


@functools.lru_cache(maxsize=2)
def fold_codes(path: str, folds: int, seed: int) -> Any:
    """Fold (n_train,) of every original row: stratified, or with 0 folds, those of the dataset's fold column."""
    dataset = _dataset(path)
    if not folds:
        return dataset.folds()
    return stratified_folds(np.asarray(dataset.codes())[dataset.inverse()], folds, seed)


def target_of(task: ProblemTask) -> Target:
    """Labels of this task over the merged rows."""
    return _targets(task.dataset, task.multiclass)[task.target]


@functools.lru_cache(maxsize=1)
def _targets(path: str, multiclass: str) -> Sequence[Target]:
    codes, _ = labels_of(path)
    return targets(codes, len(_dataset(path).classes), multiclass)


def training_counts(task: ProblemTask) -> Any:
    """Copies (m,) of every merged row that are trained on: all, or those outside the fold."""
    _, counts = labels_of(task.dataset)
    return counts if task.fold is None else counts - held_out_counts(task.dataset, task.fold)


@functools.lru_cache(maxsize=64)
def held_out_counts(path: str, fold: tuple[int, int, int]) -> Any:
    """Copies (m,) of every merged row that the fold holds out: a row may have copies on both sides."""
    folds, seed, index = fold
    dataset = _dataset(path)
    held_out = dataset.inverse()[fold_codes(path, folds, seed) == index]
    return np.bincount(held_out, minlength=dataset.n_merged).astype(np.float64)


def bounds(task: ProblemTask) -> Any:
    """C_i (m,) = C x trained copies of row i x weight of its class; 0 leaves a row out, also for C = inf."""
    codes, _ = labels_of(task.dataset)
    counts = training_counts(task)
    weights = _weights(task.class_weight, codes, counts, len(_dataset(task.dataset).classes))
    share = counts * weights[codes] * (target_of(task).y != 0)
    C = math.inf if task.C is None else task.C
    return np.multiply(C, share, out=np.zeros(len(share)), where=share > 0)


def _weights(class_weight: Any, codes: Any, counts: Any, n_classes: int) -> Any:
    if class_weight is None:
        return np.ones(n_classes)
    if class_weight == "balanced":
        totals = np.bincount(codes, weights=counts, minlength=n_classes)
        return totals.sum() / (n_classes * np.maximum(totals, 1.0))
    return np.asarray(class_weight, np.float64)


def problem_of(task: ProblemTask, source: Source) -> SignedQP:
    """The task's program over a source of its K."""
    return SVC(task.loss, Bias(task.bias)).program(source, target_of(task).y, bounds(task))
