"""Runs on s3://: visible by their last object, computed in a folder of this machine, finished parts mirrored.

An object store has no rename, so a run is claimed by one conditional put and appears with another: `metrics.json`,
after all else is there. K is mapped by the solvers and stays on this machine.
"""

import contextlib
import datetime
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from pipeline.storage.base import DRAFTS, Store, drafting
from pipeline.storage.bucket import Bucket
from pipeline.storage.files import remove_empty
from pipeline.storage.leases import STALE_SECONDS
from pipeline.storage.mirror import Mirror, staging
from svmcore.errors import InputError

__all__ = ["ObjectStore"]

LAST = "metrics.json"  # a run without it is no run
CLAIM = ".claim"  # a run that is being written


class ObjectStore(Store):
    """A prefix of a bucket, and a staging folder of this machine (`pipeline.storage.mirror.staging`)."""

    def __init__(self, url: str) -> None:
        self.bucket = Bucket(url)
        self.url = self.bucket.url
        self._mirror = Mirror(self.bucket, self.cache)

    @property
    def cache(self) -> Path:
        """Staging folder: solvers map K, and only files can be mapped."""
        return staging(self.url)

    def check(self, write: bool = True) -> None:
        """Refuse a bucket that does not answer, is not there or is closed to us."""
        self.bucket.check()

    def put_bytes(self, key: str, data: bytes) -> None:
        """Put one object."""
        self.bucket.put(key, data)

    def get_bytes(self, key: str) -> bytes:
        """Get one object."""
        return self.bucket.get(key)

    def run_keys(self) -> Iterator[str]:
        """Folders with metrics."""
        for name in self.bucket.folders():
            if not name.startswith("."):
                yield from (
                    key.removesuffix(f"/{LAST}")
                    for key in self.bucket.keys(name)
                    if key.endswith(f"/{LAST}") and key.count("/") == 2
                )

    def free_key(self, key: str) -> str:
        """`key`, or `key-2`, ...: a run that is being written, or never was finished, holds its name too."""
        name, _, run = key.rpartition("/")
        taken = set(self.bucket.folders(name))
        numbered = (f"{run}-{number}" for number in itertools.count(2))
        return f"{name}/{next(r for r in itertools.chain([run], numbered) if r not in taken)}"

    @contextlib.contextmanager
    def draft(self) -> Iterator[Path]:
        """A folder of the staging folder; at the end all finished parts have reached the store."""
        try:
            with drafting(self.cache, self.cache / DRAFTS) as folder:
                yield folder
                self._mirror.settle()
        finally:
            self._mirror.wait()  # after an error too: what is finished is kept

    def tidy(self) -> None:
        """Remove the staging folder where it is empty."""
        remove_empty(*self.cache.glob("*"), self.cache / DRAFTS, self.cache)

    def publish(self, folder: Path, key: str) -> bool:
        """Claim the name, put everything, and `metrics.json` last."""
        self._mirror.settle()
        self._sweep(key.partition("/")[0])
        if not self.bucket.create(f"{key}/{CLAIM}", _now().isoformat().encode()):
            return False
        try:
            files = [file for file in folder.rglob("*") if file.is_file() and file != folder / LAST]
            self.bucket.upload(folder, key, files)
            visible = self.bucket.create(f"{key}/{LAST}", (folder / LAST).read_bytes())
        except BaseException:
            with contextlib.suppress(OSError, InputError):
                self.bucket.delete(self.bucket.keys(key))
            raise
        self.bucket.delete([f"{key}/{CLAIM}"])
        return visible

    def _sweep(self, name: str) -> None:
        """Remove what killed processes left of runs called `name` a day ago."""
        keys = self.bucket.keys(name)
        for claim in (key for key in keys if key.endswith(f"/{CLAIM}")):
            folder = claim.removesuffix(CLAIM)
            with contextlib.suppress(FileNotFoundError, ValueError):
                since = datetime.datetime.fromisoformat(self.bucket.get(claim).decode())
                if (_now() - since).total_seconds() > STALE_SECONDS:
                    whole = folder + LAST in keys
                    self.bucket.delete([key for key in keys if key.startswith(folder) and not whole] or [claim])

    # ---- finished parts of the cache
    def sync(self, names: Iterable[str]) -> None:
        """Pull what another machine finished and this one has not; push what only this one has."""
        names = [*names]
        super().sync(names)
        self._mirror.sync(names)

    def push(self, name: str) -> None:
        """Copy a finished part to the store while the work goes on."""
        self._mirror.push(name)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
