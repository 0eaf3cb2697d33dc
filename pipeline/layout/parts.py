"""The parts of a run, one for each K: its data, where K is or will be, and the problems of its points.

Nothing is computed here.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.answers.problem import ProblemTask, check_feasible
from pipeline.config.schema import Experiment
from pipeline.kernel.choose import KernelPlan, plan_kernel
from pipeline.kernel.strips import SHARED
from pipeline.kinds.labels import class_weights
from pipeline.layout.sweep import (
    Chain,
    Fold,
    KernelGroup,
    Point,
    Tasks,
    as_chains,
    folds_of,
    grouped,
    kernel_groups,
    tasks_of,
)
from pipeline.rows import dataset as datasets

__all__ = ["Ingested", "Part", "Waiting", "bundles", "parts_of", "task_for", "whole"]


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

    @classmethod
    def of(cls, dataset: Any) -> "Ingested":
        """What is known of a dataset that was read."""
        names = (field.name for field in dataclasses.fields(cls))
        facts = {name: getattr(dataset, name) for name in names}
        return cls(**facts | {"path": str(dataset.path), "classes": list(dataset.classes)})


@dataclasses.dataclass(frozen=True)
class Part:
    """One K of the batch: its data, where it is or will be, and the problems of its points `tasks[point.index]`."""

    data: Ingested
    plan: KernelPlan
    group: KernelGroup
    tasks: dict[int, Tasks]

    @functools.cached_property
    def chains(self) -> list[Chain]:
        """Its distinct problems."""
        return as_chains(self.tasks.values())

    @property
    def kernel_bytes(self) -> int:
        """Bytes of the whole K, or of its factor."""
        return self.plan.values(self.data.n_merged) * np.dtype(self.plan.dtype).itemsize


def parts_of(
    exp: Experiment, root: Path, data: Ingested, points: Sequence[Point], folds: Sequence[Fold] | None = None
) -> list[Part]:
    """Kernels and problems of the points that train on one dataset; `folds` default to those of the experiment."""
    dataset = datasets.open_dataset(data.path)
    folds = folds_of(exp, dataset) if folds is None else folds
    return [_part(root, data, dataset, group, folds) for group in kernel_groups(points, dataset)]


def _part(root: Path, data: Ingested, dataset: Any, group: KernelGroup, folds: Sequence[Fold]) -> Part:
    plan = plan_kernel(group.points[0].exp, dataset, root)

    def task_of(point: Point, target: int) -> ProblemTask:
        return task_for(point.exp, root, data, plan, target)

    part = Part(data, plan, group, tasks_of(group, folds, len(data.classes), task_of))
    check_feasible(task for chain in part.chains for task in chain)
    if folds:  # the best point is trained on all rows
        whole = tasks_of(group, [], len(data.classes), task_of)
        check_feasible(task for rows in whole.values() for task in rows[0])
    return part


def task_for(exp: Experiment, root: Path, data: Ingested, plan: KernelPlan, target: int) -> ProblemTask:
    """The task of one class (or pair), or of the values."""
    return ProblemTask(
        root=str(root),
        dataset=data.path,
        gram=plan.gram,
        data=data.fingerprint,
        kernel_id=plan.kernel_id,
        kernel=plan.kernel,
        machine=exp.machine.spec(),
        multiclass=exp.multiclass,
        target=target,
        C=exp.C if math.isfinite(exp.C) else None,
        class_weight=class_weights(exp.class_weight, data.classes),
        solver=exp.solver_for(data.n_features).spec(),
        probability=exp.probability,
        approximation=plan.approximation,
    )


Waiting = tuple[Part, list[Chain]]


def bundles(exp: Experiment, waiting: Sequence[Waiting]) -> Iterator[list[Waiting]]:
    """Parts whose K come from the same inner products, as many at once as the budgets hold twice."""
    for alike in grouped(waiting, lambda item: (item[0].data.path, item[0].plan.dtype, item[0].plan.plan)):
        part = alike[0][0]
        budget = min(exp.cache.limit, exp.cache.disk // 2)
        size = min(SHARED, max(1, budget // part.kernel_bytes)) if part.plan.plan == "resident" else 1
        for start in range(0, len(alike), size):
            yield alike[start : start + size]


def whole(parts: Sequence[Part]) -> list[Waiting]:
    """The parts as `bundles` takes them, with no problem named."""
    return [(part, []) for part in parts]
