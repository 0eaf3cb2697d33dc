"""A thread's last square of a working set, from which the next on the same K is copied.

Problems that share a resident K (classes, folds, a chain of C) have nearly the same support vectors, and their square
is the costly part of a warm start: rows of K are far apart, a square lies in the cache. Copies are exact, so no answer
depends on what was kept.
"""

import dataclasses
import threading
import weakref
from typing import Any

import numpy as np

from svmcore.points import Floats
from svmcore.runtime.compiled import njit

__all__ = ["Known", "Squares", "gather_known", "squares"]


@dataclasses.dataclass(eq=False)
class Known:
    """K[members, members] + shift, in the first rows and columns of `square`."""

    columns: Any  # weak reference to the source
    shift: float
    members: Floats
    square: Floats

    def places(self, n: int) -> Floats:
        """Place (n,) of each row in the square, -1 where it is none of the members."""
        found = np.full(n, -1, np.int32)
        found[self.members] = np.arange(len(self.members), dtype=np.int32)
        return found


class Squares:
    """What one thread keeps between solves."""

    def __init__(self) -> None:
        self.kept: Known | None = None

    def known(self, columns: Any, shift: float) -> Known | None:
        """The kept square, if it is of the same K."""
        kept = self.kept
        return kept if kept is not None and kept.columns() is columns and kept.shift == shift else None

    def keep(self, columns: Any, shift: float, members: Floats, square: Floats) -> None:
        """Keep a square that is no longer written to, if copying from it is sure to give the bytes of K."""
        if columns.whole is not None:
            self.kept = Known(weakref.ref(columns), shift, members, square)


_thread = threading.local()
_all: "weakref.WeakSet[Squares]" = weakref.WeakSet()


def squares() -> Squares:
    """Those of this thread."""
    if not hasattr(_thread, "squares"):
        _thread.squares = Squares()
        _all.add(_thread.squares)
    return _thread.squares  # type: ignore[no-any-return]


def give_back() -> None:
    """Let go of what all threads keep: a training is over."""
    for each in list(_all):
        each.kept = None


@njit
def gather_known(matrix, rows, columns, shift, square, places, out):  # type: ignore[no-untyped-def]
    """out[r, c] = matrix[rows[r], columns[c]] + shift, from `square` where it has the pair."""
    known = places[columns]
    for r in range(len(rows)):
        source, target, place = matrix[rows[r]], out[r], places[rows[r]]
        if place < 0:
            for c in range(len(columns)):
                target[c] = source[columns[c]] + shift
            continue
        near = square[place]
        for c in range(len(columns)):
            target[c] = near[known[c]] if known[c] >= 0 else source[columns[c]] + shift
