"""Folders that live as long as their process: named by it, and swept by whoever finds that it has gone."""

import contextlib
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

__all__ = ["STALE_SECONDS", "owned_folder", "owned_name", "sweep"]


STALE_SECONDS = 24 * 3600  # a draft of another host: nobody can ask its process, so it goes by age


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
