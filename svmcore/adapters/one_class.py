"""OneClassSVM with scikit-learn's parameters, their meanings and its attributes."""

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.validation import _num_samples

from svmcore import tasks
from svmcore.adapters.machine import SHARE, Machine
from svmcore.points import Floats
from svmcore.train import Training

__all__ = ["OneClassSVM"]


class OneClassSVM(OutlierMixin, Machine):
    """The support of a distribution: scikit-learn's OneClassSVM, parameter for parameter, solved exactly and certified.

    Parameters
    ----------
    kernel, degree, gamma, coef0, tol, nu, shrinking, cache_size, verbose, max_iter
        As in `sklearn.svm.OneClassSVM`. `kernel` may also be a `svmcore.Kernel`.
    solver, time_limit, n_jobs, warm_start, approximation
        As in `svmcore.estimator.SVC`.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, coef_, intercept_, offset_, n_iter_, fit_status_,
    n_features_in_, feature_names_in_, shape_fit_
        As in `sklearn.svm.OneClassSVM`.
    certificate_, status_, history_, plan_
        As in `svmcore.estimator.SVC`, one each.

    >>> model = OneClassSVM(gamma="auto", tol=1e-8).fit([[0], [0.44], [0.45], [0.46], [1]])
    >>> model.score_samples([[0.44], [1]]).round(2)
    array([2.05, 1.73])
    """

    task = tasks.OneClass
    nu: float
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {**Machine._parameter_constraints, "nu": SHARE}

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        nu: float = 0.5,
        shrinking: bool = True,
        cache_size: float = 200,
        verbose: bool = False,
        max_iter: int = -1,
        solver: Any = "auto",
        time_limit: float | None = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        approximation: Any = None,
    ) -> None:
        self._hold(locals())

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows `X` (n, p) and weights (n,); `y` is not looked at."""
        return super().fit(X, y, sample_weight=sample_weight)

    def decision_function(self, X: Any, return_bound: bool = False) -> Any:
        """Decision values (n,) of rows `X` (n, p): below 0 outside.

        With `return_bound` also how far each may be from that of the exact optimum: see docs/certificates.md.
        """
        rows = self._rows(X)
        decision = self._model.decision_function(rows)
        return (decision.ravel(), self._bound(rows, decision).ravel()) if return_bound else decision.ravel()

    def score_samples(self, X: Any) -> Floats:
        """Decision values (n,) without the offset: sum_i coef_i k(x, x_i)."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> Floats:
        """Return 1 inside, -1 outside, (n,)."""
        rows = self._rows(X)
        return self._model.predict(rows).astype(np.intp)

    def _validated(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Floats | None]:
        return super()._validated(X, np.ones(_num_samples(X)), sample_weight)

    def _task(self) -> tasks.OneClass:
        return tasks.OneClass(float(self.nu))

    def _encode(self, y: Any, weights: Floats | None) -> tuple[Floats, Floats, bool]:
        return np.zeros(len(y), dtype=np.int64), np.empty(0), True

    def _keep(self, training: Training, codes: Floats, as_sparse: bool) -> None:
        super()._keep(training, codes, as_sparse)
        self.offset_ = -self.intercept_
        self.n_iter_ = int(self.n_iter_.sum())
