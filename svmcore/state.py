"""The n-vectors of a working-set solve, and all that a solver may ask of them.

A solver that holds a `WorkingSetState` cannot tell whether scores and variables are in this process or in shards on
many hosts: it sends indices and changes, and gets back what belongs to the indices.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from svmcore.passes.matrix.gather import gather_square
from svmcore.passes.steps.working_set import extremes, hidden, how_far, violators
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.sources import RunningProduct
from svmcore.sources.base import add_weighted, lookups, matvec
from svmcore.sources.running import COLUMNS
from svmcore.squares import gather_known, squares

__all__ = [
    "Ends",
    "MemoryState",
    "Part",
    "WorkingSetState",
    "behind",
    "ends_of",
    "gap_of",
    "joined",
    "middles",
    "worst_of",
]


class Part(NamedTuple):
    """What belongs to some variables, (q,) each; `codes` None: all in the one group of the program, or none in any."""

    score: Floats
    beta: Floats
    lo: Floats
    hi: Floats
    ridge: Floats
    codes: Floats


LONG = 512  # scores in one run that are worth leaving out

Ends = list[tuple[float, float]]  # largest score that may grow and smallest that may shrink: of groups, then of none


def ends_of(part: Part, k: int) -> Ends:
    """Ends of the k groups, last of variables in none, whose scores are taken together with 0."""
    if part.codes is None:
        whole = extremes(*part[:4])
        return [whole, (0.0, 0.0)] if k else [(max(whole[0], 0.0), min(whole[1], 0.0))]
    found = [extremes(*(values[part.codes == g] for values in part[:4])) for g in (*range(k), -1)]
    return [*found[:-1], (max(found[-1][0], 0.0), min(found[-1][1], 0.0))]


def joined(every: Sequence[Ends]) -> Ends:
    """Ends of variables in several parts."""
    return [(max(m for m, _ in group), min(low for _, low in group)) for group in zip(*every, strict=True)]


def gap_of(ends: Ends) -> float:
    """The largest gap of a group, at least 0, or projected gradient of a variable in none."""
    *grouped, (m, low) = ends
    return max(0.0, m, -low, *(high - least for high, least in grouped))


def middles(ends: Ends) -> Floats:
    """(k + 1,) middle of the extremes of each group, 0 where it has but one, last 0 for variables in none."""
    *grouped, _ = ends
    return np.array([*(0.5 * (m + low) if np.isfinite(m + low) else 0.0 for m, low in grouped), 0.0])


def worst_of(part: Part, q: int, outside: Floats, ends: Ends) -> Floats:
    """Up to q / 2 of the worst violators from each end among the mask `outside`, shared by the groups; ascending."""
    if part.codes is None:
        return _both(part, outside, ends[0] if len(ends) > 1 else (0.0, 0.0), q // 2)
    found = []
    for g, extremes_of in zip((*range(len(ends) - 1), -1), (*ends[:-1], (0.0, 0.0)), strict=True):
        found.append(_both(part, outside & (part.codes == g), extremes_of, q // (2 * len(ends))))
    return np.unique(np.concatenate(found))


def behind(part: Part, multipliers: Floats) -> Floats:
    """How far (m,) each variable at a bound is from moving, at `multipliers` (k,) of the groups; -inf for free ones.

    Below 0 it wants to move.
    """
    return np.asarray(how_far(*part[:4], part.codes, np.append(multipliers, 0.0)))


def _both(part: Part, outside: Floats, ends: tuple[float, float], half: int) -> Floats:
    """Up to `half` from each end, ascending, of those that are beyond the other one."""
    grow, shrink = violators(*part[:4], outside, *ends)
    half, chosen = max(1, half), np.zeros(len(outside), dtype=bool)
    chosen[_largest(grow, part.score[grow], half)] = True
    chosen[_largest(shrink, -part.score[shrink], half)] = True
    return np.flatnonzero(chosen)


class WorkingSetState(ABC):
    """The variables of one program, their scores and bounds.

    Attributes
    ----------
    is_near
        Whether they are in this process: else a round costs messages, and fewer of them are worth larger sets.
    unit
        Of the entries of a `square` in 16 bits; None where it is of the type of K.
    """

    m: int
    is_near: ClassVar[bool] = True
    unit: float | None = None

    @abstractmethod
    def ends(self) -> Ends:
        """Largest score that may grow and smallest that may shrink: of each group, last of variables in none."""

    def kkt_gap(self) -> float:
        """The gap of `svmcore.qp`, by the scores as they are kept."""
        return gap_of(self.ends())

    def centres(self) -> Floats:
        """(k + 1,) as `middles`: less it, the scores that decide are small, and float32 tells them well apart."""
        return middles(self.ends())

    @abstractmethod
    def candidates(self, q: int, outside: Floats) -> Floats:
        """Indices of at most about q variables of the mask `outside`: the worst violators from both ends."""

    def importance(self, idx: Floats) -> Floats:
        """How much each variable is worth keeping in the set: infinite if free, else the violation a bound hides."""
        part = self.part(idx)
        return np.asarray(hidden(*part[:4], part.codes, np.array(self.ends())))

    @abstractmethod
    def part(self, idx: Floats) -> Part:
        """Scores, values and bounds of the variables `idx`."""

    @abstractmethod
    def support(self) -> Floats:
        """Indices of the variables that are not 0."""

    @abstractmethod
    def square(self, idx: Floats, members: Floats, out: Floats, at: Floats) -> None:
        """out[at[r], c] = K + shift at the rows of the variables idx[r] and members[c], in a `unit` if there is."""

    def in_units(self, unit: float | None) -> None:
        """Have squares in whole numbers of a unit from now on, or in the type of K."""
        self.unit = unit

    @abstractmethod
    def apply(self, idx: Floats, beta: Floats) -> None:
        """Set the variables `idx` and bring the scores of all up to date."""

    @abstractmethod
    def snapshot(self) -> Floats:
        """All variables (m,), a copy."""

    def scores(self) -> Floats | None:
        """All scores (m,) as they are kept, where they are in this process; else None."""
        return None

    def product(self) -> RunningProduct | None:
        """K times what has changed of the variables since they began, where that is kept with its errors."""
        return None

    def end(self) -> None:  # noqa: B027  -- most states have nothing to give back
        """The state is not asked any more."""


class MemoryState(WorkingSetState):
    """Scores and variables as float64 vectors of this process, over columns of a source.

    Parameters
    ----------
    score
        (m,) at `beta`, where it is known; it saves a product with K.

    Attributes
    ----------
    score
        (m,) as it is kept; of a long run of variables that cannot move it is not brought up to date.
    everyone
        (m,) indices of all variables: an object of its own, known by its identity.
    """

    def __init__(self, qp: SignedQP, beta: Floats, score: Floats | None = None) -> None:
        self.qp, self.m, self.beta, self.everyone = qp, qp.m, beta, np.arange(qp.m)
        self._ends: Ends | None = None  # until the next `apply`
        self.in_units(None)
        self.score = self._first_scores() if score is None else score.copy()
        self._spans = [(0, qp.source.n)] if qp.rows is not None else _spans(qp.hi > qp.lo)
        runs = qp.rows is None and qp.source.is_positive and self._keeps_all
        self._product = RunningProduct(qp.source, beta) if runs else None

    @property
    def _keeps_all(self) -> bool:
        return self._spans == [(0, self.qp.source.n)]

    def _first_scores(self) -> Floats:
        qp = self.qp
        if not self.beta.any():
            return qp.p.copy()
        coef = qp.at_rows(self.beta)
        outputs = matvec(qp.source, coef) + qp.shift * coef.sum()
        return qp.p - qp.at_variables(outputs) - qp.ridge * self.beta

    def _whole(self) -> Part:
        qp = self.qp
        return Part(self.score, self.beta, qp.lo, qp.hi, qp.ridge, qp.groups.codes)  # type: ignore[arg-type]

    def ends(self) -> Ends:
        """Kept until the next `apply`."""
        if self._ends is None:
            self._ends = ends_of(self._whole(), len(self.qp.groups.sums))
        return self._ends

    def candidates(self, q: int, outside: Floats) -> Floats:
        """Up to q / 2 of the worst violators from each end, shared by the groups."""
        return worst_of(self._whole(), q, outside, self.ends())

    def part(self, idx: Floats) -> Part:
        """Copies at `idx`; of all variables the bounds themselves."""
        qp = self.qp
        if idx is self.everyone:
            return Part(self.score.copy(), self.beta.copy(), qp.lo, qp.hi, qp.ridge, qp.codes)
        return Part(self.score[idx], self.beta[idx], qp.lo[idx], qp.hi[idx], qp.ridge[idx], qp.codes[idx])

    def support(self) -> Floats:
        """Indices of the variables that are not 0."""
        return np.flatnonzero(self.beta)

    def square(self, idx: Floats, members: Floats, out: Floats, at: Floats) -> None:
        """Gathered from columns, or from the last square on the same K where that has the pair."""
        qp, known = self.qp, self._known if self.qp.rows is None else None
        columns = qp.rows_of(members)
        if qp.source.computes_anew:
            qp.source.square(qp.rows_of(idx), columns, out, at, qp.shift, self.unit)
            return
        for part, matrix, rows in lookups(qp.source, qp.rows_of(idx), qp.source.capacity):
            if known is None:
                gather_square(matrix, rows, columns, out, at[part], shift=qp.shift, unit=self.unit)
            else:
                gather_known(matrix, rows, columns, known, self._known_places, out, at[part])

    def in_units(self, unit: float | None) -> None:
        """So is the square that they are copied from."""
        self.unit, self._known = unit, squares().known(self.qp.source, self.qp.shift, unit)
        self._known_places = np.empty(0) if self._known is None else self._known.places(self.qp.source.n)

    def apply(self, idx: Floats, beta: Floats) -> None:
        """Only columns of variables that changed are read."""
        every = slice(None) if idx is self.everyone else idx
        delta = beta - self.beta[every]
        moved = np.flatnonzero(delta)
        changed, delta = idx[moved], delta[moved]
        if self._product is None:
            self._add_to_scores(changed, delta)
        else:
            self.score -= self._product.set(changed, beta[moved])
        if self.qp.is_soft:
            self.score[changed] -= self.qp.ridge[changed] * delta
        if self.qp.shift:
            self.score -= self.qp.shift * delta.sum()
        self.beta[every], self._ends = beta, None
        if self.qp.rows is None:  # no other variable wants these columns
            self.qp.source.leave(idx[beta == 0.0])

    def _add_to_scores(self, idx: Floats, delta: Floats) -> None:
        """Add what K does to all scores where the variables `idx` have changed by `delta`."""
        change = np.zeros(self.qp.source.n) if self.qp.rows is not None else self.score
        source = self.qp.source
        if len(idx) <= source.capacity:
            add_weighted(source, self.qp.rows_of(idx), -delta, change, COLUMNS, self._spans)
        else:  # a cache would hold none of them until the next round: nothing but their sum is formed
            coef = np.bincount(self.qp.rows_of(idx), weights=delta, minlength=self.qp.source.n)
            change -= source.outputs(coef)[0]
        if self.qp.rows is not None:
            self.score += change[self.qp.rows]

    def snapshot(self) -> Floats:
        """A copy of beta."""
        return self.beta.copy()

    def scores(self) -> Floats | None:
        """The scores themselves, where all are kept."""
        return self.score if self._keeps_all else None

    def product(self) -> RunningProduct | None:
        """Of all rows, where no value of K is below 0."""
        return self._product


def _spans(moves: Floats) -> list[tuple[int, int]]:
    """Ranges of the variables (m,) without the longest run of those that cannot move: nobody asks for their scores.

    The rows of a fold that is left out are such a run, where a table has them together.
    """
    if len(moves) < LONG:
        return [(0, len(moves))]
    edges = np.flatnonzero(np.diff(np.concatenate([[True], moves, [True]])))
    starts, stops = edges[::2], edges[1::2]
    if not len(starts) or (stops - starts).max() < LONG:
        return [(0, len(moves))]
    longest = int(np.argmax(stops - starts))
    around = [(0, int(starts[longest])), (int(stops[longest]), len(moves))]
    return [(start, stop) for start, stop in around if stop > start]


def _largest(idx: Floats, values: Floats, count: int) -> Floats:
    """The `count` of `idx` with the largest `values` (len(idx),), O(len(idx))."""
    if len(idx) <= count:
        return idx
    return idx[np.argpartition(values, len(idx) - count)[len(idx) - count :]]
