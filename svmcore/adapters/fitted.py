"""What a fitted machine answers: predictions and scikit-learn's attributes."""

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import _ovr_decision_function
from sklearn.utils.validation import check_is_fitted, validate_data

from svmcore.adapters.checks import is_plain
from svmcore.kernels import Precomputed
from svmcore.model import Model, vote
from svmcore.model.probability import class_probabilities, sigmoid
from svmcore.points import Floats
from svmcore.runtime.threads import one_blas_thread

__all__ = ["Fitted", "FittedClassifier"]

DEPRECATED = "Attribute `{}` was deprecated in version 1.9 and will be removed in 1.11."


def _has_probability(classifier: Any) -> bool:
    if classifier.calibration is None and classifier.probability is not True:
        raise AttributeError("predict_proba is not available when probability=False; calibration='folds' asks for it")
    return True


class Fitted:
    """The half of a machine that is asked after `fit`, over `_model` and what `fit` kept beside it."""

    support_: Floats
    n_features_in_: int
    shape_fit_: tuple[int, ...]
    _model: Model
    _vector: Floats
    _n_support: Floats
    _sparse: bool
    _kernel_name: Any
    _called: Any
    _doubts: Any
    _exact_bound: tuple[Any, ...]

    @property
    def model_(self) -> Model:
        """The model on its distinct support vectors, for `svmcore.export` and the pipeline's artefacts."""
        check_is_fitted(self)
        return self._model

    def _rows(self, X: Any) -> Any:
        """Rows to evaluate the model at, checked against those it was trained on."""
        check_is_fitted(self)
        if self._kernel_name == "callable":
            X = self._called(X)
        elif not self._is_as_fitted(X):
            X = validate_data(self, X, dtype=[np.float64, np.float32], order="C", accept_sparse="csr", reset=False)
        if sparse.issparse(X) and not self._sparse:
            raise ValueError(f"cannot use sparse input in {type(self).__name__!r} trained on dense data")
        if self._kernel_name in ("callable", "precomputed") and X.shape[1] != self.shape_fit_[0]:
            raise ValueError(
                f"X.shape[1] = {X.shape[1]} should be equal to {self.shape_fit_[0]}, "
                "the number of samples at training time"
            )
        if self._n_support.sum() != len(self.support_):
            raise ValueError(f"The internal representation of {type(self).__name__} was altered")
        return X

    def _is_as_fitted(self, X: Any) -> bool:
        """Whether scikit-learn's checks, which take as long as a row's answer, would find nothing."""
        return is_plain(X) and X.shape[1] == self.n_features_in_ and "feature_names_in_" not in self.__dict__

    def _bound(self, rows: Any, decision: Floats) -> Floats:
        """Bounds (n, k) of what decision values (n, k) at `rows` are off from the exact optimum's."""
        if self._kernel_name in ("callable", "precomputed"):
            raise ValueError("return_bound=True needs k(x, x), which rows of a kernel matrix do not tell")
        if self._exact_bound:
            raise ValueError("return_bound=True needs the exact machine; approximation={..., 'polish': True} solves it")
        if self._doubts is None:
            raise ValueError("return_bound=True needs the proof of the training; this model was read from a file")
        return self._doubts.bound(rows, decision)

    @property
    def support_vectors_(self) -> Any:
        """(n_SV, p) rows of the training data; empty where the kernel matrix was given."""
        if isinstance(self._fitted("_model").kernel, Precomputed):
            return np.empty((0, 0))
        if self._exact_bound:
            raise AttributeError("an approximation keeps landmarks_; its support vectors are the rows X[support_]")
        return self._model.support_vectors[self._vector]

    @property
    def landmarks_(self) -> Any:
        """(r, p) rows that the predictions of an approximation go through."""
        if not self.exact_bound_:
            raise AttributeError("landmarks_ are of an approximation")
        return self._model.support_vectors

    @property
    def exact_bound_(self) -> tuple[Any, ...]:
        """One `svmcore.ExactBound` per problem of an approximation; empty where the kernel itself was solved."""
        return self._fitted("_exact_bound")

    @property
    def n_support_(self) -> Floats:
        """(n_classes,) number of support vectors of each class; (1,) where there are no classes."""
        return self._fitted("_n_support")

    @property
    def coef_(self) -> Any:
        """(k, p) weights of a linear kernel's features, read-only; sparse for sparse data."""
        if self._kernel_name != "linear":
            raise AttributeError("coef_ is only available when using a linear kernel")
        model, sign = self._fitted("_model"), self._sign
        if sparse.issparse(model.support_vectors):
            coef = sparse.csr_matrix(sparse.csr_matrix(sign * model.coef) @ model.support_vectors)
            coef.data.flags.writeable = False
            return coef
        with one_blas_thread():
            coef = sign * model.coef @ model.support_vectors
        coef.flags.writeable = False
        return coef

    @property
    def _sign(self) -> float:
        """The sign that scikit-learn gives coefficients and intercepts, in units of ours."""
        return 1.0

    def _fitted(self, name: str) -> Any:
        """A private attribute, or AttributeError before `fit`, so that hasattr tells."""
        if name not in self.__dict__:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        return self.__dict__[name]


class FittedClassifier(Fitted):
    """Labels, decision values and probabilities."""

    classes_: Floats
    break_ties: bool
    decision_function_shape: str
    _probA: Floats
    _probB: Floats
    _steps: list[Any]

    @property
    def _pairwise(self) -> bool:
        """Whether there is one problem for each pair of more than two classes."""
        return self._model.scheme == "ovo" and len(self.classes_) > 2

    @property
    def _sign(self) -> float:
        """LIBSVM's: the earlier class of a pair is positive."""
        return -1.0 if self._pairwise else 1.0

    def decision_function(self, X: Any, return_bound: bool = False) -> Any:
        """Decision values of rows `X` (n, p): (n,) for two classes, else (n, n_classes), or (n, pairs) for "ovo".

        With `return_bound` also, in the same shape, how far each may be from that of the exact optimum: see
        docs/certificates.md. Votes of pairs have no such bound: it needs `decision_function_shape="ovo"` then.
        """
        rows = self._rows(X)
        decision = self._model.decision_function(rows)
        if not return_bound:
            return self._shaped(decision)
        if self._pairwise and self.decision_function_shape == "ovr":
            raise ValueError("bounds are of the pairs' values: return_bound=True needs decision_function_shape='ovo'")
        bound = self._bound(rows, decision)
        return self._shaped(decision), bound.ravel() if len(self.classes_) == 2 else bound

    def _shaped(self, decision: Floats) -> Floats:
        """Decision values of the problems (n, k) as scikit-learn has them."""
        if len(self.classes_) == 2:
            return decision.ravel()
        if not self._pairwise:
            return decision
        if self.decision_function_shape == "ovr":
            return np.asarray(_ovr_decision_function(decision > 0, decision, len(self.classes_)))
        return self._sign * decision

    def predict(self, X: Any) -> Floats:
        """Labels (n,) of rows `X` (n, p)."""
        if self.break_ties:
            check_is_fitted(self)
            if self.decision_function_shape == "ovo":
                raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
            if len(self.classes_) > 2:
                return self.classes_[np.argmax(self.decision_function(X), axis=1)]
        rows = self._rows(X)
        decision = self._model.decisions(rows)
        return self.classes_[vote(decision, len(self.classes_), self._model.scheme)]

    @available_if(_has_probability)
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (n, n_classes) of rows `X` (n, p), from held-out decision values, coupled over pairs."""
        X = self._rows(X)
        if self._probA.size == 0:
            raise NotFittedError("predict_proba is not available when fitted with probability=False")
        later = self._later(self._model.decision_function(X))
        return class_probabilities(later, len(self.classes_), self._model.scheme)

    def _later(self, decision: Floats) -> Floats:
        """Probability (n, k) of each problem's positive class."""
        if self._steps:
            return np.column_stack([step.predict(f) for step, f in zip(self._steps, decision.T, strict=True)])
        return sigmoid(decision, self._probA, self._probB)

    @available_if(_has_probability)
    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms (n, n_classes) of `predict_proba`."""
        return np.log(self.predict_proba(X))

    @property
    def probA_(self) -> Floats:
        """(k,) A of each problem's sigmoid."""
        warnings.warn(DEPRECATED.format("probA_"), FutureWarning, stacklevel=2)
        return self._fitted("_probA")

    @property
    def probB_(self) -> Floats:
        """(k,) B of each problem's sigmoid."""
        warnings.warn(DEPRECATED.format("probB_"), FutureWarning, stacklevel=2)
        return self._fitted("_probB")
