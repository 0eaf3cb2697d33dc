"""Chains of trainings on the folds of one table, which share its K; `solve` solves their problems."""

import dataclasses
import functools
from collections.abc import Sequence

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
    told: list[Floats] = dataclasses.field(init=False)  # decision values (len(asked), k) of each work
    left: list[set[int]] = dataclasses.field(init=False)  # problems of each work that are not solved

    def __post_init__(self) -> None:
        works = self.works.values()
        self.told = [np.empty((len(self.asked), len(work.goals))) for work in works]
        self.left = [set(range(len(work.goals))) for work in works]

    @property
    def n_problems(self) -> int:
        """Of each of its trainings."""
        return len(next(iter(self.works.values())).goals) if self.works else 0

    def solve_small(self) -> None:
        """Solve the problems of few rows of each training at once, from those of the training before."""
        before = None
        for work, out, left in zip(self.works.values(), self.told, self.left, strict=True):
            still, before = left.intersection(work.left_over(before)), work
            for k in left - still:
                self.tell(work, k, out, work.source.offset(work.coef[k]))  # type: ignore[union-attr]
            left &= still

    def solve(self, k: int, source: Source | None = None) -> None:
        """Problem `k` of each training, from the solution of the one before; `source` is of its K, if it has one."""
        each = zip(self.works.values(), self.told, self.left, strict=True)
        every = [(work, out) for work, out, left in each if k in left]
        if every:
            source = every[0][0].source_of(k) if source is None else source
            for _ in answers(_Next(self, work, k, source, out) for work, out in every):
                pass

    def tell(self, work: Work, k: int, out: Floats, offset: float) -> None:
        """Decision values of problem `k` at the rows `asked`, to `out` (len(asked), k); its vectors are let go.

        Of a problem on a part of the rows only the bias is told, with the `offset` of its K: `_add_outputs` does the
        rest for all problems at once.
        """
        solution, answer = work.solutions[k], work.answers[k]
        outputs = offset if work.pairs else solution.decision[self.asked] - solution.bias
        out[:, k] = (outputs + answer.bias) / answer.scale
        decision = solution.decision if self.keeps else NONE
        work.solutions[k] = dataclasses.replace(solution, beta=NONE, decision=decision, score=NONE)
        work.answers[k] = Answer(NONE, answer.bias, answer.scale, answer.epsilon)


def solve(chains: Sequence[Chain]) -> None:
    """Solve all problems of chains on one K, several at once where they can share it without a lock.

    The folds of a class come one after another: they have nearly the same support vectors, whose square of K a thread
    still has from the fold before.
    """
    for chain in chains:
        chain.solve_small()
    most = max((chain.n_problems for chain in chains), default=0)
    turns = [(chain, k) for k in range(most) for chain in chains if any(k in left for left in chain.left)]
    works = [work for chain in chains for work in chain.works.values()]
    if turns:
        max(works, key=lambda work: work.threads()).solve_all([functools.partial(chain.solve, k) for chain, k in turns])


class _Next(Member[Solved]):
    """Problem `k` of a training in a chain, whose decision values go to `out`."""

    def __init__(self, chain: Chain, work: Work, k: int, source: Source, out: Floats) -> None:
        super().__init__(work, k, source)
        self.chain, self.out = chain, out

    def known(self, qp: SignedQP, before: Solved | None) -> Solution | None:
        return same_optimum(before, qp, self.solver.tol)

    def start(self, qp: SignedQP, before: Solved | None) -> Start:
        if before is None:
            return Start(self.work.begun[self.k]) if self.k in self.work.begun else NOWHERE
        return Handover.of(*before).start(qp, self.work.tasks[self.k], before[0].p)

    def keep(self, qp: SignedQP, solution: Solution) -> Solved:
        self.work.finish(self.k, qp, solution)
        offset = qp.source.offset(self.work.answers[self.k].coef) if self.work.pairs else 0.0
        self.chain.tell(self.work, self.k, self.out, offset)
        return qp, solution
