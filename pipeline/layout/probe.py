"""What a problem will take, from a few solved on a sample: support vectors and steps grow like powers of the rows.

The merged rows are in the order of their content's hash, so the first m of them are a sample without bias. A chain is
solved on m and on m / 2 rows; both exponents follow, held within what is plausible.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pipeline.answers.problem import ProblemTask
from pipeline.layout.rates import Rates
from svmcore.kernels import Kernel
from svmcore.kernels.exact import ExactKernel
from svmcore.qp import SignedQP
from svmcore.runtime.threads import one_blas_thread
from svmcore.solution import Solution
from svmcore.solvers import Solver
from svmcore.solvers.row_steps import MOST
from svmcore.solvers.working_set import ROOM
from svmcore.sources import ComputedColumns, ResidentGram, resident_gram
from svmcore.train.chains import NOWHERE, Handover, Problem, Solved, Start, answers

__all__ = ["Sample", "Work", "block_seconds", "exact_seconds", "seconds_of", "summed_seconds"]

ROWS = 1000  # of the larger sample
BLOCK = 512  # side of the kernel block that is timed
SUPPORT_POWERS, STEP_POWERS = (0.3, 1.0), (0.5, 1.6)
PASSES = 7.0  # columns read for each support vector of a problem: the certificate, and what each round changes
GATHER = 25.0  # an entry of the square copied from K, in terms of `Rates.entry`
BEGUN, COPIED = 2.0, 12.0  # the same of a K on which steps begin, so that few rounds are left
PROVED = 0.25  # a pair of support vectors in float64, of which one is computed for two and its value is not kept
COMPUTED = 14.0  # an entry of a square where values are computed by themselves, in terms of one that is added
PROBLEM, PROBLEM_ROW = 16e-3, 3e-7  # rounds, reading tasks, storing answers; passes over vectors of n, for each row
MAX_ITER = 200_000  # steps of one sampled problem: a count, so that a busy machine foretells the same


@dataclasses.dataclass(frozen=True)
class Work:
    """Work of a chain: support vectors of its problems, one by one, their steps together, and their number."""

    support: tuple[float, ...]
    steps: float

    def scaled(self, support: float, steps: float) -> "Work":
        """The same with as many times the support vectors and steps."""
        return Work(tuple(support * size for size in self.support), steps * self.steps)


class Sample:
    """The first rows of a dataset: their K, targets and counts, and a block of kernel entries that is timed."""

    def __init__(self, dataset: Any, kernel: Kernel, rows: int = ROWS) -> None:
        self.kernel = kernel
        self.n, self.n_classes, self.kind = dataset.n_merged, len(dataset.classes), dataset.kind
        self.targets = np.asarray(dataset.targets())[:rows]
        self.counts = np.asarray(dataset.counts(), np.float64)[:rows]
        X = dataset.X(0, len(self.targets))
        points = kernel.prepare_gram(X)
        source = ComputedColumns(kernel, points, np.float32, ExactKernel(kernel, X, like=points))
        with np.errstate(over="ignore", invalid="ignore"):
            gram = resident_gram(source)
        assert gram is not None
        self.gram, self.computes_anew = gram, source.computes_anew

    def work(self, chain: Sequence[ProblemTask]) -> Work:
        """Work of a chain on all rows of the dataset."""
        m = len(self.targets)
        large = self._solved(chain, m)
        if m == self.n or m < 100:
            return large
        small = self._solved(chain, m // 2)
        support = _power(sum(large.support), sum(small.support), SUPPORT_POWERS)
        steps = _power(large.steps, small.steps, STEP_POWERS)
        return large.scaled((self.n / m) ** support, (self.n / m) ** steps)

    def _solved(self, chain: Sequence[ProblemTask], m: int) -> Work:
        gram = self.gram if m == self.gram.n else self.gram.take(np.arange(m))
        y = self.kind.goals(self.targets[:m], self.n_classes, chain[0].multiclass)[chain[0].target].y
        if self.kind.answers == "labels" and not ((y > 0).any() and (y < 0).any()):
            return Work((1.0,) * len(chain), 1.0)
        solved = [solution for _, solution in answers(_Tried(task, gram, y, self.counts[:m]) for task in chain)]
        support = tuple(float(len(solution.support)) for solution in solved)
        return Work(support, float(sum(solution.n_iter for solution in solved)))


def _power(large: float, small: float, bounds: tuple[float, float]) -> float:
    return min(max(math.log2(max(large, 1.0) / max(small, 1.0)), bounds[0]), bounds[1])


class _Tried(Problem[Solved]):
    """A task on the sample, by the production solver: a plan must not take as long as a textbook's would."""

    def __init__(self, task: ProblemTask, gram: ResidentGram, y: Any, counts: Any) -> None:
        self.gram, self.y, self.C = gram, y, counts * (1e6 if task.C is None else task.C)
        self.machine = task.built.nearest(y, self.C)
        tol = max(1e-4, float(task.solver.get("tol", 1e-3)))
        self.solver = Solver.create({"name": "smo", "tol": tol, "max_iter": MAX_ITER})

    def program(self) -> SignedQP:
        return self.machine.program(self.gram, self.y, self.C)

    def start(self, qp: SignedQP, before: Solved | None) -> Start:
        return NOWHERE if before is None else Handover.of(*before).start(qp, self.machine, before[0].p)

    def keep(self, qp: SignedQP, solution: Solution) -> Solved:
        return qp, solution


def seconds_of(
    work: Work, n: int, rate: Rates, exact: float, reach: float = math.inf, anew: float | None = None
) -> float:
    """Seconds of a chain on one thread over a K of n rows, `exact` of them for an exact entry of K.

    Columns are read at all rows, or at `reach` times the support where a solver leaves rows out. Steps see the members
    of a working set, and their square is gathered. Where no column is kept, both take `anew` seconds for an entry.
    """
    passes, gather = (BEGUN, COPIED) if anew is None and reach == math.inf and n <= MOST else (PASSES, GATHER)
    read, copied = (rate.entry, gather * rate.entry) if anew is None else (anew, COMPUTED * anew)
    columns = sum(size * min(n, reach * size) for size in work.support) * passes * read
    squares = sum(size * (copied * min(size, ROOM) + PROVED * exact * size) for size in work.support)
    mean = sum(work.support) / len(work.support)
    steps = work.steps * (rate.step + rate.step_entry * min(mean, ROOM))
    return columns + squares + steps + (PROBLEM + PROBLEM_ROW * n) * len(work.support)


def block_seconds(dataset: Any, kernels: Sequence[Kernel], dtype: Any) -> float:
    """Seconds of one thread for one entry of each of the kernels, from a block of the data's own rows."""
    from svmcore.kernels.base import blocks

    side = min(BLOCK, dataset.n_merged)
    rows = kernels[0].prepare_gram(dataset.X(0, side), dtype)
    outs = [np.empty((side, side), dtype) for _ in kernels]
    return _seconds_of_block(lambda: blocks(kernels, rows, rows, outs)) / side**2


def summed_seconds(dataset: Any, kernel: Kernel) -> float:
    """Seconds of one thread for one entry that is added as it is computed, of a kernel that stores none."""
    rows = kernel.prepare_gram(dataset.X(0, min(BLOCK, dataset.n_merged)), np.float32)
    weights, sums = np.ones((1, len(rows))), np.zeros((1, 2, len(rows)))
    return _seconds_of_block(lambda: kernel.add_by_sign(rows, rows, weights, sums)) / len(rows) ** 2


def exact_seconds(dataset: Any, kernel: Kernel) -> float:
    """Seconds of one thread for one entry in float64, as proofs make it of rows as they are served."""
    X = dataset.X(0, min(BLOCK, dataset.n_merged))
    exact = ExactKernel(kernel, X, like=kernel.prepare_gram(X))
    rows, out = exact.prepared(slice(0, len(exact))), np.empty((len(exact), len(exact)))
    return _seconds_of_block(lambda: exact.block(rows, rows, out)) / len(exact) ** 2


def _seconds_of_block(make: Callable[[], object]) -> float:
    """The least of two, after one that may load what is compiled."""
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        make()
        seconds = []
        for _ in range(2):
            started = time.perf_counter()
            make()
            seconds.append(time.perf_counter() - started)
    return min(seconds)
