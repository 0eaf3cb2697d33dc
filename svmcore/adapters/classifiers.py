"""SVC and NuSVC with scikit-learn's parameters, their meanings and its attributes."""

import warnings
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.isotonic import IsotonicRegression
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import column_or_1d

from svmcore import tasks
from svmcore.adapters.checks import classes_of
from svmcore.adapters.fitted import FittedClassifier
from svmcore.adapters.layout import class_order, from_layout, to_layout
from svmcore.adapters.libsvm import support_codes
from svmcore.adapters.machine import SHARE, Machine
from svmcore.model import Model
from svmcore.points import Floats
from svmcore.train import Recipe, Training

__all__ = ["SVC", "NuSVC"]

OLD_PROBABILITY = (
    "The `probability` parameter was deprecated in 1.9 and will be removed in version 1.11. "
    "Use `CalibratedClassifierCV({0}(), ensemble=False)` instead of `{0}(probability=True)`"
)


class Classifier(FittedClassifier, ClassifierMixin, Machine):
    """What SVC and NuSVC share: classes, their weights, pairs or one against the rest, probabilities."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Machine._parameter_constraints,
        "probability": ["boolean", StrOptions({"deprecated"})],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "decision_function_shape": [StrOptions({"ovr", "ovo"})],
        "break_ties": ["boolean"],
        "random_state": ["random_state"],
        "multi_class": [StrOptions({"ovo", "ovr"})],
        "calibration": [StrOptions({"folds", "folds-isotonic", "left-out"}), None],
    }

    probability: bool | str
    class_weight: dict | str | None
    decision_function_shape: str
    break_ties: bool
    random_state: Any
    multi_class: str
    calibration: str | None

    def _targets(self, y: Any) -> Any:
        if self.probability != "deprecated":
            warnings.warn(OLD_PROBABILITY.format(type(self).__name__), FutureWarning, stacklevel=5)
        checked = isinstance(y, np.ndarray) and y.ndim == 1
        return y if checked else column_or_1d(y, warn=True)

    def _encode(self, y: Any, weights: Floats | None) -> tuple[Floats, Floats, bool]:
        """Class codes; a class without a row of positive weight does not exist."""
        before: Any = getattr(self, "classes_", None)
        classes, codes = classes_of(y)
        if len(classes) < 2:
            raise ValueError(f"The number of classes has to be greater than one; got {len(classes)} class")
        kept: Any = slice(None) if weights is None else weights > 0
        if weights is not None and not kept.all():
            classes, kept_codes = np.unique(y[kept], return_inverse=True)
            codes = np.zeros(len(y), dtype=np.int64)
            codes[kept] = kept_codes
        self.classes_, self.class_weight_ = classes, np.ones(len(classes))
        if self.class_weight is not None and len(classes) > 1:
            of = None if weights is None else weights[kept]
            self.class_weight_ = compute_class_weight(
                self.class_weight, classes=self.classes_, y=y[kept], sample_weight=of
            )
        return codes, self.classes_, np.array_equal(self.classes_, before)

    def _n_programs(self, classes: Floats) -> int:
        n = len(classes)
        return 1 if n == 2 else n * (n - 1) // 2 if self.multi_class == "ovo" else n

    def _recipe(self, **given: Any) -> Recipe:
        left_out = self.calibration == "left-out"
        asked = self.probability is True or (self.calibration is not None and not left_out)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1)) if asked else None
        return super()._recipe(
            class_weight=self.class_weight_, scheme=self.multi_class, seed=seed, left_out=left_out, **given
        )

    def _start(self, n: int) -> Floats | None:
        same = self._model.scheme == self.multi_class or len(self.classes_) == 2
        return super()._start(n) if same else None

    def _signed_coef(self) -> Floats:
        coef = super()._signed_coef()
        if not self._pairwise:
            return coef
        return from_layout(coef, np.repeat(np.arange(len(self.classes_)), self._n_support), len(self.classes_))

    @classmethod
    def _parameters_of(cls, model: Model) -> dict[str, Any]:
        return {"multi_class": model.scheme, "calibration": None if model.sigmoids is None else "folds"}

    def _codes_of(self, model: Model) -> Floats:
        self.classes_, self.class_weight_ = np.asarray(model.classes), np.ones(len(model.classes))
        return support_codes(model)

    def _arranged(self, training: Training, codes: Floats) -> tuple[Floats, Floats]:
        """LIBSVM's layout for one-vs-one."""
        codes = codes[training.support]
        order = class_order(codes)
        coef = training.coef[:, order]
        return order, to_layout(coef, codes[order], len(self.classes_)) if self._pairwise else coef

    def _keep(self, training: Training, codes: Floats, as_sparse: bool) -> None:
        super()._keep(training, codes, as_sparse)
        self._n_support = np.bincount(codes[self.support_], minlength=len(self.classes_)).astype(np.int32)
        self._probA, self._probB = np.empty((2, 0)) if training.model.sigmoids is None else training.model.sigmoids.T
        self._steps = [_isotonic(*each) for each in training.held_out if self.calibration == "folds-isotonic"]


def _isotonic(decision: Floats, positive: Floats) -> IsotonicRegression:
    """The growing function of decision values (n,) that is nearest to the truth (n,) in squares."""
    return IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(decision, positive.astype(np.float64))


class SVC(Classifier):
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
    calibration
        "folds" fits Platt's sigmoid to each problem's decision values of rows that were held out in folds, five of a
        small problem and halves of others, which share the kernel matrix and are solved roughly; "folds-isotonic" fits
        a growing step function. "left-out" fits the sigmoid to what each row is told without it, by the span rule
        (`svmcore.model.left_out`), where that costs less than folds.
        `predict_proba` is there then. `random_state` draws the folds.
    time_limit
        Seconds for all problems together; the model at the end of them is usable and certified.
    n_jobs
        Binary problems solved at once, on threads; None for all cores.
    warm_start
        Begin from the coefficients of the fit before, on as many rows.
    approximation
        None for the kernel itself. A `svmcore.Nystroem`, or its parameters as a mapping, `{"rank": 2000}`, for one of
        low rank: see docs/large_data.md.

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
        How K was served: "resident", "columns" or "factor".
    landmarks_, exact_bound_
        Of an approximation: the rows (r, p) that predictions go through, and one `svmcore.ExactBound` per problem: what
        the answer proves of the kernel itself.

    >>> model = SVC(kernel="linear").fit([[-2.0, -1], [-1, -1], [1, 1], [2, 1]], ["a", "a", "b", "b"])
    >>> model.dual_coef_, model.predict([[-0.8, -1.0]]).tolist(), model.certificate_[0].relative_gap
    (array([[-0.25,  0.25]]), ['a'], 0.0)
    """

    task = tasks.SVC
    loss: str
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Classifier._parameter_constraints,
        "C": [Interval(Real, 0.0, None, closed="right")],
        "loss": [StrOptions({"hinge", "squared_hinge"})],
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
        approximation: Any = None,
        calibration: str | None = None,
    ) -> None:
        self._hold(locals())

    def _task(self) -> tasks.SVC:
        return tasks.SVC(self.loss)


class NuSVC(Classifier):
    """Nu-support vector classification: scikit-learn's NuSVC, parameter for parameter, solved exactly and certified.

    Where scikit-learn ignores `class_weight`, here it weights the boxes.

    Parameters
    ----------
    nu
        Bound of the share of margin errors and of support vectors, in (0, 1]. At most twice the share of the smaller
        class of a problem is feasible, by `class_weight` and sample weights; with `multi_class="ovr"` one class is all
        others. An infeasible nu is refused, naming the largest feasible one, before any kernel work. Where it is the
        default, 0.5, a warning says so, and that problem is trained with the largest feasible one.
    kernel, degree, gamma, coef0, shrinking, probability, tol, cache_size, class_weight, verbose, max_iter,
    decision_function_shape, break_ties, random_state, solver, multi_class, time_limit, n_jobs, warm_start,
    approximation, calibration
        As in `SVC`. `tol` bounds the KKT gap before the rescaling by rho, as in LIBSVM.

    Attributes
    ----------
    rho_
        (k,) margin of each problem, by which decision values and coefficients were divided, as LIBSVM's are; 1 where
        it is 0 and cannot. `dual_coef_` times it are the variables that `certificate_` is about.
    certificate_, status_, history_, plan_
        As in `SVC`; the other attributes as in `sklearn.svm.NuSVC`.

    >>> model = NuSVC(kernel="linear").fit([[-2.0, -1], [-1, -1], [1, 1], [2, 1]], ["a", "a", "b", "b"])
    >>> model.predict([[-0.8, -1.0]]).tolist(), model.decision_function([[1.0, 1.0]]).round(6)
    (['a'], array([0.8]))
    """

    task = tasks.NuSVC
    nu: float
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {**Classifier._parameter_constraints, "nu": SHARE}

    def __init__(
        self,
        *,
        nu: float = 0.5,
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
        solver: Any = "auto",
        multi_class: str = "ovo",
        time_limit: float | None = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        approximation: Any = None,
        calibration: str | None = None,
    ) -> None:
        self._hold(locals())

    def _task(self) -> tasks.NuSVC:
        return tasks.NuSVC(float(self.nu))

    def _recipe(self, **given: Any) -> Recipe:
        return super()._recipe(nearest=self.nu == tasks.NuSVC.nu, **given)

    @property
    def rho_(self) -> Floats:
        """(k,) margin of each problem."""
        return self._fitted("_scale")
