"""SVC with scikit-learn's parameters, their meanings and its attributes: the only file here that imports sklearn."""

from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from svmcore._sklearn_layout import class_order, to_layout
from svmcore.kernels import RBF, Linear, Polynomial, Precomputed, Tanh
from svmcore.kernels.base import Kernel
from svmcore.losses import Loss
from svmcore.solvers import Solver
from svmcore.training import Control, Recipe, Training, train

__all__ = ["SVC"]


class SVC(ClassifierMixin, BaseEstimator):
    """C-support vector classification."""

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        cache_size: float = 200,
        max_iter: int = -1,
        loss: str = "hinge",
        solver: str = "smo",
        multi_class: str = "ovo",
        time_limit: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.cache_size = cache_size
        self.max_iter = max_iter
        self.loss = loss
        self.solver = solver
        self.multi_class = multi_class
        self.time_limit = time_limit
        self.n_jobs = n_jobs

    def _kernel(self) -> Kernel:
        made = {
            "linear": lambda: Linear(),
            "poly": lambda: Polynomial(degree=self.degree, gamma=self.gamma, coef0=self.coef0),
            "rbf": lambda: RBF(gamma=self.gamma),
            "sigmoid": lambda: Tanh(gamma=self.gamma, coef0=self.coef0),
            "precomputed": Precomputed,
        }
        return made[self.kernel]()

    def _recipe(self) -> Recipe:
        return Recipe(
            kernel=self._kernel(),
            C=self.C,
            loss=Loss.create(self.loss),
            solver=Solver.create({"name": self.solver, "tol": self.tol, "max_iter": self.max_iter}),
            scheme=self.multi_class,
            cache_bytes=int(self.cache_size * 2**20),
            n_jobs=self.n_jobs,
        )

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C", accept_sparse="csr")
        check_classification_targets(y)
        self.classes_, codes = np.unique(column_or_1d(y), return_inverse=True)
        control = Control(time_limit=self.time_limit)
        training = train(self._recipe(), X, codes, self.classes_, sample_weight, control)
        self._keep(training, X, codes)
        return self

    def _keep(self, training: Training, X: Any, codes: Any) -> None:
        order = class_order(codes[training.support])
        self.support_ = training.support[order].astype(np.int32)
        self._model = training.model
        ovo = self.multi_class == "ovo" or len(self.classes_) == 2
        coef = training.coef[:, order]
        self.dual_coef_ = to_layout(coef, codes[self.support_], len(self.classes_)) if ovo else coef
        if sparse.issparse(X):
            self.dual_coef_ = sparse.csr_matrix(self.dual_coef_)
        self.support_vectors_ = X[self.support_]
        flip = -1.0 if ovo and len(self.classes_) > 2 else 1.0
        self.intercept_ = flip * training.model.bias
        self.n_support_ = np.bincount(codes[self.support_], minlength=len(self.classes_)).astype(np.int32)
        self.n_iter_ = np.array([solution.n_iter for solution in training.solutions], dtype=np.int32)
        self.certificate_ = [solution.certificate for solution in training.solutions]
        self.plan_ = training.plan

    def decision_function(self, X: Any) -> Any:
        """Decision values."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], order="C", accept_sparse="csr", reset=False)
        decision = self._model.decision_function(X)
        return decision.ravel() if len(self.classes_) == 2 else decision

    def predict(self, X: Any) -> Any:
        """Labels."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], order="C", accept_sparse="csr", reset=False)
        return self._model.predict(X)
