"""C by validation rows, proved, for our SVC: see `svmcore.train.choice`."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.utils import check_array, check_X_y

from svmcore.adapters.classifiers import SVC
from svmcore.errors import InputError
from svmcore.points import Floats
from svmcore.train.choice import Choice, choose
from svmcore.train.shared import Fold, Part, Table

__all__ = ["choose_C"]

MOST = 200


def choose_C(
    estimator: SVC,
    X: Any,
    y: Any,
    validation: Any,
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
        (rows (m, p), labels (m,)), the labels some of `y`; or folds of `X`, as `cv` of scikit-learn's searches: a
        number, a splitter, or a list of (train, test). The errors of all folds are added up.
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
        For an empty range of C, labels that the training rows do not have, or folds that leave out all of a class.
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
    if isinstance(validation, tuple):
        return choose(*_apart(estimator, X, y, validation), (low, high), within, most)
    return choose(*_folds(estimator, X, y, validation), (low, high), within, most)


def _part(estimator: SVC, y: Floats, train: Floats, ask: Floats) -> Part:
    """The machine on the rows `train` of a table, whose labels are `y`."""
    machine = clone(estimator)
    codes, classes, _ = machine._encode(y, None)
    return Part(machine._recipe(), Fold(train, ask, codes, classes))


def _apart(estimator: SVC, X: Any, y: Floats, validation: tuple[Any, Any]) -> tuple[list[Part], Table]:
    """Rows to train on, then those of the validation."""
    X_held = check_array(validation[0], dtype=X.dtype, order="C", accept_sparse="csr")
    rows = np.arange(X.shape[0] + X_held.shape[0])
    part = _part(estimator, y, rows[: X.shape[0]], rows[X.shape[0] :])
    classes = part.fold.classes
    place = np.minimum(np.searchsorted(classes, validation[1]), len(classes) - 1)
    if not np.array_equal(classes[place], validation[1]):
        raise InputError("validation has labels that the training rows do not have; leave their rows out")
    return [part], Table(_stacked(X, X_held), np.concatenate([part.fold.codes, place]))


def _folds(estimator: SVC, X: Any, y: Floats, cv: Any) -> tuple[list[Part], Table]:
    """Every fold of the same rows."""
    classes, codes = np.unique(y, return_inverse=True)
    splits = [(train, test) for train, test in check_cv(cv, y, classifier=True).split(X, y)]
    if any(len(np.unique(codes[train])) < len(classes) for train, _ in splits):
        raise InputError("a fold leaves no row of some class to train on; give folds that have rows of every class")
    parts = [_part(estimator, y[train], np.asarray(train), np.asarray(test)) for train, test in splits]
    return parts, Table(X, codes)


def _stacked(X: Any, more: Any) -> Any:
    if sparse.issparse(X) or sparse.issparse(more):
        return sparse.csr_matrix(sparse.vstack([X, more]))
    return np.vstack([X, more])
