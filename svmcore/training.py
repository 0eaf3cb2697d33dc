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

from svmcore._platt import fit_sigmoid, held_out_decisions
from svmcore._threads import n_threads, one_blas_thread
from svmcore.sources import CachedColumns, ComputedColumns, KernelColumns, ResidentGram
from svmcore.errors import InvalidProblem
from svmcore.gram import resident_gram
from svmcore.kernels import Precomputed
from svmcore.kernels.base import Kernel
from svmcore.losses import Hinge, Loss
from svmcore.model import Model
from svmcore.monitor import Monitor, Progress
from svmcore.multiclass import Target, targets
from svmcore.pair_grams import PairGrams
from svmcore.plan import Plan, choose_plan
from svmcore.points import Floats, Points, Rows
from svmcore.problem import Problem
from svmcore.rows import Merged, merge_rows
from svmcore.solution import Solution
from svmcore.solvers import SMO, Solver

__all__ = ["Control", "Recipe", "Training", "merge_precomputed", "train"]

EXACT_ROWS = 1024  # up to so many rows float64 columns cost nothing
THREADED_ROWS = 2048  # smaller problems spend their time in Python, where threads only wait for each other
DENSE_ENTRIES = 1 << 22  # and CSR rows are made dense up to so many entries
NOTHING = 1e-13  # a coefficient this far below the largest is what rounding left of 0


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
    seed
        Of the folds that a sigmoid is fitted on; None for no sigmoids.
    """

    kernel: Kernel
    C: float = 1.0
    loss: Loss = dataclasses.field(default_factory=Hinge)
    solver: Solver = dataclasses.field(default_factory=SMO)
    class_weight: Floats | None = None
    scheme: str = "ovo"
    cache_bytes: int = 200 << 20
    n_jobs: int | None = None
    seed: int | None = None


@dataclasses.dataclass
class Control:
    """Time limit over all problems (seconds), stop flag, `report(k, Progress)` and, at its end, `done(k, Solution)`."""

    time_limit: float | None = None
    stop: Callable[[], bool] | None = None
    report: Callable[[int, Progress], None] | None = None
    done: Callable[[int, Solution], None] | None = None
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
    vector
        (n_sv,) which support vector of `model` each of those rows is a copy of.
    sigmoids
        (k, 2) Platt's A and B of each problem; (0, 2) if none were asked for.
    plan
        How K was served.
    """

    model: Model
    targets: tuple[Target, ...]
    solutions: tuple[Solution, ...]
    support: Floats
    coef: Floats
    vector: Floats
    sigmoids: Floats
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


@one_blas_thread()
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
    distinct = _distinct_rows(recipe, X, np.asarray(codes), weights, grouped=recipe.scheme == "ovo")
    if len(np.unique(distinct.codes)) < len(classes):
        raise InvalidProblem(f"each of the {len(classes)} classes needs a row of positive weight")
    variance = _variance(recipe.kernel, distinct)
    if not np.isfinite(variance):
        raise InvalidProblem(
            "The dual coefficients or intercepts are not finite: scale the data, its variance overflows"
        )
    kernel = recipe.kernel.resolved(X.shape[1], variance)
    recipe = dataclasses.replace(recipe, kernel=kernel)
    goals = targets(distinct.codes, len(classes), recipe.scheme)
    work = _Work(recipe, distinct, goals, control, None if start is None else _merged_start(distinct, start))
    work.solve()
    return _training(work, X, classes)


def _distinct_rows(recipe: Recipe, X: Rows, codes: Floats, weights: Floats | None, grouped: bool) -> _Distinct:
    """Merge identical rows of positive weight; `grouped` puts each class together, so that a pair is two slices."""
    weights = np.ones(len(codes)) if weights is None else np.asarray(weights, dtype=np.float64)
    kept = np.flatnonzero(weights > 0)
    whole = len(kept) == len(codes)
    codes, weights = codes[kept], weights[kept]
    if len(np.unique(codes)) < 2:
        least = (
            "all samples with positive weights belong to the same class"
            if len(kept)
            else ("all samples have zero or negative weights")
        )
        raise InvalidProblem(f"Invalid input - {least}.")
    precomputed = isinstance(recipe.kernel, Precomputed)
    if not whole:
        X = X[np.ix_(kept, kept)] if precomputed else X[kept]
    merged = merge_precomputed(X, codes) if precomputed else merge_rows(X, codes)
    if grouped:
        merged = _reordered(merged, np.argsort(codes[merged.first], kind="stable"))
    rows = X[np.ix_(merged.first, merged.first)] if precomputed else X[merged.first]
    total = np.bincount(merged.inverse, weights=weights, minlength=len(merged.first))
    return _Distinct(kept, merged, weights, total, codes[merged.first], rows)


def _reordered(merged: Merged, order: Floats) -> Merged:
    """The distinct rows in another order (m,)."""
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return Merged(merged.first[order], merged.counts[order], position[merged.inverse])


def merge_precomputed(K: Floats, codes: Floats) -> Merged:
    """Merge identical rows of a precomputed K (n, n); their order depends on the values of K alone.

    Copies of a row are copies of a column too, so content is compared on the distinct rows and columns, and a row is
    ranked by the sum of the hashes of its entries, which no order of the columns changes.
    """
    merged = merge_rows(K, codes)
    if len(merged.first) < len(K) and not np.array_equal(K[:, merged.first][:, merged.inverse], K):
        return Merged(np.arange(len(K)), np.ones(len(K), dtype=np.int64), np.arange(len(K)))
    rank = np.lexsort((codes[merged.first], _unordered_hash(K[np.ix_(merged.first, merged.first)])))
    return _reordered(merged, rank)


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
    n_entries = float(weight.sum()) * X.shape[1]
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
        small = len(distinct.total) <= EXACT_ROWS
        self.dtype = np.dtype(np.float64 if small else recipe.solver.column_dtype)
        cost = np.ones(distinct.codes.max() + 1) if recipe.class_weight is None else np.asarray(recipe.class_weight)
        self.cost = recipe.C * cost  # (n_classes,) C of a row of weight one
        self.C = self.cost[distinct.codes] * distinct.total
        self.coef = np.zeros((len(goals), len(distinct.total)))
        self.solutions: list[Solution] = [None] * len(goals)  # type: ignore[list-item]
        self.sigmoids = np.zeros((len(goals), 2))
        self.edges = np.searchsorted(distinct.codes, np.arange(len(cost) + 1)).tolist()  # of the classes, if grouped
        self.plan, self.source = self._open()

    def bounds(self, copies: Floats) -> Floats:
        """C_i of the original rows at the places `copies` among those kept."""
        inverse, weights = self.distinct.merged.inverse, self.distinct.weights
        return self.cost[self.distinct.codes[inverse[copies]]] * weights[copies]

    def _open(self) -> tuple[Plan, KernelColumns | PairGrams]:
        kernel, rows = self.recipe.kernel, self.distinct.rows
        if isinstance(kernel, Precomputed):
            return "resident", ResidentGram(np.asarray(rows, dtype=self.dtype))
        if len(self.C) <= EXACT_ROWS and hasattr(rows, "toarray") and rows.shape[0] * rows.shape[1] <= DENSE_ENTRIES:
            rows = rows.toarray()  # faster at this size, and dense and CSR rows give the same bits
        points = Points.for_gram(rows, self.dtype)
        plan = self._plan(len(points), len(self.goals))
        if self.pairs:
            return plan, PairGrams(kernel, points, self.dtype, self.recipe.cache_bytes, self.control.stops)
        if plan == "resident":
            gram = resident_gram(kernel, points, self.dtype, self.control.stops)
            if gram is not None:
                return plan, gram
        return "columns", self._cached(points)

    def _plan(self, n: int, n_problems: int) -> Plan:
        return choose_plan(n, self.distinct.rows.shape[1], self.dtype, self.recipe.cache_bytes, n_problems)

    def _cached(self, points: Points) -> CachedColumns:
        return CachedColumns(ComputedColumns(self.recipe.kernel, points, self.dtype), self.recipe.cache_bytes)

    def solve(self) -> None:
        """Solve all problems; several at once where they can share K without a lock."""
        jobs = min(self.recipe.n_jobs or n_threads(), len(self.goals))
        sizes = [int(np.count_nonzero(goal.y)) for goal in self.goals]
        rows = np.mean(sizes)
        if isinstance(self.source, PairGrams):
            jobs = min(jobs, self.source.at_once(max(sizes)))
        if jobs > 1 and rows >= THREADED_ROWS and self.plan == "resident":
            with ThreadPoolExecutor(jobs, thread_name_prefix="svmcore-problem") as pool:
                list(pool.map(self._solve_one, range(len(self.goals))))
            return
        for k in range(len(self.goals)):
            self._solve_one(k)

    def _solve_one(self, k: int) -> None:
        y = self.goals[k].y
        rows = np.flatnonzero(y)
        problem = Problem(self._columns(k, rows), y[rows], self.C[rows], self.recipe.loss, psd=self.recipe.kernel.psd)
        alpha = None if self.start is None else self.start[k, rows] * y[rows]
        monitor = self.control.monitor(k)
        self.solutions[k] = self.recipe.solver.solve(problem, alpha, monitor)
        alpha = self.solutions[k].alpha
        self.coef[k, rows] = np.where(alpha > NOTHING * alpha.max(initial=0.0), alpha * problem.y, 0.0)
        if self.control.done is not None:
            self.control.done(k, self.solutions[k])
        if self.recipe.seed is not None:
            self.sigmoids[k] = self._sigmoid(k, problem, rows)

    def _sigmoid(self, k: int, problem: Problem, rows: Floats) -> tuple[float, float]:
        """Platt's A and B from five folds over the original rows of the problem."""
        place = np.full(len(self.C), -1)
        place[rows] = np.arange(len(rows))
        inverse = place[self.distinct.merged.inverse]
        members = inverse >= 0
        inverse, weights = inverse[members], self.distinct.weights[members]
        rng = np.random.default_rng([self.recipe.seed or 0, k])
        decision = held_out_decisions(problem, inverse, weights, self.recipe.solver, rng)
        return fit_sigmoid(decision, problem.y[inverse] > 0)

    def _columns(self, k: int, rows: Floats) -> KernelColumns:
        """K of the rows of problem `k`; those of a pair of classes are two slices."""
        if self.pairs and isinstance(self.source, ResidentGram):
            return self.source.take(rows)
        if not isinstance(self.source, PairGrams):
            return self.source
        if "resident" in (self.plan, self._plan(len(rows), 1)):
            goal, edges = self.goals[k], self.edges
            i, j = (slice(edges[code], edges[code + 1]) for code in (goal.negative, goal.positive))
            gram = self.source.pair(i, j)
            if gram is not None:
                return gram
        return self._cached(self.source.points.take(rows))


def _training(work: _Work, X: Rows, classes: Floats) -> Training:
    """Keep the support vectors, and give every copy of a row its share."""
    distinct, recipe, coef = work.distinct, work.recipe, work.coef
    used = np.flatnonzero((coef != 0).any(axis=0))
    representative = distinct.kept[distinct.merged.first[used]]
    if isinstance(recipe.kernel, Precomputed):
        vectors = Precomputed.units(representative, X.shape[1])
    else:
        vectors = distinct.rows[used]
    bias = np.array([solution.bias for solution in work.solutions])
    model = Model(recipe.kernel, vectors, coef[:, used], bias, np.asarray(classes), recipe.scheme)
    place = np.full(len(distinct.total), -1)
    place[used] = np.arange(len(used))
    copies = np.flatnonzero(place[distinct.merged.inverse] >= 0)
    of = distinct.merged.inverse[copies]
    share = distinct.weights[copies] / distinct.total[of]
    split = np.where(np.abs(coef[:, of]) == work.C[of], np.sign(coef[:, of]) * work.bounds(copies), coef[:, of] * share)
    return Training(
        model=model,
        targets=tuple(work.goals),
        solutions=tuple(work.solutions),
        support=distinct.kept[copies],
        coef=split,  # a variable at its bound is copies at theirs, to the last bit
        vector=place[of],
        sigmoids=work.sigmoids if recipe.seed is not None else np.empty((0, 2)),
        plan=work.plan,
    )
