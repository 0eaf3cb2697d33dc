r"""All binary problems of one training set, in memory: merge identical rows, choose a plan, solve, split alpha back.

With sample weights s_i and class weights c_k the program has C_i = C c_{k(i)} s_i. Rows with s_i <= 0 are left out, as
LIBSVM does. Identical (x, label) rows are one variable whose weight is the sum of theirs; they come in an order that
depends on content alone, so a weight of two gives the same bits as the row twice, in any order of the rows.
"""

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from svmcore._threads import n_threads
from svmcore.columns import CachedColumns, ComputedColumns, KernelColumns, ResidentGram
from svmcore.errors import InvalidProblem
from svmcore.gram import resident_gram
from svmcore.kernels import Precomputed
from svmcore.kernels.base import Kernel
from svmcore.losses import Hinge, Loss
from svmcore.model import Model
from svmcore.monitor import Monitor, Progress
from svmcore.multiclass import Target, targets
from svmcore.plan import Plan, choose_plan
from svmcore.points import Floats, Points, Rows
from svmcore.problem import Problem
from svmcore.rows import Merged, merge_rows
from svmcore.solution import Solution
from svmcore.solvers import SMO, Solver

__all__ = ["Control", "Recipe", "Training", "train"]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What to solve and with what, apart from the data.

    Parameters
    ----------
    kernel, C, loss, solver
        As in `Problem` and `Solver`; `kernel` may still hold `gamma: scale`.
    class_weight
        (n_classes,) factors of C; None for ones.
    scheme
        "ovo" or "ovr".
    cache_bytes
        Budget of K, or of its columns.
    n_jobs
        Problems solved at once, on threads; None for all cores.
    """

    kernel: Kernel
    C: float = 1.0
    loss: Loss = dataclasses.field(default_factory=Hinge)
    solver: Solver = dataclasses.field(default_factory=SMO)
    class_weight: Floats | None = None
    scheme: str = "ovo"
    cache_bytes: int = 200 << 20
    n_jobs: int | None = None


@dataclasses.dataclass
class Control:
    """Time limit over all problems (seconds), stop flag, and progress of problem k as `report(k, Progress)`."""

    time_limit: float | None = None
    stop: Callable[[], bool] | None = None
    report: Callable[[int, Progress], None] | None = None
    _started: float = dataclasses.field(default_factory=time.perf_counter)

    def monitor(self, k: int) -> Monitor:
        """Monitor of problem `k`, with what is left of the time; it leaves warnings to whoever trains all problems."""
        left = None if self.time_limit is None else self.time_limit - (time.perf_counter() - self._started)
        report = None if self.report is None else lambda progress: self.report(k, progress)  # type: ignore[misc]
        return Monitor(time_limit=left, stop=self.stop, report=report, warn=False)

    def stops(self) -> bool:
        """Whether work that precedes the solver should end."""
        late = self.time_limit is not None and time.perf_counter() - self._started > self.time_limit
        return late or (self.stop is not None and self.stop())


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """Solutions of all problems of a training set, in terms of its original rows.

    Attributes
    ----------
    model
        Over the distinct support vectors, kernel parameters numeric.
    targets, solutions
        One per binary problem; their vectors speak of the distinct rows.
    support
        (n_sv,) original rows with a non-zero coefficient, ascending.
    coef
        (k, n_sv) alpha * y of those rows, split over identical ones in proportion to their weights.
    representative
        (m,) for each support vector of `model`, an original row that it stands for.
    plan
        How K was served.
    """

    model: Model
    targets: tuple[Target, ...]
    solutions: tuple[Solution, ...]
    support: Floats
    coef: Floats
    representative: Floats
    plan: Plan


@dataclasses.dataclass(frozen=True, eq=False)
class _Distinct:
    """The distinct rows of positive weight, in canonical order."""

    kept: Floats  # (n_kept,) original rows of positive weight
    merged: Merged  # of the kept rows
    weights: Floats  # (n_kept,)
    total: Floats  # (m,) weight of each distinct row
    codes: Floats  # (m,)
    rows: Rows  # (m, p), or the (m, m) part of a precomputed K


def train(
    recipe: Recipe,
    X: Rows,
    codes: Floats,
    classes: Floats,
    weights: Floats | None = None,
    control: Control | None = None,
    start: Floats | None = None,
) -> Training:
    """Train on rows `X` (n, p) with class codes (n,), sample weights (n,) and, to start from, coefficients (k, n).

    Raises
    ------
    InvalidProblem
        If fewer than two classes have a row of positive weight.
    """
    control = control or Control()
    distinct = _distinct_rows(recipe.kernel, X, np.asarray(codes), weights)
    if len(np.unique(distinct.codes)) < 2:
        raise InvalidProblem("training needs rows of at least 2 classes with a positive weight")
    kernel = recipe.kernel.resolved(X.shape[1], _variance(recipe.kernel, distinct))
    recipe = dataclasses.replace(recipe, kernel=kernel)
    goals = targets(distinct.codes, len(classes), recipe.scheme)
    work = _Work(recipe, distinct, goals, control, None if start is None else _merged_start(distinct, start))
    coef, solutions = work.solve()
    return _training(work, coef, solutions, X, classes)


def _distinct_rows(kernel: Kernel, X: Rows, codes: Floats, weights: Floats | None) -> _Distinct:
    weights = np.ones(len(codes)) if weights is None else np.asarray(weights, dtype=np.float64)
    kept = np.flatnonzero(weights > 0)
    whole = len(kept) == len(codes)
    codes, weights = codes[kept], weights[kept]
    if isinstance(kernel, Precomputed):
        X = X if whole else X[np.ix_(kept, kept)]
        merged = merge_precomputed(X, codes)
        rows = X[np.ix_(merged.first, merged.first)]
    else:
        X = X if whole else X[kept]
        merged = merge_rows(X, codes)
        rows = X[merged.first]
    total = np.bincount(merged.inverse, weights=weights, minlength=len(merged.first))
    return _Distinct(kept, merged, weights, total, codes[merged.first], rows)


def merge_precomputed(K: Floats, codes: Floats) -> Merged:
    """Merge identical rows of a precomputed K (n, n); their order depends on the values of K alone.

    Copies of a row are copies of a column too, so content is compared on the distinct rows and columns, and a row is
    ranked by the sum of the hashes of its entries, which no order of the columns changes.
    """
    merged = merge_rows(K, codes)
    if len(merged.first) < len(K) and not np.array_equal(K[:, merged.first][:, merged.inverse], K):
        return Merged(np.arange(len(K)), np.ones(len(K), dtype=np.int64), np.arange(len(K)))
    rank = np.lexsort((codes[merged.first], _unordered_hash(K[np.ix_(merged.first, merged.first)])))
    position = np.empty_like(rank)
    position[rank] = np.arange(len(rank))
    return Merged(merged.first[rank], merged.counts[rank], position[merged.inverse])


def _unordered_hash(K: Floats) -> Floats:
    """Hash (n,) of the multiset of entries in each row."""
    bits = np.ascontiguousarray(K, dtype=np.float64).view(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (bits ^ (bits >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray((mixed ^ (mixed >> np.uint64(32))).sum(axis=1, dtype=np.uint64))


def _variance(kernel: Kernel, distinct: _Distinct) -> float:
    """Variance of all entries of the rows, each row counted with its weight: what `gamma: scale` divides by."""
    if isinstance(kernel, Precomputed) or "scale" not in repr(kernel):
        return 1.0
    X, weight = distinct.rows, distinct.total
    n_entries = weight.sum() * X.shape[1]
    if not hasattr(X, "tocsr"):
        mean = float(weight @ X.sum(axis=1, dtype=np.float64)) / n_entries
        step = max(1, (1 << 19) // max(1, X.shape[1]))
        squares = np.empty(len(X))
        for i in range(0, len(X), step):
            centred = X[i : i + step] - np.float64(mean)
            np.einsum("ij,ij->i", centred, centred, out=squares[i : i + step])
        return float(weight @ squares) / n_entries
    values = X.astype(np.float64)
    mean = float(weight @ np.asarray(values.sum(axis=1)).ravel()) / n_entries
    return float(weight @ np.asarray(values.multiply(values).sum(axis=1)).ravel()) / n_entries - mean**2


def _merged_start(distinct: _Distinct, start: Floats) -> Floats:
    """Coefficients (k, m) of the distinct rows from those of all rows, (k, n)."""
    m = len(distinct.total)
    return np.array([np.bincount(distinct.merged.inverse, weights=row[distinct.kept], minlength=m) for row in start])


class _Work:
    """The problems of one training set and the source of K they share."""

    def __init__(
        self, recipe: Recipe, distinct: _Distinct, goals: list[Target], control: Control, start: Floats | None
    ) -> None:
        self.recipe, self.distinct, self.goals = recipe, distinct, goals
        self.control, self.start = control, start
        self.pairs = recipe.scheme == "ovo" and len(goals) > 1
        self.dtype = np.dtype(recipe.solver.column_dtype)
        self.C = recipe.C * distinct.total
        if recipe.class_weight is not None:
            self.C *= np.asarray(recipe.class_weight)[distinct.codes]
        self.plan, self.source = self._open()

    def _open(self) -> tuple[Plan, KernelColumns]:
        kernel, rows = self.recipe.kernel, self.distinct.rows
        if isinstance(kernel, Precomputed):
            return "resident", ResidentGram(np.asarray(rows, dtype=self.dtype))
        points = kernel.prepare(rows, None, self.dtype)
        plan = self._plan(len(points), rows.shape[1], len(self.goals))
        return plan, self._columns(plan, points, kept=not self.pairs)

    def _plan(self, n: int, p: int, n_problems: int) -> Plan:
        return choose_plan(n, p, self.dtype, self.recipe.cache_bytes, n_problems)

    def _columns(self, plan: Plan, points: Points, kept: bool = True) -> KernelColumns:
        """Source of K for `points`; on demand and not `kept`, nothing is remembered."""
        if plan == "resident":
            gram = resident_gram(self.recipe.kernel, points, self.dtype, self.control.stops)
            if gram is not None:
                return gram
        computed = ComputedColumns(self.recipe.kernel, points, self.dtype)
        return CachedColumns(computed, self.recipe.cache_bytes) if kept else computed

    def solve(self) -> tuple[Floats, list[Solution]]:
        """Coefficients (k, m) and the solutions; several at once where they can share K without a lock."""
        coef = np.zeros((len(self.goals), len(self.distinct.total)))
        solutions: list[Solution] = [None] * len(self.goals)  # type: ignore[list-item]

        def one(k: int) -> None:
            rows, solutions[k] = self._solve_one(k)
            coef[k, rows] = solutions[k].alpha * self.goals[k].y[rows]

        jobs = min(self.recipe.n_jobs or n_threads(), len(self.goals))
        if jobs > 1 and isinstance(self.source, ResidentGram):
            with ThreadPoolExecutor(jobs, thread_name_prefix="svmcore-problem") as pool:
                list(pool.map(one, range(len(self.goals))))
        else:
            for k in range(len(self.goals)):
                one(k)
        return coef, solutions

    def _solve_one(self, k: int) -> tuple[Floats, Solution]:
        """Rows of problem `k` and its solution on them."""
        y = self.goals[k].y
        rows = np.flatnonzero(y) if self.pairs else np.arange(len(y))
        problem = Problem(
            self._part(rows) if self.pairs else self.source,
            y[rows],
            self.C[rows],
            self.recipe.loss,
            psd=self.recipe.kernel.psd,
        )
        alpha = None if self.start is None else self.start[k, rows] * y[rows]
        return rows, self.recipe.solver.solve(problem, alpha, self.control.monitor(k))

    def _part(self, rows: Floats) -> KernelColumns:
        """K of the rows of one pair of classes."""
        if not isinstance(self.source, ComputedColumns):
            return self.source.take(rows)  # type: ignore[attr-defined]
        points = self.source.points.take(rows)
        return self._columns(self._plan(len(rows), points.n_features, 1), points)


def _training(work: _Work, coef: Floats, solutions: list[Solution], X: Rows, classes: Floats) -> Training:
    """Keep the support vectors, and give every copy of a row its share."""
    distinct, recipe = work.distinct, work.recipe
    used = np.flatnonzero((coef != 0).any(axis=0))
    representative = distinct.kept[distinct.merged.first[used]]
    if isinstance(recipe.kernel, Precomputed):
        vectors = Precomputed.units(representative, X.shape[1])
    else:
        vectors = distinct.rows[used]
    bias = np.array([solution.bias for solution in solutions])
    model = Model(recipe.kernel, vectors, coef[:, used], bias, np.asarray(classes), recipe.scheme)
    copies = np.flatnonzero(np.isin(distinct.merged.inverse, used))
    of = distinct.merged.inverse[copies]
    share = distinct.weights[copies] / distinct.total[of]
    return Training(
        model=model,
        targets=tuple(work.goals),
        solutions=tuple(solutions),
        support=distinct.kept[copies],
        coef=coef[:, of] * share,
        representative=representative,
        plan=work.plan,
    )
