"""Probabilities from held-out decision values of folds that share K: as good as scikit-learn's, in ONNX too."""

import numpy as np
import pytest
from sklearn import model_selection, svm
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_classification
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from svmcore import tasks
from svmcore.estimator import SVC, GridSearchCV, NuSVC
from svmcore.export import to_onnx
from svmcore.model.left_out import MOST_FREE
from svmcore.model.probability import fit_sigmoid, sigmoid
from svmcore.solvers import SMO
from svmcore.sources import ResidentGram
from svmcore.train.chains import held_out as held_out_module
from svmcore.train.chains import held_out_decisions


def data(k, n=400, seed=0):
    X, y = make_classification(n, 6, n_informative=5, n_redundant=0, n_classes=k, flip_y=0.15, random_state=seed)
    return train_test_split(X, np.array(["ash", "birch", "cedar"])[y], random_state=0)


MACHINES = [
    SVC(calibration="folds", random_state=0),
    SVC(calibration="folds", random_state=0, multi_class="ovr"),
    SVC(calibration="folds-isotonic", random_state=0, multi_class="ovr"),
    SVC(calibration="folds-isotonic", random_state=0),
    NuSVC(nu=0.2, calibration="folds", random_state=0, multi_class="ovr"),
    SVC(calibration="left-out"),
    SVC(calibration="left-out", multi_class="ovr", loss="squared_hinge"),
    NuSVC(nu=0.2, calibration="left-out"),
]


@pytest.mark.parametrize("machine", MACHINES, ids=repr)
@pytest.mark.parametrize("k", [2, 3])
def test_probabilities__are_a_distribution_and_as_good_as_scikit_learns(machine, k):
    X, X_test, y, y_test = data(k)
    model = clone(machine).fit(X, y)
    p = model.predict_proba(X_test)
    assert p.shape == (len(X_test), k)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    method = "isotonic" if machine.calibration == "folds-isotonic" else "sigmoid"
    theirs = svm.NuSVC(nu=0.2) if isinstance(machine, NuSVC) else svm.SVC()
    peer = CalibratedClassifierCV(theirs, method=method, ensemble=False).fit(X, y)
    floor = 1e-3 if method == "isotonic" else 0.0  # a step at 0 costs infinitely much
    losses = [
        log_loss(y_test, np.clip(each, floor, 1) / np.clip(each, floor, 1).sum(axis=1, keepdims=True))
        for each in (p, peer.predict_proba(X_test))
    ]
    assert losses[0] <= 1.1 * losses[1]  # of 100 rows; `make bench-machines` compares large tables


def test_calibration__is_the_old_probability_without_its_warning():
    X, X_test, y, _ = data(3)
    new = SVC(calibration="folds", random_state=5).fit(X, y)
    with pytest.warns(FutureWarning, match="probability"):
        old = SVC(probability=True, random_state=5).fit(X, y)
    np.testing.assert_array_equal(new.predict_proba(X_test), old.predict_proba(X_test))
    with pytest.raises(AttributeError) as refused:
        SVC().fit(X, y).predict_proba(X_test)
    assert "calibration='folds'" in str(refused.value.__cause__)


def test_held_out_values__are_of_models_that_have_not_seen_the_row():
    """Rows with drawn labels: a model tells those it was trained on, and nothing of others."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 40)), rng.integers(0, 2, 120)
    model = SVC(C=100.0, calibration="folds", random_state=0).fit(X, y)
    assert model.score(X, y) == 1.0
    p = model.predict_proba(X)[:, 1]
    assert np.abs(p - 0.5).max() < 0.35


def test_isotonic_steps__are_scikit_learns_of_the_held_out_values():
    X, X_test, y, _ = data(2)
    model = SVC(calibration="folds-isotonic", random_state=0).fit(X, y)
    p, f = model.predict_proba(X_test)[:, 1], model.decision_function(X_test)
    assert (np.diff(p[np.argsort(f)]) >= 0).all()
    assert isinstance(model._steps[0], IsotonicRegression)


@pytest.mark.parametrize("k", [2, 3])
def test_onnx__has_the_sigmoids_probabilities(k):
    runtime = pytest.importorskip("onnxruntime")
    X, X_test, y, _ = data(k)
    model = SVC(calibration="folds", random_state=0, multi_class="ovr").fit(X, y)
    session = runtime.InferenceSession(to_onnx(model.model_), providers=["CPUExecutionProvider"])
    (p,) = session.run(["probability"], {"X": X_test})
    np.testing.assert_allclose(p, model.predict_proba(X_test), atol=1e-9)
    pairs = SVC(calibration="folds", random_state=0).fit(X, y)
    outputs = [each.name for each in runtime.InferenceSession(to_onnx(pairs.model_)).get_outputs()]
    assert ("probability" in outputs) == (k == 2)


def test_a_read_model__keeps_its_probabilities():
    X, X_test, y, _ = data(3)
    model = SVC(calibration="folds", random_state=0, multi_class="ovr").fit(X, y)
    again = SVC.from_model(model.model_)
    np.testing.assert_allclose(again.predict_proba(X_test), model.predict_proba(X_test), atol=1e-12)


@pytest.mark.parametrize("calibration", ["folds", "folds-isotonic"])
def test_search__shares_calibrated_fits_and_scores_them_as_scikit_learn_does(calibration):
    X, _, y, _ = data(3, n=150)
    machine, scores = SVC(calibration=calibration, random_state=0, tol=1e-7), []
    for kind in (GridSearchCV, model_selection.GridSearchCV):
        search = kind(machine, {"C": [1.0, 3.0]}, cv=3, scoring="roc_auc_ovr", refit=False).fit(X, y)
        scores.append(search.cv_results_["mean_test_score"])
        assert getattr(search, "search_plan_", None) is None or search.search_plan_.shared == 6
    np.testing.assert_allclose(*scores, atol=1e-3)


@pytest.mark.full
def test_log_loss_on_digits__is_within_one_percent_of_scikit_learns():
    X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), test_size=0.5, random_state=0)
    ours = SVC(gamma=0.001, calibration="folds", random_state=0, multi_class="ovr").fit(X, y)
    peer = CalibratedClassifierCV(svm.SVC(gamma=0.001), ensemble=False).fit(X, y)
    assert log_loss(y_test, ours.predict_proba(X_test)) <= 1.01 * log_loss(y_test, peer.predict_proba(X_test))


@pytest.mark.parametrize("calibration", ["folds", "left-out"])
def test_log_loss_of_noisy_labels__is_within_one_percent_of_scikit_learns(calibration):
    """Nothing but decision values of rows that were held out will do: the fit's own are far too sure."""
    X, y = make_classification(5000, 10, n_informative=8, n_redundant=0, flip_y=0.15, random_state=1)
    X, X_test, y, y_test = X[:2500], X[2500:], y[:2500], y[2500:]
    model = SVC(C=10, gamma=0.1, calibration=calibration, random_state=0).fit(X, y)
    size = np.abs(model.dual_coef_)
    assert ((size < 10) & (size > 0)).sum() > MOST_FREE
    peer = CalibratedClassifierCV(svm.SVC(C=10, gamma=0.1), ensemble=False).fit(X, y)
    theirs = log_loss(y_test, peer.predict_proba(X_test))
    assert log_loss(y_test, model.predict_proba(X_test)) <= 1.01 * theirs
    seen = log_loss(y_test, sigmoid(model.decision_function(X_test), *fit_sigmoid(model.decision_function(X), y > 0)))
    assert seen > 1.3 * theirs


def held_out(n, n_positive):
    rng = np.random.default_rng(0)
    y = np.where(np.arange(n) < n_positive, 1.0, -1.0)
    X = rng.normal(size=(n, 2)) + 1.5 * y[:, None]
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    of = np.ones(n), np.arange(n), np.ones(n)
    support = svm.SVC(kernel="precomputed").fit(K, y).support_
    return held_out_decisions(tasks.SVC(), ResidentGram(K), y, *of, SMO(), np.random.default_rng(1), support), y, K


@pytest.mark.parametrize(("n", "models"), [(300, 5), (1200, 2)])
def test_held_out_decisions__are_of_all_rows_near_those_of_proved_models_without_them(n, models):
    (rows, told), y, K = held_out(n, n // 3)
    np.testing.assert_array_equal(rows, np.arange(n))
    for held in np.array_split(np.random.default_rng(1).permutation(n), models):
        part = np.setdiff1d(np.arange(n), held)
        peer = svm.SVC(kernel="precomputed", tol=1e-6).fit(K[np.ix_(part, part)], y[part])
        exact = peer.decision_function(K[np.ix_(held, part)])
        assert np.abs(told[held] - exact).mean() < 0.1  # a third of the margin is the KKT gap
        assert np.corrcoef(told[held], exact)[0, 1] > 0.99


def test_held_out_decisions__end_with_the_fold_that_has_enough_rows_of_both_classes(monkeypatch):
    monkeypatch.setattr(held_out_module, "ENOUGH", 150)
    (rows, told), y, _ = held_out(1200, 400)
    assert len(rows) == len(told) == 600
    assert ((told > 0) == (y[rows] > 0)).mean() > 0.95
    (rows, _), *_ = held_out(1200, 200)
    assert len(rows) == 1200


@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("k", [2, 3])
def test_left_out__is_as_good_as_folds_at_every_C(C, k):
    """Also where hardly a variable is free, and nobody takes over what a row held."""
    X, X_test, y, y_test = data(k, 600)
    losses = [
        log_loss(y_test, SVC(C=C, calibration=way, random_state=0, multi_class="ovr").fit(X, y).predict_proba(X_test))
        for way in ("left-out", "folds")
    ]
    assert losses[0] <= 1.03 * losses[1]
