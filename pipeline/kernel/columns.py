"""Columns of K in this process, all at once or when a solver asks, or computed by workers when it asks.

Every request to workers is a working set of hundreds of columns, cut by row ranges of X: one Dask round trip costs
10 ms, so it must never carry a single column. Nothing is kept here: wrap it in `svmcore.sources.CachedColumns`.
"""

import dataclasses
import functools
import threading
from typing import Any, ClassVar

import numpy as np

from pipeline.compute.workers import Workers
from pipeline.config.schema import Experiment
from pipeline.kernel.choose import KernelPlan
from pipeline.kernel.strips import overflow
from pipeline.kernel.worker_points import worker_points, worker_rows
from svmcore.kernels import Kernel
from svmcore.kernels.exact import ExactKernel
from svmcore.points import Floats
from svmcore.sources import ComputedColumns, Factor, ResidentGram, Source, resident_gram
from svmcore.train.posing.plan import cached, served_kernel

__all__ = ["WorkerColumns", "columns_for", "computed_columns"]

COLUMNS = 512  # columns and rows of one task: a result of 16 MB in float32
ROWS = 8192


@dataclasses.dataclass(frozen=True)
class _BlockTask:
    """Columns `idx` on the rows start ... stop - 1."""

    dataset: str
    dtype: str
    kernel: Kernel
    idx: tuple[int, ...]
    start: int
    stop: int


def _block(task: _BlockTask) -> Floats:
    """Kernel values (len(idx), stop - start), on a worker."""
    points, kernel = worker_points(task.dataset, task.dtype, task.kernel), task.kernel
    rows = points.rows(task.start, task.stop)
    out = np.empty((len(task.idx), len(rows)), task.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        kernel.block(points.take(np.array(task.idx, np.int64)), rows, out)
    if not np.isfinite(out).all():
        raise overflow(kernel, task.dtype)
    return out


@dataclasses.dataclass(frozen=True)
class _SumTask:
    """The columns of a block and their weights."""

    block: _BlockTask
    weights: tuple[float, ...]


def _sums(task: _SumTask) -> Floats:
    """Sums (2, stop - start) of weighted columns and of their sizes, on a worker."""
    block = task.block
    columns = ComputedColumns(block.kernel, worker_points(block.dataset, block.dtype, block.kernel), block.dtype)
    of = np.array(block.idx, np.int64), np.array(task.weights)
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.array(columns.outputs_within(*of, block.start, block.stop))
    if not np.isfinite(found).all():
        raise overflow(block.kernel, block.dtype)
    return found


class WorkerColumns(Source):
    """Columns over a dataset's merged training rows, computed by `workers`.

    The blocks of a request depend on n and the request, not on the workers. No task is pinned: a lost worker's blocks
    are computed by another, which opens the dataset by its path.

    Parameters
    ----------
    local
        The same columns computed in this process: their kernel and type, exact values, and all that is little work.
    dataset
        Path of the rows.
    """

    can_take: ClassVar[bool] = True

    def __init__(self, local: ComputedColumns, dataset: str, workers: Workers) -> None:
        self.local, self.dataset, self.workers = local, dataset, workers
        self.n, self.dtype, self.psd, self.exact = local.n, local.dtype, local.psd, local.exact
        self.n_computed = 0  # columns, for the metrics

    @property
    def rounding(self) -> Any:
        """That of the same values computed here."""
        return self.local.rounding

    def diagonal(self) -> Floats:
        """K_ii (n,), float64, from the norms of the rows."""
        return self.local.diagonal()

    def columns(self, idx: Floats) -> Floats:
        """(len(idx), n), C-contiguous; row r is column idx[r]."""
        return self.fill(idx, np.empty((len(idx), self.n), self.dtype))

    def fill(self, idx: Floats, out: Floats, rows: Floats | None = None) -> Floats:
        """Write columns `idx` to the rows of `out`, or to those `rows` of it, block by block as the workers end."""
        wanted, at = np.asarray(idx).tolist(), np.arange(len(idx)) if rows is None else rows
        places = [(a, start) for a in range(0, len(wanted), COLUMNS) for start in range(0, self.n, ROWS)]
        tasks = [self._task(tuple(wanted[a : a + COLUMNS]), start) for a, start in places]
        for index, values in self.workers.map(_block, tasks):
            a, start = places[index]
            out[at[a : a + len(values)], start : start + values.shape[1]] = values
        self.n_computed += len(wanted)
        return out

    def outputs(self, coef: Floats) -> tuple[Floats, Floats]:
        """K @ coef and abs(K) @ abs(coef), (n,): summed where the values are computed, only sums travel."""
        support, found = np.flatnonzero(coef), np.zeros((2, self.n))
        wanted, weights = tuple(support.tolist()), tuple(coef[support].tolist())
        starts = range(0, self.n, ROWS)
        tasks = [_SumTask(self._task(wanted, start), weights) for start in starts] if wanted else []
        for index, sums in self.workers.map(_sums, tasks):
            found[:, starts[index] : starts[index] + sums.shape[1]] = sums
        self.n_computed += len(support)
        return found[0], found[1]

    def take(self, rows: Floats) -> ComputedColumns:
        """The same kernel on the rows `rows` alone, computed on this node: what a solver tries first is small."""
        return self.local.take(rows)

    def finer(self) -> "WorkerColumns | None":
        """The same columns in float64."""
        finer = self.local.finer()
        return None if finer is None else WorkerColumns(finer, self.dataset, self.workers)

    def factor(self) -> Factor | None:
        """The rows of a linear kernel."""
        return self.local.factor()

    def offset(self, coef: Floats) -> float:
        """As that of the same columns computed here."""
        return self.local.offset(coef)

    def _task(self, idx: tuple[int, ...], start: int) -> _BlockTask:
        stop = min(start + ROWS, self.n)
        return _BlockTask(self.dataset, self.dtype.name, self.local.kernel, idx, start, stop)


def computed_columns(dataset: str, kernel: Kernel, dtype: Any) -> ComputedColumns:
    """Columns of K computed in this process, with exact values for proofs."""
    points = worker_points(dataset, np.dtype(dtype).name, kernel)
    return ComputedColumns(
        kernel, points, dtype, ExactKernel(kernel, functools.partial(worker_rows, dataset), like=points)
    )


def columns_for(exp: Experiment, dataset: Any, plan: KernelPlan, workers: Workers) -> Source:
    """All columns, where the plan holds them, or those that are asked for, in one cache for all problems of the run."""
    dtype, served = np.dtype(plan.dtype), served_kernel(Kernel.create(plan.kernel), exp.machine)
    local = computed_columns(str(dataset.path), served, dtype)
    if plan.holds_all:
        return _all_columns(local)
    remote = exp.cluster.remote and not exp.solver_for(dataset.n_features).solves.linear_only
    source = WorkerColumns(local, str(dataset.path), workers) if remote else local
    return cached(source, exp.cache.limit)


def _all_columns(local: ComputedColumns) -> ResidentGram:
    """Every column, each symmetric pair once; an interrupt ends the threads that compute them too."""
    stopped = threading.Event()
    try:
        gram = resident_gram(local, stopped.is_set)
    except BaseException:
        stopped.set()
        raise
    assert gram is not None
    return gram
