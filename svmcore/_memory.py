"""Large memory in the page size that the system prefers.

NumPy asks for 2 MB pages for whatever is large. Those must be found and cleared when first touched, which on a virtual
machine took twice as long as small ones; K and its columns are touched once in a fit, and in long runs.
"""

import math
import mmap

import numpy as np
from numpy.typing import DTypeLike

from svmcore.points import Floats

__all__ = ["fresh"]

LARGE = 1 << 22  # bytes from which NumPy asks for large pages


def fresh(shape: tuple[int, ...], dtype: DTypeLike) -> Floats:
    """As `np.empty`; pages are backed when they are first touched."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if n_bytes < LARGE or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.empty(shape, dtype)
    return np.frombuffer(mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype).reshape(shape)
