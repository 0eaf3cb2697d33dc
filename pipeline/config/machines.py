"""Which keys of a config belong to which task, and the machine that they declare."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.kinds import kind_of
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.solvers import Solver
from svmcore.sources import ResidentGram
from svmcore.tasks import Task

__all__ = ["check_pairing", "foreign_keys", "keys_of", "machine_of", "ranking_of"]

BY_TASK = (
    "C",
    "nu",
    "epsilon",
    "loss",
    "bias",
    "class_weight",
    "multiclass",
    "probability",
    "prove",
)  # keys that not every task has


def keys_of(task: str) -> list[str]:
    """Keys of a task, in the order of the config.

    >>> keys_of("svr"), keys_of("one-class")
    (['C', 'epsilon'], ['nu'])
    """
    machine = Task.named(task)
    own = {*_parameters(machine), *kind_of(task).keys}
    return [key for key in BY_TASK if (machine.takes_C if key == "C" else key in own)]


def foreign_keys(task: str) -> set[str]:
    """Keys that a task does not have."""
    return {*BY_TASK} - {*keys_of(task)}


def machine_of(values: Mapping[str, Any]) -> Task:
    """The machine of a config's values by key."""
    machine = Task.named(values["task"])
    return machine(**{name: values[name] for name in _parameters(machine) if name in values})


def _parameters(machine: type[Task]) -> list[str]:
    return [field.name for field in dataclasses.fields(machine)]  # type: ignore[arg-type]


def check_pairing(
    task: str, given: Collection[str], machine: Task, solver: Solver, kernel: Kernel, C: float, labelled: bool
) -> None:
    """Refuse keys `given` that the task does not have, and a solver that does not admit it.

    Raises
    ------
    InputError, Unsupported, InvalidProblem
        Naming the task and what it accepts.
    """
    accepted = ", ".join(keys_of(task))
    for key in sorted(foreign_keys(task) & {*given}):
        others = ", ".join(name for name in Task.names() if key in keys_of(name))
        raise InputError(f"{key} is no key of task {task}, which takes {accepted}; {key} belongs to {others}")
    if not labelled and not kind_of(task).optional:
        raise InputError(f"data.label is null, and task {task} learns from labels: name their column")
    pair = ResidentGram(np.eye(2))  # the smallest program of this machine: what solvers can object to shows in it
    solver.check(machine.program(pair, np.array([1.0, -1.0]), C), kernel)


def ranking_of(
    task: str, scoring: Sequence[str] | None, refit: str | None, chosen: bool
) -> tuple[list[str], str | None]:
    """(names of the scores, the one that the best point is refitted by or None) of a config.

    Parameters
    ----------
    scoring, refit
        As they were given; `chosen` is whether a refit was.
    """
    kind = kind_of(task)
    names = list(scoring or kind.scores)
    if not chosen:
        return names, names[0] if names[0] != "rejected" else None
    if refit is not None and refit not in names:
        if scoring is not None:
            raise InputError(
                f"sweep.refit is {refit!r}, which scoring does not name; accepted: {', '.join(names)}, or false"
            )
        names = [refit, *names]
    if refit == "rejected":
        raise InputError("sweep.refit: a share of rejected rows ranks nothing; name another score, or give false")
    return names, refit
