"""A sweep unfolded: points, the kernels they share, and for each kernel the chains of problems along C.

Points on the same data share one dataset, points with the same kernel on it one K, and within a K every (target, fold,
loss, bias, weights, solver) is one chain: C ascends, epsilon and nu go up and down within a C, and each problem starts
from the beta before it, which stays feasible along C and epsilon and is scaled along nu. All of this is a function of
the config and the data alone. Nothing is computed or stored here.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from pipeline.answers.problem import ProblemTask, held_out_counts
from pipeline.config.points import canonical_json
from pipeline.config.schema import Experiment
from pipeline.kernel.choose import held_as
from svmcore.errors import InputError
from svmcore.kernels import Kernel

__all__ = [
    "Chain",
    "Fold",
    "KernelGroup",
    "Point",
    "as_chains",
    "data_groups",
    "expand",
    "fold_label",
    "folds_of",
    "grouped",
    "kernel_groups",
    "tasks_of",
]

Fold = tuple[int, int, int]  # (folds, seed, index), see ProblemTask.fold
Chain = tuple[ProblemTask, ...]
Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True)
class Point:
    """One setting of the swept parameters; `index` is its place in the config's order."""

    index: int
    params: dict[str, Any]
    exp: Experiment


@dataclasses.dataclass(frozen=True)
class KernelGroup:
    """Points on one dataset that share K: the kernel that it is of (`served_kernel`), and how it is held."""

    plan: str  # resident | columns | factor
    kernel: Kernel
    dtype: np.dtype
    points: tuple[Point, ...]


def expand(exp: Experiment) -> list[Point]:
    """Points of the sweep in the config's order; without a sweep, the one point that the experiment is."""
    return [Point(index, params, one) for index, (params, one) in enumerate(exp.points())]


def grouped(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Items with equal keys together, in the order in which each key first appears.

    >>> grouped([1, -2, -1, 3], abs)
    [[1, -1], [-2], [3]]
    """
    found: dict[Hashable, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def data_groups(points: Iterable[Point]) -> list[list[Point]]:
    """Points that train on the same rows."""
    return grouped(points, lambda point: canonical_json(point.exp.data.model_dump()))


def kernel_groups(points: Iterable[Point], dataset: Any) -> list[KernelGroup]:
    """Points of one dataset by the K they need."""

    def described(point: Point) -> KernelGroup:
        return KernelGroup(*held_as(point.exp, dataset), (point,))

    def key(group: KernelGroup) -> Hashable:
        values = [group.kernel.spec(), group.points[0].exp.approximation]
        return group.plan, group.dtype.name, canonical_json(values)

    groups = grouped(map(described, points), key)
    return [dataclasses.replace(g[0], points=tuple(one.points[0] for one in g)) for g in groups]


# --- folds ----------------------------------------------------------------------------------------------------------
def folds_of(exp: Experiment, dataset: Any) -> list[Fold]:
    """Folds of a batch on one dataset, none if it asks for none.

    Raises
    ------
    InputError
        If rows cannot be divided so, or a fold leaves no row of some class to train on.
    """
    sweep = exp.sweep
    if sweep is None or sweep.folds is None:
        return []
    if isinstance(sweep.folds, dict):
        folds = [(0, 0, index) for index in range(len(dataset.folds_of))]
    else:
        _check_sizes(dataset, sweep.folds)
        folds = [(sweep.folds, exp.seed, index) for index in range(sweep.folds)]
    if dataset.kind.stratified:
        _check_classes(dataset, folds)
    return folds


def _check_sizes(dataset: Any, folds: int) -> None:
    if not dataset.kind.stratified:
        if dataset.n_train < folds:
            raise InputError(f"sweep.folds: {folds} folds of {dataset.n_train} training rows; lower sweep.folds")
        return
    largest = int(_per_class(dataset, dataset.counts()).max())
    if largest < folds:
        raise InputError(
            f"sweep.folds: {folds} folds of classes with at most {largest} training rows; lower sweep.folds"
        )


def _check_classes(dataset: Any, folds: Sequence[Fold]) -> None:
    counts = dataset.counts()
    for fold in folds:
        left = _per_class(dataset, counts - held_out_counts(str(dataset.path), fold))
        if left.min() == 0:
            lost = dataset.classes[int(left.argmin())]
            raise InputError(
                f"fold {fold_label(dataset, fold)!r} holds out every row of class {lost!r}; "
                "give folds that leave rows of every class to train on"
            )


def _per_class(dataset: Any, counts: Any) -> Any:
    return np.bincount(dataset.targets(), weights=counts, minlength=len(dataset.classes))


def fold_label(dataset: Any, fold: Fold) -> Any:
    """Name of a fold: its value in the fold column, or 0, 1, ..."""
    return fold[2] if fold[0] else dataset.folds_of[fold[2]]


# --- chains ---------------------------------------------------------------------------------------------------------
TaskOf = Callable[[Point, int], ProblemTask]
Tasks = list[list[ProblemTask]]  # [fold][target]; without folds one row, on all rows


def tasks_of(group: KernelGroup, folds: Sequence[Fold], n_classes: int, task_of: TaskOf) -> dict[int, Tasks]:
    """Problems on one K by the index of their point; each starts from its neighbour in `_path`.

    Parameters
    ----------
    task_of
        The task of a point and target, cold and on all rows.
    """
    tasks: dict[int, Tasks] = {}
    for points in grouped(group.points, lambda point: _all_but_path(point.exp)):
        warm = points[0].exp.build_solver().solves.warm_starts
        before: Tasks = []
        for equal in _path(points):
            exp = equal[0].exp
            cold = [task_of(equal[0], target) for target in range(exp.kind.n_goals(n_classes, exp.multiclass))]
            found = [[dataclasses.replace(task, fold=fold) for task in cold] for fold in folds] or [cold]
            if warm and before:
                found = [
                    [_after(*pair) for pair in zip(*rows, strict=True)] for rows in zip(found, before, strict=True)
                ]
            before = found
            tasks |= {point.index: found for point in equal}
    return tasks


def _path(points: Sequence[Point]) -> list[list[Point]]:
    """Equal points together, in an order in which neighbours are near: C ascends, epsilon and nu turn at each C."""
    ordered: list[list[Point]] = []
    for k, same in enumerate(grouped(sorted(points, key=lambda p: p.exp.C), lambda p: p.exp.C)):
        turned = sorted(same, key=lambda p: _within(p.exp), reverse=k % 2 == 1)
        ordered += grouped(turned, lambda p: _within(p.exp))
    return ordered


def _within(exp: Experiment) -> tuple[float, float]:
    return exp.nu, exp.epsilon


def _after(task: ProblemTask, before: ProblemTask) -> ProblemTask:
    return dataclasses.replace(task, warm=before.fingerprint)


def _all_but_path(exp: Experiment) -> str:
    """What two points on one K must have in common to be steps of one chain."""
    return canonical_json([exp.loss, exp.bias, exp.class_weight, exp.multiclass, exp.build_solver().spec()])


def as_chains(tasks: Iterable[Tasks]) -> list[Chain]:
    """The distinct problems of several points as chains, each in the order in which it is solved.

    The folds of a class come one after another: they share support vectors, whose square of K is still at hand.
    """
    distinct = {task.fingerprint: task for point in tasks for fold in point for task in fold}
    ordered = sorted(distinct.values(), key=lambda task: (math.inf if task.C is None else task.C, task.target))
    links: dict[str, list[ProblemTask]] = {}
    for task in ordered:
        chain = links.pop(task.warm, []) if task.warm else []
        chain.append(task)
        links[task.fingerprint] = chain
    return [tuple(chain) for chain in links.values()]
