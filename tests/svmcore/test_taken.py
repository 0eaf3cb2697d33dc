"""Rows that are taken by indices are those that brackets give, of any form of matrix."""

import numpy as np
import pytest
from scipy import sparse

from svmcore.points import taken as module
from svmcore.points.taken import taken
from svmcore.runtime import threads


@pytest.mark.parametrize(
    "rows", [np.array([3, 0, 3, -1]), np.array([], np.int64), np.arange(6) > 3, slice(1, 5, 2)], ids=str
)
@pytest.mark.parametrize("order", ["C", "F", "CSR"])
@pytest.mark.parametrize("large", [1 << 24, 1])
def test_taken__gives_what_brackets_give(rows, order, large, monkeypatch):
    monkeypatch.setattr(module, "LARGE", large)
    X = np.arange(18.0).reshape(6, 3)
    matrix = sparse.csr_matrix(X) if order == "CSR" else np.asarray(X, order=order)
    found = taken(matrix, rows)
    np.testing.assert_array_equal(found.toarray() if order == "CSR" else found, X[rows])


def test_taken__of_a_row_that_is_not_there_is_an_error():
    with pytest.raises(IndexError):
        taken(np.zeros((2, 2)), np.array([2]))


@pytest.mark.parametrize("count", [1, 3])
def test_taken__of_many_bytes_is_copied_by_threads(count, monkeypatch):
    """Rows from the end, rows twice, all of them: what a thread copies begins anywhere."""
    monkeypatch.setattr(module, "LARGE", 1)
    monkeypatch.setattr(module, "LEAST", 4)
    monkeypatch.setattr(threads, "n_threads", lambda: count)
    X = np.arange(300, dtype=np.float32).reshape(100, 3)
    for rows in (np.arange(100)[::-1], np.arange(100) // 2, np.array([99] * 11), -1 - np.arange(100)):
        np.testing.assert_array_equal(taken(X, rows), X[rows])
    for missing in (np.array([0] * 20 + [100]), np.array([0] * 20 + [-101])):
        with pytest.raises(IndexError):
            taken(X, missing)
