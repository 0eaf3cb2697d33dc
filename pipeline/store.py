"""Where runs live: published in one step, listed only when whole, drafts of dead processes swept.

A run is written into a hidden draft folder and appears under `NAME/RUN_ID` at once. A store is a handful of byte
operations; a new kind of storage is one more subclass. What is inside a run is no concern of this file.
"""

import abc
import contextlib
import datetime
import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pipeline.config_values import expand, is_url
from svmcore.errors import InputError

__all__ = [
    "DRAFTS",
    "LocalStore",
    "Store",
    "StoreFull",
    "check_writable",
    "open_store",
    "owned_folder",
    "owned_name",
    "remove_empty",
    "run_id",
    "staging",
    "sweep",
    "told_when_full",
    "write_atomic",
]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DRAFTS = ".drafts"  # folder of the runs that are being written
STALE_SECONDS = 24 * 3600  # a draft of another host: nobody can ask its process, so it goes by age


class StoreFull(OSError):
    """No space is left for the work."""


class Store(abc.ABC):
    """Where runs live; keys are relative paths with forward slashes.

    Subclasses give bytes in and out and one step that makes a finished folder visible.
    """

    url: str

    @abc.abstractmethod
    def check(self, write: bool = True) -> None:
        """Raise InputError if nothing can be found, or written if it is to be, here; leaves nothing behind."""

    @abc.abstractmethod
    def put_bytes(self, key: str, data: bytes) -> None:
        """Write `data` at `key`, whole or not at all."""

    @abc.abstractmethod
    def get_bytes(self, key: str) -> bytes:
        """Read what stands at `key`; FileNotFoundError if nothing does."""

    @abc.abstractmethod
    def run_keys(self) -> Iterator[str]:
        """Keys `NAME/RUN_ID` of the published runs."""

    @abc.abstractmethod
    def draft(self) -> "contextlib.AbstractContextManager[Path]":
        """Yield a local folder to write a run into; it is gone afterwards unless it was published."""

    @abc.abstractmethod
    def tidy(self) -> None:
        """Remove empty folders that a run which failed may have left."""

    @abc.abstractmethod
    def publish(self, folder: Path, key: str) -> bool:
        """Make the draft visible at `key` in one step; False, and nothing done, if the key is taken."""

    @property
    @abc.abstractmethod
    def cache(self) -> Path:
        """Local folder of reusable blocks: data, gram, problems."""

    @abc.abstractmethod
    def sync(self, names: Iterable[str]) -> None:
        """Bring the parts `data/FP`, `problems/FP` of the cache here that another machine finished, and vice versa."""

    @abc.abstractmethod
    def push(self, name: str) -> None:
        """Let other machines find a part of the cache that was finished here."""

    def address(self, key: str) -> str:
        """Where `key` is, as a user gives it."""
        return f"{self.url}/{key}"

    def free_key(self, key: str) -> str:
        """`key`, or `key-2`, `key-3`, ... if runs of that name are there."""
        taken = set(self.run_keys())
        numbered = (f"{key}-{number}" for number in itertools.count(2))
        return next(name for name in itertools.chain([key], numbered) if name not in taken)

    def runs(self) -> list[dict[str, Any]]:
        """Metrics of every published run: best accuracy first, the newest first among equals."""
        with ThreadPoolExecutor(8) as pool:
            found = [run for run in pool.map(self._metrics, self.run_keys()) if run]
        found.sort(key=lambda run: run["key"].rpartition("/")[2], reverse=True)
        return sorted(found, key=_score, reverse=True)

    def _metrics(self, key: str) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return {"key": key, **json.loads(self.get_bytes(f"{key}/metrics.json"))}
        return {}


def _score(run: Mapping[str, Any]) -> float:
    accuracy = run.get("accuracy")
    return -1.0 if accuracy is None else float(accuracy)


class LocalStore(Store):
    """A folder; publishing is one rename on its file system."""

    def __init__(self, url: str | Path) -> None:
        self.path = Path(url).expanduser().absolute()
        self.url = str(self.path)

    @property
    def cache(self) -> Path:
        """STORE/.cache."""
        return self.path / ".cache"

    def check(self, write: bool = True) -> None:
        """Refuse a path under a plain file, or under a folder that does not take a file."""
        there = next(p for p in (self.path, *self.path.parents) if os.path.lexists(p))
        if not there.is_dir():
            raise InputError(f"store {self.url}: {there} is a file, not a folder; give a folder that can be written")
        if write:
            check_writable(there, f"store {self.url}")

    def put_bytes(self, key: str, data: bytes) -> None:
        """Write through a hidden file beside the target, then rename."""
        write_atomic(self.path / key, data)

    def get_bytes(self, key: str) -> bytes:
        """Read the file."""
        return (self.path / key).read_bytes()

    def run_keys(self) -> Iterator[str]:
        """Folders with metrics; hidden ones are drafts."""
        for file in sorted(self.path.glob("*/*/metrics.json")):
            folder = file.parent
            if not folder.name.startswith(".") and not folder.parent.name.startswith("."):
                yield f"{folder.parent.name}/{folder.name}"

    def sync(self, names: Iterable[str]) -> None:
        """Do nothing: the cache is in the store."""

    def push(self, name: str) -> None:
        """Do nothing: the cache is in the store."""

    @contextlib.contextmanager
    def draft(self) -> Iterator[Path]:
        """A folder `.drafts/HOST-PID-...` of this store."""
        with owned_folder(self.path / DRAFTS) as folder:
            yield folder

    def tidy(self) -> None:
        """Remove the store's own folders, and the store, where they are empty."""
        remove_empty(*self.cache.glob("*"), self.cache, self.path / DRAFTS, self.path)

    def publish(self, folder: Path, key: str) -> bool:
        """Rename; a folder that is not empty is never replaced."""
        target = self.path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.rename(target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True


def owned_name() -> str:
    """Name of a folder that lives as long as this process: HOST-PID-NUMBER."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


@contextlib.contextmanager
def owned_folder(parent: Path) -> Iterator[Path]:
    """Make a folder in `parent` that ends with the block; those of dead processes are swept first."""
    sweep(parent)
    folder = parent / owned_name()
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_empty(*folders: Path) -> None:
    """Remove those of the folders, in this order, that hold nothing."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def sweep(parent: Path) -> None:
    """Remove folders named by `owned_name` whose process has gone (this host) or that are a day old (another)."""
    for folder in parent.glob("*-*-*"):
        host, pid, _ = folder.name.rsplit("-", 2)
        with contextlib.suppress(FileNotFoundError):
            stale = time.time() - folder.stat().st_mtime > STALE_SECONDS
            if host == socket.gethostname():
                stale = not pid.isdigit() or not _alive(int(pid))
            if stale:
                shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def open_store(url: str | Path, write: bool = True) -> Store:
    """Open the store at a path or at s3://bucket/prefix, checked to be there (and to take files) before any work."""
    place = expand(str(url))
    store: Store
    if is_url(place):
        from pipeline.object_store import ObjectStore

        if not place.startswith("s3://") or not place[5:].strip("/"):
            raise InputError(f"store {url}: runs live in a folder or on s3://bucket/prefix; give one of the two")
        store = ObjectStore(place)
    else:
        store = LocalStore(place)
    store.check(write)
    return store


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


def staging(url: str) -> Path:
    """Return the folder of this machine for the work on a store elsewhere.

    It is in MARGINFLOW_CACHE, or in `~/.cache/marginflow`, one folder for each URL. Solvers map K from it; a cluster of
    several hosts needs it on a file system that they share.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    parent = Path(os.environ.get("MARGINFLOW_CACHE") or Path(home) / "marginflow").expanduser().absolute()
    return parent / hashlib.sha256(url.encode()).hexdigest()[:16]


def check_writable(folder: Path, what: str) -> None:
    """Refuse a folder in which nothing can be made: permissions tell root nothing, and /proc has none."""
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".marginflow-", dir=folder))
    except OSError as error:
        if error.errno not in FULL:  # a full disk may have what is needed already
            reason = error.strerror or type(error).__name__
            raise InputError(f"{what}: {folder} cannot be written ({reason}); give a folder that can") from None


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader, or a crash, sees all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def run_id(fingerprint: str, now: datetime.datetime | None = None) -> str:
    """UTC time and the first eight digits of the fingerprint.

    >>> run_id("0123456789abcdef", datetime.datetime(2026, 1, 2, 3, 4, 5))
    '20260102T030405Z-01234567'
    """
    now = now or datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%dT%H%M%SZ}-{fingerprint[:8]}"
