"""Votes of one-vs-one: the wins of each class, row by row."""

from svmcore.runtime.compiled import njit

__all__ = ["count_votes"]


@njit
def count_votes(low, high, fewest, most):  # type: ignore[no-untyped-def]
    """Add the pairwise wins (n, c), the fewest and the most of each class, of values (n, k) between `low` and `high`.

    Value k is of the pair i < j number k in lexical order; from 0 on it is a win of j.
    """
    n_classes = fewest.shape[1]
    for r in range(len(low)):
        k = 0
        for i in range(n_classes):
            for j in range(i + 1, n_classes):
                surely, maybe = low[r, k] >= 0.0, high[r, k] >= 0.0
                fewest[r, j] += surely
                most[r, j] += maybe
                fewest[r, i] += not maybe
                most[r, i] += not surely
                k += 1
