"""Products with rows less a centre, taken in any order, in float64 whatever type they are of: no row is copied.

A copy of millions of rows in another order and type would be more memory than all else, and reading them is what takes
the time.
"""

import numpy as np

from svmcore.runtime.compiled import njit, njit_sums

__all__ = ["ROWS", "csr_outputs", "csr_weights", "dense_outputs", "dense_weights", "least_rates", "square_lengths"]

ROWS = 4  # that products with a vector take at a time


@njit_sums
def dense_outputs(X, at, centre, w, out):  # type: ignore[no-untyped-def]
    """out[i] = (x - c)'w, x = X[at[i]]; ROWS of them at a time keep as many reads from memory under way.

    A range should start at a multiple of ROWS: sums of the last few rows may differ in their last bits.
    """
    whole = len(at) - len(at) % ROWS
    for i in range(0, whole, ROWS):
        x0, x1, x2, x3 = X[at[i]], X[at[i + 1]], X[at[i + 2]], X[at[i + 3]]
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for c in range(len(centre)):
            s0 += (x0[c] - centre[c]) * w[c]
            s1 += (x1[c] - centre[c]) * w[c]
            s2 += (x2[c] - centre[c]) * w[c]
            s3 += (x3[c] - centre[c]) * w[c]
        out[i], out[i + 1], out[i + 2], out[i + 3] = s0, s1, s2, s3
    for i in range(whole, len(at)):
        row, total = X[at[i]], 0.0
        for c in range(len(centre)):
            total += (row[c] - centre[c]) * w[c]
        out[i] = total


@njit_sums
def dense_weights(X, at, centre, coef, w):  # type: ignore[no-untyped-def]
    """W += sum coef[i] (x - c), x = X[at[i]]."""
    for i in range(len(at)):
        t = coef[i]
        if t != 0.0:
            row = X[at[i]]
            for c in range(len(centre)):
                w[c] += t * (row[c] - centre[c])


@njit_sums
def square_lengths(X, at, centre, out):  # type: ignore[no-untyped-def]
    """out[i] = ||x - c||^2, x = X[at[i]]."""
    for i in range(len(at)):
        row, total = X[at[i]], 0.0
        for c in range(len(centre)):
            total += (row[c] - centre[c]) ** 2
        out[i] = total


@njit_sums
def csr_outputs(data, indices, indptr, at, w, out):  # type: ignore[no-untyped-def]
    """out[i] = x'w, x row at[i] of a CSR matrix."""
    for i in range(len(at)):
        first, last, total = indptr[at[i]], indptr[at[i] + 1], 0.0
        values, columns = data[first:last], indices[first:last]  # loops over these are several times faster
        for k in range(len(columns)):
            total += values[k] * w[columns[k]]
        out[i] = total


@njit_sums
def csr_weights(data, indices, indptr, at, coef, w):  # type: ignore[no-untyped-def]
    """W += sum coef[i] x, x row at[i] of a CSR matrix."""
    for i in range(len(at)):
        t = coef[i]
        if t != 0.0:
            first, last = indptr[at[i]], indptr[at[i] + 1]
            values, columns = data[first:last], indices[first:last]
            for k in range(len(columns)):
                w[columns[k]] += t * values[k]


@njit(makes_arrays=True)
def least_rates(old, step, second, weights):  # type: ignore[no-untyped-def]
    """Least (step + weight second) / old of each weight, at most 0; (k, n) each, without entries where `old` is 0."""
    least = np.zeros(len(weights))
    for k in range(old.shape[0]):
        for i in range(old.shape[1]):
            if old[k, i] > 0.0:
                scale = 1.0 / old[k, i]
                for c in range(len(weights)):
                    least[c] = min(least[c], (step[k, i] + weights[c] * second[k, i]) * scale)
    return least
