"""Several classes as binary problems on one kernel: one-vs-rest and one-vs-one. Nothing is solved here."""

from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from svmcore.errors import InputError, InvalidProblem
from svmcore.points import Floats

__all__ = ["Scheme", "Target", "targets", "vote"]

Scheme: TypeAlias = Literal["ovr", "ovo"]


class Target(NamedTuple):
    """One binary problem: class `positive` against class `negative`, or against the rest (-1)."""

    positive: int
    negative: int
    y: Floats  # (n,) in {-1, 0, +1}; 0 = the row is of neither class


def targets(codes: Floats, n_classes: int, scheme: str = "ovr") -> list[Target]:
    """Binary problems for class codes (n,) in 0 ... n_classes - 1.

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
    codes = np.asarray(codes)
    if n_classes == 2:
        return [Target(1, 0, np.where(codes == 1, 1.0, -1.0))]
    if scheme == "ovr":
        return [Target(k, -1, np.where(codes == k, 1.0, -1.0)) for k in range(n_classes)]
    pairs = [(i, j) for i in range(n_classes) for j in range(i + 1, n_classes)]
    return [Target(j, i, (codes == j).astype(np.float64) - (codes == i)) for i, j in pairs]


def vote(decision: Floats, n_classes: int, scheme: str) -> Floats:
    """Class codes (n,) from decision values (n, k): the sign, the largest, or the most pairwise wins (ties: first).

    A decision of exactly 0 goes to the later class, as in LIBSVM.

    >>> vote(np.array([[0.1, -2.0, -1.0]]), 3, "ovr")
    array([0])
    """
    if n_classes == 2:
        return (decision[:, 0] >= 0).astype(np.int64)
    if scheme == "ovr":
        return np.asarray(decision.argmax(axis=1))
    votes = np.zeros((len(decision), n_classes), dtype=np.int64)
    rows = np.arange(len(decision))
    pairs = [(i, j) for i in range(n_classes) for j in range(i + 1, n_classes)]
    for column, (i, j) in enumerate(pairs):
        votes[rows, np.where(decision[:, column] >= 0, j, i)] += 1
    return np.asarray(votes.argmax(axis=1))
