"""scikit-learn's scorers on decision values that are already there: an estimator that is asked for them gives them."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, OutlierMixin, RegressorMixin, is_regressor
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.utils.metaestimators import available_if

from svmcore.errors import did_you_mean
from svmcore.model import vote
from svmcore.model.probability import class_probabilities, sigmoid
from svmcore.points import Floats

__all__ = ["VALUES", "Classifier", "Detector", "Regressor", "fault", "scores_of"]

VALUES = np.array([[0.5], [1.25], [2.5]])  # for which every score of values is defined


class Classifier(ClassifierMixin, BaseEstimator):
    """Codes 0 ... k - 1; the later of two classes is the positive one. Sigmoids (k, 2) give probabilities."""

    def __init__(self, n_classes: int, scheme: str, sigmoids: Floats | None = None) -> None:
        self.n_classes, self.scheme, self.sigmoids = n_classes, scheme, sigmoids
        self.classes_ = np.arange(n_classes)

    def predict(self, X: Floats) -> Floats:
        """Codes (n,) of decision values (n, k)."""
        return vote(X, self.n_classes, self.scheme)

    def decision_function(self, X: Floats) -> Floats:
        """The values themselves; (n,) of two classes."""
        return X[:, 0] if self.n_classes == 2 else X

    @available_if(lambda self: self.sigmoids is not None)
    def predict_proba(self, X: Floats) -> Floats:
        """Probabilities (n, n_classes) of decision values (n, k)."""
        return class_probabilities(sigmoid(X, *self.sigmoids.T), self.n_classes, self.scheme)  # type: ignore[union-attr]


class Regressor(RegressorMixin, BaseEstimator):
    """Values."""

    def predict(self, X: Floats) -> Floats:
        """The values (n,) themselves, given as (n, 1)."""
        return X[:, 0]


class Detector(OutlierMixin, BaseEstimator):
    """1 inside, -1 outside."""

    def predict(self, X: Floats) -> Floats:
        """Sides (n,) of decision values (n, 1)."""
        return np.where(X[:, 0] >= 0, 1, -1)

    def decision_function(self, X: Floats) -> Floats:
        """The values (n,) themselves."""
        return X[:, 0]


def scores_of(names: Sequence[str], estimator: Any, decision: Floats, truth: Floats) -> dict[str, float | None]:
    """Scores by name; None where one is not defined, as the area under a curve of one class."""
    return {name: _score(name, estimator, decision, truth) for name in names}


def _score(name: str, estimator: Any, decision: Floats, truth: Floats) -> float | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = float(get_scorer(name)(estimator, decision, truth))
        except ValueError:  # `fault` has let the score pass, so these rows have none
            return None
    return value if math.isfinite(value) else None


def fault(name: str, estimator: Any, decision: Floats, truth: Floats) -> str:
    """Why a score has no value for such rows, or an empty string."""
    if name not in get_scorer_names():
        return f"scikit-learn has no such scorer{did_you_mean(name, get_scorer_names())}"
    if not is_regressor(estimator) and not _fault(name, Regressor(), VALUES + 0.125, VALUES[:, 0]):
        return "it compares values"
    return _fault(name, estimator, decision, truth)


def _fault(name: str, estimator: Any, decision: Floats, truth: Floats) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            value = float(get_scorer(name)(estimator, decision, truth))
        except AttributeError:
            return "it needs probabilities; set probability: true"
        except (ValueError, TypeError, UserWarning) as error:
            return str(error).strip().split("\n")[0].rstrip(".")
    return "" if math.isfinite(value) else "it is not defined there"
