"""Finished parts of a cache, copied to a bucket and fetched from it, so that another machine goes on from them."""

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pipeline.storage.bucket import Bucket
from pipeline.storage.sealed import Sealed, building
from svmcore.errors import InputError

__all__ = ["CACHE", "Mirror", "staging"]

MARKERS = {"data": "manifest.json", "problems": "result.json"}  # the last file of each kind of finished part
CACHE = ".cache"


def staging(url: str) -> Path:
    """Return the folder of this machine for the work on a store elsewhere.

    It is in MARGINFLOW_CACHE, or in `~/.cache/marginflow`, one folder for each URL. Solvers map K from it; a cluster of
    several hosts needs it on a file system that they share.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    parent = Path(os.environ.get("MARGINFLOW_CACHE") or Path(home) / "marginflow").expanduser().absolute()
    return parent / hashlib.sha256(url.encode()).hexdigest()[:16]


class Mirror:
    """The cache in `folder`, of which datasets and answers are copied to and from a bucket while the work goes on."""

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self.bucket, self.folder = bucket, folder
        self._pushing: list[Future[None]] = []
        self._known: dict[str, set[str]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="push")

    def sync(self, names: Iterable[str]) -> None:
        """Pull what another machine finished and this one has not; push what only this one has."""
        wanted = list(dict.fromkeys(names))
        here = [name for name in wanted if (self.folder / name / _marker(name)).exists()]
        there = {name for name in wanted if name in self._remote(_kind(name))}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._pull, sorted(there.difference(here))))
        for name in here:
            if name not in there:
                self.push(name)

    def push(self, name: str) -> None:
        """Start to copy a finished part to the bucket."""
        self._pushing.append(self._pool.submit(self._push, name))

    def settle(self) -> None:
        """Wait until all has reached the bucket; raises what kept it from that."""
        while self._pushing:
            self._pushing.pop(0).result()

    def wait(self) -> None:
        """Wait until nothing is on its way any more, whatever became of it."""
        for future in self._pushing:
            future.exception()

    def _pull(self, name: str) -> None:
        prefix = f"{CACHE}/{name}"
        last = f"{prefix}/{_marker(name)}"
        keys = [key for key in self.bucket.keys(prefix) if key != last]
        if _kind(name) == "problems":  # its own hash is checked by whoever reads it
            self.bucket.download(prefix, keys, self.folder / name)
            self.bucket.download(prefix, [last], self.folder / name)
            return
        with contextlib.suppress(InputError), building(self.folder / name) as draft:  # damaged there: made again here
            self.bucket.download(prefix, [*keys, last], draft)
            Sealed(draft).verify()

    def _push(self, name: str) -> None:
        folder, prefix, last = self.folder / name, f"{CACHE}/{name}", self.folder / name / _marker(name)
        self.bucket.upload(folder, prefix, [file for file in folder.rglob("*") if file.is_file() and file != last])
        self.bucket.upload(folder, prefix, [last])

    def _remote(self, kind: str) -> set[str]:
        """Names of the finished parts of a kind in the bucket, as they were when first asked for."""
        with self._lock:
            if kind not in self._known:
                end = f"/{MARKERS[kind]}"
                keys = self.bucket.keys(f"{CACHE}/{kind}")
                names = {key.removeprefix(f"{CACHE}/").removesuffix(end) for key in keys if key.endswith(end)}
                self._known[kind] = {name for name in names if name.count("/") == 1}
            return self._known[kind]


def _kind(name: str) -> str:
    return name.partition("/")[0]


def _marker(name: str) -> str:
    return MARKERS[_kind(name)]
