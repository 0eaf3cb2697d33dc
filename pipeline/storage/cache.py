"""The cache within its budget: whole entries go, the least recently used first, never one in use.

An entry is a folder `KIND/FINGERPRINT`; whoever uses one touches it. What is in it is no concern of this file.
"""

import contextlib
import os
import shutil
import time
from pathlib import Path

from pipeline.storage.leases import owned_name, sweep

__all__ = ["discard", "evict"]

KINDS = ("data", "gram", "problems")
IN_USE_SECONDS = 3600.0  # another run may be using what was touched this recently


def evict(root: Path, limit_bytes: int, in_use_seconds: float = IN_USE_SECONDS) -> int:
    """Remove the oldest entries below `root` until all take at most `limit_bytes`; returns how many went.

    An entry leaves by one rename before it is deleted, so nobody finds half of it. Entries touched within
    `in_use_seconds` stay, whatever they take.
    """
    gone = root / ".evicted"
    sweep(gone)
    entries = sorted((entry.stat().st_mtime, str(entry)) for kind in KINDS for entry in (root / kind).glob("[!.]*"))
    sizes = {name: _bytes(Path(name)) for _, name in entries}
    total, count = sum(sizes.values()), 0
    for touched, name in entries:
        if total <= limit_bytes or touched > time.time() - in_use_seconds:
            break
        _remove(Path(name), gone)
        total, count = total - sizes[name], count + 1
    return count


def discard(root: Path, entry: Path) -> None:
    """Remove one entry below `root`, whoever uses it: what is mapped stays readable."""
    _remove(entry, root / ".evicted")


def _bytes(folder: Path) -> int:
    """Bytes on disk; holes in a file are free."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(os.path.join(parent, name)).st_blocks * 512
    return total


def _remove(entry: Path, gone: Path) -> None:
    gone.mkdir(exist_ok=True)
    target = gone / owned_name()
    with contextlib.suppress(FileNotFoundError):
        entry.rename(target)
    shutil.rmtree(target, ignore_errors=True)
    with contextlib.suppress(OSError):
        gone.rmdir()
