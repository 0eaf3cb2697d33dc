"""What a compiled function is made from: the files of all functions that it calls, its constants and its options.

numba compiles a function anew when its own file has changed. It does not see a change of what the function calls or
reads from another file: old code would run on, and nobody would be told.
"""

import functools
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

__all__ = ["made_from"]

CONSTANTS = (bool, int, float, complex, str, bytes, tuple, np.generic, np.dtype)  # that compiled code has in it


def made_from(function: FunctionType, options: Mapping[str, Any]) -> str:
    """Digest of the source and the constants of `function` and of all that it calls, and of the options of numba."""
    found: dict[FunctionType, str] = {}
    _look_at(function, found)
    switches = sorted((name, sorted(value) if isinstance(value, set) else value) for name, value in options.items())
    return hashlib.sha256(repr((sorted(found.values()), switches)).encode()).hexdigest()


def _look_at(function: FunctionType, found: dict[FunctionType, str]) -> None:
    """Add what is known of a function, and of those that it calls, to `found`."""
    if function in found:
        return
    used = _used(function)
    constants = sorted((name, repr(value)) for name, value in used.items() if isinstance(value, CONSTANTS))
    found[function] = repr((function.__qualname__, _digest(function.__code__.co_filename), constants))
    for value in used.values():
        called = _function_of(value)
        if called is not None and (called is not value or _package(called) == _package(function)):
            _look_at(called, found)


def _used(function: FunctionType) -> dict[str, Any]:
    """What a function finds by its names: globals, and what it takes from modules of its own package."""
    names = set(_names(function.__code__))
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for module in [value for value in found.values() if isinstance(value, ModuleType)]:
        if module.__name__.partition(".")[0] == _package(function):
            found |= {f"{module.__name__}.{name}": vars(module)[name] for name in names if name in vars(module)}
    return found


def _names(code: CodeType) -> Iterator[str]:
    """Names of globals and attributes in a function, and in those that are defined within it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _function_of(value: Any) -> FunctionType | None:
    """The Python of a function, compiled or not, or of one that is written in LLVM's intermediate code."""
    inner = getattr(value, "py_func", getattr(value, "_defn", value))
    return inner if isinstance(inner, FunctionType) else None


def _package(function: FunctionType) -> str:
    return function.__module__.partition(".")[0]


@functools.cache
def _digest(path: str) -> str:
    """Of a source file; empty where there is none, as in a notebook."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if Path(path).is_file() else ""
