"""C by validation rows, and a proof that no other C in its range is better by more than so many of them.

C is solved at both ends. Between neighbours the errors are bounded from below: by the rows that no optimum there has
right (`svmcore.train.choice.between`). Where the bound is least a C is solved in the middle, from the answer below it,
until the best C so far is proved. All C share K, in which the validation rows are rows with C_i = 0. So do folds, whose
errors are added up.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from svmcore.errors import Unsupported
from svmcore.kernels import Kernel, Precomputed
from svmcore.kernels.exact import ExactKernel
from svmcore.kernels.rounding import Rounding
from svmcore.model.multiclass import vote
from svmcore.points import Floats
from svmcore.runtime.threads import one_blas_thread
from svmcore.sources import Source
from svmcore.squares import give_back
from svmcore.train.choice.between import End, Rows
from svmcore.train.choice.claim import Choice
from svmcore.train.choice.fewest import Fewest, objection, output_error
from svmcore.train.control import Control
from svmcore.train.posing.posed import resolved
from svmcore.train.shared import Part, Table
from svmcore.train.training import Work

__all__ = ["choose"]

TOL = 1e-5  # of the answers at most: what is left at both ends is left all the way


@one_blas_thread()
def choose(parts: Sequence[Part], table: Table, ends: tuple[float, float], within: int, most: int) -> Choice:
    """Solve C from `ends[0]` to `ends[1]` until the best is proved to `within` errors, or `most` are solved.

    The errors are those of all parts, each at the rows `fold.ask` of `table`, whose codes are those of the classes.

    Raises
    ------
    Unsupported
        For another machine than an SVC with the hinge loss and a free bias, for an approximation, a given K, or a
        kernel that is not positive semi-definite.
    """
    recipe = parts[0].recipe
    why = objection(recipe.task, recipe.kernel, recipe.solver)
    if recipe.approximation is not None or isinstance(recipe.kernel, Precomputed):
        why = "the rows are needed, and a kernel by name without approximation"
    if why:
        raise Unsupported(f"C cannot be proved: {why}")
    try:
        search = _Search(parts, table)
        for C in ends:
            search.solve(C)
        while len(search.solved) < most and search.fewest - min(search.least()) > within:
            C = search.middle()
            if C in search.solved:  # no number lies between its neighbours, and what is left is still not told
                break
            search.solve(C)
        return search.choice()
    finally:
        give_back()


class _Search:
    """Errors of all that was solved, by C."""

    def __init__(self, parts: Sequence[Part], table: Table) -> None:
        sources: dict[Kernel, Source] = {}
        self.parts = [_Part(part, table, sources) for part in parts]
        self.solved: dict[float, int] = {}
        self._least: dict[tuple[float, float], int] = {}

    def solve(self, C: float) -> None:
        """All parts at this C."""
        self.solved[C] = sum(part.solve(C) for part in self.parts)

    @property
    def fewest(self) -> int:
        """Errors of the best C."""
        return min(self.solved.values())

    def gaps(self) -> list[tuple[float, float]]:
        """Neighbours."""
        return list(itertools.pairwise(sorted(self.solved)))

    def least(self) -> list[int]:
        """The fewest errors that are possible in each gap."""
        for gap in self.gaps():
            if gap not in self._least:
                self._least[gap] = int(np.sum([part.left(*gap) for part in self.parts], axis=0).min())
        return [self._least[gap] for gap in self.gaps()]

    def middle(self) -> float:
        """Of the gap with the fewest possible errors, the widest of several."""
        order = [(least, -high / low, low, high) for least, (low, high) in zip(self.least(), self.gaps(), strict=True)]
        _, _, low, high = min(order)
        return float(np.sqrt(low * high))

    def choice(self) -> Choice:
        """The best C and what is proved."""
        solved = sorted(self.solved.items())
        best, _ = min(solved, key=lambda each: (each[1], each[0]))
        return Choice.of(best, solved, self.least(), sum(len(part.codes) for part in self.parts))


class _Part:
    """The problems of one part, and their answers by C."""

    def __init__(self, part: Part, table: Table, sources: dict[Kernel, Source]) -> None:
        recipe, fold = part
        self.distinct, self.classes = table.distinct(fold), fold.classes
        solver = dataclasses.replace(recipe.solver, tol=min(recipe.solver.tol, TOL))
        self.recipe = resolved(dataclasses.replace(recipe, solver=solver), self.distinct, table.n_features)
        self.asked, self.codes = table.merged.inverse[fold.ask], table.codes[fold.ask]
        served = self.recipe.served
        self.source = sources[served] = sources.get(served) or table.source(self.recipe)
        self.exact = ExactKernel(served, table.rows)
        unit = self.exact.unit
        self.unit = Rounding(unit.relative + self.exact.summation(len(self.exact)), unit.absolute)
        norm, one = np.sqrt(np.maximum(self.exact.diagonal(), 0.0)), self._work(1.0)
        self.trained = [np.flatnonzero((goal.y != 0) & (one.C > 0)) for goal in one.goals]
        self.rows = [
            Rows(goal.y[at], one.C[at], norm[at], norm[self.asked], served.is_positive)
            for goal, at in zip(one.goals, self.trained, strict=True)
        ]
        self.ends: dict[float, list[End]] = {}

    def _work(self, C: float) -> Work:
        work = Work(dataclasses.replace(self.recipe, C=C), self.distinct, self.classes, Control())
        work.take(self.source)
        return work

    def solve(self, C: float) -> int:
        """All problems at this C, from the answers at the next smaller one; how many rows they have wrong."""
        work = self._work(C)
        below = max((known for known in self.ends if known < C), default=None)
        if below is not None:
            work.start = np.zeros(work.coef.shape)
            for k, (at, end) in enumerate(zip(self.trained, self.ends[below], strict=True)):
                work.start[k, at] = end.beta
        work.solve()
        used = np.flatnonzero((work.coef != 0).any(axis=0))
        outputs = self.exact.product(np.arange(len(self.exact)), used, work.coef[:, used].T)
        ends = [self._end(C, k, work.coef[k], outputs[:, k]) for k in range(len(work.goals))]
        bias = [float(each.multipliers.mean()) for each in work.solutions]  # of the K that is served
        decision = np.array([end.asked for end in ends]).T + bias
        self.ends[C] = ends
        return int((vote(decision, len(self.classes), self.recipe.scheme) != self.codes).sum())

    def _end(self, C: float, k: int, coef: Floats, outputs: Floats) -> End:
        at = self.trained[k]
        return End(C, coef[at], outputs[at], outputs[self.asked], output_error(self.unit, self.rows[k], coef[at]))

    def left(self, low: float, high: float) -> Floats:
        """Errors that are left on each part of the way from one C to the next."""
        found = Fewest(2, self.codes, np.ones(len(self.codes), int), len(self.classes), self.recipe.scheme)
        for k, ends in enumerate(zip(self.ends[low], self.ends[high], strict=True)):
            found.add(k, self.rows[k], ends)
        return np.asarray(found.counts()[0])
