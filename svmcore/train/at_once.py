"""Many small programs on one K, solved in one compiled pass and proved in another.

Classes are many programs: ten digits are 45 pairs, 26 letters 325. One of a hundred rows is solved in 20 microseconds,
and one after the other each costs 300 in Python. What these passes do not prove goes the usual way from there.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np

from svmcore.certificate import Certificate
from svmcore.passes.matrix.gather import gather_each
from svmcore.passes.proof.boxes import box_of_labels
from svmcore.passes.proof.small_programs import prove_each
from svmcore.passes.steps.pairs import solve_each
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.runtime.threads import split_range
from svmcore.solution import Solution, Status
from svmcore.solvers import SMO, Solver
from svmcore.solvers.auto import Auto
from svmcore.sources import ResidentGram
from svmcore.tasks import Task
from svmcore.train.doubt import Doubt, doubt_each
from svmcore.train.posing.plan import EXACT_ROWS
from svmcore.train.posing.posed import smallest
from svmcore.train.posing.recipe import Recipe

__all__ = ["Boxes", "Programs", "are_small", "knows", "most_seconds", "most_variables", "takes"]

SMALL_ROWS = 1536  # of a program that is solved as a whole, without choosing rows to work on,
SMALL_PRODUCTS = 2e8  # and of numbers in its K, which float64 takes longer for than float32 or bytes
PRECISION = 0.1  # of tol is what they are solved to: it costs little, and no free variables are moved together
STEP_SECONDS = 1e-8  # for each variable of a step, on a slow machine
THREAD = 30_000  # entries of K that are worth a thread of their own,
LOT = 1 << 16  # and that stay in the second-level cache until all that reads them has
LARGEST = 1e6  # C_i beyond which hardly a variable meets its bound: a hard margin but in name, and no easy program
STEPS = 30  # for each variable at most: more is no easy program,
WORK = 5_000_000  # nor is one whose steps change so many scores


def takes(recipe: Recipe, C: Floats) -> bool:
    """Whether programs of a training with these C_i (m,) are of the one kind that the passes know.

    Their variables have bounds and no ridge, and each is in a group.
    """
    solver = recipe.solver
    if not ((C >= 0.0).all() and (C <= LARGEST).all()):
        return False
    qp = smallest(recipe.task, 1.0)
    plain = not (qp.is_soft or qp.is_hard or qp.shift) and bool((qp.codes >= 0).all())
    whole = type(solver) in (SMO, Auto) and solver.max_iter < 0 and solver.time_limit is None
    computed = recipe.approximation is None and recipe.kernel.name != "precomputed"
    return plain and whole and computed and not recipe.calibrates


def knows(gram: ResidentGram) -> bool:
    """Whether it is known how far the values of K are from those that are meant."""
    return gram.exact is None or (gram.rounding is not None and gram.rounding.relative < 1.0)


def most_variables(recipe: Recipe, codes: Floats) -> int:
    """Of the largest program on rows with these codes."""
    rows = int(np.sort(np.bincount(codes))[-2:].sum()) if recipe.pairs else len(codes)
    return rows * smallest(recipe.task, 1.0).m // 2


def are_small(m: int, n: int, p: int) -> bool:
    """Whether programs of up to m variables, on a K of n rows of p features, are best solved at once in float64."""
    return m <= SMALL_ROWS and (n <= EXACT_ROWS or m * m * p <= SMALL_PRODUCTS)


def most_seconds(m: int) -> float:
    """What a program of m variables may take before it is left alone, as nobody can stop it."""
    return STEP_SECONDS * min(STEPS * (m + 256.0) * m, float(WORK))


@dataclasses.dataclass(frozen=True, eq=False)
class Boxes:
    """The variables of several programs, one after the other.

    Attributes
    ----------
    ends
        (k + 1,) those of program j are ends[j] ... ends[j + 1] - 1.
    rows
        (m,) their rows of K.
    p, lo, hi, codes
        (m,) as in `SignedQP`.
    sums
        (k, groups).
    start
        (m,) where they begin.
    """

    ends: Floats
    rows: Floats
    p: Floats
    lo: Floats
    hi: Floats
    codes: Floats
    sums: Floats
    start: Floats

    @classmethod
    def of_labels(cls, rows: Sequence[Floats], labels: Floats, C: Floats) -> "Boxes":
        """Of C-SVC: rows of K of each program, labels (m,) of -1 and +1 of all of them, C_i (n,) of the rows of K."""
        every = np.concatenate(rows)
        p, lo, hi, start = np.zeros((4, len(every)))
        box_of_labels(labels, C[every], p, lo, hi)
        ends, codes = np.cumsum([0, *map(len, rows)]), np.zeros(len(every), np.int8)
        return cls(ends, every, p, lo, hi, codes, np.zeros((len(rows), 1)), start)

    @classmethod
    def of_programs(cls, rows: Sequence[Floats], programs: Sequence[SignedQP]) -> "Boxes":
        """Of any machine: each program lives on these `rows` of K."""
        p, lo, hi, codes = (
            np.concatenate([getattr(qp, name) for qp in programs]) for name in ("p", "lo", "hi", "codes")
        )
        every = [at if qp.rows is None else at[qp.rows] for at, qp in zip(rows, programs, strict=True)]
        start = np.concatenate([qp.feasible(None) for qp in programs])
        sums = np.array([qp.groups.sums for qp in programs])
        ends = np.cumsum([0, *(qp.m for qp in programs)])
        return cls(ends, np.concatenate(every), p, lo, hi, codes, sums, start)

    def begun(self, beta: Floats | None) -> "Boxes":
        """The same from `beta` (m,) on, if that is a point of these boxes and their sums are those of any others, 0."""
        if beta is None or len(beta) != len(self.p) or self.sums.any():
            return self
        return dataclasses.replace(self, start=beta) if ((self.lo <= beta) & (beta <= self.hi)).all() else self


class Programs:
    """Programs on one K (n, n), in float64 and computed from rows."""

    def __init__(self, gram: ResidentGram, boxes: Boxes) -> None:
        self.gram, self.boxes, self.ends = gram, boxes, boxes.ends
        k, groups = boxes.sums.shape
        self.beta, (self.outputs, self.score) = boxes.start.copy(), np.empty((2, len(boxes.p)))
        self.found, self.steps, self.doubts = (
            np.empty((k, 7 + groups)),
            np.empty(k, np.int64),
            np.empty((k, 1 + groups)),
        )
        self._ridge, self._diagonal = np.zeros(len(boxes.p)), gram.diagonal()[boxes.rows]
        self.is_centred = gram.rows is not None and gram.rows.kernel.is_centred

    def solve(self, solver: Solver) -> None:
        """Solve and prove all of them, on all threads; each the same whoever solves it."""
        entries = np.diff(self.ends) ** 2

        def part(first: int, stop: int) -> None:
            for lot in _lots(entries[first:stop], first):
                self._solve(lot, self._squares(lot, entries[lot].sum()), PRECISION * solver.tol)

        split_range(len(self.steps), part, least=1 + int(THREAD / entries.mean()))

    def _squares(self, lot: slice, entries: int) -> Floats:
        """K of the variables of each of a `lot`, one after the other: K itself where that is it."""
        K, ends = self.gram.matrix, self.ends[lot.start : lot.stop + 1]
        rows = self.boxes.rows[ends[0] : ends[-1]]
        if entries == K.size and np.array_equal(rows, np.arange(len(K))):
            return K.reshape(-1)
        squares = np.empty(entries)
        gather_each(K, rows, ends - ends[0], squares)
        return squares

    def _solve(self, lot: slice, squares: Floats, tol: float) -> None:
        """Those of a `lot`, whose K is in `squares`."""
        gram, boxes, ends = self.gram, self.boxes, self.ends[lot.start : lot.stop + 1]
        box, sums, found = (boxes.p, boxes.lo, boxes.hi, boxes.codes), boxes.sums[lot], self.found[lot]
        solve_each(squares, ends, *box, sums.shape[1], tol, STEPS, WORK, self.beta, self.steps[lot])
        off = (0.0, 0.0) if gram.exact is None else gram.rounding  # or else these values are what is meant
        prove_each(squares, ends, *box, sums, *off, self.beta, self.outputs, found)
        at = slice(ends[0], ends[-1])
        np.subtract(boxes.p[at], self.outputs[at], out=self.score[at])
        of = boxes.lo, boxes.hi, self._ridge, self._diagonal, boxes.codes
        doubt_each(self.score, self.beta, *of, ends, found, self.doubts[lot])

    @functools.cached_property
    def _numbers(self) -> list[list[float]]:
        """What was found of each program."""
        return self.found.tolist()

    @functools.cached_property
    def _told(self) -> tuple[list[float], Floats, Floats]:
        """Biases (k,), variables (m,) without negative zeros, and decision values (m,) at their rows."""
        b = self.found[:, 7:]
        bias = b.sum(axis=1) / b.shape[1]
        return bias.tolist(), self.beta + 0.0, self.outputs + np.repeat(bias, np.diff(self.ends))

    def solution(self, k: int, tol: float, qp: SignedQP | None = None) -> Solution | None:
        """That of program `k`, if it is proved; `qp` is the program, unless it has a variable for each of its rows."""
        primal, dual, gap, infeasibility, uncertainty, bar, norm2, *_ = self._numbers[k]
        size = max(abs(primal), abs(dual))
        relative = None if not self.gram.psd else (primal - dual) / size if size > 0.0 else 0.0
        certificate = Certificate(primal, dual, gap, infeasibility, relative, uncertainty, bar)
        if not certificate.proves(tol):
            return None
        at, (biases, beta, decisions) = self._at(k), self._told
        decision = decisions[at]
        if qp is not None and qp.rows is not None:
            decision = np.empty(qp.source.n)
            decision[qp.rows] = decisions[at]
        return Solution(
            beta=beta[at],
            bias=biases[k] - self._offset(k) if self.is_centred else biases[k],
            status=Status.CONVERGED,
            n_iter=int(self.steps[k]),
            certificate=certificate,
            decision=decision,
            score=self.score[at],
            norm2=norm2,
            multipliers=self.found[k, 7:],
        )

    def _at(self, k: int) -> slice:
        return slice(self.ends[k], self.ends[k + 1])

    def variables(self, k: int) -> Floats:
        """Those of program `k` (m,), wherever they came to."""
        return self.beta[self._at(k)]

    def _offset(self, k: int) -> float:
        """What centring has added to the bias."""
        at = self._at(k)
        return self.gram.offset(np.bincount(self.boxes.rows[at], weights=self.beta[at], minlength=self.gram.n))

    def doubt(self, k: int, task: Task) -> Doubt:
        """What the gap of program `k`, of the machine `task`, leaves open."""
        if not self.gram.psd:
            return Doubt(np.inf, np.inf, 0.0)
        return Doubt(self.doubts[k, 0], *task.doubt(self.doubts[k, 1:]))


def _lots(entries: Floats, first: int) -> Iterator[slice]:
    """Programs from `first` on in turn, as many at a time as have LOT `entries` (k,) together, or one.

    >>> [(lot.start, lot.stop) for lot in _lots(np.array([LOT - 1, 1, 1, LOT + 1]), 5)]
    [(5, 7), (7, 8), (8, 9)]
    """
    ends, start = np.cumsum(entries), 0
    while start < len(ends):
        before = ends[start] - entries[start]
        stop = max(start + 1, int(np.searchsorted(ends, before + LOT, side="right")))
        yield slice(first + start, first + stop)
        start = stop
