"""Large arrays in memory that was touched before, where possible: fresh pages cost more than what fills them.

An array of `empty` goes back when nothing refers to it or to a view of it any more. What is not asked for again soon is
given back to the system.
"""

import os
import threading
import time
import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["empty", "release"]

LEAST = 1 << 20  # bytes from which an array is worth keeping
SLACK = 1.25  # a kept block serves what is smaller by this factor at most
IDLE = 10.0  # seconds after which what nobody uses is given back


class _Block:
    """Memory on loan, with what NumPy needs to see it as an array: every view of that array holds this object."""

    def __init__(self, memory: NDArray[Any], size: int, dtype: np.dtype) -> None:
        self.__array_interface__ = {**memory.__array_interface__, "shape": (size,), "typestr": dtype.str}


class _Pool:
    """What is kept between uses."""

    def __init__(self) -> None:
        self.free: deque[NDArray[Any]] = deque()  # a finaliser may add to it at any line, in any thread
        self._lent: list[weakref.finalize] = []
        self._lock = threading.Lock()
        self._watched = False
        self._used = 0.0

    def empty(self, size: int, dtype: np.dtype) -> NDArray[Any]:
        n_bytes = size * dtype.itemsize
        with self._lock:
            memory = self._found(n_bytes)
            block = _Block(memory, size, dtype)
            self._lend(weakref.finalize(block, self.free.append, memory))
        return np.asarray(block)

    def _lend(self, loan: weakref.finalize) -> None:
        loan.atexit = False
        self._lent = [*(before for before in self._lent if before.alive), loan]
        self._used = time.monotonic()
        if not self._watched:
            self._watch()

    def _found(self, n_bytes: int) -> NDArray[Any]:
        """A free block of about the size, or a fresh one in place of those that are as large as an eighth of it."""
        kept = [self.free.popleft() for _ in range(len(self.free))]
        fits = [memory for memory in kept if n_bytes <= memory.nbytes <= SLACK * n_bytes]
        if fits:
            best = min(fits, key=lambda memory: memory.nbytes)
            self.free.extend(memory for memory in kept if memory is not best)
            return best
        self.free.extend(memory for memory in kept if 8 * memory.nbytes < n_bytes)
        del kept
        return np.empty(n_bytes, np.uint8)

    def _watch(self) -> None:
        self._watched = True
        timer = threading.Timer(IDLE, self._look)
        timer.daemon = True
        timer.start()

    def _look(self) -> None:
        """Give back what has been idle, and look again later as long as anything is used."""
        with self._lock:
            idle = time.monotonic() - self._used >= IDLE
            if idle:
                self.free.clear()
            self._watched = False
            if not idle or any(loan.alive for loan in self._lent):
                self._watch()

    def release(self) -> None:
        self.free.clear()


_pools = [_Pool()]


def _in_child() -> None:
    """After a fork no timer runs, and the lock may be held by a thread that is gone."""
    _pools[0] = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def empty(shape: int | tuple[int, ...], dtype: DTypeLike) -> Any:
    """As `numpy.empty`, C-contiguous.

    >>> empty((2, 3), np.float32).shape
    (2, 3)
    """
    kind, size = np.dtype(dtype), int(np.prod(shape, dtype=np.int64))
    if size * kind.itemsize < LEAST:
        return np.empty(shape, kind)
    return _pools[0].empty(size, kind).reshape(shape)


def release() -> None:
    """Give back to the system, now, what is kept for the next use."""
    _pools[0].release()
