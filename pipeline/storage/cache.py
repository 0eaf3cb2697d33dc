"""The cache within its budget: whole entries go, the least recently used first, never one that a living process uses.

An entry is a folder or a file `KIND/FINGERPRINT`, with the files `FINGERPRINT.*` beside it. A run holds one lease below
`.leases`, a list of the entries that it uses; whoever removes entries writes down which before it looks at the leases.
So of a user and a remover who come at once, one sees the other. Where the cache has a mirror, what is claimed comes
from it, and what is finished goes there. What is in an entry is no concern of this file.
"""

import contextlib
import itertools
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from pipeline.storage.files import remove_empty, sweep_drafts, write_atomic
from pipeline.storage.leases import LEASE_SECONDS, Lease, delete, is_over, owned_name, storage_time, sweep

__all__ = ["UNDER_WAY", "Elsewhere", "claim", "discard", "evict", "finished", "in_turn", "using"]

KINDS = ("data", "gram", "problems")
UNDER_WAY = ".under-way"  # ends the name of what lies beside an entry until that is finished
LEASES, EVICTED = ".leases", ".evicted"
REMOVING = "removing-"
WAIT_SECONDS = 0.02
Item = TypeVar("Item")


# ---- in use
class Elsewhere(Protocol):
    """Where other machines get finished entries from; those of a kind that it does not keep mean nothing to it."""

    def sync(self, names: Iterable[str]) -> None:
        """Fetch entries that are there alone, send those that are here alone."""

    def push(self, name: str) -> None:
        """Send an entry that was finished here."""


class _Names:
    """A lease with a list of entries; `-NAME` takes one back."""

    def __init__(self, root: Path, prefix: str, seconds: float, mirror: Elsewhere | None = None) -> None:
        self.mirror = mirror
        self.lines: list[str] = []
        self.path = root / LEASES / f"{prefix}{owned_name(seconds)}"
        self._write()
        self.lease = Lease(self.path, seconds, again=self._write)

    def add(self, lines: Iterable[str]) -> None:
        """Add entries in one append."""
        self.lines += (new := [*lines])
        with self.path.open("a") as file:
            file.write("".join(f"{line}\n" for line in new))

    def _write(self) -> None:
        write_atomic(self.path, "".join(f"{line}\n" for line in self.lines).encode(), durable=False)

    def end(self) -> None:
        """Use nothing any more."""
        self.lease.release()
        self.path.unlink(missing_ok=True)


_used: dict[Path, list[_Names]] = {}


@contextlib.contextmanager
def using(root: Path, seconds: float = LEASE_SECONDS, mirror: Elsewhere | None = None) -> Iterator[Lease]:
    """Keep what this process claims of the cache at `root` until the end of the block; other machines see `mirror`."""
    if (root / LEASES).is_dir():
        sweep(root / LEASES)
    names = _Names(root, "", seconds, mirror)
    _used.setdefault(root, []).append(names)
    try:
        yield names.lease
    finally:
        _used[root].remove(names)
        names.end()


def claim(root: Path, entries: Iterable[str]) -> None:
    """Say that this process uses the entries `KIND/FINGERPRINT`, before it looks whether they are there.

    Nobody evicts them meanwhile, and those that other machines finished are brought here.
    """
    wanted = list(entries)
    for names in _used.get(root, ()):
        names.add(wanted)
    while _used.get(root) and not _named(root, REMOVING).isdisjoint(wanted):
        time.sleep(WAIT_SECONDS)
    for names in _used.get(root, ()):
        if names.mirror is not None:
            names.mirror.sync(wanted)


def finished(root: Path, entry: str) -> None:
    """Let other machines find an entry that was finished here, or what is under way to it."""
    for names in _used.get(root, ()):
        if names.mirror is not None:
            names.mirror.push(entry)


def in_turn(root: Path, items: Sequence[Item]) -> list[Item]:
    """Work in the given order; where others use the same cache, from some place on, so that all seldom do the same.

    What others have finished by the time that it is come to is found.
    """
    own = {names.path.name for names in _used.get(root, ())}
    leases = [path for path in (root / LEASES).glob("[!.]*") if path.name not in own and REMOVING not in path.name]
    now = storage_time(root / LEASES) if leases and items else 0.0
    start = 0
    with contextlib.suppress(FileNotFoundError):
        if not all(is_over(path, now) for path in leases) and items:
            start = secrets.randbelow(len(items))
    return [*items[start:], *items[:start]]


def _named(root: Path, prefix: str) -> set[str]:
    """Entries named by living leases: those that remove (`prefix` is REMOVING) or those that use."""
    found: set[str] = set()
    now = storage_time(root / LEASES)
    for path in (root / LEASES).glob("*-*"):
        if path.name.startswith(REMOVING) == bool(prefix) and not path.name.startswith("."):
            with contextlib.suppress(FileNotFoundError):
                if not is_over(path, now):
                    found |= _entries(path.read_text().splitlines())
    return found


def _entries(lines: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for line in lines:
        (found.discard if line.startswith("-") else found.add)(line.removeprefix("-"))
    return found


# ---- removed
def evict(root: Path, limit_bytes: int) -> int:
    """Remove the oldest entries below `root` until all take at most `limit_bytes`; returns how many went.

    An entry leaves by one rename before it is deleted, so nobody finds half of it. What is in use stays, whatever it
    takes.
    """
    for folder in (EVICTED, LEASES, *(str(path.relative_to(root)) for path in root.glob("*/.building")), "live"):
        if (root / folder).is_dir():
            sweep(root / folder)
    for kind in KINDS:
        sweep_drafts(root / kind)
    entries = _oldest_first(root)
    sizes = {name: sum(map(_bytes, paths)) for name, paths in entries.items()}
    excess, chosen, used = sum(sizes.values()) - limit_bytes, {}, _named(root, "") if entries else set()
    for name in (name for name in sizes if name not in used):
        if excess <= 0:
            break
        chosen[name] = entries[name]
        excess -= sizes[name]
    return _remove(root, chosen)


def discard(root: Path, entry: Path) -> bool:
    """Remove one entry below `root` unless another process uses it; what is mapped stays readable on this host."""
    name = os.path.relpath(entry, root)
    for names in _used.get(root, ()):
        names.add([f"-{name}"])
    return _remove(root, {name: [entry]}) == 1


def _oldest_first(root: Path) -> dict[str, list[Path]]:
    """Entries with their paths, by when the last of these was used."""
    paths: dict[str, list[Path]] = {}
    times: dict[str, float] = {}
    for path in (path for kind in KINDS for path in (root / kind).glob("[!.]*")):
        with contextlib.suppress(FileNotFoundError):
            name, used = f"{path.parent.name}/{path.name.partition('.')[0]}", path.stat().st_mtime
            paths.setdefault(name, []).append(path)
            times[name] = max(used, times.get(name, used))
    return {name: paths[name] for name in sorted(paths, key=lambda name: (times[name], name))}


def _bytes(path: Path) -> int:
    """Bytes on disk of a folder or a file; holes in a file are free."""
    total = 0
    inside = (os.path.join(parent, name) for parent, _, names in os.walk(path) for name in names)
    for file in [path] if path.is_file() else inside:
        with contextlib.suppress(FileNotFoundError):
            total += os.stat(file).st_blocks * 512
    return total


def _remove(root: Path, chosen: Mapping[str, Iterable[Path]]) -> int:
    """Remove those of the entries, with these paths, that nobody uses; returns how many went."""
    if not chosen:
        return 0
    gone, moved = root / EVICTED, dict[str, list[Path]]()
    gone.mkdir(exist_ok=True)
    intent = _Names(root, REMOVING, LEASE_SECONDS)
    try:
        intent.add(chosen)
        used = _named(root, "")
        for name in (name for name in chosen if name not in used):
            if intent.lease.is_lost:
                break
            for path in chosen[name]:
                with contextlib.suppress(FileNotFoundError):
                    moved.setdefault(name, []).append(path.rename(gone / owned_name()))
    finally:
        intent.end()
    for path in itertools.chain(*moved.values()):
        delete(path)
    remove_empty(gone)
    return len(moved)
