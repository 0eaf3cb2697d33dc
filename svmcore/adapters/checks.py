"""scikit-learn's checks of what users give, left out where a look at the types shows that they would find nothing.

Its checks take any kind of table, and a look at one costs more than a problem of some hundred rows.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from svmcore.points import Floats

__all__ = ["are_plain", "check_once", "checked_weights", "classes_of", "is_plain"]

NUMBERS = "biuf"  # kinds of numbers that are in order
CERTAINLY_CLASSES = "biuUS"  # kinds of labels that can be nothing else
SIMPLE = (bool, int, float, str, type(None))  # kinds of parameters that are known by their value
REMEMBERED = 256  # sets of parameters

_valid: set[Any] = set()


def check_once(machine: type, parameters: dict[str, Any], check: Callable[[], None]) -> None:
    """Call `check` unless it found no fault in the same parameters before."""
    kinds = tuple(map(type, parameters.values()))
    key = machine, kinds, tuple(parameters.values())
    simple = all(kind in SIMPLE for kind in kinds)
    if simple and key in _valid:
        return
    check()
    if simple and len(_valid) < REMEMBERED:
        _valid.add(key)


def is_plain(X: Any) -> bool:
    """Whether scikit-learn takes rows as they are: finite numbers in an array."""
    if type(X) is not np.ndarray or X.ndim != 2 or X.dtype.char not in "df" or not X.flags.c_contiguous:
        return False
    return X.size > 0 and X.dtype.isnative and _is_finite(X)


def are_plain(X: Any, y: Any) -> bool:
    """Whether it takes rows and targets as they are: one finite number or one label for each row."""
    if type(X) is not np.ndarray or type(y) is not np.ndarray or y.ndim != 1 or len(y) != len(X):
        return False
    known = y.dtype.kind in CERTAINLY_CLASSES or (y.dtype.kind == "f" and _is_finite(y))
    return known and is_plain(X)


def _is_finite(values: Floats) -> bool:
    """Whether all are finite; False also for some that are, but too large for their sum."""
    with np.errstate(over="ignore", invalid="ignore"):
        return isfinite(values.sum())


def checked_weights(weights: Any, n: int) -> Floats:
    """Sample weights (n,) float64, one of them above 0."""
    plain = type(weights) is np.ndarray and weights.shape == (n,) and weights.dtype.char == "d"
    if not (plain and weights.dtype.isnative and weights.flags.c_contiguous and _is_finite(weights)):
        if not (np.asarray(weights, dtype=np.float64) > 0).any():
            raise ValueError(NO_WEIGHT)
        return np.asarray(_check_sample_weight(weights, np.empty(n), dtype=np.float64))
    if not weights.max() > 0:
        raise ValueError(NO_WEIGHT)
    return np.asarray(weights)


NO_WEIGHT = "Invalid input - all samples have zero or negative weights."


def classes_of(y: Floats) -> tuple[Floats, Floats]:
    """(classes, codes (n,)) of labels (n,) that are classes."""
    found = _two_classes(y) if y.dtype.kind in NUMBERS and len(y) else None
    if found is not None:
        return found
    if y.dtype.kind not in CERTAINLY_CLASSES:
        check_classification_targets(y)
    return np.unique(y, return_inverse=True)


def _two_classes(y: Floats) -> tuple[Floats, Floats] | None:
    """Those of whole numbers of which there are two, the usual case: nothing need be sorted."""
    low, high = y.min(), y.max()
    later = y == high
    whole = y.dtype.kind != "f" or (float(low).is_integer() and float(high).is_integer() and high - low < 2**31)
    if low == high or not whole or not (later | (y == low)).all():
        return None
    return np.array([low, high], dtype=y.dtype), later.astype(np.int64)
