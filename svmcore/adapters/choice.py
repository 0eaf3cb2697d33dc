"""C by validation rows, proved, for our SVC: see `svmcore.train.choice`."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_array, check_X_y

from svmcore.adapters.classifiers import SVC
from svmcore.errors import InputError
from svmcore.train.choice import Choice, choose
from svmcore.train.shared import Fold, Table

__all__ = ["choose_C"]

MOST = 200


def choose_C(
    estimator: SVC,
    X: Any,
    y: Any,
    validation: tuple[Any, Any],
    between: tuple[float, float],
    within: int = 0,
    most: int = MOST,
) -> Choice:
    """Choose C by the errors at validation rows, and prove that no other C is better by more than `within` of them.

    Parameters
    ----------
    estimator
        An `SVC` with the hinge loss; its C is not looked at, and its `tol` is 1e-5 at most.
    X, y
        Rows (n, p) to train on, and their labels (n,).
    validation
        (rows (m, p), labels (m,)): the labels are some of `y`.
    between
        The smallest and the largest C.
    within
        Errors: the search ends when no C between these can have fewer than those of the best, less so many.
    most
        Values of C that are solved at most. The proof may be wider than `within` then: the result says what is proved.

    Returns
    -------
    Choice
        `C`, its `errors`, what is proved (`within`), all that were `solved`, and as text a sentence.

    Raises
    ------
    InputError
        For an empty range of C, or labels that the training rows do not have.
    Unsupported
        For a machine of which nothing is proved.

    >>> X, y = [[-2.0], [-1], [1], [2]], [0, 0, 1, 1]
    >>> print(choose_C(SVC(gamma=1.0), X, y, ([[-1.5], [1.5]], [0, 1]), (0.1, 10.0)))
    C = 0.1: 0 errors in 2 rows; no C from 0.1 to 10 is better by more than 0; 2 values of C were solved
    """
    low, high = between
    if not 0.0 < low < high < np.inf:
        raise InputError(f"between must be (smallest C, largest C), 0 < smallest < largest; given {between!r}")
    if most < 2:
        raise InputError(f"most must be at least 2, one for each end of the range; given {most!r}")
    X, y = check_X_y(X, y, dtype=[np.float64, np.float32], order="C", accept_sparse="csr")
    X_held = check_array(validation[0], dtype=X.dtype, order="C", accept_sparse="csr")
    machine = clone(estimator)
    codes, classes, _ = machine._encode(y, None)
    place = np.minimum(np.searchsorted(classes, validation[1]), len(classes) - 1)
    if not np.array_equal(classes[place], validation[1]):
        raise InputError("validation has labels that the training rows do not have; leave their rows out")
    train, ask = np.arange(len(codes)), np.arange(len(codes), len(codes) + len(place))
    table = Table(_stacked(X, X_held), np.concatenate([codes, place]))
    return choose(machine._recipe(), table, Fold(train, ask, codes, classes), (low, high), within, most)


def _stacked(X: Any, more: Any) -> Any:
    if sparse.issparse(X) or sparse.issparse(more):
        return sparse.csr_matrix(sparse.vstack([X, more]))
    return np.vstack([X, more])
