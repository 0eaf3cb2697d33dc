"""Votes of one-vs-one: the wins of each class, row by row."""

from svmcore.runtime.compiled import njit

__all__ = ["count_votes"]


@njit
def count_votes(low, high, pairs, fewest, most):  # type: ignore[no-untyped-def]
    """Add the wins (n, c), the fewest and the most of each class, of values (n, k) between `low` and `high`.

    Value k is of the classes i, j = pairs[k]; from 0 on it is a win of j.
    """
    for r in range(len(low)):
        for k in range(len(pairs)):
            i, j = pairs[k]
            surely, maybe = low[r, k] >= 0.0, high[r, k] >= 0.0
            fewest[r, j] += surely
            most[r, j] += maybe
            fewest[r, i] += not maybe
            most[r, i] += not surely
