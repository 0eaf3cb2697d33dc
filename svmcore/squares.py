"""Squares of working sets: when 16 bits are enough for one, and a thread's last, from which the next is copied.

The square of a large set is far from the core, and pair steps wait for it. In whole numbers of 16 bits it is half as
much. A solver that sums columns of K itself loses nothing by it: from its square it takes which variables move and how
far, and the next round begins at true scores.

Problems that share a resident K (classes, folds, a chain of C) have nearly the same support vectors, and their square
is the costly part of a warm start: rows of K are far apart, a square lies in the cache. Copies are exact, so no answer
depends on what was kept.
"""

import dataclasses
import threading
import weakref
from typing import Any

import numpy as np

from svmcore.passes.matrix.gather import MOST, gather_square
from svmcore.points import Floats
from svmcore.qp import SignedQP

__all__ = ["Known", "Squares", "coarse_unit", "gather_known", "squares"]


def coarse_unit(qp: SignedQP) -> float | None:
    """The unit of a square of 16 bits; None where it has to be of the type of K.

    All entries are between 0 and the largest of the diagonal, as K is definite and nowhere below 0. Steps are of pairs,
    and none is without an end.
    """
    source = qp.source
    in_pairs = len(qp.groups.sums) > 0 and bool((qp.codes >= 0).all()) and not qp.is_hard
    if not (in_pairs and qp.shift == 0.0 and source.is_positive and source.psd and source.dtype == np.float32):
        return None
    return float(qp.diagonal.max()) / MOST or None


MOSTLY = 0.5  # of a set is known where it is copied from another one's square


@dataclasses.dataclass(eq=False)
class Known:
    """K[members, members] + shift, or in whole numbers of a unit, in the first rows and columns of `square`."""

    columns: Any  # weak reference to the source
    shift: float
    unit: float | None
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

    def known(self, columns: Any, shift: float, unit: float | None = None) -> Known | None:
        """The kept square, if it is of the same K in the same form."""
        kept = self.kept
        if kept is None or kept.columns() is not columns:
            return None
        return kept if (kept.shift, kept.unit) == (shift, unit) else None

    def keep(self, columns: Any, shift: float, members: Floats, square: Floats, unit: float | None = None) -> None:
        """Keep a square that is no longer written to, if copying from it is sure to give the bytes of K."""
        if columns.whole is not None:
            self.kept = Known(weakref.ref(columns), shift, unit, members, square)


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
    """As `gather_square` in the form of the `known` square, from which it is where that has the pair."""
    row, column = places[rows], places[columns]
    met, there = row >= 0, column >= 0
    if np.count_nonzero(there) < MOSTLY * len(columns):  # nearly every row would be read all the same
        gather_square(matrix, rows, columns, out, at, shift=known.shift, unit=known.unit)
        return
    old, new = np.flatnonzero(there), np.flatnonzero(~there)
    gather_square(matrix, rows[~met], columns, out, at[~met], shift=known.shift, unit=known.unit)
    gather_square(known.square, row[met], column[old], out, at[met], old)
    gather_square(matrix, rows[met], columns[new], out, at[met], new, known.shift, known.unit)
