"""All programs of one training set, in memory: open K, solve, split beta back over the rows as they came.

Identical (x, label or targets) rows share their variables, whose weight is the sum of theirs; they come in an order
that depends on content alone, so a weight of two gives the same bits as the row twice, in any order of rows.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np

from svmcore.kernels import Precomputed
from svmcore.model import model_of_rows
from svmcore.model.left_out import Told, told_without
from svmcore.model.probability import fit_sigmoid
from svmcore.monitor import Monitor
from svmcore.points import Floats, Rows
from svmcore.qp import SignedQP
from svmcore.runtime.threads import n_threads, side_by_side
from svmcore.solution import Solution, Status
from svmcore.sources import CachedColumns, PairGrams, ResidentGram, Source
from svmcore.sources.together import solved_together
from svmcore.tasks import SVC, Answer
from svmcore.train.at_once import Boxes, Programs, are_small, knows, most_seconds, most_variables, takes
from svmcore.train.chains import NOWHERE, Kept, Problem, Start, held_out_decisions
from svmcore.train.control import Control
from svmcore.train.doubt import Doubts, doubt
from svmcore.train.opening import opened, plan_of
from svmcore.train.posing.distinct import Distinct
from svmcore.train.posing.plan import EXACT_ROWS, Plan, cached
from svmcore.train.posing.posed import Posed
from svmcore.train.posing.recipe import Recipe
from svmcore.train.trained import Training

__all__ = ["Fitted", "Member", "Work"]

THREADED_ROWS = 768  # smaller problems spend their time in Python, where threads only wait for each other
PAIR_ROWS = 128  # of small pairs, of which Python has less to do


class Work(Posed):
    """The programs of one training set and the source of K they share: `open` makes one, or one is given.

    A source may serve more rows than are trained on.
    """

    source: Source | PairGrams
    plan: Plan

    def __init__(self, recipe: Recipe, distinct: Distinct, classes: Floats, control: Control) -> None:
        super().__init__(recipe, distinct, classes)
        self.control, few = control, len(distinct.total) <= EXACT_ROWS
        self.start: Floats | None = None  # (k, m)
        self.dtype = np.dtype(np.float64 if few else recipe.solver.column_dtype)
        self.coef = np.zeros((len(self.goals), len(distinct.total)))
        self.solutions: list[Solution] = [None] * len(self.goals)  # type: ignore[list-item]
        self.answers: list[Answer] = [None] * len(self.goals)  # type: ignore[list-item]
        self.held_out: list[tuple[Floats, Floats]] = [(np.empty(0), np.empty(0))] * len(self.goals)
        self.doubts = np.full((len(self.goals), 3), np.inf)
        self.centre: Floats | None = np.empty(0)
        self.begun: dict[int, Floats] = {}  # variables of problems that were tried in vain
        self.ended: Floats | None = None  # variables of all problems that were solved at once

    def open(self) -> None:
        """Choose how K is served, and begin."""
        self.dtype = np.dtype(np.float64) if self.small else self.dtype
        self.plan, self.source, self.centre = opened(self, self.dtype, self.small, self.control.stops)

    def take(self, source: Source) -> None:
        """Begin on a K of all distinct rows that is there already."""
        self.plan, self.source = "resident" if isinstance(source, ResidentGram) else "columns", source

    @functools.cached_property
    def small(self) -> bool:
        """Whether all problems are small ones of the usual kind, with nobody to hear of each."""
        if self.control.report is not None or self.start is not None or not takes(self.recipe, self.C):
            return False
        if any(task is not self.recipe.task for task in self.tasks):
            return False  # one that has given way has a tol of its own
        m = most_variables(self.recipe, self.distinct.codes[self.C > 0.0])
        if self.control.time_limit is not None and not len(self.goals) * most_seconds(m) < self.control.time_limit:
            return False
        return are_small(m, len(self.C), self.distinct.given.shape[1])

    def solve(self) -> None:
        """Solve all problems: small ones together, any other is a chain of its own."""
        self.solve_all([functools.partial(self._answer, k) for k in self.left_over()])

    def left_over(self, before: "Work | None" = None) -> Sequence[int]:
        """Solve small problems on one K at once; returns those that this has not proved.

        They begin where those of the work `before` have ended, if these are on the same rows.
        """
        every, source = range(len(self.goals)), self.source
        if not self.small or not isinstance(source, ResidentGram) or self.control.stops():
            return every
        at = None if before is None else before.ended
        left, self.ended = self._at_once(every, source, [self.rows(k) for k in every], self.C, at)
        return left

    def _at_once(
        self, every: Sequence[int], gram: ResidentGram, rows: list[Floats], C: Floats, start: Floats | None = None
    ) -> tuple[Sequence[int], Floats | None]:
        """Solve small problems on `rows` of one K with C_i (n,): (those that this has not proved, all variables)."""
        if gram.dtype != np.float64 or not knows(gram):
            return every, None
        qps: Sequence[SignedQP | None] = [None] * len(every)
        if type(self.recipe.task) is SVC:  # these are many, and nothing else of their programs is asked for
            boxes = Boxes.of_labels(rows, self.targets(every), C)
        else:
            of = [gram if gram.n == len(at) else gram.take(at) for at in rows]
            qps = made = [self.program(k, source) for k, source in zip(every, of, strict=True)]
            boxes = Boxes.of_programs(rows, made)
        programs = Programs(gram, boxes.begun(start))
        programs.solve(self.recipe.solver)
        return [k for at, k in enumerate(every) if not self._kept(k, programs, at, qps[at])], programs.beta

    def _kept(self, k: int, programs: Programs, at: int, qp: SignedQP | None) -> bool:
        """Keep the solution of problem `k`, number `at` of the `programs`, if it is proved."""
        tol, task = self.recipe.solver.tol, self.tasks[k]
        solution = programs.solution(at, tol, qp)
        if solution is not None and self.copies.misses:
            qp = qp or self.program(k, self.source_of(k))
            solution = self.copies.judged(qp, self.rows(k), solution, tol)
        if solution is None or solution.status is not Status.CONVERGED:
            self.begun[k] = programs.variables(at)
            return False
        answer = Answer(solution.beta, solution.bias) if qp is None else task.answer(qp, solution)
        self._note(k, answer, solution)
        self.doubts[k] = programs.doubt(at, task)
        return True

    def solve_all(self, solves: Sequence[Callable[[Source | None], None]]) -> None:
        """Call each of `solves` with a source for its problem, or None where `source_of` has it; several at once."""
        jobs = self.recipe.n_jobs or n_threads()
        if len(solves) > 1 and not self.pairs and isinstance(self.source, CachedColumns) and self.apart(self.source):
            every = solved_together(self.source, solves, jobs)
        else:
            every = side_by_side([functools.partial(solve, None) for solve in solves], self.threads())
        for _ in every:
            pass

    def _answer(self, k: int, source: Source | None) -> None:
        if not (self.small and isinstance(self.source, PairGrams) and self._proved_apart(k)):
            self.problem(k, source).answer()

    def _proved_apart(self, k: int) -> bool:
        """Solve a small pair on a K of its own; whether that has proved it."""
        gram, rows = self.source_of(k), self.rows(k)
        if not isinstance(gram, ResidentGram) or self.control.stops():
            return False
        return not self._at_once([k], gram, [np.arange(gram.n)], self.C[rows])[0]

    def problem(self, k: int, source: Source | None = None) -> Problem[None]:
        """Problem `k` on its own, on a source of its K, or that which `source_of` has."""
        return Fitted(self, k, source)

    def threads(self) -> int:
        """On how many threads to solve: several at once where they can share K without a lock, else 0."""
        jobs = min(self.recipe.n_jobs or n_threads(), len(self.goals))
        sizes, plan = [len(self.rows(k)) for k in range(len(self.goals))], self.plan
        if isinstance(self.source, PairGrams):
            jobs, plan = min(jobs, self.source.at_once(max(sizes))), self._plan_of_pair(max(sizes))
        least = PAIR_ROWS if self.small and isinstance(self.source, PairGrams) else THREADED_ROWS
        return jobs if jobs > 1 and np.mean(sizes) >= least and plan != "columns" else 0

    def _plan_of_pair(self, n: int) -> Plan:
        """How K of a pair of n rows is served: whole where that of all rows is, or where it is small itself."""
        return "resident" if self.plan == "resident" else plan_of(self, self.dtype, n, 1)

    def finish(self, k: int, qp: SignedQP, solution: Solution) -> None:
        """Keep what the solution of problem `k` says."""
        rows, solver = self.rows(k), self.solver(k)
        self._note(k, self.tasks[k].answer(qp, solution), self.copies.judged(qp, rows, solution, solver.tol))
        if self.recipe.calibrates:
            self.held_out[k] = self._held_out(k, qp, solution, rows)

    def _note(self, k: int, answer: Answer, solution: Solution) -> None:
        self.answers[k], self.solutions[k], self.coef[k, self.rows(k)] = answer, solution, answer.coef
        if self.control.done is not None:
            self.control.done(k, solution)

    def _held_out(self, k: int, qp: SignedQP, solution: Solution, rows: Floats) -> tuple[Floats, Floats]:
        """(decision values by models that have not seen them, whether positive) of original rows of the problem."""
        place = np.full(len(self.C), -1)
        place[rows] = np.arange(len(rows))
        inverse = place[self.distinct.merged.inverse]
        members = inverse >= 0
        inverse, y = inverse[members], self.targets([k])
        weights, rng = self.distinct.weights[members], np.random.default_rng([self.recipe.seed or 0, k])

        def folds() -> Told:
            of = self.tasks[k], qp.source, y, self.C[rows]
            return held_out_decisions(*of, inverse, weights, self.solver(k), rng, np.flatnonzero(solution.beta))

        scale = self.answers[k].scale
        told = qp, solution.beta, solution.decision / scale, scale, inverse
        found, decision = told_without(*told, folds) if self.recipe.left_out else folds()
        return decision, y[inverse[found]] > 0

    def source_of(self, k: int) -> Source:
        """K of the rows of problem `k`; those of a pair of classes are two slices."""
        rows, source = self.rows(k), self.source
        if not self.pairs and isinstance(source, Source):
            return source
        if isinstance(source, ResidentGram):
            return source.take(rows)
        if isinstance(source, PairGrams) and self._plan_of_pair(len(rows)) == "resident":
            codes = self.distinct.codes[rows[[0, -1]]]
            edges = (np.searchsorted(self.distinct.codes, (code, code + 1)).tolist() for code in codes)
            i, j = (slice(*ends) for ends in edges)
            gram = source.pair(i, j)
            if gram is not None:
                return gram
        return cached(source.source.take(rows), self.recipe.cache_bytes, not self.recipe.calibrates)  # type: ignore[union-attr]

    def _sigmoids(self) -> Floats | None:
        return np.array([fit_sigmoid(*each) for each in self.held_out]) if self.recipe.calibrates else None

    def training(self, n_rows: int) -> Training:
        """Keep the support vectors, and give every copy of a row its share; `n_rows` of a K that was given."""
        distinct, recipe = self.distinct, self.recipe

        def vectors(used: Floats) -> Rows:
            if isinstance(recipe.kernel, Precomputed):
                return Precomputed.units(distinct.kept[distinct.merged.first[used]], n_rows)
            return distinct.take(used)

        scale = np.array([answer.scale for answer in self.answers])
        bias = np.array([answer.bias for answer in self.answers])
        labels = self.classes if recipe.task.answers == "labels" else np.empty(0)
        about = recipe.scheme, recipe.task.name, self._sigmoids()
        model, used = model_of_rows(recipe.kernel, vectors, self.coef, bias, scale, labels, *about)
        support, parts, vector = self.copies.split(self.coef, scale, used)
        return Training(
            model=model,
            solutions=tuple(self.solutions),
            answers=tuple(self.answers),
            support=support,
            coef=parts,
            vector=vector,
            held_out=tuple(self.held_out) if recipe.calibrates else (),
            plan=self.plan,
            doubts=Doubts(recipe.served, self.centre, self.doubts, scale),
        )


class Member(Problem[Kept]):
    """Problem `k` of a training, on a `source` of its own or that of the training."""

    def __init__(self, work: Work, k: int, source: Source | None = None) -> None:
        self.work, self.k, self.solver, self.source = work, k, work.solver(k), source

    def program(self) -> SignedQP:
        """The program over the K of its rows."""
        return self.work.program(self.k, self.work.source_of(self.k) if self.source is None else self.source)

    def monitor(self, qp: SignedQP) -> Monitor:
        """That of the training."""
        return self.work.control.monitor(self.k)


class Fitted(Member[None]):
    """A problem on its own, from coefficients if some are given; the training keeps what there is to keep."""

    def start(self, qp: SignedQP, before: None) -> Start:
        """From where it was begun, or the coefficients of the training."""
        work, k = self.work, self.k
        if k in work.begun:
            return Start(work.begun[k])
        if work.start is None:
            return NOWHERE
        return Start(qp.snapped(work.tasks[k].variables(qp, work.start[k, work.rows(k)])))

    def keep(self, qp: SignedQP, solution: Solution) -> None:
        """Tell the training."""
        self.work.finish(self.k, qp, solution)
        self.work.doubts[self.k] = doubt(self.work.tasks[self.k], qp, solution)
