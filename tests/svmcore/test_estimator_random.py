"""200 random problems against scikit-learn: objective, labels, probabilities."""

import warnings

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC as Theirs

from svmcore import Kernel, ResidentGram, certify, classification
from svmcore.adapters.layout import from_layout
from svmcore.estimator import SVC

TOL = 1e-6
PATIENCE = 1_000_000  # pair steps for scikit-learn, which needs minutes for some of these problems


@st.composite
def problems(draw):
    """Rows, labels, weights (or None) and parameters; every class has a row of positive weight."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_classes = draw(st.sampled_from([2, 2, 3, 4]))
    n = draw(st.integers(n_classes, 300))
    p = draw(st.integers(1, 20))
    shares = rng.dirichlet(np.full(n_classes, draw(st.sampled_from([0.3, 5.0]))))  # 0.3: imbalanced
    y = np.concatenate([np.arange(n_classes), rng.choice(n_classes, n - n_classes, p=shares)])
    X = rng.normal(size=(n, p)) + draw(st.sampled_from([0.3, 2.0])) * rng.normal(size=(n_classes, p))[y]
    if draw(st.booleans()):  # copies, some of them with another label
        copied = rng.integers(n, size=n // 3)
        X[rng.integers(n, size=n // 3)] = X[copied]
    weights = None
    if draw(st.booleans()):
        weights = rng.choice([0.0, 0.5, 1.0, 3.0], n)
        weights[:n_classes] = 1.0
    kernel = draw(st.sampled_from(["linear", "rbf", "poly"]))
    parameters = {
        "kernel": kernel,
        "gamma": draw(st.sampled_from([0.01, 0.1, 1.0]))
        if weights is not None
        else draw(st.sampled_from(["scale", 0.1])),
        "degree": 2,
        "coef0": draw(st.sampled_from([0.0, 1.0])),
        "C": draw(st.sampled_from([0.01, 1.0, 30.0])),
        "class_weight": draw(st.sampled_from([None, {0: 3.0}])),
    }
    return X, y, weights, parameters


def binary_duals(model, X, y):
    """Dual value of each binary problem of a fitted one-vs-one model, its alpha evaluated in float64 by numpy."""
    K = pairwise_kernels(X, metric=model.kernel, filter_params=True, gamma=model._gamma, degree=2, coef0=model.coef0)
    codes = np.searchsorted(model.classes_, y)
    signed = from_layout(model.dual_coef_, codes[model.support_], len(model.classes_))
    values = []
    for row in signed:
        coef = np.zeros(len(X))
        coef[model.support_] = row
        values.append(np.abs(coef).sum() - 0.5 * coef @ K @ coef)
    return np.array(values)


def without_zeros(X, y, weights):
    """The rows of positive weight: with zero weights scikit-learn's support_ counts the rows that are left."""
    kept = np.ones(len(y), bool) if weights is None else weights > 0
    return X[kept], y[kept], None if weights is None else weights[kept]


def their_fit(X, y, weights, parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return Theirs(tol=TOL, max_iter=PATIENCE, **parameters).fit(X, y, weights)


def fitted(X, y, weights, parameters):
    """Our model and theirs, and the dual values of their problems."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = SVC(tol=TOL, **parameters).fit(X, y, sample_weight=weights)
    left = without_zeros(X, y, weights)
    theirs = their_fit(*left, parameters)
    return ours, theirs, binary_duals(ours, X, y), binary_duals(theirs, *left[:2])


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(problems())
def test_one_vs_one__is_no_worse_than_scikit_learn(problem):
    X, y, weights, parameters = problem
    ours, theirs, mine, other = fitted(X, y, weights, parameters)
    assert ours.fit_status_ == 0
    assert (mine >= other - 1e-6 * np.maximum(1e-6, np.abs(other))).all()
    np.testing.assert_allclose([c.dual for c in ours.certificate_], mine, rtol=1e-6, atol=1e-9)
    grid = np.vstack([X, np.random.default_rng(0).normal(size=(100, X.shape[1]))])
    for model in (ours, theirs):
        model.decision_function_shape = "ovo"
    f = np.atleast_2d(theirs.decision_function(grid).T).T
    sure = (np.abs(f) > 1e-4).all(axis=1) & (theirs.fit_status_ == 0)
    # without a free support vector the bias is any of an interval, and each solver has its own way to choose
    if np.allclose(ours.intercept_, theirs.intercept_, atol=1e-3):
        np.testing.assert_array_equal(ours.predict(grid)[sure], theirs.predict(grid)[sure])


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(problems())
def test_one_vs_rest__is_each_class_against_the_rest(problem):
    *data, parameters = problem
    X, y, weights = without_zeros(*data)
    parameters = parameters | {"class_weight": None, "gamma": 0.1}
    ours = SVC(tol=TOL, multi_class="ovr", **parameters).fit(X, y, sample_weight=weights)
    n_classes = len(ours.classes_)
    for k, certificate in enumerate(ours.certificate_):
        one = y == ours.classes_[k if n_classes > 2 else 1]
        other = binary_duals(their_fit(X, one, weights, parameters), X, one)[0]
        assert certificate.dual >= other - 1e-6 * max(1e-6, abs(other))


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3]), st.sampled_from(["linear", "rbf"]))
def test_calibrated_probabilities__agree(seed, n_classes, kernel):
    rng = np.random.default_rng(seed)
    y = np.arange(150) % n_classes
    X = rng.normal(size=(150, 4)) + 1.5 * rng.normal(size=(n_classes, 4))[y]
    folds = StratifiedKFold(3)
    models = [
        CalibratedClassifierCV(kind(kernel=kernel, tol=TOL, gamma=0.1), ensemble=False, cv=folds).fit(X, y)
        for kind in (SVC, Theirs)
    ]
    np.testing.assert_allclose(models[0].predict_proba(X), models[1].predict_proba(X), atol=1e-3)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(problems())
def test_certificates__hold_for_the_split_alpha(problem):
    """Alpha split back over the copies is feasible and as good on the original rows as on the merged ones."""
    X, y, weights, parameters = problem
    two = y <= 1
    X, y, weights = X[two], y[two], None if weights is None else weights[two]
    model = SVC(tol=TOL, **parameters).fit(X, y, sample_weight=weights)
    kernel = model.model_.kernel
    assert isinstance(kernel, Kernel)
    C = parameters["C"] * np.where(y == 0, 3.0 if parameters["class_weight"] else 1.0, 1.0)
    C = C if weights is None else C * weights
    beta = np.zeros(len(y))
    beta[model.support_] = model.dual_coef_[0]
    whole = certify(classification(ResidentGram(kernel(X, X)), np.where(y == 1, 1.0, -1.0), C), beta)
    assert whole.infeasibility < 1e-9 * C.max() + 1e-9
    np.testing.assert_allclose(whole.dual, model.certificate_[0].dual, rtol=1e-9, atol=1e-12)
    assert whole.kkt_gap <= 1.05 * TOL + 1e-9
