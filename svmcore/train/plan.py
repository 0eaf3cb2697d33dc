"""How K is served: of which kernel, and the whole of it in memory or columns on demand under a byte budget."""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from svmcore.kernels.base import Kernel
from svmcore.solvers import SMO
from svmcore.sources import CachedColumns, Source
from svmcore.tasks import Task

__all__ = ["Plan", "cached", "choose_plan", "served_kernel"]

Plan: TypeAlias = Literal["resident", "columns", "factor"]

SMALL_BYTES = 64 << 20  # a Gram matrix this small is always kept, whatever the budget of the columns
SHARERS = 3  # problems from which their support vectors together are worth half of all pairs


def served_kernel(kernel: Kernel, task: Task) -> Kernel:
    """The kernel that K is of: centred where all variables add up to 0, so that it is the same program."""
    return kernel.centred() if task.can_centre else kernel


def cached(source: Source, limit_bytes: int) -> CachedColumns:
    """Columns in the budget, a quarter of which at most is for the square of a working set."""
    return CachedColumns(source, limit_bytes, None, min(limit_bytes // 4, SMO.square_bytes(source.n, source.dtype)))


def choose_plan(n: int, p: int, dtype: DTypeLike, cache_bytes: int, n_problems: int) -> Plan:
    """Plan for `n_problems` on the same n rows of p features, from bytes and shape.

    The whole K costs n^2 / 2 evaluations; the columns of one problem cost n times its support vectors, rarely more
    than a third of the rows. Several problems together want nearly all of them, and a K in memory serves them at once.

    >>> choose_plan(1_797, 64, np.float32, 200 << 20, 10), choose_plan(20_000, 784, np.float32, 2 << 30, 1)
    ('resident', 'columns')
    >>> choose_plan(10_000, 784, np.float32, 2 << 30, 10), choose_plan(60_000, 784, np.float32, 2 << 30, 10)
    ('resident', 'columns')
    """
    n_bytes = n * n * np.dtype(dtype).itemsize
    shared = n_problems >= SHARERS and n_bytes <= cache_bytes
    return "resident" if shared or n_bytes <= SMALL_BYTES else "columns"
