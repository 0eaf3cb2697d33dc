"""Many trainings on parts of one table: they share its kernel matrices, and each starts where the one before ended.

A part leaves rows out by C_i = 0, so folds are boxes on one K of all rows, and the solver's outputs at the rows that
were left out are their decision values: nothing is computed for them. Kernels of the inner product share the products.
Proofs are of the values of K that were served.
"""

import dataclasses
import functools
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from svmcore.errors import SVMError
from svmcore.kernels.base import InnerProductKernel, Kernel
from svmcore.kernels.exact import ExactKernel
from svmcore.kernels.precomputed import is_psd
from svmcore.passes.working_set import gather_square
from svmcore.points import Floats, Merged, Points, Rows, merge_rows
from svmcore.qp import SignedQP
from svmcore.runtime.memory import empty
from svmcore.runtime.threads import one_blas_thread, side_by_side
from svmcore.solution import Solution
from svmcore.sources import ComputedColumns, ResidentGram, Source
from svmcore.sources.base import CHUNK
from svmcore.sources.resident import fill_grams
from svmcore.squares import give_back
from svmcore.tasks import Answer
from svmcore.train.chains import NOWHERE, Handover, Solved, Start, answers, same_optimum
from svmcore.train.control import Control
from svmcore.train.distinct import Distinct, by_code, merge_precomputed
from svmcore.train.plan import SMALL_BYTES, cached
from svmcore.train.recipe import Recipe
from svmcore.train.trained import Training
from svmcore.train.training import EXACT_ROWS, PSD_ROWS, Member, Work, resolved

__all__ = ["Fold", "Found", "Part", "Table", "Tally"]

NONE = np.empty(0)
LARGE = 1 << 26  # bytes of a K from which its memory costs more than its products, where these are of bytes


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


class Part(NamedTuple):
    """One training."""

    recipe: Recipe
    fold: Fold


@dataclasses.dataclass(eq=False)
class Tally:
    """What trainings on tables have cost: passes of products over the rows, kernel matrices, chains, problems."""

    products: int = 0
    kernels: int = 0
    chains: int = 0
    problems: int = 0

    def add(self, other: "Tally") -> None:
        """Count what another process did."""
        for name, value in dataclasses.asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
    """What is kept of one training: `training` makes the whole of it.

    Attributes
    ----------
    coef
        (k, m) CSR, of the table's distinct rows.
    decisions
        (len(fold.ask), k) of the rows that were asked for.
    asked
        (len(fold.ask),) which distinct rows these are.
    """

    recipe: Recipe
    fold: Fold
    distinct: Distinct
    coef: Rows
    solutions: tuple[Solution, ...]
    answers: tuple[Answer, ...]
    held_out: tuple[tuple[Floats, Floats], ...]
    decisions: Floats
    asked: Floats

    def training(self) -> Training:
        """As `svmcore.train.train` on the rows of the fold returns it, apart from the solutions' vectors."""
        work = Work(self.recipe, self.distinct, self.fold.classes, Control())
        work.coef, work.plan = self.coef.toarray(), "resident"
        work.solutions, work.answers, work.held_out = list(self.solutions), list(self.answers), list(self.held_out)
        return work.training(len(self.fold.train))


class Table:
    """The distinct rows of `X` (n, p) with label or target codes (n,), and trainings on parts of it.

    Parameters
    ----------
    precomputed
        Whether `X` is a K (n, n) that the user brings.
    together
        (n,) the rows of each number are put together: those of a class, of which pairs take parts of K, or those that a
        fold leaves out, whose scores no solver needs.

    Attributes
    ----------
    keeps
        Whether solutions keep their decision values at the rows trained on: what bounds of other C are made of.
    """

    keeps = False

    def __init__(self, X: Rows, codes: Floats, precomputed: bool = False, together: Floats | None = None) -> None:
        self.precomputed, self.n_features, self.codes = precomputed, X.shape[1], codes
        merged = merge_precomputed(X, codes) if precomputed else merge_rows(X, codes)
        self.merged = merged if together is None else by_code(merged, together)
        first = self.merged.first
        self.rows = X[np.ix_(first, first)] if precomputed else X[first]
        self.n, self.tally = len(first), Tally()
        self._folds: dict[Fold, Distinct] = {}

    def distinct(self, fold: Fold) -> Distinct:
        """The distinct rows of the whole table, those that are not trained on with weight 0."""
        if fold not in self._folds:
            weights = np.ones(len(fold.train)) if fold.weights is None else fold.weights
            kept = np.flatnonzero(weights > 0)
            inverse, weights = self.merged.inverse[fold.train[kept]], weights[kept]
            first, codes = np.zeros(self.n, dtype=np.int64), np.zeros(self.n, dtype=np.int64)
            first[inverse[::-1]], codes[inverse] = np.arange(len(kept))[::-1], fold.codes[kept]
            merged = Merged(first, np.bincount(inverse, minlength=self.n), inverse)
            total = np.bincount(inverse, weights=weights, minlength=self.n)
            self._folds[fold] = Distinct(kept, merged, weights, total, codes, self.rows)
        return self._folds[fold]

    @one_blas_thread()
    def train(self, parts: Sequence[Part]) -> list[Found | None]:
        """Train all parts; None for one that has no program, as its own training would say."""
        found: list[Found | None] = [None] * len(parts)
        groups: dict[_Served, list[tuple[int, Recipe]]] = {}
        for index, (recipe, fold) in enumerate(parts):
            if (ready := self._resolved(recipe, fold)) is not None:
                groups.setdefault(self._served(ready), []).append((index, ready))
        try:
            for served, source in self._sources(list(groups)):
                self._train_on(source, served, groups[served], parts, found)
                del source  # its memory is for the next
        finally:
            give_back()
        return found

    def source(self, recipe: Recipe) -> Source:
        """K of all rows, for trainings one after another; the kernel's parameters are numbers."""
        [(_, source)] = self._sources([self._served(recipe)])
        return source

    def _resolved(self, recipe: Recipe, fold: Fold) -> Recipe | None:
        try:
            return resolved(recipe, self.distinct(fold), len(fold.train) if self.precomputed else self.n_features)
        except SVMError:
            return None

    # ---- kernel matrices
    def _served(self, recipe: Recipe) -> "_Served":
        small = self.n <= EXACT_ROWS
        dtype = np.dtype(np.float64 if small else recipe.solver.column_dtype)
        return _Served(recipe.served, dtype, recipe.cache_bytes)

    def _sources(self, wanted: "Sequence[_Served]") -> "Iterator[tuple[_Served, Source]]":
        """K of each, as many at a time as the budget holds: those share the products."""
        for alike in _on_equal_rows(wanted):
            if self.precomputed:
                K = np.asarray(self.rows)
                yield alike[0], ResidentGram(K, psd=self.n <= PSD_ROWS and is_psd(K))
                continue
            points = alike[0].kernel.prepare_gram(self.rows, alike[0].dtype)
            columns = [
                ComputedColumns(each.kernel, points, each.dtype, ExactKernel(each.kernel, self.rows, like=points))
                for each in alike
            ]
            budget = max(SMALL_BYTES, min(each.cache_bytes for each in alike))
            step = _at_a_time(points, self.n**2 * alike[0].dtype.itemsize, budget)
            for start in range(0, len(alike), max(1, step)):
                part = slice(start, start + max(1, step))
                yield from self._opened(alike[part], columns[part], budget, step > 0)

    def _opened(
        self, served: "list[_Served]", columns: list[ComputedColumns], budget: int, resident: bool
    ) -> "Iterator[tuple[_Served, Source]]":
        """K of each; none of them is held here once the next is asked for, whose memory it leaves."""
        self.tally.products += 1
        self.tally.kernels += len(columns)
        if not resident:
            yield served[0], cached(columns[0], budget)
            return
        outs = [empty((self.n, self.n), each.dtype) for each in columns]
        fill_grams([each.kernel for each in columns], columns[0].points, outs)
        while outs:
            yield served.pop(0), ResidentGram(outs.pop(0), columns.pop(0), as_served=True)

    # ---- chains
    def _train_on(
        self,
        source: Source,
        served: "_Served",
        members: Sequence[tuple[int, Recipe]],
        parts: Sequence[Part],
        found: list[Found | None],
    ) -> None:
        chains: dict[tuple[Fold, str, str], list[tuple[int, Recipe]]] = {}
        for index, recipe in members:
            chains.setdefault((parts[index].fold, recipe.task.name, recipe.scheme), []).append((index, recipe))
        for (fold, *_), chain in chains.items():
            chain.sort(key=lambda each: _rank(each[1]))
            for (index, _), result in zip(chain, self._chain(source, fold, [each[1] for each in chain]), strict=True):
                found[index] = result

    def _chain(self, source: Source, fold: Fold, recipes: Sequence[Recipe]) -> list[Found | None]:
        """Trainings on one fold along C, epsilon or nu, problem by problem."""
        works = [self._work(recipe, fold, source) for recipe in recipes]
        real = [work for work in works if work is not None]
        asked = self.merged.inverse[fold.ask]
        if real:
            told = [np.empty((len(asked), len(work.goals))) for work in real]
            _solve_chains(real, asked, told, self.keeps)
            for work, out in zip(real, told, strict=True):
                if work.pairs:
                    _add_outputs(work, asked, out)
            self.tally.chains += len(real[0].goals)
            self.tally.problems += sum(len(work.goals) for work in real)
        decisions = iter(told if real else [])
        return [None if work is None else _slim(work, fold, next(decisions), asked) for work in works]

    def _work(self, recipe: Recipe, fold: Fold, source: Source) -> Work | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # `Found.training` repeats them
                work = Work(recipe, self.distinct(fold), fold.classes, Control())
        except SVMError:
            return None
        work.take(source)
        return work


class _Served(NamedTuple):
    """What a K is of."""

    kernel: Kernel
    dtype: np.dtype
    cache_bytes: int


def _at_a_time(points: Points, n_bytes: int, budget: int) -> int:
    """How many K of `n_bytes` are made of one pass of products: as many as the budget holds, 0 if it holds none.

    A large one is made alone where products of bytes cost less than the fresh memory of a second one.
    """
    return min(1 if points.on_lattice and n_bytes >= LARGE else sys.maxsize, budget // max(1, n_bytes))


def _on_equal_rows(wanted: Sequence[_Served]) -> list[list[_Served]]:
    """Kernels of the inner product of one precision take the same rows; any other has its own way to prepare them."""
    found: dict[tuple[object, DTypeLike], list[_Served]] = {}
    for each in wanted:
        shares = isinstance(each.kernel, InnerProductKernel)
        found.setdefault((InnerProductKernel if shares else each, each.dtype), []).append(each)
    return list(found.values())


def _rank(recipe: Recipe) -> tuple[str, bytes, float]:
    """Order along a chain: by class weights, the task's numbers, then ascending C."""
    weight = b"" if recipe.class_weight is None else np.asarray(recipe.class_weight).tobytes()
    return repr(recipe.task), weight, recipe.C


def _solve_chains(works: Sequence[Work], asked: Floats, told: Sequence[Floats], keeps: bool) -> None:
    """All problems of the chain, several at once where they can share K without a lock."""
    every = range(len(works[0].goals))
    work = [functools.partial(_solve_chain, works, k, asked, told, keeps) for k in every]
    for _ in side_by_side(work, works[0].threads()):
        pass


def _solve_chain(works: Sequence[Work], k: int, asked: Floats, told: Sequence[Floats], keeps: bool) -> None:
    """Problem `k` of each training, from the solution of the one before; its decision values at `asked`."""
    source = works[0].source_of(k)
    for _ in answers(_Next(work, k, source, asked, out, keeps) for work, out in zip(works, told, strict=True)):
        pass


class _Next(Member[Solved]):
    """A problem of a chain: `source` serves its K, and its decision values at the rows `asked` go to `out`.

    Of a problem on a part of the rows only the bias is told: `_add_outputs` does the rest for all problems at once.
    """

    def __init__(self, work: Work, k: int, source: Source, asked: Floats, out: Floats, keeps: bool) -> None:
        super().__init__(work, k)
        self.source, self.asked, self.out, self.keeps = source, asked, out, keeps

    def program(self) -> SignedQP:
        return self.work.program(self.k, self.source)

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
        work.answers[k] = dataclasses.replace(answer, coef=NONE)
        return qp, solution


def _add_outputs(work: Work, asked: Floats, told: Floats) -> None:
    """Add to the biases of problems on parts of the rows what K says at the distinct rows `asked`."""
    source: Any = work.source
    scale = np.array([answer.scale for answer in work.answers])
    used = np.flatnonzero((work.coef != 0).any(axis=0))
    step = min(CHUNK, source.capacity)
    for start in range(0, len(used), step):
        idx = used[start : start + step]
        matrix, rows = source.lookup(idx)
        part = np.empty((len(idx), len(asked)), matrix.dtype)
        gather_square(matrix, rows, asked, part)
        told += part.T.astype(np.float64) @ (work.coef[:, idx] / scale[:, None]).T


def _slim(work: Work, fold: Fold, decisions: Floats, asked: Floats) -> Found:
    """What cannot be made again at once."""
    coef = sparse.csr_matrix(work.coef)
    solutions, answers = tuple(work.solutions), tuple(work.answers)
    return Found(work.recipe, fold, work.distinct, coef, solutions, answers, tuple(work.held_out), decisions, asked)
