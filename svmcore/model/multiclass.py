"""Several classes as binary problems on one kernel: one-vs-rest and one-vs-one. Nothing is solved here."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, overload

import numpy as np

from svmcore.errors import InputError, InvalidProblem
from svmcore.points import Floats

__all__ = ["Scheme", "Target", "is_told", "is_wrong", "targets", "vote"]

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
        if negative < 0 or len(self) == 1:
            return Target(positive, negative, np.where(ours, 1.0, -1.0))
        return Target(positive, negative, ours.astype(np.float64) - (self.codes == negative))


def targets(codes: Floats, n_classes: int, scheme: str = "ovr") -> Sequence[Target]:
    """Binary problems for class codes (n,) in 0 ... n_classes - 1, each made when it is asked for.

    Two classes are one problem with class 1 positive. One-vs-one goes through the pairs i < j in lexical order, with
    the later class j positive.

    >>> [t.y.tolist() for t in targets(np.array([0, 1, 2]), 3)]
    [[1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]]
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
        pairs = [(j, i) for i in range(n_classes) for j in range(i + 1, n_classes)]
    return _Targets(np.asarray(codes), pairs)


def vote(decision: Floats, n_classes: int, scheme: str) -> Floats:
    """Class codes (n,) from decision values (n, k): the sign, the largest, or the most pairwise wins (ties: first).

    A decision of exactly 0 goes to the later class, as in LIBSVM.

    >>> vote(np.array([[0.1, -2.0, -1.0]]), 3, "ovr")
    array([0])
    """
    blocks = (decision[start : start + BLOCK] for start in range(0, len(decision), BLOCK))
    return np.concatenate([np.empty(0, np.int64), *(_voted(block, n_classes, scheme) for block in blocks)])


def _voted(decision: Floats, n_classes: int, scheme: str) -> Floats:
    if n_classes == 2:
        return (decision[:, 0] >= 0).astype(np.int64)
    if scheme == "ovr":
        return np.asarray(decision.argmax(axis=1))
    return np.asarray(_votes(decision, decision, n_classes)[0].argmax(axis=1))


def _votes(low: Floats, high: Floats, n_classes: int) -> tuple[Floats, Floats]:
    """Pairwise wins (n, c), the fewest and the most of each class, of decision values between `low` and `high`."""
    fewest, most = np.zeros((2, len(low), n_classes), dtype=np.int64)
    pairs = [(i, j) for i in range(n_classes) for j in range(i + 1, n_classes)]
    for column, (i, j) in enumerate(pairs):
        surely, maybe = low[:, column] >= 0, high[:, column] >= 0
        fewest[:, j] += surely
        most[:, j] += maybe
        fewest[:, i] += ~maybe
        most[:, i] += ~surely
    return fewest, most


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


def is_wrong(low: Floats, high: Floats, codes: Floats, n_classes: int, scheme: str) -> Floats:
    """Whether `vote` gives the classes `codes` (n,) of no decision values between `low` and `high` (n, k): (n,) bool.

    >>> low, high = np.array([[0.1, -2.0, -1.0], [-0.3, 0.0, -1.0]]), np.array([[0.3, 0.2, 0.0], [0.1, 0.4, 0.0]])
    >>> is_wrong(low, high, np.array([2, 0]), 3, "ovr")
    array([ True, False])
    """
    rows = np.arange(len(codes))
    if low.shape[1] == 1:
        return np.where(codes == 1, high[:, 0] < 0, low[:, 0] >= 0)
    if scheme == "ovr":
        least, most = low.copy(), high
    else:  # of equal votes the first class wins
        least, most = (n_classes * votes - np.arange(n_classes) for votes in _votes(low, high, n_classes))
    own = most[rows, codes]
    least[rows, codes] = own
    return np.asarray(least.max(axis=1) > own)
