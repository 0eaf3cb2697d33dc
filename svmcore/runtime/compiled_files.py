"""The files of compiled code: a function is compiled by one process at a time, and none runs what is stale.

numba writes the index of a function first and its code second, under the first number that is free. Two processes that
compile a function for different types at once take the same number, and one of them runs what the other has compiled;
one that is killed between the two leaves an index that names what the number held before. And it takes a function for
what it was though another has changed that it calls.
"""

import contextlib
import fcntl
import functools
import pickle
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock

from svmcore.runtime.compiled_from import made_from

__all__ = ["compiled_once"]

PATIENCE, LOOKS = 120.0, 0.02  # seconds that another process may take, and between two looks
UNREADABLE = (  # what unpickling raises of a file that is cut short, damaged, or names what has gone
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    ImportError,
    LookupError,
    TypeError,
    ValueError,
)


def compiled_once(dispatcher: Any) -> Any:
    """The dispatcher of a cached function, with files of its own and a lock while it compiles.

    Who waits for another process finds on disk what that has compiled.
    """
    files = dispatcher._cache._cache_file = _CodeFiles(dispatcher)
    compiles, path = dispatcher.compile, Path(files._index_path)

    def compile_alone(signature: Any) -> Any:
        with global_compiler_lock, _alone(path.with_suffix(".lock")):
            files.complete()
            known = sum(dispatcher.stats.cache_misses.values())
            found = compiles(signature)
            if sum(dispatcher.stats.cache_misses.values()) > known:
                _sweep(path, files._load_index())
            return found

    dispatcher.compile = compile_alone
    return dispatcher


class _CodeFiles(IndexDataCacheFile):  # type: ignore[misc]
    """Files of compiled code, each named once, which are stale once anything has changed that the code is made of.

    What a full disk or a power cut has cut short, or what names a module that has gone, is compiled again.
    """

    def __init__(self, dispatcher: Any) -> None:
        before, self._name = dispatcher._cache._cache_file, dispatcher._cache._impl.filename_base
        super().__init__(before._cache_path, self._name, before._source_stamp)
        self._whole_stamp = functools.cache(
            lambda: (before._source_stamp, made_from(dispatcher.py_func, dispatcher.targetoptions))
        )

    def complete(self) -> None:
        """Find out what the code is made of, when the modules of all that it calls have been imported.

        A file that is written now has a name that none had before, in no process and in no fork of one.
        """
        self._source_stamp = self._whole_stamp()
        self._data_name_pattern = f"{self._name}.{secrets.token_hex(4)}.{{number:d}}.nbc"

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except UNREADABLE:
            return {}

    def load(self, key: Any) -> Any:
        """The code of a signature, or None."""
        try:
            return super().load(key)
        except UNREADABLE:
            return None


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
