"""Large arrays in memory that was touched before, where possible: fresh pages cost more than what fills them.

An array of `empty` goes back when nothing refers to it or to a view of it any more. What is not asked for again soon is
given back to the system.
"""

import os
import threading
import time
import weakref
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from svmcore.runtime.aligned import aligned, entries_of

__all__ = ["empty", "release"]

LEAST = 1 << 20  # bytes from which an array is worth keeping
SLACK = 1.25  # a kept block serves what is smaller by this factor at most,
SPARE = 1 << 25  # or by so many bytes
STAYS = 9 << 25  # bytes up to which a block too large for what is asked waits for its next use: it is wanted in turn,
# as is the memory of a working set
IDLE = 60.0  # seconds after which what nobody uses is given back: who looks at an answer and fits again finds the same
# pages; on a virtual machine whose host takes pages back a fit's 30 MB cost 25 to 60 ms to have again


class _Block:
    """Memory on loan, with what NumPy needs to see it as an array: every view of that array holds this object."""

    def __init__(self, memory: NDArray[Any], size: int, dtype: np.dtype) -> None:
        self.__array_interface__ = {**memory.__array_interface__, "shape": (size,), "typestr": dtype.str}


class _Kept(NamedTuple):
    """Memory that nobody sees, and since when."""

    memory: NDArray[Any]
    since: float

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes


class _Pool:
    """What is kept between uses.

    What runs when a loan ends is C code: a signal's exception that is raised in a finaliser of Python is lost.
    """

    def __init__(self) -> None:
        self.free: list[_Kept] = []
        self._lent: dict[weakref.ref[_Block], NDArray[Any]] = {}
        self._ended: deque[weakref.ref[_Block]] = deque()
        self._lock = threading.Lock()
        self._watched = False

    def empty(self, size: int, dtype: np.dtype) -> NDArray[Any]:
        n_bytes = size * dtype.itemsize
        with self._lock:
            self._collect()
            memory = self._found(n_bytes)
            block = _Block(memory, size, dtype)
            self._lent[weakref.ref(block, self._ended.append)] = memory
            if not self._watched:
                self._watch()
        return np.asarray(block)

    def _collect(self) -> None:
        """Take back what nobody sees any more."""
        while self._ended:
            self.free.append(_Kept(self._lent.pop(self._ended.popleft()), time.monotonic()))

    def _found(self, n_bytes: int) -> NDArray[Any]:
        """A free block of about the size, or a fresh one in place of those that it can do without."""
        fits = [
            place
            for place, kept in enumerate(self.free)
            if n_bytes <= kept.nbytes <= max(SLACK * n_bytes, n_bytes + SPARE)
        ]
        if fits:
            return self.free.pop(min(fits, key=lambda place: self.free[place].nbytes)).memory
        self.free = [kept for kept in self.free if _stays(kept.nbytes, n_bytes)]
        return aligned(n_bytes, np.uint8)

    def _watch(self) -> None:
        self._watched = True
        timer = threading.Timer(IDLE, self._look)
        timer.daemon = True
        timer.start()

    def _look(self) -> None:
        """Give back what has been idle, and look again later as long as anything is held."""
        with self._lock:
            self._collect()
            self.free = [kept for kept in self.free if time.monotonic() - kept.since < IDLE]
            self._watched = False
            if self.free or self._lent:
                self._watch()

    def release(self) -> None:
        with self._lock:
            self._collect()
            self.free = []


def _stays(kept: int, n_bytes: int) -> bool:
    """Whether a free block of `kept` bytes stays where a fresh one of `n_bytes` is made: it is of another size."""
    return 8 * kept < n_bytes or n_bytes < kept <= STAYS or 8 * n_bytes < kept


_pools = [_Pool()]


def _in_child() -> None:
    """After a fork no timer runs, and the lock may be held by a thread that is gone."""
    _pools[0] = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def empty(shape: int | tuple[int, ...], dtype: DTypeLike) -> Any:
    """As `numpy.empty`, C-contiguous, from the beginning of a line of the cache on.

    >>> empty((2, 3), np.float32).shape
    (2, 3)
    """
    kind, size = np.dtype(dtype), entries_of(shape)
    if size * kind.itemsize < LEAST:
        return aligned(shape, kind)
    return _pools[0].empty(size, kind).reshape(shape)


def release() -> None:
    """Give back to the system, now, what is kept for the next use."""
    _pools[0].release()
