"""Sparse rows by columns, prepared once: products of other sparse rows with all of them, a row at a time.

A column of many entries is kept whole, and added to a row's products in whole registers; of others the entries are.
A row of either side prepares nothing for another one, so one row costs no more than its share of many.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from svmcore.runtime.compiled import njit_fused

__all__ = ["ListedRows", "listed_products", "listed_rows"]

FULL = 1.0 / 16.0  # share of entries from which a whole column takes less time than its entries: a register's lanes
TOGETHER = 4  # whole columns for one load and store of the products


class ListedRows(NamedTuple):
    """Rows (m, p) by columns, all values of one type."""

    n_rows: int
    place: NDArray[Any]  # (p,) of the column in `full`, or -1
    full: NDArray[Any]  # (columns, m)
    indptr: NDArray[Any]  # (p + 1,) of the others
    rows: NDArray[Any]
    values: NDArray[Any]


def listed_rows(Z: Any, dtype: DTypeLike) -> ListedRows:
    """The rows of a CSR matrix (m, p) as `dtype`."""
    columns = sparse.csc_matrix(Z)
    full = np.flatnonzero(np.diff(columns.indptr) > FULL * Z.shape[0])
    place = np.full(Z.shape[1], -1)
    place[full] = np.arange(len(full))
    whole = np.ascontiguousarray(columns[:, full].toarray().T, dtype=dtype)
    return ListedRows(Z.shape[0], place, whole, columns.indptr, columns.indices, columns.data.astype(dtype, copy=False))


def listed_products(X: Any, start: int, right: ListedRows, out: NDArray[Any]) -> NDArray[Any]:
    """X'Z (n, m) of the n rows from `start` of a CSR matrix, summed in the type of `right`, which is that of `out`."""
    data, at = X.data.astype(out.dtype, copy=False), X.indptr[start : start + len(out) + 1]
    _listed_products(data, X.indices, at, right.place, right.full, right.indptr, right.rows, right.values, out)
    return out


@njit_fused(makes_arrays=True)
def _listed_products(data, indices, indptr, place, full, starts, rows, values, out):  # type: ignore[no-untyped-def]
    m = out.shape[1]
    at, times = np.empty(TOGETHER, np.int64), np.empty(TOGETHER, out.dtype)
    for i in range(out.shape[0]):
        total, held = out[i], 0
        total[:] = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            column, value = indices[k], data[k]
            if place[column] < 0:
                for entry in range(starts[column], starts[column + 1]):
                    total[rows[entry]] += value * values[entry]
                continue
            at[held], times[held] = place[column], value
            held += 1
            if held == TOGETHER:
                z0, z1, z2, z3 = full[at[0]], full[at[1]], full[at[2]], full[at[3]]
                x0, x1, x2, x3 = times[0], times[1], times[2], times[3]
                for j in range(m):
                    total[j] += (x0 * z0[j] + x1 * z1[j]) + (x2 * z2[j] + x3 * z3[j])
                held = 0
        for k in range(held):
            column, value = full[at[k]], times[k]
            for j in range(m):
                total[j] += value * column[j]
