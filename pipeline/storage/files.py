"""Files: written whole or not at all, JSON as an identity and as a file, and what to say of a full disk."""

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.storage.leases import owned_name, sweep
from svmcore.errors import InputError

__all__ = [
    "FULL",
    "StoreFull",
    "check_writable",
    "create_atomic",
    "flush",
    "publish_folder",
    "remove_empty",
    "rename",
    "sha256_of_json",
    "sweep_drafts",
    "told_when_full",
    "write_atomic",
    "write_json",
    "writing",
]


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DRAFT = ".partial-"


class StoreFull(OSError):
    """No space is left for the work."""


@contextlib.contextmanager
def writing(path: Path, durable: bool = True, swept: bool = True) -> Iterator[Path]:
    """Yield a hidden name beside `path` to write to, which becomes `path` at the end, or goes if anything goes wrong.

    A reader, or a crash, sees all of it or nothing. After a power cut too if `durable`: the file is flushed before
    it takes its name, the folder after, 4 ms each on a common disk. Not worth it where a checksum tells what is
    missing and a moment makes it again. What killed writers of `path` left goes first if `swept`, which lists the
    folder: where files are many, `sweep_drafts` does it once for all.
    """
    partial = _draft_of(path)
    if swept:
        sweep_drafts(path.parent, path.name)
    try:
        yield partial
        if durable:
            flush(partial)
        rename(partial, path, durable)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, data: bytes, durable: bool = True, swept: bool = True) -> None:
    """Write `data` to `path` in one step, in a folder that is made if there is none: see `writing`."""
    _make(path.parent, durable)
    with writing(path, durable, swept) as partial:
        partial.write_bytes(data)


def create_atomic(path: Path, data: bytes) -> bool:
    """Write `data` to `path` in one step unless there is a file; whether it was written. Of several one succeeds."""
    _make(path.parent, durable=True)
    partial = _draft_of(path)
    sweep_drafts(path.parent, path.name)
    try:
        partial.write_bytes(data)
        flush(partial)
        os.link(partial, path)  # a rename would replace what is there
        flush(path.parent)
    except FileExistsError:
        return False
    finally:
        partial.unlink(missing_ok=True)
    return True


def _draft_of(path: Path) -> Path:
    return path.with_name(f".{path.name}{DRAFT}{owned_name()}")


def sweep_drafts(folder: Path, name: str | None = None) -> None:
    """Remove what killed writers of the file `name` in `folder` left, or of any file."""
    sweep(folder, f".{'*' if name is None else glob.escape(name)}{DRAFT}*")


def publish_folder(folder: Path, target: Path) -> None:
    """Give a finished folder its name in one step, all of it flushed before; OSError if `target` is not empty."""
    for parent, _, names in os.walk(folder):
        for name in names:
            flush(Path(parent, name))
        flush(Path(parent))
    _make(target.parent, durable=True)
    rename(folder, target)


def rename(old: Path, new: Path, durable: bool = True) -> None:
    """Rename on one file system; `durable`: a power cut afterwards does not take the new name away."""
    old.replace(new)
    if durable:
        flush(new.parent)


def flush(path: Path) -> None:
    """Have the disk keep a file or a folder as it is now; nothing where a file system does not offer that."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # folders on some network file systems
            raise
    finally:
        os.close(handle)


def _make(folder: Path, durable: bool) -> None:
    """Make a folder; the name of each new one is flushed too."""
    if not folder.is_dir():
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()] if durable else []
        folder.mkdir(parents=True, exist_ok=True)
        for new in missing:
            flush(new.parent)


def sha256_of_json(value: Any) -> str:
    """Sha256 of `value` as JSON with sorted keys: equal values have equal ones.

    >>> sha256_of_json({"a": 1, "b": 2}) == sha256_of_json({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON that every reader takes: no NaN, no Infinity."""
    write_atomic(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode(), durable=False)


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
