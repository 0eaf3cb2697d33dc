"""Files: written whole or not at all, JSON as an identity and as a file, and what to say of a full disk."""

import contextlib
import errno
import hashlib
import json
import os
import re
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from svmcore.errors import InputError

__all__ = [
    "FULL",
    "StoreFull",
    "check_writable",
    "remove_empty",
    "sha256_of_json",
    "told_when_full",
    "write_atomic",
    "write_json",
]


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StoreFull(OSError):
    """No space is left for the work."""


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader, or a crash, sees all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def sha256_of_json(value: Any) -> str:
    """Sha256 of `value` as JSON with sorted keys: equal values have equal ones.

    >>> sha256_of_json({"a": 1, "b": 2}) == sha256_of_json({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON that every reader takes: no NaN, no Infinity."""
    path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def remove_empty(*folders: Path) -> None:
    """Remove those of the folders, in this order, that hold nothing."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def check_writable(folder: Path, what: str) -> None:
    """Refuse a folder in which nothing can be made: permissions tell root nothing, and /proc has none."""
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".marginflow-", dir=folder))
    except OSError as error:
        if error.errno not in FULL:  # a full disk may have what is needed already
            reason = error.strerror or type(error).__name__
            raise InputError(f"{what}: {folder} cannot be written ({reason}); give a folder that can") from None


@contextlib.contextmanager
def told_when_full(folder: Path) -> Iterator[None]:
    """Turn a failed write on a full disk, whoever met it, into a StoreFull that says where and what to do."""
    try:
        yield
    except OSError as error:
        short = re.search(r"\d+ requested and \d+ written", str(error))  # numpy gives no number of the error
        if error.errno not in FULL and not short:
            raise
        raise StoreFull(
            f"no space is left in {folder} ({error}); free some and run the same command again, "
            "it goes on from what is finished"
        ) from error
