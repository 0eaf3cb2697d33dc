"""Where runs live: published in one step, listed only when whole.

A run is written into a hidden draft folder and appears under `NAME/RUN_ID` at once. A store is a handful of byte
operations; a new kind of storage is one more subclass. What is inside a run is no concern of this file.
"""

import abc
import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pipeline.storage.cache import Elsewhere, using
from pipeline.storage.leases import LeaseLost, owned_folder, told_when_lost

__all__ = ["DRAFTS", "Store", "drafting"]

DRAFTS = ".drafts"  # folder of the runs that are being written
METRICS = "metrics.json"
READERS = 16  # requests at a time: a bucket answers each in tens of milliseconds


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

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Read several keys, some at a time: (key, bytes) in their order, without those where nothing stands."""
        with ThreadPoolExecutor(READERS) as pool:
            yield from (found for found in pool.map(self._found, keys) if found)

    def _found(self, key: str) -> tuple[str, bytes] | None:
        try:
            return key, self.get_bytes(key)
        except FileNotFoundError:
            return None

    @abc.abstractmethod
    def create_bytes(self, key: str, data: bytes) -> bool:
        """Write `data` at `key`, whole or not at all, unless something stands there; whether it was written."""

    @abc.abstractmethod
    def keys(self, prefix: str) -> list[str]:
        """Keys of everything below the folder `prefix`; none if there is no such folder."""

    @abc.abstractmethod
    def remove(self, key: str) -> None:
        """Remove the run `key`: it is not listed from the first moment on."""

    @abc.abstractmethod
    def run_keys(self) -> Iterator[str]:
        """Keys `NAME/RUN_ID` of the published runs."""

    def run_folders(self) -> Iterator[str]:
        """Keys of what may be runs: the published ones, and where that is quicker, those that are being written."""
        return self.run_keys()

    @abc.abstractmethod
    def draft(self) -> "contextlib.AbstractContextManager[Path]":
        """Yield a local folder to write a run into; it is gone afterwards unless it was published.

        Meanwhile nobody removes it, nor what is claimed of the cache. LeaseLost in place of an error of the block where
        this process slept so long that others did: work that is done again finds what was finished.
        """

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

    @property
    def is_shared(self) -> bool:
        """Whether other hosts of a cluster see the folder `cache`."""
        return True

    def shown(self, entry: str) -> str:
        """Where other hosts find a finished entry `KIND/FINGERPRINT` of the cache."""
        return str(self.cache / entry)

    def address(self, key: str) -> str:
        """Where `key` is, as a user gives it."""
        return f"{self.url}/{key}"

    def free_key(self, key: str) -> str:
        """`key`, or `key-2`, `key-3`, ... if runs of that name are there."""
        taken = set(self.run_keys())
        numbered = (f"{key}-{number}" for number in itertools.count(2))
        return next(name for name in itertools.chain([key], numbered) if name not in taken)

    def runs(self) -> list[dict[str, Any]]:
        """Metrics of every published run, each with its `score`: best first, the newest first among equals."""
        texts = self.get_many(f"{key}/{METRICS}" for key in self.run_folders())
        found = [run for key, text in texts if (run := _metrics(key.removesuffix(f"/{METRICS}"), text))]
        found.sort(key=lambda run: run["key"].rpartition("/")[2], reverse=True)
        found = [run | {"score": _score(run)} for run in found]
        return sorted(found, key=lambda run: (run["score"] is not None, run["score"] or 0.0), reverse=True)


def _metrics(key: str, text: bytes) -> dict[str, Any]:
    with contextlib.suppress(json.JSONDecodeError):
        return {"key": key, **json.loads(text)}
    return {}


@contextlib.contextmanager
def drafting(cache: Path, drafts: Path, mirror: Elsewhere | None = None) -> Iterator[Path]:
    """A folder in `drafts`, and a lease on what is used of `cache`: see `Store.draft`."""
    with using(cache, mirror=mirror) as lease, owned_folder(drafts) as folder:
        try:
            with told_when_lost(folder):
                yield folder
        except Exception as error:
            with contextlib.suppress(OSError):
                lease.renew()
            if lease.was_lost:
                raise LeaseLost(f"what was in use of {cache} may have been removed; run the command again") from error
            raise


def _score(run: Mapping[str, Any]) -> float | None:
    """The score that ranks a run, of its test rows; None without any."""
    name = run.get("scored_by", "accuracy")
    score = ((run.get("scores") or {}).get("test") or {}).get(name, run.get("accuracy"))
    return None if score is None else float(score)
