"""SVC with scikit-learn's parameters, their meanings and its attributes: the only file here that imports sklearn.

What differs from scikit-learn's SVC, and why, is in docs/coming_from_sklearn.md.
"""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from svmcore._interrupt import stop_on_interrupt
from svmcore.adapters.fitted import FittedClassifier
from svmcore.adapters.hooks import Hooks, early_end
from svmcore.adapters.layout import class_order, from_layout, kernel_of, parameters_of, to_layout
from svmcore.adapters.libsvm import support_codes
from svmcore.kernels import Precomputed
from svmcore.kernels.base import Kernel
from svmcore.losses import Loss
from svmcore.model import Model
from svmcore.points import Floats
from svmcore.solution import Status
from svmcore.solvers import Solver
from svmcore.train import Recipe, Training, train

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in for what older versions lack."""


__all__ = ["SVC"]

OLD_PROBABILITY = (
    "The `probability` parameter was deprecated in 1.9 and will be removed in version 1.11. "
    "Use `CalibratedClassifierCV(SVC(), ensemble=False)` instead of `SVC(probability=True)`"
)


class SVC(FittedClassifier, CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """C-support vector classification: scikit-learn's SVC, parameter for parameter, solved exactly and certified.

    Parameters
    ----------
    C, kernel, degree, gamma, coef0, tol, cache_size, class_weight, max_iter, decision_function_shape, break_ties
        As in `sklearn.svm.SVC`. `kernel` may also be a `svmcore.Kernel`; `cache_size` (MB) bounds the kernel matrix
        or its columns.
    shrinking, verbose, random_state, probability
        As in `sklearn.svm.SVC`; `shrinking` changes nothing here, `probability` is deprecated there and here.
    loss
        "hinge", or "squared_hinge".
    solver
        Name of a solver, or a `svmcore.Solver` with parameters of its own beside `tol` and `max_iter`. "auto" takes an
        interior point for a linear kernel of few features, and SMO else.
    multi_class
        "ovo", one problem for each pair of classes, or "ovr", one for each class against the rest.
    time_limit
        Seconds for all problems together; the model at the end of them is usable and certified.
    n_jobs
        Binary problems solved at once, on threads; None for all cores.
    warm_start
        Begin from the coefficients of the fit before, on as many rows.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, coef_, intercept_, classes_, class_weight_, n_iter_,
    fit_status_, n_features_in_, feature_names_in_, shape_fit_, probA_, probB_
        As in `sklearn.svm.SVC`; with `multi_class="ovr"` and more than two classes, `dual_coef_` is (n_classes, n_SV).
    certificate_
        One `svmcore.Certificate` per binary problem: primal, dual, KKT gap, recomputed in float64.
    status_
        One `svmcore.Status` per binary problem.
    history_
        Progress (seconds, steps, KKT gap) of each binary problem.
    plan_
        How K was served: "resident" or "columns".

    >>> model = SVC(kernel="linear").fit([[-2.0, -1], [-1, -1], [1, 1], [2, 1]], ["a", "a", "b", "b"])
    >>> model.dual_coef_, model.predict([[-0.8, -1.0]]).tolist(), model.certificate_[0].relative_gap
    (array([[-0.25,  0.25]]), ['a'], 0.0)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [Interval(Real, 0.0, None, closed="right")],
        "kernel": [StrOptions({"linear", "poly", "rbf", "sigmoid", "precomputed"}), callable],
        "degree": [Interval(Integral, 0, None, closed="left")],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0.0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "shrinking": ["boolean"],
        "probability": ["boolean", StrOptions({"deprecated"})],
        "tol": [Interval(Real, 0.0, None, closed="neither")],
        "cache_size": [Interval(Real, 0, None, closed="neither")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "verbose": ["verbose"],
        "max_iter": [Interval(Integral, -1, None, closed="left")],
        "decision_function_shape": [StrOptions({"ovr", "ovo"})],
        "break_ties": ["boolean"],
        "random_state": ["random_state"],
        "loss": [StrOptions({"hinge", "squared_hinge"})],
        "solver": [str, Solver],
        "multi_class": [StrOptions({"ovo", "ovr"})],
        "time_limit": [Interval(Real, 0.0, None, closed="neither"), None],
        "n_jobs": [Integral, None],
        "warm_start": ["boolean"],
    }

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        probability: bool | str = "deprecated",
        tol: float = 1e-3,
        cache_size: float = 200,
        class_weight: dict | str | None = None,
        verbose: bool = False,
        max_iter: int = -1,
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        random_state: Any = None,
        loss: str = "hinge",
        solver: Any = "auto",
        multi_class: str = "ovo",
        time_limit: float | None = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.probability = probability
        self.tol = tol
        self.cache_size = cache_size
        self.class_weight = class_weight
        self.verbose = verbose
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.random_state = random_state
        self.loss = loss
        self.solver = solver
        self.multi_class = multi_class
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.warm_start = warm_start

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.sparse = self.kernel != "precomputed"
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows `X` (n, p), labels `y` (n,) and weights (n,); Ctrl-C ends it early with a certified model."""
        if self.probability != "deprecated":
            warnings.warn(OLD_PROBABILITY, FutureWarning, stacklevel=3)
        X, y, weights = self._validated(X, y, sample_weight)
        start, before = (self._start(len(y)), self.classes_) if self._may_go_on else (None, None)
        codes = self._encode(y, weights)
        if before is not None and not np.array_equal(self.classes_, before):
            start = None  # other classes are other problems
        rows = self._kernel_rows(X)
        with stop_on_interrupt() as interrupted, Hooks(self, X, y, sample_weight, interrupted) as hooks:
            training = train(self._recipe(y, weights), rows, codes, self.classes_, weights, hooks.control, start)
            self._keep(training, codes, sparse.issparse(rows))
            self.shape_fit_ = X.shape if hasattr(X, "shape") else (_num_samples(X),)
        self._warn_of_status(interrupted())
        return self

    @classmethod
    def from_model(cls, model: Model) -> Self:
        """Fitted estimator of a `svmcore.Model`: one read by `from_libsvm`, or the artefact of a run.

        Its `support_` counts the support vectors, since the training rows are not known; `certificate_` is empty.
        """
        svc = cls(**parameters_of(model.kernel), multi_class=model.scheme)
        m, svc.n_features_in_ = model.support_vectors.shape
        svc.classes_, svc.class_weight_ = np.asarray(model.classes), np.ones(len(model.classes))
        svc._sparse = sparse.issparse(model.support_vectors) and not isinstance(model.kernel, Precomputed)
        svc.shape_fit_ = (svc.n_features_in_ if isinstance(model.kernel, Precomputed) else m, svc.n_features_in_)
        whole, none = np.arange(m), np.empty((0, 2))
        training = Training(model, (), (), support=whole, coef=model.coef, vector=whole, sigmoids=none, plan="resident")
        svc._keep(training, support_codes(model), svc._sparse)
        return svc

    def _validated(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Floats | None]:
        if sparse.issparse(X) and self._kernel_name == "precomputed":
            raise TypeError("Sparse precomputed kernels are not supported.")
        if self._kernel_name == "callable":
            check_consistent_length(X, y)
            n = _num_samples(X)
        else:
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C", accept_sparse="csr")
            n = X.shape[0]
        if self._kernel_name == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(f"Precomputed matrix must be a square matrix. Input is a {n}x{X.shape[1]} matrix.")
        if sample_weight is not None:
            if not (np.asarray(sample_weight, dtype=np.float64) > 0).any():
                raise ValueError("Invalid input - all samples have zero or negative weights.")
            sample_weight = _check_sample_weight(sample_weight, np.empty(n), dtype=np.float64)
        self._sparse = sparse.issparse(X) and self._kernel_name != "callable"
        return X, column_or_1d(y, warn=True), sample_weight

    def _encode(self, y: Any, weights: Floats | None) -> Floats:
        """Class codes (n,); a class without a row of positive weight does not exist."""
        check_classification_targets(y)
        n_classes = len(np.unique(y))
        if n_classes < 2:
            raise ValueError(f"The number of classes has to be greater than one; got {n_classes} class")
        kept = slice(None) if weights is None else weights > 0
        self.classes_, kept_codes = np.unique(y[kept], return_inverse=True)
        codes = np.zeros(len(y), dtype=np.int64)
        codes[kept] = kept_codes
        self.class_weight_ = np.ones(len(self.classes_))
        if len(self.classes_) > 1:
            of = None if weights is None else weights[kept]
            self.class_weight_ = compute_class_weight(
                self.class_weight, classes=self.classes_, y=y[kept], sample_weight=of
            )
        return codes

    @property
    def _watched(self) -> bool:
        """Whether somebody wants to hear of the progress, one problem after the other."""
        return bool(self.verbose or getattr(self, "_skl_callbacks", None))

    @property
    def _kernel_name(self) -> str:
        if isinstance(self.kernel, Kernel):
            return self.kernel.name
        return "callable" if callable(self.kernel) else str(self.kernel)

    def _kernel_rows(self, X: Any) -> Any:
        """The rows to train on: those of K where the kernel is a function."""
        if self._kernel_name != "callable":
            return X
        self._X_fit = X
        K = self._called(X)
        if K.shape[0] != K.shape[1]:
            raise ValueError("X.shape[0] should be equal to X.shape[1]")
        return K

    def _called(self, X: Any) -> Floats:
        K = self.kernel(X, self._X_fit)
        return np.asarray(K.toarray() if sparse.issparse(K) else K, dtype=np.float64, order="C")

    def _recipe(self, y: Any, weights: Floats | None) -> Recipe:
        kernel = self.kernel
        if not isinstance(kernel, Kernel):
            name = "precomputed" if self._kernel_name == "callable" else kernel
            kernel = kernel_of(name, self.degree, self.gamma, self.coef0)
        solver = self.solver
        if isinstance(solver, str):
            solver = {"name": solver, "tol": self.tol, "max_iter": self.max_iter}
        jobs = 1 if self._watched else self.n_jobs
        return Recipe(
            kernel=kernel,
            C=float(self.C),
            loss=Loss.create(self.loss),
            solver=Solver.create(solver),
            class_weight=self.class_weight_,
            scheme=self.multi_class,
            cache_bytes=int(self.cache_size * 2**20),
            n_jobs=jobs if jobs is not None and jobs > 0 else None,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)) if self.probability is True else None,
        )

    @property
    def _may_go_on(self) -> bool:
        """Whether there is a fit before to start from, with the same scheme."""
        fitted = self.warm_start and hasattr(self, "shape_fit_")
        return bool(fitted and (self._model.scheme == self.multi_class or len(self.classes_) == 2))

    def _start(self, n: int) -> Floats | None:
        """Coefficients (k, n) of the fit before, if it was on as many rows."""
        if self.shape_fit_[0] != n:
            return None
        coef: Any = self.dual_coef_
        coef = coef.toarray() if sparse.issparse(coef) else coef
        if self._pairwise:
            coef = from_layout(coef, np.repeat(np.arange(len(self.classes_)), self._n_support), len(self.classes_))
        start = np.zeros((len(coef), n))
        start[:, self.support_] = coef
        return start

    def _keep(self, training: Training, codes: Floats, as_sparse: bool) -> None:
        """Set the fitted attributes, in LIBSVM's layout for one-vs-one."""
        order = class_order(codes[training.support])
        self.support_ = training.support[order].astype(np.int32)
        self._n_support = np.bincount(codes[self.support_], minlength=len(self.classes_)).astype(np.int32)
        self._model, self._vector = training.model, training.vector[order]
        coef = training.coef[:, order]
        if self._pairwise:
            coef = to_layout(coef, codes[self.support_], len(self.classes_))
        self.dual_coef_ = sparse.csr_matrix(coef) if as_sparse else coef
        self.intercept_ = -training.model.bias if self._pairwise else training.model.bias.copy()
        self._gamma = getattr(training.model.kernel, "gamma", 0.0)
        self.n_iter_ = np.array([solution.n_iter for solution in training.solutions], dtype=np.int32)
        self.certificate_ = tuple(solution.certificate for solution in training.solutions)
        self.status_ = tuple(solution.status for solution in training.solutions)
        self.history_ = tuple(solution.history for solution in training.solutions)
        self.plan_ = training.plan
        self.fit_status_ = int(any(status is not Status.CONVERGED for status in self.status_))
        self._probA, self._probB = training.sigmoids.T

    def _warn_of_status(self, interrupted: bool) -> None:
        if not self.fit_status_:
            return
        causes = {
            Status.MAX_ITER: f"max_iter={self.max_iter}",
            Status.TIME_LIMIT: f"time_limit={self.time_limit}",
            Status.STOPPED: "interrupted" if interrupted else "stopped by a callback",
        }
        gap = max(certificate.kkt_gap for certificate in self.certificate_)
        message = early_end(self.status_, causes, gap, self.tol)
        warnings.warn(message, ConvergenceWarning, stacklevel=4)
