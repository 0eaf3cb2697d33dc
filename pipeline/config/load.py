"""From a YAML file or a mapping, and what the command line sets, to a checked `Experiment`."""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.config import yaml12
from pipeline.config.keys import copied, set_key
from pipeline.config.points import NOT_SWEPT
from pipeline.config.schema import Experiment
from pipeline.config.values import source_stem
from svmcore.errors import InputError, SVMError

__all__ = ["load_experiment", "read_config"]


def load_experiment(source: str | os.PathLike[str] | Mapping[str, Any], overrides: Sequence[str] = ()) -> Experiment:
    """Read and check an experiment from a YAML file or a mapping.

    `overrides` are texts `KEY=VALUE` with dotted keys and YAML values, e.g. `kernel.gamma=1e-2`; they win.

    Raises
    ------
    InputError (or another SVMError)
        In one sentence, for anything in the file that cannot be used.

    >>> load_experiment({"data": {"source": "sklearn:iris"}}, ["C=1e2"]).C
    100.0
    """
    where, raw, stem = read_config(source)
    try:
        return _checked(raw, overrides, stem, where)
    except SVMError:
        at_fault = next((k for k in range(len(overrides) + 1) if not _passes(raw, overrides[:k], stem)), 0)
        if not at_fault:
            raise
    return _checked(raw, overrides, stem, f"--set {overrides[at_fault - 1].partition('=')[0]}")


def _checked(read: Mapping[str, Any], overrides: Sequence[str], stem: str, where: str) -> Experiment:
    """Apply what the command line sets to the mapping of a file, and check the whole; `where` is named in errors."""
    raw = copied(read)
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key:
            raise InputError(f"--set takes KEY=VALUE, given {override!r}")
        set_key(raw, key.strip(), yaml12.parse(text, f"--set {key}"), f"--set {key}")
    if "name" not in raw:
        raw["name"] = stem or _default_name(raw)
    exp = Experiment.checked(raw, where)
    _check_sweep(exp, where)
    return exp


def _passes(read: Mapping[str, Any], overrides: Sequence[str], stem: str) -> bool:
    """Whether a file with these overrides is an experiment: the first that fails is the one to name."""
    try:
        _checked(read, overrides, stem, "config")
    except SVMError:
        return False
    return True


def _check_sweep(exp: Experiment, where: str) -> None:
    """Name every error of a sweep when the file is loaded."""
    if exp.sweep is None:
        return
    for key in (*exp.sweep.grid, *itertools.chain.from_iterable(exp.sweep.list_)):
        if key.split(".", 1)[0] in NOT_SWEPT:
            raise InputError(f"{where}: {key!r} cannot be swept; set it at the top of the file")
    for key, values in exp.sweep.grid.items():
        if not values:
            raise InputError(f"{where}: sweep.grid.{key} is an empty list; give at least one value")
    try:
        exp.points()
    except SVMError as error:
        raise type(error)(f"{where}: {error}") from None


def read_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[str, dict[str, Any], str]:
    """Return (where, raw mapping, name by the file) of a config, unchecked."""
    if isinstance(source, Mapping):
        return "config", copied(source), ""
    where = os.fspath(source)
    try:
        with open(source, encoding="utf-8") as file:
            text = file.read(yaml12.MAX_TEXT + 1)  # whatever the file is, a device even
    except OSError as error:
        raise InputError(f"{where}: cannot read the config ({error.strerror}); give the path of a YAML file") from None
    except UnicodeDecodeError:
        raise InputError(f"{where}: not a text file in UTF-8; give the path of a YAML file") from None
    raw = yaml12.parse(text, where)
    if not isinstance(raw, dict):
        raise InputError(f"{where}: a config is a mapping with at least data.source, this file holds {raw!r:.60}")
    return where, raw, source_stem(Path(source).name.removesuffix(".yaml").removesuffix(".yml"))


def _default_name(raw: Mapping[str, Any]) -> str:
    data = raw.get("data")
    source = data.get("source") if isinstance(data, Mapping) else None
    return source_stem(source) if isinstance(source, str) else "experiment"
