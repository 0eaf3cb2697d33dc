r"""All binary problems of one training set, in memory: merge identical rows, choose a plan, solve, split beta back.

With sample weights s_i and class weights c_k the program has C_i = C c_{k(i)} s_i. Rows with s_i <= 0 are left out, as
LIBSVM does. Identical (x, label) rows are one variable whose weight is the sum of theirs; they come in an order that
depends on content alone, so a weight of two gives the same bits as the row twice, in any order of the rows.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from svmcore._platt import fit_sigmoid, held_out_decisions
from svmcore._threads import n_threads, one_blas_thread
from svmcore.distinct import Distinct, distinct_rows, shared
from svmcore.errors import InvalidProblem
from svmcore.kernels import Precomputed
from svmcore.kernels.base import Kernel
from svmcore.kernels.exact import ExactKernel
from svmcore.kernels.precomputed import is_psd
from svmcore.losses import Hinge, Loss
from svmcore.model import Model
from svmcore.monitor import Monitor, Progress
from svmcore.multiclass import Target, targets
from svmcore.plan import Plan, choose_plan
from svmcore.points import Floats, Rows
from svmcore.qp import Bias, SignedQP
from svmcore.solution import Solution, Status
from svmcore.solvers import SMO, Solver
from svmcore.sources import CachedColumns, ComputedColumns, PairGrams, ResidentGram, Source, resident_gram
from svmcore.squares import give_back
from svmcore.tasks import SVC

__all__ = ["Control", "Recipe", "Training", "train"]

EXACT_ROWS = 1024  # up to so many rows float64 columns cost nothing
THREADED_ROWS = 2048  # smaller problems spend their time in Python, where threads only wait for each other
PSD_ROWS = 1024  # of a precomputed K that is looked at whether it is positive semi-definite, a cubic work
DENSE_ENTRIES = 1 << 22  # and CSR rows are made dense up to so many entries


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What to solve and with what, apart from the data.

    Parameters
    ----------
    kernel, C, loss, solver
        As in `svmcore.tasks.SVC` and `Solver`; `kernel` may still hold `gamma: scale`.
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
        (k, n_sv) beta of those rows, split over identical ones in proportion to their weights.
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
    distinct = distinct_rows(recipe.kernel, X, np.asarray(codes), weights, grouped=recipe.scheme == "ovo")
    if len(np.unique(distinct.codes)) < len(classes):
        raise InvalidProblem(f"each of the {len(classes)} classes needs a row of positive weight")
    variance = distinct.variance(recipe.kernel)
    if not np.isfinite(variance):
        raise InvalidProblem(
            "The dual coefficients or intercepts are not finite: scale the data, its variance overflows"
        )
    kernel = recipe.kernel.resolved(X.shape[1], variance)
    recipe = dataclasses.replace(recipe, kernel=kernel)
    named = None if isinstance(kernel, Precomputed) else kernel  # of a given K the source tells
    recipe.solver.admits(recipe.loss, Bias.FREE, named, np.isinf(recipe.C))
    goals = targets(distinct.codes, len(classes), recipe.scheme)
    work = _Work(recipe, distinct, goals, control, None if start is None else distinct.at_distinct(start))
    try:
        work.solve()
    finally:
        give_back()
    return _training(work, X, classes)


class _Work:
    """The problems of one training set and the source of K they share."""

    def __init__(
        self, recipe: Recipe, distinct: Distinct, goals: list[Target], control: Control, start: Floats | None
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

    def _open(self) -> tuple[Plan, Source | PairGrams]:
        rows = self.distinct.rows
        if isinstance(self.recipe.kernel, Precomputed):  # in the precision that it came in: that is what is meant
            return "resident", ResidentGram(np.asarray(rows), psd=len(rows) <= PSD_ROWS and is_psd(rows))
        if len(self.C) <= EXACT_ROWS and hasattr(rows, "toarray") and rows.shape[0] * rows.shape[1] <= DENSE_ENTRIES:
            rows = rows.toarray()  # faster at this size, and dense and CSR rows give the same bits
        computed = self._computed(rows)
        plan = self._plan(computed.n, len(self.goals))
        if self.pairs:
            return plan, PairGrams(computed, self.recipe.cache_bytes, self.control.stops)
        if plan == "resident":
            gram = resident_gram(computed, self.control.stops)
            if gram is not None:
                return plan, gram
        return "columns", self._cached(computed)

    def _cached(self, computed: ComputedColumns) -> CachedColumns:
        """Columns in the budget, a quarter of which at most is for the square of a working set."""
        limit = self.recipe.cache_bytes
        scratch = min(limit // 4, SMO.square_bytes(computed.n, self.dtype))
        return CachedColumns(computed, limit, None, scratch)

    def _computed(self, rows: Rows) -> ComputedColumns:
        """K of the rows, centred: the programs here have all sums 0, so that it is the same program."""
        kernel = self.recipe.kernel.centred()
        points = kernel.prepare_gram(rows, self.dtype)
        return ComputedColumns(kernel, points, self.dtype, ExactKernel(kernel, rows, like=points))

    def _plan(self, n: int, n_problems: int) -> Plan:
        return choose_plan(n, self.distinct.rows.shape[1], self.dtype, self.recipe.cache_bytes, n_problems)

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
        qp = SVC(self.recipe.loss).program(self._source(k, rows), y[rows], self.C[rows])
        start = None if self.start is None else self.start[k, rows]
        solution = self.recipe.solver.solve(qp, start, self.control.monitor(k))
        self.solutions[k] = self._as_copies(qp, rows, solution)
        self.coef[k, rows] = solution.beta
        if self.control.done is not None:
            self.control.done(k, self.solutions[k])
        if self.recipe.seed is not None:
            self.sigmoids[k] = self._sigmoid(k, qp, rows)

    @functools.cached_property
    def _lost(self) -> Floats:
        """By how much the bounds of its copies miss that of each distinct row (m,), summed in more digits."""
        inverse = self.distinct.merged.inverse
        order = np.argsort(inverse, kind="stable")
        if len(order) == len(self.C):
            return np.zeros(len(self.C))
        bounds = self.bounds(order).astype(np.longdouble)
        firsts = np.flatnonzero(np.append(True, np.diff(inverse[order]) > 0))
        with np.errstate(invalid="ignore"):  # of infinite bounds
            lost = np.abs(np.add.reduceat(bounds, firsts) - self.C).astype(np.float64)
        return np.nan_to_num(lost, nan=0.0)

    def _as_copies(self, qp: SignedQP, rows: Floats, solution: Solution) -> Solution:
        """The solution with what its certificate does not know: copies at their bounds add up to a rounded bound."""
        bounded = (solution.beta != 0) & ((solution.beta == qp.lo) | (solution.beta == qp.hi))
        lost = float(self._lost[rows][bounded].sum())
        found, tol = solution.certificate, self.recipe.solver.tol
        if lost == 0.0:
            return solution
        doubt = lost * float(np.abs(qp.diagonal).max())  # of an output
        steepest = float(self.C[rows][np.isfinite(self.C[rows])].sum()) + 0.5 * float(np.abs(solution.beta).sum())
        found = dataclasses.replace(
            found,
            uncertainty=found.uncertainty + 2.0 * doubt,
            bar=found.bar + doubt * steepest,
            infeasibility=found.infeasibility + lost,
        )
        doubtful = solution.status is Status.CONVERGED and not found.proves(tol)
        return dataclasses.replace(solution, certificate=found, status=Status.STALLED if doubtful else solution.status)

    def _sigmoid(self, k: int, qp: SignedQP, rows: Floats) -> tuple[float, float]:
        """Platt's A and B from five folds over the original rows of the problem."""
        place = np.full(len(self.C), -1)
        place[rows] = np.arange(len(rows))
        inverse = place[self.distinct.merged.inverse]
        members = inverse >= 0
        inverse, weights = inverse[members], self.distinct.weights[members]
        rng = np.random.default_rng([self.recipe.seed or 0, k])
        decision = held_out_decisions(qp, inverse, weights, self.recipe.solver, rng)
        return fit_sigmoid(decision, qp.p[inverse] > 0)

    def _source(self, k: int, rows: Floats) -> Source:
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
        return self._cached(self.source.source.take(rows))


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
    split = coef[:, of]
    if len(copies) > len(used):
        parts = np.array([shared(row, of, distinct.weights[copies]) for row in coef])
        split = np.where(np.abs(split) == work.C[of], np.sign(split) * work.bounds(copies), parts)
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
