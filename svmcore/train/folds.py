"""Chains of trainings on the folds of one table, which share its K; `solve` solves their problems."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solution import Solution
from svmcore.sources import Source
from svmcore.tasks import Answer
from svmcore.train.chains import NOWHERE, Handover, Solved, Start, answers, same_optimum
from svmcore.train.training import Member, Work

__all__ = ["Chain", "Fold", "solve"]

NONE = np.empty(0)


@dataclasses.dataclass(frozen=True, eq=False)
class Fold:
    """Rows of a table to train on, and those whose decision values are asked for.

    Attributes
    ----------
    train, ask
        Rows of the table.
    codes, classes, weights
        Of the rows `train`, as `svmcore.train.train` takes them.
    """

    train: Floats
    ask: Floats
    codes: Floats
    classes: Floats
    weights: Floats | None = None


@dataclasses.dataclass(eq=False)
class Chain:
    """Trainings on one fold, each from the solution of the one before.

    Attributes
    ----------
    works
        By their number among all trainings.
    asked
        Distinct rows whose decision values are asked for.
    keeps
        Whether solutions keep their decision values at the rows trained on.
    """

    works: dict[int, Work]
    fold: Fold
    asked: Floats
    keeps: bool

    @functools.cached_property
    def told(self) -> list[Floats]:
        """Decision values (len(asked), k) of each work."""
        return [np.empty((len(self.asked), len(work.goals))) for work in self.works.values()]

    @property
    def n_problems(self) -> int:
        """Of each of its trainings."""
        return len(next(iter(self.works.values())).goals) if self.works else 0

    def solve(self, k: int, source: Source | None = None) -> None:
        """Problem `k` of each training, from the solution of the one before; `source` is of its K, if it has one."""
        source = next(iter(self.works.values())).source_of(k) if source is None else source
        every = zip(self.works.values(), self.told, strict=True)
        for _ in answers(_Next(work, k, source, self.asked, out, self.keeps) for work, out in every):
            pass


def solve(chains: Sequence[Chain]) -> None:
    """Solve all problems of chains on one K, several at once where they can share it without a lock.

    The folds of a class come one after another: they have nearly the same support vectors, whose square of K a thread
    still has from the fold before.
    """
    most = max((chain.n_problems for chain in chains), default=0)
    turns = [(chain, k) for k in range(most) for chain in chains if k < chain.n_problems]
    works = [work for chain in chains for work in chain.works.values()]
    if works:
        max(works, key=lambda work: work.threads()).solve_all([functools.partial(chain.solve, k) for chain, k in turns])


class _Next(Member[Solved]):
    """A problem of a chain: `source` serves its K, and its decision values at the rows `asked` go to `out`.

    Of a problem on a part of the rows only the bias is told: `_add_outputs` does the rest for all problems at once.
    """

    def __init__(self, work: Work, k: int, source: Source, asked: Floats, out: Floats, keeps: bool) -> None:
        super().__init__(work, k, source)
        self.asked, self.out, self.keeps = asked, out, keeps

    def known(self, qp: SignedQP, before: Solved | None) -> Solution | None:
        return same_optimum(before, qp, self.solver.tol)

    def start(self, qp: SignedQP, before: Solved | None) -> Start:
        if before is None:
            return NOWHERE
        return Handover.of(*before).start(qp, self.work.tasks[self.k], before[0].p)

    def keep(self, qp: SignedQP, solution: Solution) -> Solved:
        work, k = self.work, self.k
        work.finish(k, qp, solution)
        answer = work.answers[k]
        if work.pairs:
            outputs: Any = qp.source.offset(answer.coef)
        else:
            outputs = solution.decision[self.asked] - solution.bias
        self.out[:, k] = (outputs + answer.bias) / answer.scale
        decision = solution.decision if self.keeps else NONE
        work.solutions[k] = dataclasses.replace(work.solutions[k], beta=NONE, decision=decision, score=NONE)
        work.answers[k] = Answer(NONE, answer.bias, answer.scale, answer.epsilon)
        return qp, solution
