"""Sampled values of a K on storage, compared with the rows.

A checksum says that what was written is still there. That the right values were written, by a worker whose memory,
processor and program are sound, only the rows can say.
"""

import dataclasses
import functools
from pathlib import Path

import numpy as np

from pipeline.kernel.strips import partition
from pipeline.kernel.worker_points import strip_points, worker_rows
from svmcore.kernels import Kernel
from svmcore.kernels.exact import ExactKernel
from svmcore.points import Floats

__all__ = ["SampleTask", "differing_strips"]

ROWS = 256  # about: 65,536 values, for which 60 MB of a K of 60,000 rows are read


@dataclasses.dataclass(frozen=True)
class SampleTask:
    """One K (n, n): all that travels to a worker."""

    dataset: str
    n: int
    dtype: str
    kernel: Kernel
    folder: str
    whole: bool


def differing_strips(task: SampleTask) -> tuple[int, ...]:
    """Strips that hold a sampled value further from that of the rows in float64 than rounding can explain.

    Every strip is compared with every other. A kernel that bounds no rounding is not judged.
    """
    rows = sampled_rows(task.n, task.dtype)
    K = np.memmap(Path(task.folder) / "c" / "0" / "0", task.dtype, "r", shape=(task.n, task.n))
    values, allowed = _from_rows(task, rows)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(K[np.ix_(rows, rows)] - values) <= allowed)
    i, j = np.nonzero(wrong)
    first = rows[i if task.whole else np.minimum(i, j)]  # that strip holds the value, and its mirror image
    starts = [start for start, _ in partition(task.n, task.dtype)]
    return tuple(np.unique(np.searchsorted(starts, first, "right") - 1).tolist())


def sampled_rows(n: int, dtype: str) -> Floats:
    """Rows (m,) in order, the same for every K of a size: some of each strip, all of a small K.

    >>> sampled_rows(3, "float32")
    array([0, 1, 2])
    """
    rng = np.random.default_rng(n)
    ranges = partition(n, dtype)
    each = -(-ROWS // len(ranges))
    return np.concatenate([np.sort(rng.permutation(np.arange(start, stop))[:each]) for start, stop in ranges])


def _from_rows(task: SampleTask, rows: Floats) -> tuple[Floats, Floats]:
    """Values (m, m) of the rows in float64, and how far a served one may be from each: both roundings."""
    points = strip_points(task.dataset, task.dtype, task.kernel, task.whole)
    exact = ExactKernel(task.kernel, functools.partial(worker_rows, task.dataset), like=points)
    chosen = exact.prepared(rows)
    with np.errstate(over="ignore", invalid="ignore"):
        values = exact.block(chosen, chosen)
        served = task.kernel.rounding(points, points, np.dtype(task.dtype))
        own = task.kernel.rounding(chosen, chosen, np.float64)
        slack = own.relative * np.abs(values) + own.absolute
        allowed = served.relative * (np.abs(values) + slack) + served.absolute + slack
    return values, np.where(np.isfinite(allowed), allowed, np.inf)
