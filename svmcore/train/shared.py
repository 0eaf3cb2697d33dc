"""Many trainings on parts of one table: they share its kernel matrices, and each starts where the one before ended.

A part leaves rows out by C_i = 0, so folds are boxes on one K of all rows, and the solver's outputs at the rows that
were left out are their decision values: nothing is computed for them. Kernels of the inner product share the products.
Proofs are of the values of K that were served.
"""

import dataclasses
import itertools
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
from svmcore.passes.matrix.columns import add_columns
from svmcore.passes.matrix.gather import gather_square, part_of
from svmcore.points import Floats, Merged, Points, Rows, merge_rows
from svmcore.runtime.memory import empty
from svmcore.runtime.threads import one_blas_thread
from svmcore.solution import Solution
from svmcore.sources import ComputedColumns, ResidentGram, Source
from svmcore.sources.base import CHUNK, lookups
from svmcore.sources.resident import fill_grams
from svmcore.squares import give_back
from svmcore.tasks import Answer
from svmcore.train.at_once import are_small, most_variables, takes
from svmcore.train.control import Control
from svmcore.train.folds import Chain, Fold, solve
from svmcore.train.opening import PSD_ROWS
from svmcore.train.posing.distinct import Distinct, by_code, merge_precomputed
from svmcore.train.posing.plan import EXACT_ROWS, SMALL_BYTES, cached
from svmcore.train.posing.posed import resolved
from svmcore.train.posing.recipe import Recipe
from svmcore.train.trained import Training
from svmcore.train.training import Work

__all__ = ["Fold", "Found", "Part", "Table", "Tally"]

AT_ONCE = 8  # folds whose trainings are in memory as they are solved
ENTRIES = 1 << 20  # of K that are gathered at a time
LARGE = 1 << 26  # bytes of a K from which its memory costs more than its products, where these are of bytes


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
        self.rows = part_of(X, first, first) if precomputed else X[first]
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
        exact = self.n <= EXACT_ROWS or self._are_small(recipe)
        dtype = np.dtype(np.float64 if exact else recipe.solver.column_dtype)
        return _Served(recipe.served, dtype, recipe.cache_bytes)

    def _are_small(self, recipe: Recipe) -> bool:
        """Whether its programs are solved at once on a float64 K of all rows."""
        fits = 8 * self.n**2 <= max(SMALL_BYTES, recipe.cache_bytes)
        known = fits and not self.precomputed and takes(recipe, np.array([recipe.C]))
        return known and are_small(most_variables(recipe, self.codes[self.codes >= 0]), self.n, self.n_features)

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
        trainings: Sequence[tuple[int, Recipe]],
        parts: Sequence[Part],
        found: list[Found | None],
    ) -> None:
        members: dict[tuple[Fold, str, str], list[tuple[int, Recipe]]] = {}
        for index, recipe in trainings:
            members.setdefault((parts[index].fold, recipe.task.name, recipe.scheme), []).append((index, recipe))
        chains = (self._chain(source, fold, some) for (fold, *_), some in members.items())
        while lot := list(itertools.islice(chains, AT_ONCE)):
            solve([chain for chain in lot if chain.works])
            for chain in lot:
                self._keep(chain, found)

    def _chain(self, source: Source, fold: Fold, members: list[tuple[int, Recipe]]) -> Chain:
        """Trainings on one fold along C, epsilon or nu."""
        posed = [(index, self._work(recipe, fold, source)) for index, recipe in sorted(members, key=_rank)]
        works = {index: work for index, work in posed if work is not None}
        return Chain(works, fold, self.merged.inverse[fold.ask], self.keeps)

    def _keep(self, chain: Chain, found: list[Found | None]) -> None:
        """What was found of each training."""
        for (index, work), told in zip(chain.works.items(), chain.told, strict=True):
            if work.pairs:
                _add_outputs(work, chain.asked, told)
            found[index] = _slim(work, chain.fold, told, chain.asked)
            self.tally.problems += len(work.goals)
        self.tally.chains += chain.n_problems

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


def _rank(member: tuple[int, Recipe]) -> tuple[str, bytes, float]:
    """Order along a chain: by class weights, the task's numbers, then ascending C."""
    recipe = member[1]
    weight = b"" if recipe.class_weight is None else np.asarray(recipe.class_weight).tobytes()
    return repr(recipe.task), weight, recipe.C


def _add_outputs(work: Work, asked: Floats, told: Floats) -> None:
    """Add to the biases of problems on parts of the rows what K says at the distinct rows `asked`."""
    source: Any = work.source
    used, out = np.flatnonzero((work.coef != 0).any(axis=0)), np.zeros((len(work.coef), len(asked)))
    for part, matrix, rows in lookups(source, used, max(CHUNK, ENTRIES // max(1, len(asked)))):
        K = np.empty((len(rows), len(asked)), matrix.dtype)
        gather_square(matrix, rows, asked, K)
        for coef, values in zip(work.coef[:, used[part]], out, strict=True):  # each has few of the rows that any has
            own = np.flatnonzero(coef)
            add_columns(K, own, coef[own], values)
    told += (out / np.array([answer.scale for answer in work.answers])[:, None]).T


def _as_csr(coef: Floats) -> Rows:
    """Coefficients (k, m) of which few are not 0."""
    k, m = coef.shape
    places = np.flatnonzero(coef)
    starts = np.searchsorted(places, np.arange(k + 1) * m)
    return sparse.csr_matrix((coef.ravel()[places], places % m, starts), shape=coef.shape)


def _slim(work: Work, fold: Fold, decisions: Floats, asked: Floats) -> Found:
    """What cannot be made again at once."""
    coef = _as_csr(work.coef)
    solutions, answers = tuple(work.solutions), tuple(work.answers)
    return Found(work.recipe, fold, work.distinct, coef, solutions, answers, tuple(work.held_out), decisions, asked)
