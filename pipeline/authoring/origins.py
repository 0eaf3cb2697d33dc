"""A config with every default said, and where each value comes from."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config import yaml12
from pipeline.config.keys import set_key
from pipeline.config.load import load_experiment, read_config

__all__ = ["annotated", "origins"]

DEFAULT = "default"
WHOLE = ("sweep.grid", "class_weight", "cluster.kwargs", "gate.min", "gate.drop")  # mappings whose keys are the user's


def origins(config: str, overrides: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Return {dotted key: {"value", "origin"}} of a resolved config.

    The origin is the file, `--set`, or `default`. Secrets are hidden, as in the config.yaml of a run.
    """
    exp, (where, raw, _) = load_experiment(config, overrides), read_config(config)
    given: dict[str, Any] = {}
    for override in overrides:
        key, _, text = override.partition("=")
        set_key(given, key.strip(), yaml12.parse(text), "--set")
    return {
        ".".join(path): {"value": value, "origin": _origin(path, [(given, "--set"), (raw, where)])}
        for path, value in _leaves(exp.to_dict())
    }


def _leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, Mapping) or not value or ".".join(path) in WHOLE:
        return [(path, value)]
    return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, str(key)))]


def _origin(path: Sequence[str], places: Sequence[tuple[Mapping[str, Any], str]]) -> str:
    """The first place that has the key, or says the whole of what it is in by a bare name (`kernel: rbf`)."""
    for place, name in places:
        here: Any = place
        for depth, key in enumerate(path, start=1):
            by_text = {str(k): v for k, v in here.items()} if isinstance(here, Mapping) else {}
            if key not in by_text:
                break
            here = by_text[key]
            if depth == len(path) or (isinstance(here, str) and path[depth] == "name"):
                return name
    return DEFAULT


def annotated(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The resolved config as YAML, each value followed by its origin.

    >>> print(annotated({"C": {"value": 1.0, "origin": "default"}, "data.source": {"value": "a", "origin": "x.yaml"}}))
    C: 1.0                                           # default
    data:
      source: a                                      # x.yaml
    """
    lines: list[str] = []
    open_keys: list[str] = []
    for dotted, entry in found.items():
        *parents, key = dotted.split(".")
        pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(parents, open_keys, strict=False))
        shared = len([*pairs])
        lines += [f"{'  ' * depth}{parent}:" for depth, parent in enumerate(parents) if depth >= shared]
        open_keys = parents
        lines.append(f"{'  ' * len(parents) + key + ': ' + _flow(entry['value']):<48} # {entry['origin']}")
    return "\n".join(lines)


def _flow(value: Any) -> str:
    """A value on one line of YAML."""
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_flow(key)}: {_flow(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, float) and math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    return yaml12.dump(value).removesuffix("\n").removesuffix("\n...").strip()
