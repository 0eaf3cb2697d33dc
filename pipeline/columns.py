"""Columns of K computed by the workers when a solver asks, for a K that fits neither memory nor disk.

Every request is a working set of hundreds of columns, cut by row ranges of X: one Dask round trip costs 10 ms, so it
must never carry a single column. Nothing is kept here: wrap it in `svmcore.columns.CachedColumns`.
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pipeline.strips import overflow, worker_points
from pipeline.workers import Workers
from svmcore.columns import ComputedColumns
from svmcore.kernels import Kernel
from svmcore.points import Floats

__all__ = ["WorkerColumns"]

COLUMNS = 512  # columns and rows of one task: a result of 16 MB in float32
ROWS = 8192


@dataclasses.dataclass(frozen=True)
class _BlockTask:
    """Columns `idx` (None: the diagonal) on the rows start ... stop - 1."""

    dataset: str
    dtype: str
    kernel: dict[str, Any]
    idx: tuple[int, ...] | None
    start: int
    stop: int


def _block(task: _BlockTask) -> Floats:
    """Kernel values (len(idx), stop - start), or the diagonal (stop - start,), on a worker."""
    points, kernel = worker_points(task.dataset, task.dtype), Kernel.create(task.kernel)
    rows = points.rows(task.start, task.stop)
    if task.idx is None:
        return kernel.diagonal_of(rows)
    out = np.empty((len(task.idx), len(rows)), task.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        kernel.block(points.take(np.array(task.idx, np.int64)), rows, out)
    if not np.isfinite(out).all():
        raise overflow(kernel, task.dtype)
    return out


class WorkerColumns:
    """KernelColumns of a dataset's merged training rows, computed by `workers`.

    The blocks of a request depend on n and the request, not on the workers. No task is pinned: a lost worker's blocks
    are computed by another, which opens the dataset by its path.

    Parameters
    ----------
    dataset
        With `path` and `n_merged`.
    kernel
        With numbers for its parameters.
    dtype
        Of the columns: float32 or float64.
    """

    def __init__(self, dataset: Any, kernel: Kernel, dtype: DTypeLike, workers: Workers) -> None:
        self.dataset, self.kernel, self.workers = dataset, kernel, workers
        self.n, self.dtype = int(dataset.n_merged), np.dtype(dtype)
        self.n_computed = 0  # columns, for the metrics

    def diagonal(self) -> Floats:
        """K_ii (n,), float64."""
        out = np.empty(self.n)
        tasks = [self._task(None, start) for start in range(0, self.n, ROWS)]
        for index, values in self.workers.map(_block, tasks):
            out[tasks[index].start : tasks[index].stop] = values
        return out

    def columns(self, idx: Floats) -> Floats:
        """(len(idx), n), C-contiguous; row r is column idx[r]."""
        return self.fill(idx, np.empty((len(idx), self.n), self.dtype))

    def fill(self, idx: Floats, out: Floats) -> Floats:
        """Write columns `idx` to `out` (len(idx), n), block by block as the workers finish them."""
        wanted = np.asarray(idx).tolist()
        places = [(a, start) for a in range(0, len(wanted), COLUMNS) for start in range(0, self.n, ROWS)]
        tasks = [self._task(tuple(wanted[a : a + COLUMNS]), start) for a, start in places]
        for index, values in self.workers.map(_block, tasks):
            a, start = places[index]
            out[a : a + len(values), start : start + values.shape[1]] = values
        self.n_computed += len(wanted)
        return out

    def take(self, rows: Floats) -> ComputedColumns:
        """The same kernel on the rows `rows` alone, computed on this node: what a solver tries first is small."""
        return ComputedColumns(self.kernel, self.dataset.points(self.dtype).take(rows), self.dtype)

    def _task(self, idx: tuple[int, ...] | None, start: int) -> _BlockTask:
        stop = min(start + ROWS, self.n)
        return _BlockTask(str(self.dataset.path), self.dtype.name, self.kernel.spec(), idx, start, stop)
