"""Facts and arrays in one file that cannot lie: for what is small and many, as answers are.

    {"kind": "answer", "format": 6, ..., "arrays": {"beta": ["<f8", 310], ...}, "parts": {"arrays": SHA256}, ...}
    the numbers of all arrays, one after the other

The first line is a manifest as folders have it. A new folder costs a disk several times what a new file does.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.files import write_atomic
from pipeline.storage.manifest import Damaged, believing, check_manifest, new_manifest

__all__ = ["read_arrays", "write_arrays"]

ARRAYS = "arrays"


def write_arrays(
    path: Path, kind: str, number: int, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write facts and 1-d arrays of numbers in one step, as format `number` of a kind.

    Not flushed: the sha256 tells what a power cut took. `sweep_drafts` of the folder removes what killed writers left.
    """
    numbers = b"".join(array.tobytes() for array in arrays.values())
    shapes = {name: [array.dtype.str, len(array)] for name, array in arrays.items()}
    parts = {ARRAYS: hashlib.sha256(numbers).hexdigest()}
    first = json.dumps(new_manifest(kind, number, {**facts, ARRAYS: shapes}, parts)).encode()
    write_atomic(path, b"\n".join([first, numbers]), durable=False, swept=False)


def read_arrays(path: Path, kind: str, newest: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Facts, and the arrays as views of what was read: copy what is kept.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    InputError
        It is not what was written (`Damaged`), of another kind, or of a format beyond `newest`.
    """
    with path.open("rb") as file:
        manifest = check_manifest(file.readline(), path, kind, newest)
        numbers = file.read()
    if hashlib.sha256(numbers).hexdigest() != manifest["parts"].get(ARRAYS):
        raise Damaged(path, ARRAYS, "were changed")
    with believing(f"{path}: its hashes fit, but its arrays are none", "delete it and run again"):
        return manifest, _views(numbers, manifest[ARRAYS])


def _views(numbers: bytes, shapes: Mapping[str, tuple[str, int]]) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    start = 0
    for name, (dtype, length) in shapes.items():
        found[name] = np.frombuffer(numbers, dtype, length, start)
        start += found[name].nbytes
    return found
