"""What all machines share with scikit-learn: parameters of the kernel and the solver, `fit`, fitted attributes.

What differs from scikit-learn's classes, and why, is in docs/coming_from_sklearn.md.
"""

import functools
import warnings
from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _num_samples, check_consistent_length, validate_data

from svmcore.adapters.checks import are_plain, check_once, checked_weights
from svmcore.adapters.fitted import Fitted
from svmcore.adapters.hooks import Hooks, early_end
from svmcore.adapters.layout import kernel_of, parameters_of
from svmcore.adapters.prepared import prepared
from svmcore.approximation import Approximation
from svmcore.errors import InputError
from svmcore.kernels import Precomputed
from svmcore.kernels.base import Kernel
from svmcore.model import Model
from svmcore.points import Floats
from svmcore.runtime.interrupt import stop_on_interrupt
from svmcore.solution import Status
from svmcore.solvers import Solver
from svmcore.tasks import Task
from svmcore.train import Recipe, Training, train

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in for what older versions lack."""


__all__ = ["SHARE", "Machine"]

SHARE = [Interval(Real, 0.0, 1.0, closed="right")]  # what nu may be


class Machine(Fitted, CallbackSupportMixin, BaseEstimator, ABC):
    """Base of the estimators.

    Parameters
    ----------
    kernel, degree, gamma, coef0, shrinking, tol, cache_size, verbose, max_iter
        As in `sklearn.svm`. `kernel` may also be a `svmcore.Kernel`; `cache_size` (MB) bounds the kernel matrix or its
        columns; `shrinking` changes nothing here.
    solver
        Name of a solver, or a `svmcore.Solver` with parameters of its own beside `tol` and `max_iter`. "auto" takes an
        interior point for a linear kernel of few features, and SMO else.
    time_limit
        Seconds for all programs together; the model at the end of them is usable and certified.
    n_jobs
        Programs solved at once, on threads; None for all cores.
    warm_start
        Begin from the coefficients of the fit before, on as many rows.
    approximation
        None, a `svmcore.Nystroem`, or its parameters as a mapping.
    """

    task: ClassVar[type[Task]]  # what it trains

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [StrOptions({"linear", "poly", "rbf", "sigmoid", "precomputed"}), callable],
        "degree": [Interval(Integral, 0, None, closed="left")],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0.0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "shrinking": ["boolean"],
        "tol": [Interval(Real, 0.0, None, closed="neither")],
        "cache_size": [Interval(Real, 0, None, closed="neither")],
        "verbose": ["verbose"],
        "max_iter": [Interval(Integral, -1, None, closed="left")],
        "solver": [str, Solver],
        "time_limit": [Interval(Real, 0.0, None, closed="neither"), None],
        "n_jobs": [Integral, None],
        "warm_start": ["boolean"],
        "approximation": [None, Approximation, dict],
    }

    # set by the __init__ of each class, whose signature tells scikit-learn the names
    kernel: Any
    degree: int
    gamma: float | str
    coef0: float
    shrinking: bool
    tol: float
    cache_size: float
    verbose: bool
    max_iter: int
    solver: Any
    time_limit: float | None
    n_jobs: int | None
    warm_start: bool
    approximation: Any

    @classmethod
    @functools.cache  # a look at a signature takes as long as a small problem
    def _get_param_names(cls) -> list[str]:
        names: list[str] = super()._get_param_names()
        return names

    def _hold(self, parameters: dict[str, Any]) -> None:
        """Keep the arguments of `__init__`, its `locals()`, as they are: checks are for `fit`."""
        for name in self._get_param_names():
            setattr(self, name, parameters[name])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.sparse = self.kernel != "precomputed"
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows `X` (n, p), targets `y` and weights (n,); Ctrl-C ends it early with a certified model."""
        X, y, weights = self._validated(X, y, sample_weight)
        start = self._start(len(y)) if self.warm_start and hasattr(self, "shape_fit_") else None
        codes, classes, known = self._encode(y, weights)
        rows = self._kernel_rows(X)
        programs = self._n_programs(classes)
        start = start if known and start is not None and len(start) == programs else None
        with stop_on_interrupt() as interrupted, Hooks(self, programs, X, y, sample_weight, interrupted) as hooks:
            recipe = self._recipe()
            training = prepared(recipe, rows, codes, classes, weights)
            training = training or train(recipe, rows, codes, classes, weights, hooks.control, start)
            self._keep(training, codes, sparse.issparse(rows))
            self.shape_fit_ = X.shape if hasattr(X, "shape") else (_num_samples(X),)
        self._warn_of_status(interrupted())
        return self

    @classmethod
    def from_model(cls, model: Model) -> Self:
        """Fitted estimator of a `svmcore.Model`: one read by `from_libsvm`, or the artefact of a run.

        Its `support_` counts the support vectors, since the training rows are not known; `certificate_` is empty.
        """
        if model.answers != cls.task.answers:
            raise InputError(
                f"{cls.__name__} is for models that tell {cls.task.answers}; this is one of {model.machine}"
            )
        machine = cls(**parameters_of(model.kernel), **cls._parameters_of(model))
        m, machine.n_features_in_ = model.support_vectors.shape
        machine._sparse = sparse.issparse(model.support_vectors) and not isinstance(model.kernel, Precomputed)
        machine.shape_fit_ = (machine.n_features_in_ if isinstance(model.kernel, Precomputed) else m,)
        machine.shape_fit_ += (machine.n_features_in_,)
        whole = np.arange(m)
        training = Training(model, (), (), support=whole, coef=model.coef, vector=whole, held_out=(), plan="resident")
        machine._keep(training, machine._codes_of(model), machine._sparse)
        return machine

    @classmethod
    def _parameters_of(cls, model: Model) -> dict[str, Any]:
        """Parameters that a model knows, apart from the kernel's."""
        return {}

    def _codes_of(self, model: Model) -> Floats:
        """Class codes (m,) of the support vectors of a model."""
        return np.zeros(len(model.coef.T), dtype=np.int64)

    # ---- what a machine is

    @abstractmethod
    def _encode(self, y: Any, weights: Floats | None) -> tuple[Floats, Floats, bool]:
        """(codes (n,), what they stand for, whether these are the classes of the fit before) for `train`."""

    @abstractmethod
    def _task(self) -> Task:
        """The machine with its parameters."""

    def _n_programs(self, classes: Floats) -> int:
        return 1

    def _targets(self, y: Any) -> Any:
        """Checked targets."""
        return y

    # ---- rows, kernel and solver

    def _validated(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Floats | None]:
        if sparse.issparse(X) and self._kernel_name == "precomputed":
            raise TypeError("Sparse precomputed kernels are not supported.")
        if self._kernel_name == "callable":
            check_consistent_length(X, y)
            n = _num_samples(X)
        else:
            X, y = self._checked(X, y)
            n = X.shape[0]
        if self._kernel_name == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(f"Precomputed matrix must be a square matrix. Input is a {n}x{X.shape[1]} matrix.")
        if sample_weight is not None:
            sample_weight = checked_weights(sample_weight, n)
        self._sparse = sparse.issparse(X) and self._kernel_name != "callable"
        return X, self._targets(y), sample_weight

    def _validate_params(self) -> None:
        check_once(type(self), self.get_params(deep=False), super()._validate_params)

    def _checked(self, X: Any, y: Any, **given: Any) -> tuple[Any, Any]:
        if are_plain(X, y):
            self.n_features_in_ = X.shape[1]
            self.__dict__.pop("feature_names_in_", None)
            return X, y
        return validate_data(self, X, y, dtype=[np.float64, np.float32], order="C", accept_sparse="csr", **given)

    @property
    def _watched(self) -> bool:
        """Whether somebody wants to hear of the progress, one program after the other."""
        return bool(self.verbose or getattr(self, "_skl_callbacks", None))

    @property
    def _kernel_name(self) -> str:  # type: ignore[override]
        if isinstance(self.kernel, Kernel):
            return self.kernel.name
        return "callable" if callable(self.kernel) else str(self.kernel)

    def _kernel_rows(self, X: Any) -> Any:
        """The rows to train on: those of K where the kernel is a function."""
        if self._kernel_name != "callable":
            return X
        self._X_fit = X
        K = self._called(X)
        if K.shape != (_num_samples(X),) * 2:
            raise ValueError(
                f"X.shape[0] should be equal to X.shape[1]: kernel(X, X) of {_num_samples(X)} rows has shape {K.shape}"
            )
        return K

    def _called(self, X: Any) -> Floats:
        K = self.kernel(X, self._X_fit)
        return np.asarray(K.toarray() if sparse.issparse(K) else K, dtype=np.float64, order="C")

    def _recipe(self, **given: Any) -> Recipe:
        """What to solve; `given` are fields that not every machine has."""
        kernel = self.kernel
        if not isinstance(kernel, Kernel):
            name = "precomputed" if self._kernel_name == "callable" else kernel
            kernel = kernel_of(name, self.degree, self.gamma, self.coef0)
        solver = self.solver
        if isinstance(solver, str):
            solver = _solver_of(solver, self.tol, self.max_iter)
        approximation = self.approximation
        if isinstance(approximation, dict):
            approximation = Approximation.create({"name": "nystroem", **approximation})
        jobs = 1 if self._watched else self.n_jobs
        return Recipe(
            kernel=kernel,
            task=self._task(),
            C=float(getattr(self, "C", 1.0)),
            solver=solver,
            cache_bytes=int(self.cache_size * 2**20),
            n_jobs=jobs if jobs is not None and jobs > 0 else None,
            approximation=approximation,
            **given,
        )

    # ---- what a fit leaves

    def _start(self, n: int) -> Floats | None:
        """Coefficients (k, n) of the programs of the fit before, if it was on as many rows."""
        if self.shape_fit_[0] != n:
            return None
        coef = self._signed_coef()
        start = np.zeros((len(coef), n))
        start[:, self.support_] = coef * self._scale[:, None]
        return start

    def _signed_coef(self) -> Floats:
        """Coefficients (k, n_SV) as the model has them, from `dual_coef_`."""
        coef: Any = self.dual_coef_
        return coef.toarray() if sparse.issparse(coef) else coef

    def _arranged(self, training: Training, codes: Floats) -> tuple[Floats, Floats]:
        """(order of the support vectors, coefficients in that order), as scikit-learn has them."""
        return np.arange(len(training.support)), training.coef

    def _keep(self, training: Training, codes: Floats, as_sparse: bool) -> None:
        """Set the fitted attributes."""
        self._model = training.model
        order, coef = self._arranged(training, codes)
        self.support_ = training.support[order].astype(np.int32)
        self._n_support = np.array([len(order)], dtype=np.int32)
        self._vector = training.vector[order]
        self._scale = np.array([answer.scale for answer in training.answers] or [1.0])
        self.dual_coef_ = sparse.csr_matrix(coef) if as_sparse else coef
        self.intercept_ = self._sign * training.model.bias
        self._gamma = getattr(training.model.kernel, "gamma", 0.0)
        self.n_iter_: Any = np.array([solution.n_iter for solution in training.solutions], dtype=np.int32)
        self.certificate_ = tuple(solution.certificate for solution in training.solutions)
        self.status_ = tuple(solution.status for solution in training.solutions)
        self.history_ = tuple(solution.history for solution in training.solutions)
        self.plan_ = training.plan
        self._doubts, self._exact_bound = training.doubts, training.bounds
        self.fit_status_ = int(any(status is not Status.CONVERGED for status in self.status_))

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


@functools.lru_cache(maxsize=64, typed=True)  # a search asks for the same one in all its fits
def _solver_of(name: str, tol: float, max_iter: int) -> Solver:
    """The solver of a name, with scikit-learn's parameters."""
    return Solver.create({"name": name, "tol": tol, "max_iter": max_iter})
