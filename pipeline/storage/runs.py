"""Where runs are and what they are called: the store at a path or a URL, and the name of a run in it.

In a folder a run is published by one rename on its file system, and the cache is in the store.
"""

import contextlib
import datetime
import errno
import os
from collections.abc import Iterator
from glob import glob
from pathlib import Path

from pipeline.config.redact import redacted_text
from pipeline.config.values import expand, is_url
from pipeline.storage.base import DRAFTS, Store, drafting
from pipeline.storage.files import check_writable, create_atomic, publish_folder, remove_empty, write_atomic
from pipeline.storage.leases import release, remove_folder
from pipeline.storage.manifest import check_parts, read_manifest, write_manifest
from pipeline.storage.s3 import ObjectStore
from svmcore.errors import InputError

__all__ = ["LocalStore", "check_run", "open_store", "run_id", "seal_run"]

KIND, FORMAT = "run", 1


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
        if not write and there != self.path:
            raise InputError(f"store {self.url}: no such folder; give the folder or URL that runs were written to")
        if write:
            check_writable(there, f"store {self.url}")

    def put_bytes(self, key: str, data: bytes) -> None:
        """Write through a hidden file beside the target, then rename."""
        write_atomic(self.path / key, data)

    def get_bytes(self, key: str) -> bytes:
        """Read the file."""
        return (self.path / key).read_bytes()

    def create_bytes(self, key: str, data: bytes) -> bool:
        """Write a hidden file beside the target, and give it the name if that is free."""
        return create_atomic(self.path / key, data)

    def keys(self, prefix: str) -> list[str]:
        """Files below a folder that are not being written."""
        files = (file for file in (self.path / prefix).rglob("*") if file.is_file() and not file.name.startswith("."))
        return sorted(file.relative_to(self.path).as_posix() for file in files)

    def remove(self, key: str) -> None:
        """Rename the folder to a hidden one, and remove that."""
        remove_folder(self.path / key)
        remove_empty((self.path / key).parent)

    def run_keys(self) -> Iterator[str]:
        """Folders with metrics; hidden ones are drafts, and those that go meanwhile are no runs."""
        for file in sorted(map(Path, glob("*/*/metrics.json", root_dir=self.path))):
            yield file.parent.as_posix()

    @contextlib.contextmanager
    def draft(self) -> Iterator[Path]:
        """A folder `.drafts/HOST-PID-...` of this store."""
        with drafting(self.cache, self.path / DRAFTS) as folder:
            yield folder

    def tidy(self) -> None:
        """Remove the store's own folders, and the store, where they are empty."""
        remove_empty(*self.cache.glob("*"), self.cache, self.path / DRAFTS, self.path)

    def publish(self, folder: Path, key: str) -> bool:
        """Rename; a folder that is not empty is never replaced."""
        if any((self.path / key).glob("*")):
            return False
        release(folder)
        try:
            publish_folder(folder, self.path / key)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True


def open_store(url: str | Path, write: bool = True) -> Store:
    """Open the store at a path or at s3://bucket/prefix, checked to be there (and to take files) before any work."""
    place = expand(str(url))
    store: Store
    if is_url(place):
        if redacted_text(place) != place or "?" in place:
            raise InputError(
                f"store {redacted_text(str(url))}: runs are named after their store, so no login and no query; "
                "give s3://bucket/prefix, and credentials by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if not place.startswith("s3://") or not place[5:].strip("/"):
            raise InputError(f"store {url}: runs live in a folder or on s3://bucket/prefix; give one of the two")
        store = ObjectStore(place)
    else:
        store = LocalStore(place)
    store.check(write)
    return store


def run_id(fingerprint: str, now: datetime.datetime | None = None) -> str:
    """UTC time and the first eight digits of the fingerprint.

    >>> run_id("0123456789abcdef", datetime.datetime(2026, 1, 2, 3, 4, 5))
    '20260102T030405Z-01234567'
    """
    now = now or datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%dT%H%M%SZ}-{fingerprint[:8]}"


def seal_run(folder: Path) -> None:
    """Write the manifest of a run that is about to be published: all of it, its model by the model's own manifest."""
    write_manifest(folder, KIND, FORMAT)


def check_run(folder: Path) -> None:
    """Compare every file of a run with its manifest; Damaged at the first that differs, is missing or was added."""
    check_parts(folder, read_manifest(folder, KIND, FORMAT))
