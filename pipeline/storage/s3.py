"""Runs on s3://: visible by their last object, computed in a folder of this machine, finished parts mirrored.

An object store has no rename, so a run is claimed by one conditional put and appears with another: `metrics.json`,
after all else is there. K is mapped by the solvers and stays on this machine.
"""

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from pipeline.storage.base import DRAFTS, Store, drafting
from pipeline.storage.bucket import Bucket
from pipeline.storage.files import remove_empty
from pipeline.storage.leases import BEATS, LEASE_SECONDS, has_ended, owned_name
from pipeline.storage.mirror import CACHE, Mirror, staging
from svmcore.errors import InputError

__all__ = ["ObjectStore"]

LAST = "metrics.json"  # a run without it is no run
CLAIM = ".claim"  # a run that is being written


class ObjectStore(Store):
    """A prefix of a bucket, and a staging folder of this machine (`pipeline.storage.mirror.staging`).

    `seconds` is how long a process on another host that publishes may be silent.
    """

    def __init__(self, url: str, seconds: float = LEASE_SECONDS) -> None:
        self.seconds = seconds
        self.bucket = Bucket(url)
        self.url = self.bucket.url
        self._mirror = Mirror(self.bucket, self.cache)

    @property
    def cache(self) -> Path:
        """Staging folder: solvers map K, and only files can be mapped."""
        return staging(self.url)

    @property
    def is_shared(self) -> bool:
        """Only where somebody says which folder."""
        return "MARGINFLOW_CACHE" in os.environ

    def shown(self, entry: str) -> str:
        """In the bucket, once it is there."""
        self._mirror.settle()
        return f"{self.url}/{CACHE}/{entry}"

    def check(self, write: bool = True) -> None:
        """Refuse a bucket that does not answer, is not there or is closed to us."""
        self.bucket.check()

    def put_bytes(self, key: str, data: bytes) -> None:
        """Put one object."""
        self.bucket.put(key, data)

    def get_bytes(self, key: str) -> bytes:
        """Get one object."""
        return self.bucket.get(key)

    def create_bytes(self, key: str, data: bytes) -> bool:
        """Put one object, if there is none."""
        return self.bucket.create(key, data)

    def keys(self, prefix: str) -> list[str]:
        """Objects below a folder."""
        return self.bucket.keys(prefix)

    def remove(self, key: str) -> None:
        """Delete the object that makes the run visible, then the others."""
        self.bucket.delete([f"{key}/{LAST}"])
        self.bucket.delete(self.bucket.keys(key))

    def run_keys(self) -> Iterator[str]:
        """Folders with metrics."""
        for name in self.bucket.folders():
            if not name.startswith("."):
                yield from (
                    key.removesuffix(f"/{LAST}")
                    for key in self.bucket.keys(name)
                    if key.endswith(f"/{LAST}") and key.count("/") == 2
                )

    def run_folders(self) -> Iterator[str]:
        """Folders of folders: a page of a thousand names, where `run_keys` lists every object of every run."""
        names = (name for name in self.bucket.folders() if not name.startswith("."))
        yield from (f"{name}/{run}" for name in names for run in self.bucket.folders(name))

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
            with drafting(self.cache, self.cache / DRAFTS, self._mirror) as folder:
                yield folder
                self._mirror.settle()
        finally:
            self._mirror.wait()  # after an error too: what is finished is kept

    def tidy(self) -> None:
        """Remove the staging folder where it is empty."""
        remove_empty(*self.cache.glob("*"), self.cache / DRAFTS, self.cache)

    def publish(self, folder: Path, key: str) -> bool:
        """Claim the name, put everything, and `metrics.json` last; False too if this process slept too long."""
        self._mirror.settle()
        self._sweep(key.partition("/")[0])
        if not (claim := _Claim.take(self.bucket, f"{key}/{CLAIM}", self.seconds)):
            return False
        if f"{key}/{LAST}" in self.bucket.keys(key):  # another was published, and gave up its claim
            claim.give_up()
            return False
        try:
            files = [file for file in folder.rglob("*") if file.is_file() and file != folder / LAST]
            whole = self.bucket.upload(folder, key, files, claim.renew)
            visible = whole and claim.renew() and self.bucket.create(f"{key}/{LAST}", (folder / LAST).read_bytes())
            if visible and not claim.renew():  # asleep between the two: others may have removed what comes before
                self.bucket.delete([f"{key}/{LAST}"])
                visible = False
        except BaseException:
            with contextlib.suppress(OSError, InputError):
                self._withdraw(key, claim)
            raise
        if not visible:
            self._withdraw(key, claim)
            return False
        claim.give_up()
        return True

    def _withdraw(self, key: str, claim: "_Claim") -> None:
        """Remove what was put of a run that will not be listed, unless the name is somebody else's by now."""
        claim.end()
        there = self.bucket.keys(key)
        if claim.renew() or not {f"{key}/{CLAIM}", f"{key}/{LAST}"}.intersection(there):
            self.bucket.delete([one for one in there if one != claim.key])
            self.bucket.delete([claim.key])

    def _sweep(self, name: str) -> None:
        """Remove what owners that are over left of runs called `name`."""
        keys = self.bucket.keys(name)
        claims = [key for key in keys if key.endswith(f"/{CLAIM}")]
        now = self._time() if claims else 0.0
        for claim in claims:
            with contextlib.suppress(FileNotFoundError):
                tag, written = self.bucket.stat(claim)
                owner = self.bucket.get(claim).decode(errors="replace").partition(" ")[0]
                if has_ended(owner, now - written) and self.bucket.replace(claim, owned_name().encode(), tag):
                    folder = claim.removesuffix(CLAIM)
                    rest = [key for key in self.bucket.keys(folder.rstrip("/")) if key != claim]
                    self.bucket.delete([] if folder + LAST in rest else rest)
                    self.bucket.delete([claim])

    def _time(self) -> float:
        """What time it is by the server's clock."""
        key = f"{CACHE}/clock"
        self.bucket.put(key, b"")
        return self.bucket.stat(key)[1]


class _Claim:
    """A lease on a run that is being written: an object that this process alone writes over, again and again.

    Each renewal is conditional on the tag of the one before, so whoever took it meanwhile is noticed.
    """

    def __init__(self, bucket: Bucket, key: str, owner: str, seconds: float) -> None:
        self.bucket, self.key, self.owner = bucket, key, owner
        self.is_held = True
        self._tag, self._beats = bucket.stat(key)[0], 0
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, args=(seconds / BEATS,), name="claim", daemon=True)
        self._thread.start()

    @classmethod
    def take(cls, bucket: Bucket, key: str, seconds: float) -> "_Claim | None":
        """The claim, or None if another process has it."""
        owner = owned_name(seconds)
        return cls(bucket, key, owner, seconds) if bucket.create(key, owner.encode()) else None

    def renew(self) -> bool:
        """Say that this process lives; whether the claim is still its own."""
        with self._lock:
            self._beats += 1  # or equal contents would have equal tags
            tag = self.bucket.replace(self.key, f"{self.owner} {self._beats}".encode(), self._tag)
            self._tag, self.is_held = tag or self._tag, self.is_held and tag is not None
            return self.is_held

    def end(self) -> None:
        """Renew it no more."""
        self._ended.set()
        self._thread.join()

    def give_up(self) -> None:
        """End, and let others have the name if they can."""
        self.end()
        self.bucket.delete([self.key])

    def _beat(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            with contextlib.suppress(OSError, InputError):  # a server that does not answer now may at the next beat
                self.renew()
