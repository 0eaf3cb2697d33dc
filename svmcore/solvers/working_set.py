"""The working set of `smo`: which variables are in it, and where their square of K lies."""

import numpy as np

from svmcore.passes.steps.working_set import mirror_rows, widen_rows
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.runtime.aligned import pitch
from svmcore.runtime.memory import empty
from svmcore.squares import coarse_unit, squares
from svmcore.state import MemoryState, WorkingSetState

__all__ = ["LARGEST", "PADDING", "ROOM", "WholeSet", "WorkingSet"]

LARGEST = 8192  # variables of a set where nobody asks for more
PADDING = 32  # entries that a row of the square has more at most
ROOM = 2048  # variables that a set may have however few of them are free: the square of more is far from the core, so
# that it is in 16 bits where more may move
FAR_ROOM = 4096  # where a round costs messages fewer rounds are worth a larger square
FRESH = 0.2  # of a large set may come in a round: more would be columns of which most are in vain
STRIP = 128  # newcomers whose rows are gathered before they are mirrored, and need not be gathered for the next
SPARE = 1.25  # times its free variables is what a set may have else; those at bounds come back where they matter
BYTES = 4 * LARGEST * (LARGEST + PADDING)  # of memory at least, however few variables may come: only what is written
# to is touched, and one set after the other finds the same pages, which cost more than what is written to them


class WorkingSet:
    """The variables of a working set in fixed places of one square of K, so that only newcomers are gathered."""

    precision = 0.1  # of the KKT gap on all rows, to which a round solves: more would be wasted on a part

    def __init__(self, state: WorkingSetState, qp: SignedQP, capacity: int) -> None:
        self.state, self.qp, self.capacity = state, qp, capacity
        self.room = min(capacity, ROOM if state.is_near else FAR_ROOM)
        self.members = np.empty(0, dtype=np.int64)
        self.outside = np.ones(state.m, dtype=bool)
        if state.is_near and np.count_nonzero(qp.hi > qp.lo) > ROOM:
            state.in_units(coarse_unit(qp))
        self._memory = empty(max(BYTES, capacity * (capacity + PADDING) * qp.source.dtype.itemsize), np.uint8)
        self.square = self._of_side(self.room)

    def release(self) -> None:
        """Leave the square to the next solve of this thread; it is not written to any more.

        Where the likely variables were told, the one that they were copied from knows more of the next.
        """
        if self.qp.likely is not None:
            return
        known = self.members if self.qp.rows is None else np.empty(0, dtype=np.int64)
        squares().keep(self.qp.source, self.qp.shift, known, self.square, self.state.unit)

    def _of_side(self, count: int) -> Floats:
        """A square of at least so many rows at the beginning of the memory, so that no more of that is touched."""
        side = ROOM
        while side < count:
            side += side // 2
        side = min(side, self.capacity)
        entries = self._memory.view(self.qp.source.dtype if self.state.unit is None else np.uint16)
        width = pitch(side, entries.dtype)
        return entries[: side * width].reshape(side, width)

    def _widen(self, count: int) -> None:
        """Go on in a square of `count` rows: those that there are move apart."""
        narrow, self.square = self.square, self._of_side(count)
        widen_rows(narrow, self.square, len(self.members))

    def refine(self) -> None:
        """Have the square in the type of K from now on, where it is in whole numbers of 16 bits."""
        if self.state.unit is None:
            return
        self.state.in_units(None)
        self.square = self._of_side(max(self.room, len(self.members)))
        self._fill(np.arange(len(self.members)))

    def advance(self, newcomers: int) -> None:
        """Admit about so many of the worst violators outside; at least half of a full set stays."""
        count = min(max(newcomers, int(FRESH * len(self.members))), 4 * newcomers, max(2, self.room // 2))
        self.admit(self.state.candidates(count, self.outside))

    def makes_room(self, free: int) -> None:
        """Let the set grow, up to its capacity, where so many members are free."""
        self.room = max(self.room, min(self.capacity, int(SPARE * free)))

    def admit(self, newcomers: Floats) -> None:
        """Add variables; where the set is full they take the places of the least important members."""
        q = len(self.members)
        fresh = np.arange(q, max(q, min(q + len(newcomers), self.room)))
        surplus = len(newcomers) - len(fresh)
        if q + len(fresh) > len(self.square):
            self._widen(q + len(fresh))
        worth = self.state.importance(self.members) if surplus else self.members
        leaving = np.sort(np.argpartition(worth, surplus - 1)[:surplus]) if surplus else np.empty(0, dtype=np.int64)
        places = np.concatenate([fresh, leaving])
        self.outside[self.members[leaving]] = True
        self.outside[newcomers] = False
        self.members = np.concatenate([self.members, newcomers[: len(fresh)]])
        self.members[places] = newcomers
        self._fill(fresh)
        if surplus:
            self._write(leaving, len(self.members))

    def _fill(self, places: Floats) -> None:
        """The rows and columns of the last members, at these `places`: of each pair of them one value is gathered."""
        step = STRIP if self.qp.source.whole is not None else max(1, len(places))
        for start in range(0, len(places), step):
            some = places[start : start + step]
            self._write(some, int(some[-1]) + 1)

    def _write(self, places: Floats, q: int) -> None:
        """The rows and columns of the members at `places` among the first q."""
        self.state.square(self.members[places], self.members[:q], self.square, places)
        mirror_rows(self.square, places, q)


class WholeSet:
    """All variables of a small problem whose K is in memory, as one working set: nothing is selected or copied."""

    precision = 0.0

    def __init__(self, state: MemoryState, K: Floats) -> None:
        qp, self.members = state.qp, state.everyone
        self.square = K + qp.shift if qp.shift else K

    def advance(self, newcomers: int) -> None:
        """Nothing is outside."""

    def makes_room(self, free: int) -> None:
        """All are in it."""

    def refine(self) -> None:
        """It is K itself."""

    def release(self) -> None:
        """Nothing was taken."""
