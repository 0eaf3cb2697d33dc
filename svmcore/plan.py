"""Which way the kernel matrix is served: the whole of it in memory, or columns on demand under a byte budget."""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

__all__ = ["Plan", "choose_plan"]

Plan: TypeAlias = Literal["resident", "columns"]

SMALL_BYTES = 64 << 20  # a Gram matrix this small is always kept, whatever the budget of the columns


def choose_plan(n: int, p: int, dtype: DTypeLike, cache_bytes: int, n_problems: int) -> Plan:
    """Plan for `n_problems` on the same n rows of p features, from bytes and shape.

    >>> choose_plan(1_797, 64, np.float32, 200 << 20, 10), choose_plan(50_000, 22, np.float32, 2 << 30, 1)
    ('resident', 'columns')
    """
    n_bytes = n * n * np.dtype(dtype).itemsize
    return "resident" if n_bytes <= max(SMALL_BYTES, cache_bytes) else "columns"
