"""SVR and NuSVR with scikit-learn's parameters, their meanings and its attributes."""

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_array, column_or_1d

from svmcore import tasks
from svmcore.adapters.machine import SHARE, Machine
from svmcore.points import Floats
from svmcore.train import Training

__all__ = ["SVR", "NuSVR"]


class Regressor(RegressorMixin, Machine):
    """What SVR and NuSVR share: targets, one or several on the same kernel matrix."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Machine._parameter_constraints,
        "C": [Interval(Real, 0.0, None, closed="right")],
    }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def predict(self, X: Any, return_bound: bool = False) -> Any:
        """Values (n,) at rows `X` (n, p); (n, k) after a fit to k > 1 targets.

        With `return_bound` also, in the same shape, how far each may be from that of the exact optimum: see
        docs/certificates.md.
        """
        rows = self._rows(X)
        values = self._model.predict(rows)
        if not return_bound:
            return values
        return values, self._bound(rows, values.reshape(len(values), -1)).reshape(values.shape)

    def _checked(self, X: Any, y: Any, **given: Any) -> tuple[Any, Any]:
        return super()._checked(X, y, multi_output=True, y_numeric=True)

    def _targets(self, y: Any) -> Floats:
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        return y if y.ndim == 2 and y.shape[1] > 1 else column_or_1d(y, warn=True)

    def _encode(self, y: Floats, weights: Floats | None) -> tuple[Floats, Floats, bool]:
        """Codes of equal targets: copies of a row are merged where their targets are equal too."""
        levels, codes = np.unique(y + 0.0, axis=0, return_inverse=True)
        return codes.ravel(), levels.reshape(len(levels), -1), True

    def _n_programs(self, classes: Floats) -> int:
        return classes.shape[1]

    def _keep(self, training: Training, codes: Floats, as_sparse: bool) -> None:
        super()._keep(training, codes, as_sparse)
        if len(self.n_iter_) == 1:
            self.n_iter_ = int(self.n_iter_[0])


class SVR(Regressor):
    """Epsilon-support vector regression: scikit-learn's SVR, parameter for parameter, solved exactly and certified.

    `y` may hold several targets, (n, k), where scikit-learn raises: k programs on one kernel matrix.

    Parameters
    ----------
    kernel, degree, gamma, coef0, tol, C, epsilon, shrinking, cache_size, verbose, max_iter
        As in `sklearn.svm.SVR`. `kernel` may also be a `svmcore.Kernel`.
    solver, time_limit, n_jobs, warm_start, approximation
        As in `svmcore.estimator.SVC`.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, coef_, intercept_, n_iter_, fit_status_, n_features_in_,
    feature_names_in_, shape_fit_
        As in `sklearn.svm.SVR`; of k > 1 targets `dual_coef_` is (k, n_SV), `intercept_` and `n_iter_` are (k,).
    certificate_, status_, history_
        One of each target, as in `svmcore.estimator.SVC`.
    plan_
        How K was served: "resident", "columns" or "factor".
    landmarks_, exact_bound_
        Of an approximation: the rows (r, p) that predictions go through, and one `svmcore.ExactBound` per problem: what
        the answer proves of the kernel itself.

    >>> model = SVR(kernel="linear", C=100.0, epsilon=0.0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> model.predict([[3.0]]).round(3), model.coef_.round(3), model.status_[0]
    (array([7.]), array([[2.]]), <Status.CONVERGED: 'converged'>)
    """

    task = tasks.SVR
    epsilon: float
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Regressor._parameter_constraints,
        "epsilon": [Interval(Real, 0.0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        C: float = 1.0,
        epsilon: float = 0.1,
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

    def _task(self) -> tasks.SVR:
        return tasks.SVR(float(self.epsilon))


class NuSVR(Regressor):
    """Nu-support vector regression: scikit-learn's NuSVR, parameter for parameter, solved exactly and certified.

    `y` may hold several targets, (n, k), where scikit-learn raises: k programs on one kernel matrix.

    Parameters
    ----------
    nu, C, kernel, degree, gamma, coef0, shrinking, tol, cache_size, verbose, max_iter
        As in `sklearn.svm.NuSVR`; C must be finite. `kernel` may also be a `svmcore.Kernel`.
    solver, time_limit, n_jobs, warm_start, approximation
        As in `svmcore.estimator.SVC`.

    Attributes
    ----------
    epsilon_
        (k,) half the width of the tube that was found for each target.
    support_, support_vectors_, n_support_, dual_coef_, coef_, intercept_, n_iter_, certificate_, status_, history_, ...
        As in `svmcore.estimator.SVR`.

    >>> rows, targets = [[0.0], [1.0], [2.0], [3.0]], [0.0, 2.0, 1.0, 3.0]
    >>> model = NuSVR(kernel="linear", C=100.0, nu=0.4, tol=1e-9).fit(rows, targets)
    >>> model.coef_.round(6), model.epsilon_.round(6)
    (array([[0.5]]), array([0.75]))
    """

    task = tasks.NuSVR
    nu: float
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {**Regressor._parameter_constraints, "nu": SHARE}

    def __init__(
        self,
        *,
        nu: float = 0.5,
        C: float = 1.0,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        tol: float = 1e-3,
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

    def _task(self) -> tasks.NuSVR:
        return tasks.NuSVR(float(self.nu))

    def _keep(self, training: Training, codes: Floats, as_sparse: bool) -> None:
        super()._keep(training, codes, as_sparse)
        self.epsilon_ = np.array([answer.epsilon for answer in training.answers])
