"""The one loop that solves: chains of problems on one K, each from where the one before it ended.

A fit is chains of one problem. A search, a run and a forecast have chains along C, epsilon or nu, and a run finds and
keeps its answers on storage. What a problem is, where its answer is and who watches it is its owner's to say: see
`Problem`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solution import Solution
from svmcore.solvers import Solver
from svmcore.tasks import Task

__all__ = ["NOWHERE", "Handover", "Kept", "Problem", "Solved", "Start", "answers"]

Kept = TypeVar("Kept")
Solved = tuple[SignedQP, Solution]


class Start(NamedTuple):
    """Where a solve begins: variables (m,), and the scores of its program there (m,); None where they are not known.

    Scores are right within `error`; `freed` is the share of the variables other than 0 that were held by a bound which
    is further away now: they will all move.
    """

    beta: Floats | None = None
    score: Floats | None = None
    error: float = math.inf
    freed: float = 0.0


NOWHERE = Start()
FREED = 0.5  # of its variables is a start that saves nothing, where a solve from nothing is as fast


class Handover(NamedTuple):
    """What a solution hands to the next program of its chain, small enough to be stored.

    Attributes
    ----------
    support, beta
        Variables that are not 0, and their values (s,).
    rows
        (s,) rows of K that they live on.
    residual
        (m,) p - u of all variables, which neither bounds nor ridge change.
    error
        Bound of the error of every u.
    bounded
        Share of these variables that are at a bound.
    """

    support: Floats
    rows: Floats
    beta: Floats
    residual: Floats
    error: float = math.inf
    bounded: float = 0.0

    @classmethod
    def of(cls, qp: SignedQP, solution: Solution) -> "Handover":
        """That of a solution of `qp`."""
        beta = np.asarray(solution.beta, np.float64)
        support = np.flatnonzero(beta)
        residual = solution.score + qp.ridge * beta
        held = _held(qp, support, beta[support])
        return cls(support, qp.rows_of(support), beta[support], residual, solution.certificate.error, held)

    def start(self, qp: SignedQP, task: Task, p: Floats | None) -> Start:
        """Where `qp`, of the machine `task`, begins; `p` (m,) is that of the program before, None if it is not known.

        Sums of a nu machine change with nu and C, and beta in proportion. The start depends on what is handed over
        alone, so that it is the same bytes whether the program before was solved just now or found.
        """
        if len(self.residual) != qp.m:  # a tube without width has one variable a row
            return Start(task.variables(qp, np.bincount(self.rows, weights=self.beta, minlength=qp.source.n)))
        beta = np.zeros(qp.m)
        beta[self.support] = self.beta
        for g, total in enumerate(qp.groups.sums):
            at = qp.groups.members(g, qp.m)
            held = float(beta[at].sum())
            if total != 0.0 and held != 0.0:
                beta[at] *= total / held
        if p is None or any(qp.groups.sums):
            return Start(beta)
        freed = self.bounded - _held(qp, self.support, self.beta)
        return Start(beta, self.residual + (qp.p - p) - qp.ridge * beta, self.error, max(0.0, freed))


def _held(qp: SignedQP, idx: Floats, beta: Floats) -> float:
    """Share of the variables `idx`, of values `beta`, that are at a bound of `qp`."""
    at_bound = (beta <= qp.lo[idx]) | (beta >= qp.hi[idx])
    return float(at_bound.mean()) if len(idx) else 0.0


class Problem(ABC, Generic[Kept]):
    """One program of a chain, and what its owner keeps of the answer.

    `answer` finds the answer, or makes the program, its start and its solution, and keeps that.

    Attributes
    ----------
    solver
        What solves it.
    """

    solver: Solver

    def found(self) -> Kept | None:
        """The answer, where it is there already."""
        return None

    def after(self, before: Kept | None) -> Kept | None:
        """The answer that it follows: the one before it in its chain, or one that its owner has."""
        return before

    @abstractmethod
    def program(self) -> SignedQP:
        """The program over the source of its K."""

    def start(self, qp: SignedQP, before: Kept | None) -> Start:
        """Where it begins, after the answer `before` it in the chain."""
        return NOWHERE

    def known(self, qp: SignedQP, before: Kept | None) -> Solution | None:
        """The solution, where the answer before is that of this program too."""
        return None

    def monitor(self, qp: SignedQP) -> Monitor:
        """Who watches it, and tells it to stop."""
        return Monitor(warn=False)

    @abstractmethod
    def keep(self, qp: SignedQP, solution: Solution) -> Kept:
        """What is kept of the solution."""

    def answer(self, before: Kept | None = None) -> Kept:
        """The answer, found or made."""
        found = self.found()
        if found is not None:
            return found
        qp, before = self.program(), self.after(before)
        solution = self.known(qp, before)
        if solution is None:
            start = self.start(qp, before)
            if start.freed > FREED and self.solver.begins_anew(qp):
                start = NOWHERE
            beta, score, error, _ = start
            solution = self.solver.solve(qp, beta, self.monitor(qp), score, error)
        return self.keep(qp, solution)


def answers(chain: Iterable[Problem[Kept]]) -> Iterator[Kept]:
    """Answer the problems of a chain one by one, each after the one before; whoever asks for no more ends it."""
    before = None
    for problem in chain:
        before = problem.answer(before)
        yield before
