"""Rows that are taken by indices are those that brackets give, of any form of matrix."""

import numpy as np
import pytest
from scipy import sparse

from svmcore.points.taken import taken


@pytest.mark.parametrize(
    "rows", [np.array([3, 0, 3, -1]), np.array([], np.int64), np.arange(6) > 3, slice(1, 5, 2)], ids=str
)
@pytest.mark.parametrize("order", ["C", "F", "CSR"])
def test_taken__gives_what_brackets_give(rows, order):
    X = np.arange(18.0).reshape(6, 3)
    matrix = sparse.csr_matrix(X) if order == "CSR" else np.asarray(X, order=order)
    found = taken(matrix, rows)
    np.testing.assert_array_equal(found.toarray() if order == "CSR" else found, X[rows])


def test_taken__of_a_row_that_is_not_there_is_an_error():
    with pytest.raises(IndexError):
        taken(np.zeros((2, 2)), np.array([2]))
