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

from svmcore.passes.matrix.gather import gather_square
from svmcore.points import Floats

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


def gather_known(
    matrix: Floats, rows: Floats, columns: Floats, known: Known, places: Floats, out: Floats, at: Floats
) -> None:
    """out[at[r], c] = matrix[rows[r], columns[c]] + shift, from the `known` square where it has the pair."""
    row, column = places[rows], places[columns]
    met, there = row >= 0, column >= 0
    old, new = np.flatnonzero(there), np.flatnonzero(~there)
    gather_square(matrix, rows[~met], columns, out, at[~met], shift=known.shift)
    gather_square(known.square, row[met], column[old], out, at[met], old)
    gather_square(matrix, rows[met], columns[new], out, at[met], new, known.shift)
