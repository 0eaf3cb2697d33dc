"""Dotted keys of nested mappings: how `--set` and a sweep's points write into a config before it is checked."""

import math
from collections.abc import Mapping
from typing import Any

from pipeline.config import yaml12
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.solvers import Solver

__all__ = ["as_json", "copied", "set_key"]


def set_key(raw: dict[str, Any], dotted: str, value: Any, where: str) -> None:
    """Set a dotted key in nested mappings.

    A bare kernel or solver name stands for its mapping, and a new `.name` keeps the parameters that the new plug-in
    also has. Keys below sweep.grid are dotted themselves, keys below class_weight are labels.
    """
    head, *rest = dotted.split(".")
    if dotted.startswith("sweep.grid.") or dotted.startswith("cluster.kwargs."):
        rest = [dotted.split(".")[1], dotted.split(".", 2)[2]]
    elif head == "class_weight" and rest:
        rest = [yaml12.parse(dotted.split(".", 1)[1], where)]
    family: Any = {"kernel": Kernel, "solver": Solver}.get(head)
    if family is not None and rest:
        spec = raw.get(head) or {"kernel": "rbf", "solver": "auto"}[head]
        raw[head] = {"name": spec} if isinstance(spec, str) else copied(spec)
        if rest == ["name"] and value in family.names():
            raw[head] = _renamed(family.named(value), raw[head])
    here: Any = raw
    for key in [head, *rest][:-1]:
        inner = here.get(key)
        if inner is not None and not isinstance(inner, Mapping):
            raise InputError(f"{where}: cannot set {dotted!r}, because {key!r} is {inner!r}, not a mapping")
        here[key] = dict(inner or {})
        here = here[key]
    here[[head, *rest][-1]] = copied(value)


def _renamed(member: type[Kernel] | type[Solver], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Keep of `spec` what the plug-in of the new name also takes."""
    fields = getattr(member, "__dataclass_fields__", {})
    return {"name": member.name} | {key: value for key, value in spec.items() if key in fields and key != "name"}


def copied(value: Any) -> Any:
    """Copy mappings and lists all the way down, so that an override never reaches the caller's objects."""
    if isinstance(value, Mapping):
        return {key: copied(part) for key, part in value.items()}
    return [copied(part) for part in value] if isinstance(value, list | tuple) else value


def as_json(value: Any) -> Any:
    """Copy mappings and lists for JSON, which has no infinity: that of a hard margin is the text `.inf`."""
    if isinstance(value, Mapping):
        return {str(key): as_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(part) for part in value]
    return ".inf" if isinstance(value, float) and math.isinf(value) else value
