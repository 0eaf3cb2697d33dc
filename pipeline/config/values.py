"""The values a configuration file holds: sizes, paths, sources, weights; each check says only that it does not fit.

A check raises ValueError with what is wrong, and `config.errors` adds the key and what it accepts; or it raises an
InputError, which is the whole sentence.
"""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from svmcore.approximation import Approximation
from svmcore.errors import InputError, did_you_mean
from svmcore.kernels import Kernel
from svmcore.solvers import Solver
from svmcore.tasks import Task

__all__ = [
    "BUNDLED",
    "COMPRESSED",
    "FORMATS",
    "absolute",
    "check_encrypted",
    "check_factory",
    "expand",
    "format_bytes",
    "is_url",
    "parse_bytes",
    "source_stem",
    "valid_class_weight",
    "valid_folds",
    "valid_kernel",
    "valid_refit",
    "valid_scale",
    "valid_scoring",
    "valid_solver",
    "valid_source",
    "valid_task",
    "valid_test",
]

BUNDLED = ("iris", "digits", "wine", "breast_cancer", "diabetes")
COMPRESSED = (".gz", ".bz2")
FORMATS = (".libsvm", ".svm", ".csv", ".parquet", ".npz", ".zarr")
_ENV = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_URL = re.compile(r"^[a-z][a-z0-9+.-]*://")
_UNITS = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for suffix, base in (("", 1024), ("B", 1000), ("IB", 1024))
}
_FACTORIES = ("dask_jobqueue", "dask_kubernetes", "dask_cloudprovider", "dask.distributed", "distributed")
_SCALES = ("none", "standard", "minmax", "maxabs")


def is_url(path: str) -> bool:
    """Tell `s3://bucket/key` from a path."""
    return _URL.match(path) is not None


def expand(text: str) -> str:
    """Replace each `${NAME}` by the environment variable NAME; an unset one is an InputError naming it."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise InputError(f"${{{match[1]}}} is not set in the environment; set it or write the value instead")
        return os.environ[match[1]]

    return _ENV.sub(value, text)


def check_factory(name: str) -> bool:
    """Return whether Dask's own list has a class to import; InputError if no list of this host has it.

    A config names code that will run here. MARGINFLOW_FACTORIES adds modules or classes, apart by commas.
    """
    more = [part.strip() for part in os.environ.get("MARGINFLOW_FACTORIES", "").split(",") if part.strip()]
    if any(name.startswith(f"{module}.") for module in _FACTORIES):
        return True
    if any(name == part or name.startswith(f"{part}.") for part in more):
        return False
    raise InputError(
        f"cluster.factory {name!r} is not of {', '.join(_FACTORIES)}; if this host may import it, "
        f"set MARGINFLOW_FACTORIES={name} in the environment"
    )


def check_encrypted(address: str, insecure: bool) -> None:
    """Refuse a scheduler that sends plain bytes, and takes code from whoever reaches it, unless that is accepted."""
    if not insecure and not address.startswith(("tls://", "wss://", "inproc://")):
        raise InputError(
            f"the scheduler {address!r} is not encrypted: whoever reaches it can run code as its user; use tls:// with "
            "cluster.tls, or set cluster.insecure: true if its network is yours alone"
        )


def parse_bytes(value: Any) -> int:
    """Return a size in bytes from a number or a text such as `4GiB`, `500 MB`, `2G`.

    >>> parse_bytes("4GiB"), parse_bytes("1.5 kB"), parse_bytes(10)
    (4294967296, 1500, 10)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]*)", value.strip()) if isinstance(value, str) else None
    if match is None or match[2].upper() not in _UNITS or match[1].count(".") > 1 or match[1] == ".":
        raise ValueError("not a size")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def format_bytes(size: int) -> str | int:
    """Return the short text `parse_bytes` reads back exactly, or the number itself.

    >>> format_bytes(4294967296), format_bytes(1001)
    ('4GiB', 1001)
    """
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return size


def source_stem(source: str) -> str:
    """Return the name a source gives to an experiment: no folder, no format, no compression.

    >>> source_stem("sklearn:digits"), source_stem("/data/a9a.t.bz2"), source_stem("x/train.csv.gz")
    ('digits', 'a9a.t', 'train')
    """
    stem = source.rstrip("/").rsplit("/", 1)[-1].rsplit(":", 1)[-1]
    for suffixes in (COMPRESSED, FORMATS):
        stem = next((stem.removesuffix(s) for s in suffixes if stem.endswith(s)), stem)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-_") or "experiment"


def absolute(value: Any) -> Any:
    """Make a relative path absolute; URLs, `sklearn:NAME` and what begins with `${ENV}` stay as they are."""
    if not isinstance(value, str) or not value or is_url(value) or value.startswith(("${", "sklearn:")):
        return value
    return os.path.abspath(Path(value).expanduser())


def valid_source(value: Any) -> Any:
    """Check what can be said of a source without opening it, and make its path absolute."""
    if isinstance(value, str) and value.startswith("sklearn:") and value[8:] not in BUNDLED:
        known = ", ".join(f"sklearn:{name}" for name in BUNDLED)
        raise InputError(f"unknown source {value!r}; known: {known}{did_you_mean(value[8:], BUNDLED)}")
    if value == "":
        raise ValueError("empty")
    return absolute(value)


def valid_test(value: Any) -> Any:
    """Return a fraction in (0, 1), a second source, or None."""
    if value is None:
        return None
    if isinstance(value, str):
        return valid_source(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise ValueError("neither a fraction between 0 and 1 nor a source")
    return float(value)


def valid_scale(value: Any) -> Any:
    """Return the name of a scaling, or a positive float; null is none."""
    if value is None or value in _SCALES:
        return value or "none"
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError("not a scaling" + did_you_mean(str(value), _SCALES).rstrip("?"))
    return float(value)


def valid_class_weight(value: Any) -> Any:
    """Return None, balanced, or {label: weight}, weights positive floats."""
    if value is None or value == "balanced":
        return value
    if not isinstance(value, Mapping) or not value:
        raise ValueError("not a class weight")
    for label, weight in value.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise ValueError(f"the weight of {label!r} is {weight!r}")
    return {label: float(weight) for label, weight in value.items()}


def valid_kernel(value: Any) -> Any:
    """Return the kernel's full specification, every parameter said."""
    return Kernel.create(value).spec()


def valid_solver(value: Any) -> Any:
    """Return the solver's full specification, every parameter said."""
    return Solver.create(value).spec()


def valid_approximation(value: Any) -> Any:
    """Return the approximation's full specification, or None."""
    return None if value is None else Approximation.create(value).spec()


def valid_refit(value: Any) -> Any:
    """Return the score that picks the model to refit, or None."""
    return None if value is None or value is False or value == "none" else value


def valid_scoring(value: Any) -> Any:
    """Return names of scores as a list, or None."""
    names = [value] if isinstance(value, str) else value
    if names is not None and not (isinstance(names, list) and names and all(isinstance(n, str) for n in names)):
        raise ValueError("not a name or a list of names")
    return names if names is None else list(dict.fromkeys(names))


def valid_task(value: Any) -> Any:
    """Return the name of a machine."""
    return Task.named(value).name


def valid_folds(value: Any) -> Any:
    """Return a number of folds, {column: NAME}, or None."""
    if isinstance(value, Mapping):
        column = value.get("column")
        if set(value) != {"column"} or isinstance(column, bool) or not isinstance(column, str | int):
            raise ValueError("a mapping other than {column: NAME}")
        return dict(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 2):
        raise ValueError("fewer than two folds" if isinstance(value, int) else "not a number of folds")
    return value
