"""How K is served: of which kernel, and the whole of it in memory or columns on demand under a byte budget."""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from svmcore.kernels.base import Kernel
from svmcore.solvers import SMO
from svmcore.sources import CachedColumns, Source
from svmcore.tasks import Task

__all__ = ["ALONE", "EXACT_ROWS", "SMALL_BYTES", "Plan", "cached", "choose_plan", "served_kernel"]

Plan: TypeAlias = Literal["resident", "columns", "factor"]

EXACT_ROWS = 1024  # up to so many rows float64 columns cost nothing
SMALL_BYTES = 64 << 20  # a Gram matrix this small is always kept, whatever the budget of the columns
LEAST_SQUARE = 48 << 20  # bytes of 2,800 variables
SHARERS = 3  # problems from which their support vectors together are worth half of all pairs
ALONE = 3500  # rows for each class from which columns are faster, where a value is computed as fast as it is read


def served_kernel(kernel: Kernel, task: Task) -> Kernel:
    """The kernel that K is of: centred where all variables add up to 0, so that it is the same program."""
    return kernel.centred() if task.can_centre else kernel


def cached(source: Source, limit_bytes: int, of_one: bool = False) -> CachedColumns:
    """Columns in the budget, for one program or several; a quarter of it at most is for the square of a working set.

    A square of `LEAST_SQUARE` is there in any case: smaller sets take so many rounds that columns are computed again.
    """
    share, whole = limit_bytes // 4, SMO.square_bytes(source.n, source.dtype)
    square = min(max(share, LEAST_SQUARE), whole)
    return CachedColumns(source, limit_bytes - min(share, whole) + square, None, square, of_one)


def choose_plan(n: int, dtype: DTypeLike, budget: int, n_problems: int = SHARERS, small: int = 0) -> Plan:
    """Plan for `n_problems` on the same n rows: the only place that weighs a K against a budget of bytes.

    The whole K costs n^2 / 2 evaluations; the columns of one problem cost n times its support vectors, rarely more
    than a third of the rows. Several problems together want nearly all of them, and a K in memory serves them at once.
    So does one on storage, which runs to come find again: `n_problems` are many there.

    Parameters
    ----------
    small
        Bytes up to which K is held for any number of problems, whatever the budget.

    >>> choose_plan(1_797, np.float32, 200 << 20, 10), choose_plan(20_000, np.float32, 2 << 30, 1)
    ('resident', 'columns')
    >>> choose_plan(10_000, np.float32, 2 << 30), choose_plan(60_000, np.float32, 2 << 30)
    ('resident', 'columns')
    """
    budget = budget if n_problems >= SHARERS else 0
    return "resident" if n * n * np.dtype(dtype).itemsize <= max(budget, small) else "columns"
