"""Several classes as binary problems on one kernel: one-vs-rest and one-vs-one. Nothing is solved here."""

import functools
import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, overload

import numpy as np

from svmcore.errors import InputError, InvalidProblem
from svmcore.passes.votes import count_votes
from svmcore.points import Floats

__all__ = ["Scheme", "Target", "Wrong", "is_told", "labels_of_pairs", "rows_of_pairs", "targets", "vote"]

BLOCK = 4096  # rows whose votes are counted at once

Scheme: TypeAlias = Literal["ovr", "ovo"]


class Target(NamedTuple):
    """One binary problem: class `positive` against class `negative`, or against the rest (-1)."""

    positive: int
    negative: int
    y: Floats  # (n,) in {-1, 0, +1}; 0 = the row is of neither class


class _Targets(Sequence[Target]):
    """Targets that are made when they are asked for: all of them at once are classes times rows."""

    def __init__(self, codes: Floats, pairs: Sequence[tuple[int, int]]) -> None:
        self.codes, self.pairs = codes, pairs

    def __len__(self) -> int:
        return len(self.pairs)

    @overload
    def __getitem__(self, index: int) -> Target: ...

    @overload
    def __getitem__(self, index: slice) -> list[Target]: ...

    def __getitem__(self, index: int | slice) -> Target | list[Target]:
        if isinstance(index, slice):
            return [self[k] for k in range(len(self))[index]]
        positive, negative = self.pairs[index]
        ours = self.codes == positive
        rest = self.codes == negative if negative >= 0 else (self.codes >= 0) & ~ours
        return Target(positive, negative, ours.astype(np.float64) - rest)


def targets(codes: Floats, n_classes: int, scheme: str = "ovr") -> Sequence[Target]:
    """Binary problems for class codes (n,) in 0 ... n_classes - 1, each made when it is asked for.

    A row of code -1 is of no class. Two classes are one problem with class 1 positive. One-vs-one goes through the
    pairs i < j in lexical order, with the later class j positive.

    >>> [t.y.tolist() for t in targets(np.array([0, 1, 2, -1]), 3)]
    [[1.0, -1.0, -1.0, 0.0], [-1.0, 1.0, -1.0, 0.0], [-1.0, -1.0, 1.0, 0.0]]
    >>> [(t.positive, t.negative) for t in targets(np.array([0, 1, 2]), 3, "ovo")]
    [(1, 0), (2, 0), (2, 1)]
    """
    if n_classes < 2:
        raise InvalidProblem(f"training needs rows of at least 2 classes; given {n_classes}")
    if scheme not in ("ovr", "ovo"):
        raise InputError(f"multiclass must be ovr or ovo; given {scheme!r}")
    if n_classes == 2:
        pairs = [(1, 0)]
    elif scheme == "ovr":
        pairs = [(k, -1) for k in range(n_classes)]
    else:
        pairs = [(j, i) for i, j in _pairs(n_classes).tolist()]
    return _Targets(np.asarray(codes), pairs)


def rows_of_pairs(codes: Floats, n_classes: int) -> list[Floats]:
    """Rows of each problem of one-vs-one, ascending; a row of code -1 is of none.

    >>> [rows.tolist() for rows in rows_of_pairs(np.array([2, 0, -1, 1, 0]), 3)]
    [[1, 3, 4], [0, 1, 4], [0, 3]]
    """
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(n_classes + 1)).tolist()
    members = [order[start:stop] for start, stop in itertools.pairwise(ends)]
    return [np.sort(np.concatenate([members[i], members[j]])) for i, j in _pairs(n_classes).tolist()]


def labels_of_pairs(codes: Floats, n_classes: int, which: Sequence[int], rows: Sequence[Floats]) -> Floats:
    """Labels of -1 and +1 of the `rows` of the problems `which` of one-vs-one, one after the other.

    The later class is +1.

    >>> codes = np.array([2, 0, 1])
    >>> labels_of_pairs(codes, 3, [0, 2], [np.array([1, 2]), np.array([0, 2])])
    array([-1.,  1.,  1., -1.])
    """
    later = np.repeat(_pairs(n_classes)[which, 1], [len(each) for each in rows])
    return np.where(codes[np.concatenate(rows)] == later, 1.0, -1.0)


def vote(decision: Floats, n_classes: int, scheme: str) -> Floats:
    """Class codes (n,) from decision values (n, k): the sign, the largest, or the most pairwise wins (ties: first).

    A decision of exactly 0 goes to the later class, as in LIBSVM.

    >>> vote(np.array([[0.1, -2.0, -1.0]]), 3, "ovr")
    array([0])
    """
    if len(decision) <= BLOCK:
        return _voted(decision, n_classes, scheme)
    blocks = (decision[start : start + BLOCK] for start in range(0, len(decision), BLOCK))
    return np.concatenate([_voted(block, n_classes, scheme) for block in blocks])


def _voted(decision: Floats, n_classes: int, scheme: str) -> Floats:
    if n_classes == 2:
        return (decision[:, 0] >= 0).astype(np.int64)
    if scheme == "ovr":
        return np.asarray(decision.argmax(axis=1))
    return np.asarray(_votes(decision, decision, n_classes)[0].argmax(axis=1))


def _votes(low: Floats, high: Floats, n_classes: int) -> tuple[Floats, Floats]:
    """Pairwise wins (n, c), the fewest and the most of each class, of decision values between `low` and `high`."""
    fewest, most = np.zeros((2, len(low), n_classes), dtype=np.int64)
    count_votes(*(np.ascontiguousarray(values, np.float64) for values in (low, high)), _pairs(n_classes), fewest, most)
    return fewest, most


@functools.lru_cache(maxsize=16)
def _pairs(n_classes: int) -> Floats:
    """(k, 2) both classes of each problem of one-vs-one; the second is the positive one."""
    return np.array(list(itertools.combinations(range(n_classes), 2)), np.int64).reshape(-1, 2)


def is_told(decision: Floats, error: Floats, n_classes: int, scheme: str) -> Floats:
    """Whether `vote` says the same of all decision values within `error`, (n,) or (n, k), of those (n, k): (n,) bool.

    >>> is_told(np.array([[0.1, -2.0, -1.0], [0.1, 0.0, -1.0]]), np.array([0.2, 0.2]), 3, "ovr")
    array([ True, False])
    """
    error = np.broadcast_to(error.reshape(len(decision), -1), decision.shape)
    if decision.shape[1] == 1:
        return np.asarray((np.abs(decision) > error)[:, 0])
    found, rows = vote(decision, n_classes, scheme), np.arange(len(decision))
    if scheme == "ovr":
        others = decision + error
        others[rows, found] = -np.inf
        return np.asarray((decision - error)[rows, found] > others.max(axis=1))
    least, most = _votes(decision - error, decision + error, n_classes)
    order = n_classes * least[rows, found] - found
    others = n_classes * most - np.arange(n_classes)
    others[rows, found] = -n_classes
    return np.asarray(order > others.max(axis=1))


class Wrong:
    """Whether `vote` gives rows their class (n,) of no decision values between bounds that are told one by one.

    The bounds of each decision value are (n,), or (..., n) of several `cases`. One of exactly 0 proves nothing.

    >>> wrong = Wrong(np.array([2, 0]), 3, "ovr")
    >>> for k, (low, high) in enumerate([([0.1, -0.3], [0.3, 0.1]), ([-2, 0.0], [0.2, 0.4]), ([-1, -1], [0.0, 0.0])]):
    ...     wrong.add(k, np.array(low), np.array(high))
    >>> wrong.found()
    array([ True, False])
    """

    def __init__(self, codes: Floats, n_classes: int, scheme: str, cases: tuple[int, ...] = ()) -> None:
        self.codes, self.n_classes, self.by_pairs = codes, n_classes, scheme == "ovo" and n_classes > 2
        shape = (*cases, len(codes))
        if self.by_pairs:
            self.pairs = _pairs(n_classes)
            self.fewest, self.most = np.zeros((2, *shape, n_classes), dtype=np.int64)
        else:
            self.rival, self.own = np.full(shape, -np.inf), np.full(shape, np.inf)

    def add(self, k: int, low: Floats, high: Floats) -> None:
        """Take the bounds of decision value `k`."""
        if self.by_pairs:
            of = (np.ascontiguousarray(values, np.float64).reshape(-1, 1) for values in (low, high))
            votes = (each.reshape(-1, self.n_classes) for each in (self.fewest, self.most))
            count_votes(*of, self.pairs[k : k + 1], *votes)
        elif self.n_classes == 2:
            later = self.codes == 1
            self.own, self.rival = np.where(later, high, 0.0), np.where(later, 0.0, low)
        else:
            own = self.codes == k
            self.own[..., own] = high[..., own]
            self.rival[..., ~own] = np.maximum(self.rival, low)[..., ~own]

    def found(self) -> Floats:
        """Of each row, when all bounds are told."""
        if not self.by_pairs:
            return np.asarray(self.rival > self.own)
        # of equal votes the first class wins
        least, most = (self.n_classes * votes - np.arange(self.n_classes) for votes in (self.fewest, self.most))
        rows = np.arange(len(self.codes))
        own = most[..., rows, self.codes]
        least[..., rows, self.codes] = own
        return np.asarray(least.max(axis=-1) > own)
