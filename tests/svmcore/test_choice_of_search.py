"""What a finished search claims of the C between those of its grid, against scikit-learn's optima at tol 1e-9 there."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC as Peer

from svmcore.estimator import SVC, SVR, GridSearchCV, RandomizedSearchCV

CS = np.geomspace(0.5, 1.0, 7)
FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)


def rows(n_classes, n=240):
    """Overlapping classes, every sixth row twice and once with another label."""
    X, y = make_classification(
        n, 4, n_redundant=0, n_classes=n_classes, n_clusters_per_class=1, flip_y=0.15, random_state=2
    )
    X, again = X.round(2), slice(0, None, 6)
    labels = np.array(["ash", "elm", "oak"])[:n_classes]
    return np.vstack([X, X[again], X[again]]), labels[np.concatenate([y, y[again], (y[again] + 1) % n_classes])]


def truth(machine, X, y, C):
    """Errors at all rows, each by the exact optimum with this C on the other folds."""
    fits = ((clone(machine).set_params(**C).fit(X[a], y[a]), b) for a, b in FOLDS.split(X, y))
    return sum(int((fitted.predict(X[b]) != y[b]).sum()) for fitted, b in fits)


@pytest.mark.parametrize(
    ("ours", "peer", "name", "n_classes"),
    [
        (SVC(gamma=0.4), Peer(gamma=0.4), "C", 2),
        (SVC(gamma=0.4), Peer(gamma=0.4), "C", 3),
        (SVC(gamma=0.4, multi_class="ovr"), OneVsRestClassifier(Peer(gamma=0.4)), "estimator__C", 3),
        (
            SVC(kernel="poly", degree=2, coef0=1.0, gamma=0.25, class_weight={"elm": 2.0}),
            Peer(kernel="poly", degree=2, coef0=1.0, gamma=0.25, class_weight={"elm": 2.0}),
            "C",
            2,
        ),
        (make_pipeline(StandardScaler(), SVC()), make_pipeline(StandardScaler(), Peer()), "svc__C", 2),
    ],
)
def test_choice_of_C__bounds_the_errors_at_every_c_in_between(ours, peer, name, n_classes):
    X, y = rows(n_classes)
    own = "svc__C" if name == "svc__C" else "C"
    tol = name.replace("C", "tol")
    search = GridSearchCV(clone(ours).set_params(**{own.replace("C", "tol"): 1e-5}), {own: CS}, cv=FOLDS).fit(X, y)
    found, peer = search.choice_of_C_, peer.set_params(**{tol: 1e-9})
    assert search.best_params_[own] == found.C
    assert found.rows == len(y)
    assert list(found.solved) == [(C, truth(peer, X, y, {name: C})) for C in CS]
    assert found.within == max(0, found.errors - min(found.least)) < found.errors
    for low, high, least in zip(CS, CS[1:], found.least, strict=False):
        for C in np.geomspace(low, high, 4):
            assert least <= truth(peer, X, y, {name: C})


def test_choice_of_C__is_of_the_best_of_the_other_parameters_and_of_large_tables():
    """More than 1,024 rows: K is float32, and the two processes hand back what they have."""
    X, y = make_classification(1500, 4, n_redundant=0, flip_y=0.1, random_state=0)
    grid = {"C": np.geomspace(1.0, 1.3, 5), "gamma": [0.05, 0.5]}
    search = GridSearchCV(SVC(tol=1e-5), grid, cv=FOLDS, n_jobs=2, scoring=["accuracy", "f1"], refit="accuracy").fit(
        X, y
    )
    found, gamma = search.choice_of_C_, search.best_params_["gamma"]
    of_best = [i for i, params in enumerate(search.cv_results_["params"]) if params["gamma"] == gamma]
    errors = [round(1500 * (1.0 - search.cv_results_["mean_test_accuracy"][i])) for i in of_best]
    assert [n for _, n in found.solved] == errors
    peer, C = Peer(gamma=gamma, tol=1e-9), float(np.sqrt(found.solved[0][0] * found.solved[1][0]))
    assert found.errors - found.within <= truth(peer, X, y, {"C": C})
    assert found.within < found.errors


def test_choice_of_C__counts_rows_of_a_class_that_a_fold_has_not_seen_as_errors():
    X, y = rows(3)
    split = [(np.flatnonzero(y != "oak"), np.arange(30))]
    search = GridSearchCV(SVC(gamma=0.4), {"C": [1.0, 1.01]}, cv=split, refit=False).fit(X, y)
    assert min(search.choice_of_C_.least) >= (y[:30] == "oak").sum() > 0


@pytest.mark.parametrize(
    ("machine", "more", "why"),
    [
        (SVC(loss="squared_hinge"), {}, "hinge loss"),
        (SVC(kernel="sigmoid"), {}, "positive semi-definite"),
        (SVC(), {"scoring": "f1_macro"}, "ranked by accuracy"),
        (SVC(), {"param_grid": {"gamma": [0.1, 1.0]}}, "a second finite C"),
        (Peer(), {}, "no shared trainings"),
    ],
)
def test_choice_of_C__is_not_there_where_nothing_is_proved(machine, more, why):
    X, y = rows(2, n=60)
    search = GridSearchCV(machine, **({"param_grid": {"C": [0.5, 1.0]}, "cv": 2} | more)).fit(X, y)
    with pytest.raises(AttributeError, match=why):
        _ = search.choice_of_C_


def test_choice_of_C__is_of_classifiers():
    X = np.random.default_rng(0).normal(size=(60, 2))
    search = GridSearchCV(SVR(), {"C": [0.5, 1.0]}, cv=2).fit(X, X[:, 0])
    assert not hasattr(search, "choice_of_C_")


def test_choice_of_C__does_not_travel_with_the_search():
    X, y = rows(2, n=60)
    search = RandomizedSearchCV(SVC(), {"C": [0.5, 1.0]}, n_iter=2, cv=2, random_state=0).fit(X, y)
    assert search.choice_of_C_.errors >= 0
    again = pickle.loads(pickle.dumps(search))
    assert again.best_params_ == search.best_params_
    assert not hasattr(again, "choice_of_C_")
