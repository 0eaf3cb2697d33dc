"""The files of compiled code: a function is compiled by one process at a time, and none runs what is stale.

numba writes the index of a function first and its code second, under the first number that is free. Two processes that
compile a function for different types at once take the same number, and one of them runs what the other has compiled;
one that is killed between the two leaves an index that names what the number held before.
"""

import contextlib
import fcntl
import hashlib
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock

__all__ = ["compiled_once", "forget_moved"]

PATIENCE, LOOKS = 120.0, 0.02  # seconds that another process may take, and between two looks
_OURS = secrets.token_hex(4)


def compiled_once(dispatcher: Any) -> Any:
    """The dispatcher of a cached function, with files of this process's own and a lock while it compiles.

    Who waits for another process finds on disk what that has compiled.
    """
    cache, compiles = dispatcher._cache, dispatcher.compile
    index = Path(cache._cache_file._index_path)
    cache._cache_file._data_name_pattern = f"{index.stem}.{_OURS}.{{number:d}}.nbc"

    def compile_alone(signature: Any) -> Any:
        with global_compiler_lock, _alone(index.with_suffix(".lock")):
            known = sum(dispatcher.stats.cache_misses.values())
            found = compiles(signature)
            if sum(dispatcher.stats.cache_misses.values()) > known:
                _sweep(index, cache._cache_file._load_index())
            return found

    dispatcher.compile = compile_alone
    return dispatcher


def _sweep(index: Path, named: dict[Any, str]) -> None:
    """Delete files of code that the index does not name any more."""
    with contextlib.suppress(OSError):
        for path in index.parent.glob(f"{index.stem}.*.nbc"):
            if path.name not in named.values():
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which the system takes back whatever its holder dies of; where there is none, go on.

    A folder that cannot be written to holds nothing that could be mixed up.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("w")).fileno()
            _wait_for(file)
            stack.callback(fcntl.flock, file, fcntl.LOCK_UN)  # a child that was forked meanwhile has the file open too
        yield


def _wait_for(file: int) -> None:
    """Lock it, or give up: a process that was stopped while it compiled stops no other for good."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(LOOKS)


def forget_moved(package: Path, options: bytes = b"") -> None:
    """Delete what was compiled when `package` had other files or functions other options, as after an update.

    An index of numba names the modules of the functions that were arguments, and it is read before it is known to be
    stale: where such a module has gone, every call would raise ModuleNotFoundError. It does not know the options.
    """
    names = sorted(str(path.relative_to(package)) for path in package.rglob("*.py"))
    known = hashlib.sha256(repr(names).encode() + options)
    stamp = package / "__pycache__" / f"modules.{known.hexdigest()[:16]}"
    if stamp.exists():
        return
    with contextlib.suppress(OSError):  # a package that cannot be written to has no compiled files of ours
        for stale in (*package.rglob("__pycache__/*.nb[ic]"), *stamp.parent.glob("modules.*")):
            stale.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.touch()
