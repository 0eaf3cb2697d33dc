"""Finished parts of a cache, copied to a bucket and fetched from it, so that another machine goes on from them."""

import contextlib
import functools
import hashlib
import io
import itertools
import json
import os
import threading
import uuid
import zipfile
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pipeline.storage.bucket import THREADS, Bucket
from pipeline.storage.cache import UNDER_WAY
from pipeline.storage.files import write_atomic
from pipeline.storage.manifest import MANIFEST, check_parts, read_manifest
from pipeline.storage.sealed import building
from svmcore.errors import InputError

__all__ = ["CACHE", "Mirror", "staging"]

CACHE = ".cache"
DATA, ANSWERS = "data", "problems"
BATCH, BATCH_BYTES = 256, 16 << 20


def staging(url: str) -> Path:
    """Return the folder of this machine for the work on a store elsewhere.

    It is in MARGINFLOW_CACHE, or in `~/.cache/marginflow`, one folder for each URL. Solvers map K from it; a cluster of
    several hosts needs it on a file system that they share.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    parent = Path(os.environ.get("MARGINFLOW_CACHE") or Path(home) / "marginflow").expanduser().absolute()
    return parent / hashlib.sha256(url.encode()).hexdigest()[:16]


class Mirror:
    """The cache in `folder`, of which datasets and answers are copied to and from a bucket while the work goes on.

    A dataset is a folder there. Answers are small files and many: those that wait while others are on their way go
    together, as `ID.zip` and, after it, `ID.json` with their names.
    """

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self.bucket, self.folder = bucket, folder
        self._pushing: list[Future[None]] = []
        self._waiting: list[str] = []
        self._known: dict[str, dict[str, list[str]]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="push")

    def sync(self, names: Iterable[str]) -> None:
        """Pull what another machine finished and this one has not; push what only this one has."""
        every = list(dict.fromkeys(names))
        for kind in (DATA, ANSWERS):
            wanted = [name for name in every if name.startswith(f"{kind}/")]
            last = MANIFEST if kind == DATA else ""  # what appears last of a folder, or a file itself
            here = {name for name in wanted if (self.folder / name / last).is_file()}
            there = self._remote(kind) if wanted else {}
            best = [name if name in there else f"{name}{UNDER_WAY}" for name in wanted if name not in here]
            self._pull(kind, [name for name in best if name in there])
            for name in wanted:
                if name in here and name not in there:
                    self.push(name)

    def push(self, name: str) -> None:
        """Start to copy a finished part to the bucket."""
        if name.startswith(f"{DATA}/"):
            self._pushing.append(self._pool.submit(self._push_dataset, name))
        elif name.startswith(f"{ANSWERS}/"):
            with self._lock:
                self._waiting.append(name)
            self._pushing.append(self._pool.submit(self._push_answers))

    def settle(self) -> None:
        """Wait until all has reached the bucket; raises what kept it from that."""
        while self._pushing:
            self._pushing.pop(0).result()

    def wait(self) -> None:
        """Wait until nothing is on its way any more, whatever became of it."""
        for future in self._pushing:
            future.exception()

    def _remote(self, kind: str) -> dict[str, list[str]]:
        """Finished parts of a kind in the bucket, as they were when first asked for, and the objects that hold each."""
        with self._lock:
            if kind not in self._known:
                listed = self.bucket.keys(f"{CACHE}/{kind}")
                self._known[kind] = self._datasets(listed) if kind == DATA else self._batches(listed)
            return self._known[kind]

    def _datasets(self, listed: Sequence[str]) -> dict[str, list[str]]:
        last = f"/{MANIFEST}"
        folders = [key.removesuffix(last) for key in listed if key.endswith(last) and key.count("/") == 3]
        return {f.removeprefix(f"{CACHE}/"): [key for key in listed if key.startswith(f"{f}/")] for f in folders}

    def _batches(self, listed: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        indices = [key for key in listed if key.endswith(".json")]
        with ThreadPoolExecutor(THREADS) as pool:
            for key, index in zip(indices, pool.map(self.bucket.get, indices), strict=True):
                for name in json.loads(index):
                    found.setdefault(name, []).append(key.removesuffix(".json") + ".zip")
        return found

    # ---- datasets
    def _push_dataset(self, name: str) -> None:
        folder, prefix, last = self.folder / name, f"{CACHE}/{name}", self.folder / name / MANIFEST
        self.bucket.upload(folder, prefix, [file for file in folder.rglob("*") if file.is_file() and file != last])
        self.bucket.upload(folder, prefix, [last])

    def _pull_dataset(self, name: str) -> None:
        with contextlib.suppress(InputError), building(self.folder / name) as draft:  # damaged there: made again here
            self.bucket.download(f"{CACHE}/{name}", self._known[DATA][name], draft)
            check_parts(draft, read_manifest(draft))

    # ---- answers
    def _push_answers(self) -> None:
        """Send some of those that wait, at most so many as fit the memory of one batch."""
        with self._lock:
            sizes = itertools.accumulate(_bytes(self.folder / name) for name in self._waiting[:BATCH])
            count = max(1, sum(size <= BATCH_BYTES for size in sizes))
            names, self._waiting = self._waiting[:count], self._waiting[count:]
        if names:
            key = f"{CACHE}/{ANSWERS}/{uuid.uuid4().hex}"
            data, held = _zipped(self.folder, dict.fromkeys(names))
            self.bucket.put(f"{key}.zip", data)
            self.bucket.put(f"{key}.json", json.dumps(held).encode())

    def _pull(self, kind: str, names: Sequence[str]) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            if kind == DATA:
                list(pool.map(self._pull_dataset, names))
                return
            batches = sorted({key for name in names for key in self._known[kind][name]})
            list(pool.map(functools.partial(self._unzip, set(names)), batches))

    def _unzip(self, wanted: set[str], key: str) -> None:
        """Put the wanted answers of a batch where they belong; whoever reads them checks their hashes."""
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(self.bucket.get(key))) as batch:
            for name in wanted.intersection(batch.namelist()):
                write_atomic(self.folder / name, batch.read(name), durable=False, swept=False)


def _bytes(file: Path) -> int:
    """Size of a file; 0 of one that has gone meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return file.stat().st_size
    return 0


def _zipped(root: Path, names: Iterable[str]) -> tuple[bytes, list[str]]:
    """An archive of some files, and the names of those that were there."""
    buffer, held = io.BytesIO(), []
    with zipfile.ZipFile(buffer, "w") as batch:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                batch.write(root / name, name)
                held.append(name)
    return buffer.getvalue(), held
