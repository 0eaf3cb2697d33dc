"""The n-vectors of a working-set solve, and all that a solver may ask of them.

A solver that holds a `WorkingSetState` cannot tell whether scores and variables are in this process or in shards on
many hosts: it sends indices and changes, and gets back what belongs to the indices.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from svmcore.passes.columns import add_columns
from svmcore.passes.working_set import extremes, gather_square
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.sources.base import CHUNK, matvec
from svmcore.squares import gather_known, squares

__all__ = ["MemoryState", "Part", "WorkingSetState"]


class Part(NamedTuple):
    """What belongs to some variables, (q,) each."""

    score: Floats
    beta: Floats
    lo: Floats
    hi: Floats
    ridge: Floats
    codes: Floats


class WorkingSetState(ABC):
    """The variables of one program, their scores and bounds."""

    m: int

    @abstractmethod
    def kkt_gap(self) -> float:
        """The gap of `svmcore.qp`, by the scores as they are kept."""

    @abstractmethod
    def centres(self) -> Floats:
        """(k + 1,) middle of the extremes of each group, last 0 for variables in none.

        Less it, the scores that decide are small, and float32 tells them well apart.
        """

    @abstractmethod
    def candidates(self, q: int, outside: Floats) -> Floats:
        """Indices of at most about q variables of the mask `outside`: the worst violators from both ends."""

    @abstractmethod
    def importance(self, idx: Floats) -> Floats:
        """How much each variable is worth keeping in the set: free ones first, then the worst violators."""

    @abstractmethod
    def part(self, idx: Floats) -> Part:
        """Scores, values and bounds of the variables `idx`."""

    @abstractmethod
    def support(self) -> Floats:
        """Indices of the variables that are not 0."""

    @abstractmethod
    def square(self, idx: Floats, members: Floats, out: Floats) -> None:
        """out[r, c] = K + shift at the rows of the variables idx[r] and members[c]."""

    @abstractmethod
    def apply(self, idx: Floats, beta: Floats) -> None:
        """Set the variables `idx` and bring the scores of all up to date."""

    @abstractmethod
    def snapshot(self) -> Floats:
        """All variables (m,), a copy."""


class MemoryState(WorkingSetState):
    """Scores and variables as float64 vectors of this process, over columns of a source.

    Parameters
    ----------
    score
        (m,) at `beta`, where it is known; it saves a product with K.
    """

    def __init__(self, qp: SignedQP, beta: Floats, score: Floats | None = None) -> None:
        self.qp, self.m, self.beta = qp, qp.m, beta
        self._ends: list[tuple[float, float]] | None = None  # until the next `apply`
        self._known = squares().known(qp.source, qp.shift)
        self._known_places = None if self._known is None else self._known.places(qp.source.n)
        self.score = self._first_scores() if score is None else score.copy()

    def _first_scores(self) -> Floats:
        qp = self.qp
        if not self.beta.any():
            return qp.p.copy()
        coef = qp.at_rows(self.beta)
        outputs = matvec(qp.source, coef) + qp.shift * coef.sum()
        return qp.p - qp.at_variables(outputs) - qp.ridge * self.beta

    def _extremes(self) -> list[tuple[float, float]]:
        """Largest score that may grow and smallest that may shrink: of each group, last of variables in none."""
        if self._ends is None:
            qp, k = self.qp, len(self.qp.groups.sums)
            if qp.groups.codes is None:
                whole = extremes(self.score, self.beta, qp.lo, qp.hi)
                self._ends = [whole, (0.0, 0.0)] if k else [(max(whole[0], 0.0), min(whole[1], 0.0))]
            else:
                self._ends = [self._extremes_of(g) for g in (*range(k), -1)]
        return self._ends

    def _extremes_of(self, g: int) -> tuple[float, float]:
        at, qp = np.flatnonzero(self.qp.groups.codes == g), self.qp
        m, low = extremes(self.score[at], self.beta[at], qp.lo[at], qp.hi[at])
        return (m, low) if g >= 0 else (max(m, 0.0), min(low, 0.0))

    def kkt_gap(self) -> float:
        """Return the largest gap of a group, at least 0, or projected gradient of a variable in none."""
        *grouped, (m, low) = self._extremes()
        return max(0.0, m, -low, *(high - least for high, least in grouped))

    def centres(self) -> Floats:
        """(k + 1,) middles."""
        *grouped, _ = self._extremes()
        middles = [0.5 * (m + low) if np.isfinite(m + low) else 0.0 for m, low in grouped]
        return np.array([*middles, 0.0])

    def candidates(self, q: int, outside: Floats) -> Floats:
        """Up to q / 2 of the worst violators from each end, shared by the groups."""
        ends, qp = self._extremes(), self.qp
        grows, shrinks = (self.beta < qp.hi) & outside, (self.beta > qp.lo) & outside
        if qp.groups.codes is None:
            m, low = ends[0] if qp.groups.sums else (0.0, 0.0)
            return self._worst(grows & (self.score > low), shrinks & (self.score < m), q // 2)
        found = []
        for g, (m, low) in zip((*range(len(ends) - 1), -1), ends, strict=True):
            inside = qp.groups.codes == g
            m, low = (m, low) if g >= 0 else (0.0, 0.0)
            up, down = inside & grows & (self.score > low), inside & shrinks & (self.score < m)
            found.append(self._worst(up, down, q // (2 * len(ends))))
        return np.unique(np.concatenate(found))

    def _worst(self, up: Floats, down: Floats, half: int) -> Floats:
        half = max(1, half)
        grow, shrink = np.flatnonzero(up), np.flatnonzero(down)
        return np.union1d(_largest(grow, self.score, half), _largest(shrink, -self.score, half))

    def importance(self, idx: Floats) -> Floats:
        """Infinite for free variables, else the violation that a bound hides."""
        part = self.part(idx)
        ends = np.array(self._extremes())[part.codes]
        grows, shrinks = part.beta < part.hi, part.beta > part.lo
        worth = np.where(grows & shrinks, np.inf, -np.inf)
        worth = np.where(grows & ~shrinks, part.score - ends[:, 1], worth)
        return np.where(shrinks & ~grows, ends[:, 0] - part.score, worth)

    def part(self, idx: Floats) -> Part:
        """Copies at `idx`."""
        qp = self.qp
        codes = qp.codes[idx] if qp.groups.codes is not None else np.full(len(idx), len(qp.groups.sums) - 1)
        return Part(self.score[idx], self.beta[idx], qp.lo[idx], qp.hi[idx], qp.ridge[idx], codes)

    def support(self) -> Floats:
        """Indices of the variables that are not 0."""
        return np.flatnonzero(self.beta)

    def square(self, idx: Floats, members: Floats, out: Floats) -> None:
        """Gathered from columns, or from the last square on the same K where that has the pair."""
        qp = self.qp
        columns = qp.rows_of(members)
        for start in range(0, len(idx), qp.source.capacity):
            part = slice(start, start + qp.source.capacity)
            matrix, rows = qp.source.lookup(qp.rows_of(idx[part]))
            if self._known is None or self.qp.rows is not None:
                gather_square(matrix, rows, columns, out[part])
                if qp.shift:
                    out[part] += qp.shift
            else:
                shift = matrix.dtype.type(self._known.shift)
                gather_known(matrix, rows, columns, shift, self._known.square, self._known_places, out[part])

    def apply(self, idx: Floats, beta: Floats) -> None:
        """Only columns of variables that changed are read."""
        delta = beta - self.beta[idx]
        moved = delta != 0
        self.beta[idx] = beta
        self._ends = None
        idx, delta = idx[moved], delta[moved]
        change = np.zeros(self.qp.source.n) if self.qp.rows is not None else self.score
        step = min(CHUNK * 16, self.qp.source.capacity)
        for start in range(0, len(idx), step):
            part = slice(start, start + step)
            matrix, rows = self.qp.source.lookup(self.qp.rows_of(idx[part]))
            add_columns(matrix, rows, -delta[part], change)
        if self.qp.rows is not None:
            self.score += change[self.qp.rows]
        self.score[idx] -= self.qp.ridge[idx] * delta
        if self.qp.shift:
            self.score -= self.qp.shift * delta.sum()

    def snapshot(self) -> Floats:
        """A copy of beta."""
        return self.beta.copy()


def _largest(idx: Floats, values: Floats, count: int) -> Floats:
    """The `count` indices of `idx` with the largest `values`, O(len(idx))."""
    if len(idx) <= count:
        return idx
    return idx[np.argpartition(values[idx], len(idx) - count)[len(idx) - count :]]
