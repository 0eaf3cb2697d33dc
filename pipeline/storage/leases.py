"""Leases: whose a file or folder is, and whether its owner still lives.

An owner is a process: its name has the host, this boot of it, the pid, when the process began and a random number, so
that no other process is taken for it. It renews its leases from a thread (`utime`, so the clock is the file system's).
Whoever finds one asks: on the same boot of the same host whether that process is there, in which case it is believed
however long it slept; elsewhere, whether it was renewed within the seconds that its name says. What is over is moved
away in one step before it is deleted. An owner that slept longer finds out that its folder is `lost`.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil

__all__ = [
    "BEATS",
    "LEASE_SECONDS",
    "STALE_SECONDS",
    "Lease",
    "LeaseLost",
    "again_if_lost",
    "delete",
    "has_ended",
    "is_lost",
    "is_over",
    "owned_folder",
    "owned_name",
    "release",
    "remove_folder",
    "storage_time",
    "sweep",
    "told_when_lost",
]


LEASE_SECONDS = 600.0  # how long an owner on another host may be silent
ATTEMPTS = 5
BEATS = 6  # renewals in that time
STALE_SECONDS = 24 * 3600  # what names no owner, or one of an older version, goes by age
GONE = ".gone-"
OWNER = re.compile(r"-(?P<boot>[0-9a-f]{8})-(?P<pid>\d+)-(?P<began>\d+)-[0-9a-f]{8}-(?P<seconds>[0-9.]+)s$")


class LeaseLost(OSError):
    """Others took this process for dead, because it slept too long, and removed what was its own."""


# ---- owners
@functools.cache
def _boot() -> str:
    """Eight digits for this boot of this host, and for the container: where a pid means one process."""
    facts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        facts = [Path("/proc/sys/kernel/random/boot_id").read_text(), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]


def _began(pid: int) -> int | None:
    """When a process began; None if there is none, or a zombie; 0 where it may not be looked at."""
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
    with contextlib.suppress(OSError):  # on Linux: since boot, by a clock that nobody sets
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else int(fields[19])
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else int(process.create_time())
    return 0


_own = functools.cache(_began)  # of this process; a fork is another one
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_own.cache_clear)


def owned_name(seconds: float = LEASE_SECONDS) -> str:
    """Name of something of this process: HOST-BOOT-PID-BEGAN-NUMBER-SECONDSs."""
    pid = os.getpid()
    return f"{socket.gethostname()}-{_boot()}-{pid}-{_own(pid)}-{uuid.uuid4().hex[:8]}-{seconds:g}s"


def is_over(path: Path, now: float) -> bool:
    """Whether the owner that a file or folder is named by is over: see `has_ended`.

    `now` is of `storage_time`. FileNotFoundError if it is not there.
    """
    return has_ended(path.name, now - path.stat().st_mtime)


def has_ended(name: str, age: float) -> bool:
    """Whether the owner of `owned_name` has ended, or, elsewhere, been silent for `age` seconds, which is too long."""
    owner = OWNER.search(name)
    if owner is None:
        return age > STALE_SECONDS
    if owner["boot"] == _boot():
        began = _began(int(owner["pid"]))
        return began is None or (began > 0 and began != int(owner["began"]))
    return age > float(owner["seconds"])


def storage_time(folder: Path) -> float:
    """What time it is by the clock of the file system that `folder` is on: that of leases' mtimes."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".clock-", dir=folder) as file:
            return os.stat(file.name).st_mtime
    except OSError:
        return time.time()


# ---- leases
class Lease:
    """A file or folder named by this process, renewed by a thread until `release`.

    Parameters
    ----------
    path
        Is there, and its name is of `owned_name`.
    again
        Makes it anew where it has gone; default it stays lost.
    """

    def __init__(self, path: Path, seconds: float = LEASE_SECONDS, again: Callable[[], None] | None = None) -> None:
        self.path, self.again = path, again
        self.was_lost = False
        self._handle = os.open(path, os.O_RDONLY)  # of what was made here, whatever stands at the path later
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, args=(seconds / BEATS,), name="lease", daemon=True)
        self._thread.start()
        _held[path] = self

    @property
    def is_lost(self) -> bool:
        """Whether it was removed or replaced."""
        try:
            return not os.path.samestat(os.fstat(self._handle), os.stat(self.path))
        except OSError:
            return True

    def renew(self) -> None:
        """Say that this process lives; if it was taken for dead, make the lease again."""
        if self.is_lost:
            self.was_lost = True
            if self.again is None:
                return
            self.again()
            before, self._handle = self._handle, os.open(self.path, os.O_RDONLY)
            os.close(before)
        os.utime(self._handle)

    def release(self) -> None:
        """Renew it no more."""
        if _held.pop(self.path, None) is not None:
            self._ended.set()
            self._thread.join()
            os.close(self._handle)

    def _beat(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            with contextlib.suppress(OSError):  # a server that does not answer now may at the next beat
                self.renew()


_held: dict[Path, Lease] = {}
Result = TypeVar("Result")


def is_lost(path: Path) -> bool:
    """Whether a folder of `owned_folder` was taken away from this process; no other folder ever is."""
    lease = _held.get(path)
    return lease is not None and lease.is_lost


def again_if_lost(work: Callable[[], Result]) -> Result:
    """Do `work`, and again after this process slept so long that others removed what was its own.

    All that was finished is found again. After ATTEMPTS times the error stays.
    """
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(LeaseLost):
            return work()
    return work()


# ---- folders
@contextlib.contextmanager
def owned_folder(parent: Path, seconds: float = LEASE_SECONDS) -> Iterator[Path]:
    """Make a folder in `parent` that ends with the block; those of dead owners are swept first.

    It ends by one rename: who still writes to a folder while it is emptied would keep it.
    """
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent)
    folder = parent / owned_name(seconds)
    folder.mkdir(parents=True)
    lease = Lease(folder, seconds)
    try:
        yield folder
    finally:
        lease.release()
        remove_folder(folder)


@contextlib.contextmanager
def told_when_lost(folder: Path) -> Iterator[None]:
    """Raise LeaseLost in place of any error of the block, if the folder of `owned_folder` was taken away meanwhile."""
    try:
        yield
    except Exception as error:
        if is_lost(folder):
            raise LeaseLost(f"{folder} was taken for that of a dead process; run the command again") from error
        raise


def release(folder: Path) -> None:
    """Give up the lease of a folder that is about to get another name; LeaseLost if others have removed it."""
    lost = is_lost(folder)
    if folder in _held:
        _held[folder].release()
    if lost:
        raise LeaseLost(f"{folder} was taken for that of a dead process; run the command again")


def sweep(parent: Path, pattern: str = "*-*-*") -> None:
    """Remove what lies in `parent` under the names of owners that are over."""
    there = [path for path in parent.glob(pattern) if not path.name.startswith(".clock-")]
    now = storage_time(parent) if there else 0.0
    for path in there:
        with contextlib.suppress(FileNotFoundError):
            if is_over(path, now):
                remove_folder(path)


def remove_folder(path: Path, trash: Path | None = None) -> bool:
    """Remove a file or folder, which leaves by one rename first; whether it was there."""
    gone = (trash or path.parent) / f"{GONE}{owned_name()}"
    try:
        path.rename(gone)
    except OSError:
        return False
    delete(gone)
    return True


def delete(path: Path) -> None:
    """Delete a file or folder that nobody looks for any more.

    Who was about to rename a file in it may do so after it was listed: what has come meanwhile goes the next time.
    """
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for _ in range(ATTEMPTS):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            break
