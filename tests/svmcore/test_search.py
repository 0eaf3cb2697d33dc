"""GridSearchCV and RandomizedSearchCV: scikit-learn's results, from shared kernel matrices."""

import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import loguniform
from sklearn import model_selection, svm
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from svmcore.adapters import machine as machines
from svmcore.adapters.search.rows import search_rows
from svmcore.adapters.search.tables import Data, prepare
from svmcore.estimator import SVC, SVR, GridSearchCV, NuSVC, NuSVR, OneClassSVM, RandomizedSearchCV
from svmcore.runtime import memory
from svmcore.train import shared as tables

SCRIPT = Path(__file__).parent / "run_sklearn_search_tests.py"
TIMES = ("mean_fit_time", "std_fit_time", "mean_score_time", "std_score_time")


def classes(seed, n=120, k=3):
    X, codes = make_classification(n, 6, n_informative=5, n_redundant=0, n_classes=k, flip_y=0.1, random_state=seed)
    return X, np.array(["ash", "birch", "cedar", "elm"])[codes]


def both(estimator, grid, X, y=None, fit=None, **given):
    """(ours, scikit-learn's search over the same machine)."""
    found = []
    for search in (GridSearchCV, model_selection.GridSearchCV):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(search(clone(estimator), grid, **given).fit(X, y, **(fit or {})))
    return found


def assert_same_results(ours, theirs, atol=1e-9):
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for key, values in theirs.cv_results_.items():
        if key == "params":
            assert ours.cv_results_[key] == values
        elif key.startswith("param_"):
            assert list(map(str, ours.cv_results_[key])) == list(map(str, values))
        elif key not in TIMES and not key.startswith("rank_"):
            np.testing.assert_allclose(ours.cv_results_[key], values, atol=atol, err_msg=key)
    assert ours.multimetric_ == theirs.multimetric_
    assert ours.n_splits_ == theirs.n_splits_


def all_shared(search):
    plan = search.search_plan_
    return plan.shared == plan.fits == len(search.cv_results_["params"]) * search.n_splits_


RBF = {"C": [0.1, 1.0, 10.0], "gamma": [0.05, 0.5]}
CASES = {
    "ovo": (SVC(), RBF),
    "ovr": (SVC(multi_class="ovr"), RBF),
    "scale": (SVC(), {"C": [1.0, 10.0], "gamma": ["scale", "auto", 0.1]}),
    "ovr-scale": (SVC(multi_class="ovr", decision_function_shape="ovo"), {"C": [1.0, 10.0], "gamma": ["scale"]}),
    "kernels": (SVC(coef0=1.0), [{"kernel": ["linear"], "C": [0.1, 1.0]}, {"kernel": ["poly"], "degree": [2, 3]}]),
    "balanced": (SVC(class_weight="balanced"), RBF),
    "weights": (SVC(), {"class_weight": [None, "balanced", {"ash": 3.0}], "C": [0.3, 3.0]}),
    "squared hinge": (SVC(loss="squared_hinge", multi_class="ovr"), RBF),
    "break ties": (SVC(break_ties=True), RBF),
    "nu": (NuSVC(gamma=0.2), {"nu": [0.1, 0.2, 0.3], "gamma": [0.1, 1.0]}),
    "default nu": (NuSVC(multi_class="ovr"), {"gamma": [0.1, 1.0]}),
    "nu ovr": (NuSVC(gamma=0.2, multi_class="ovr", class_weight="balanced"), {"nu": [0.1, 0.2, 0.3]}),
    "pipeline": (make_pipeline(StandardScaler(), SVC()), {"svc__C": [0.1, 1.0], "svc__gamma": [0.1, "scale"]}),
    "steps": (
        Pipeline([("scale", StandardScaler()), ("best", SelectKBest(k=4)), ("svm", SVC())]),
        {"scale": [StandardScaler(), MinMaxScaler(), "passthrough"], "best__k": [3, 5], "svm__C": [1.0, 10.0]},
    ),
    "machines": (
        Pipeline([("pca", PCA(3)), ("m", SVC())]),
        {"m": [SVC(C=2.0, tol=1e-7), NuSVC(nu=0.2, tol=1e-7)], "m__gamma": [0.1, 1.0]},
    ),
    "one step": (make_pipeline(SVC()), {"svc__C": [0.1, 1.0]}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
def test_classifiers__have_the_results_of_scikit_learns_search(name, form):
    estimator, grid = CASES[name]
    if form is sparse.csr_matrix and name in ("pipeline", "steps", "machines"):
        pytest.skip("the scaler refuses sparse rows")
    X, y = classes(len(name))
    estimator = clone(estimator)
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    last.set_params(tol=1e-7)
    ours, theirs = both(estimator, grid, form(X), y, cv=4, return_train_score=True)
    assert_same_results(ours, theirs)
    assert all_shared(ours)
    np.testing.assert_array_equal(ours.predict(form(X)), theirs.predict(form(X)))


@pytest.mark.parametrize("machine", [SVR(tol=1e-8), NuSVR(tol=1e-8), OneClassSVM(tol=1e-8)], ids=repr)
def test_regressions_and_one_class__have_the_results_of_scikit_learns_search(machine):
    X, y = make_regression(80, 4, noise=5.0, random_state=1)
    y = (y - y.mean()) / y.std()
    grids = {
        SVR: {"C": [0.1, 1.0], "epsilon": [0.0, 0.1, 0.3], "gamma": [0.1, "scale"]},
        NuSVR: {"C": [0.1, 1.0], "nu": [0.2, 0.6], "gamma": [0.1, 1.0]},
        OneClassSVM: {"nu": [0.1, 0.5], "gamma": [0.1, "scale"]},
    }
    scoring = None if not isinstance(machine, OneClassSVM) else lambda m, X, y: float(m.decision_function(X).mean())
    ours, theirs = both(machine, grids[type(machine)], X, y, cv=3, scoring=scoring, return_train_score=True)
    assert_same_results(ours, theirs, atol=1e-6)
    assert all_shared(ours)


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
def test_decision_values__are_those_of_each_fit(multi_class):
    """A scorer that tells one decision value of the held-out rows, in every shape."""
    X, y = classes(4)
    for shape in ("ovr", "ovo"):
        for place in (0, 7):
            machine = SVC(tol=1e-8, multi_class=multi_class, decision_function_shape=shape)
            told = lambda m, X, y, place=place: float(m.decision_function(X)[place].sum() + m.dual_coef_.sum())  # noqa: E731
            ours, theirs = both(machine, RBF, X, y, scoring=told, cv=3)
            assert_same_results(ours, theirs, atol=1e-5)


def test_fitted_attributes__are_those_of_each_fit():
    X, y = classes(5)
    kept = {True: [], False: []}

    def keep(shared):
        return lambda model, X, y: kept[shared].append(model) or 0.0

    GridSearchCV(SVC(tol=1e-8), RBF, cv=3, scoring=keep(True), refit=False).fit(X, y)
    model_selection.GridSearchCV(SVC(tol=1e-8), RBF, cv=3, scoring=keep(False), refit=False).fit(X, y)
    for ours, theirs in zip(kept[True], kept[False], strict=True):
        np.testing.assert_array_equal(ours.support_, theirs.support_)
        np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, atol=1e-4)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
        np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)
        assert ours.status_ == theirs.status_
        assert max(c.kkt_gap + c.uncertainty for c in ours.certificate_) <= 1.05e-8  # what converged means


def test_duplicates_weights_and_repeated_rows__are_those_of_each_fit():
    X, y = classes(6)
    X[60:90], y[60:90] = X[:30], y[:30]
    X[90:100] = X[:10]  # some with other labels
    weights = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    ours, theirs = both(SVC(tol=1e-7), RBF, X, y, fit={"sample_weight": weights}, cv=3)
    assert_same_results(ours, theirs)
    assert all_shared(ours)
    pipeline = make_pipeline(StandardScaler(), SVC(tol=1e-7))
    ours, theirs = both(pipeline, {"svc__C": [0.1, 1.0]}, X, y, fit={"svc__sample_weight": weights}, cv=3)
    assert_same_results(ours, theirs)
    assert all_shared(ours)
    rng = np.random.default_rng(1)
    cv = [(rng.integers(0, 120, 100), rng.integers(0, 120, 30)) for _ in range(3)]
    ours, theirs = both(SVC(tol=1e-7), RBF, X, y, cv=cv)
    assert_same_results(ours, theirs)
    assert all_shared(ours)


def test_splitters_and_groups__are_scikit_learns():
    X, y = classes(7)
    groups = np.repeat(np.arange(12), 10)
    for cv, fit in (
        (model_selection.GroupKFold(3), {"groups": groups}),
        (model_selection.ShuffleSplit(4, random_state=0), {}),
        (model_selection.KFold(3, shuffle=True, random_state=0), {}),
        (iter(list(model_selection.KFold(3).split(X))), {}),
    ):
        splits = list(cv) if not hasattr(cv, "split") else cv
        ours, theirs = both(SVC(tol=1e-7), RBF, X, y, fit=fit, cv=splits)
        assert_same_results(ours, theirs)
        assert all_shared(ours)
    drawn = GridSearchCV(SVC(), RBF, cv=model_selection.ShuffleSplit(3)).fit(X, y)
    assert all_shared(drawn)  # drawn once, though each draw is another


def test_a_class_that_a_fold_lacks__and_a_nu_that_is_infeasible__fail_where_scikit_learn_has_it():
    X, y = classes(8)
    y = np.where(np.arange(len(y)) < 5, "rare", y)
    splits = list(model_selection.KFold(4).split(X))
    ours, theirs = both(SVC(tol=1e-7), RBF, X, y, cv=splits)
    assert_same_results(ours, theirs)
    assert all_shared(ours)
    grid = {"nu": [0.05, 0.2, 0.9]}
    ours, theirs = both(NuSVC(tol=1e-7), grid, X, y, cv=splits)
    assert_same_results(ours, theirs)
    assert np.isnan(ours.cv_results_["mean_test_score"][2])
    assert ours.search_plan_.shared < ours.search_plan_.fits
    with pytest.raises(ValueError, match="specified nu is infeasible"):
        GridSearchCV(NuSVC(), grid, cv=splits, error_score="raise").fit(X, y)
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        GridSearchCV(NuSVC(), {"nu": [0.05, 0.9]}, cv=splits, error_score=-1.0, refit=False).fit(X, y)
    assert any("fits failed" in str(w.message) for w in met)


def test_several_metrics_and_refit__are_scikit_learns():
    X, y = classes(9)
    scoring = {"accuracy": "accuracy", "f1": "f1_macro", "auc": "roc_auc_ovr"}
    machine = SVC(tol=1e-7, probability=True, random_state=3)
    ours, theirs = both(machine, {"C": [0.1, 1.0]}, X, y, scoring=scoring, refit="f1", cv=3)
    assert_same_results(ours, theirs, atol=1e-4)
    assert (ours.best_index_, ours.best_params_) == (theirs.best_index_, theirs.best_params_)
    assert all_shared(ours)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    middle = lambda results: 1  # noqa: E731
    ours, theirs = both(SVC(), RBF, X, y, refit=middle)
    assert ours.best_params_ == theirs.best_params_


def test_precomputed_kernel__is_one_table():
    X, y = classes(10)
    K = rbf_kernel(X, gamma=0.2)
    ours, theirs = both(
        SVC(kernel="precomputed", tol=1e-7), {"C": [0.1, 1.0, 10.0]}, K, y, cv=3, return_train_score=True
    )
    assert_same_results(ours, theirs)
    assert all_shared(ours)


def test_randomized_search__has_scikit_learns_candidates_and_results():
    X, y = classes(11)
    drawn = {"C": loguniform(0.1, 10.0), "gamma": loguniform(0.01, 1.0)}
    searches = [
        kind(SVC(tol=1e-7), drawn, n_iter=6, random_state=0, cv=3).fit(X, y)
        for kind in (RandomizedSearchCV, model_selection.RandomizedSearchCV)
    ]
    assert_same_results(*searches)
    assert all_shared(searches[0])
    assert searches[0].search_plan_.products == 1


@pytest.mark.parametrize(
    ("estimator", "grid", "why"),
    [
        (svm.SVC(), {"C": [1.0]}, "none of svmcore's"),
        (SVC(time_limit=60.0), {"C": [1.0]}, "time limit"),
        (SVC(kernel=lambda A, B: A @ B.T), {"C": [1.0]}, "a function"),
        (SVC(probability=True), {"C": [1.0]}, "random_state"),
        (make_pipeline(StandardScaler(), svm.SVC()), {"svc__C": [1.0]}, "none of svmcore's"),
    ],
    ids=["scikit-learn's", "limited", "function", "random", "scikit-learn's in a pipeline"],
)
def test_what_cannot_share__is_fitted_one_by_one_and_the_plan_says_why(estimator, grid, why):
    X, y = classes(12)
    ours, theirs = both(estimator, grid, X, y, cv=3)
    assert_same_results(ours, theirs)
    assert ours.search_plan_.shared == 0
    assert why in str(ours.search_plan_)


def test_steps_that_are_others_each_time__are_noticed():
    class Noise(StandardScaler):
        def fit_transform(self, X, y=None):
            return super().fit_transform(X, y) + np.random.default_rng().normal(scale=1e-3, size=X.shape)

    X, y = classes(13)
    search = GridSearchCV(make_pipeline(Noise(), SVC()), {"svc__C": [1.0]}, cv=3).fit(X, y)
    assert search.search_plan_.shared == 0
    assert "others when the steps were fitted again" in str(search.search_plan_)


def test_a_step_that_fails__is_named_by_the_plan():
    class Broken(StandardScaler):
        def fit(self, X, y=None):
            raise KeyError("no column 'age'")

    X, y = classes(13)
    search = GridSearchCV(make_pipeline(Broken(), SVC()), {"svc__C": [1.0, 2.0]}, cv=3, refit=False)
    with pytest.raises(ValueError, match="All the 6 fits failed"):
        search.fit(X, y)
    splits = list(model_selection.KFold(3).split(X))
    found = prepare(search.estimator, [{"svc__C": 1.0}, {"svc__C": 2.0}], Data(X, y, {}, splits, False), False)
    assert dict(found.alone) == {"KeyError: \"no column 'age'\"": 6}


def test_fits__find_their_training_ready_and_compute_no_kernel(monkeypatch):
    X, y = classes(14)
    asked = []
    monkeypatch.setattr(machines, "train", lambda *a, **k: asked.append(a) or pytest.fail("trained again"))
    search = GridSearchCV(SVC(), RBF, cv=3, refit=False).fit(X, y)
    assert all_shared(search)
    assert (search.search_plan_.kernels, search.search_plan_.products, search.search_plan_.tables) == (2, 1, 1)
    assert search.search_plan_.chains == 2 * 3 * 3  # gammas, folds, pairs
    assert (search.cv_results_["mean_fit_time"] * 3).sum() >= search.search_plan_.seconds


def test_n_jobs__divides_the_trainings_of_few_rows_among_processes():
    X, y = classes(16)
    one, two = (GridSearchCV(SVC(tol=1e-7), RBF, cv=3, n_jobs=jobs, refit=False).fit(X, y) for jobs in (None, 2))
    assert_same_results(two, one)
    assert all_shared(two)
    assert two.search_plan_.problems == one.search_plan_.problems
    assert two.search_plan_.kernels == 2 * one.search_plan_.kernels  # each process has its own


def test_a_kernel_matrix_beyond_the_budget__is_served_in_columns(monkeypatch):
    monkeypatch.setattr("svmcore.train.shared.SMALL_BYTES", 0)
    X, y = classes(15)
    for multi_class in ("ovo", "ovr"):
        machine = SVC(tol=1e-4, cache_size=0.105, multi_class=multi_class)
        ours, theirs = both(machine, RBF, X, y, cv=3)
        assert_same_results(ours, theirs)
        assert all_shared(ours)
        assert ours.search_plan_.products == 2  # one kernel matrix at a time


def test_large_kernel_matrices_of_bytes__are_made_one_by_one_in_the_same_memory(monkeypatch):
    X, y = classes(17)
    made = []
    together = GridSearchCV(SVC(), RBF, cv=3, refit=False).fit(X, y)
    assert together.search_plan_.products == 1
    monkeypatch.setattr(tables, "_at_a_time", lambda *about: 1)
    monkeypatch.setattr(tables, "empty", lambda *given: made.append(memory.empty(*given)) or made[-1])
    monkeypatch.setattr(memory, "LEAST", 0)
    memory.release()  # what other tests have left would do as well
    one = GridSearchCV(SVC(), RBF, cv=3, refit=False)
    table, free = tables.Table._train_on, []

    def trained(*given):
        del made[:]  # this test is not who holds it
        free.append(given[1].matrix.ctypes.data)
        return table(*given)

    monkeypatch.setattr(tables.Table, "_train_on", trained)
    one.fit(X, y)
    assert (one.search_plan_.kernels, one.search_plan_.products) == (2, 2)
    assert free[0] == free[1]
    assert_same_results(one, together)


@pytest.mark.parametrize(("bytes_", "size", "at_a_time"), [(True, 1 << 26, 1), (True, 1 << 25, 8), (False, 1 << 26, 4)])
def test_kernel_matrices__are_made_together_unless_they_are_large_and_of_bytes(bytes_, size, at_a_time):
    assert tables._at_a_time(SimpleNamespace(on_lattice=bytes_), size, 1 << 28) == at_a_time
    assert tables._at_a_time(SimpleNamespace(on_lattice=bytes_), size, size - 1) == 0


def test_rows_of_a_fold__are_copied_once_and_are_those_that_scikit_learn_takes(monkeypatch):
    X, y = classes(18)
    seen, fit = [], SVC.fit
    monkeypatch.setattr(SVC, "fit", lambda self, X, *more: (seen.append(X), fit(self, X, *more))[1])
    search = GridSearchCV(SVC(), RBF, cv=model_selection.KFold(3), refit=False).fit(X, y)
    assert all_shared(search)
    assert len(seen) == 3 * len(search.cv_results_["params"])
    for k, (train, _) in enumerate(model_selection.KFold(3).split(X)):
        assert all(each is seen[k] for each in seen[k::3])
        np.testing.assert_array_equal(seen[k], X[train])
        assert type(seen[k]) is np.ndarray


@pytest.mark.parametrize(
    "given", [{"return_train_score": True}, {"return_train_score": False}, {"scoring": "accuracy"}]
)
def test_rows_of_a_fold__that_others_are_given_are_their_own(given):
    """A scorer may do with its rows what it likes; the refit has the whole table."""
    X, y = classes(19)
    before = X.copy()

    def spoils(machine, X, y):
        score = machine.score(X, y)
        X[:] = np.nan
        return score

    ours, theirs = both(SVC(), RBF, X, y, cv=3, **(given if "scoring" in given else {**given, "scoring": spoils}))
    assert_same_results(ours, theirs)
    np.testing.assert_array_equal(X, before)


def test_rows_that_are_scored__are_copied_once_where_only_scikit_learns_scorers_see_them(monkeypatch):
    X, y = classes(22)
    seen, predict = [], SVC.predict
    monkeypatch.setattr(SVC, "predict", lambda self, X: (seen.append(X), predict(self, X))[1])
    assert all_shared(GridSearchCV(SVC(), RBF, cv=model_selection.KFold(3), refit=False).fit(X, y))
    for k, (_, test) in enumerate(model_selection.KFold(3).split(X)):
        assert all(each is seen[k] for each in seen[k::3])
        np.testing.assert_array_equal(seen[k], X[test])


@pytest.mark.parametrize("spoilt", ["rows", "targets", "weights"])
def test_what_is_no_number__is_told_as_by_each_fit(spoilt):
    X, y = make_regression(60, 4, random_state=23)
    weights = np.ones(len(y))
    {"rows": X[:, 0], "targets": y, "weights": weights}[spoilt][5] = np.nan
    for search in (GridSearchCV, model_selection.GridSearchCV):
        with pytest.raises(ValueError, match="NaN"):
            search(SVR(), RBF, cv=3, error_score="raise").fit(X, y, sample_weight=weights)


def test_rows_beyond_the_budget__are_not_kept():
    X, _ = classes(20)
    rows = search_rows(X)
    parts = [train for train, _ in model_selection.KFold(3).split(X)]
    rows.keep(parts, 2 * X.nbytes)
    assert rows[parts[0], ...] is rows[parts[0]]
    rows.keep(parts, 2 * X.nbytes - 1)
    assert rows[parts[0]] is not rows[parts[0]]
    np.testing.assert_array_equal(rows[parts[0], ...], X[parts[0]])


def test_scikit_learns_own_tests_of_its_searches__pass():
    done = subprocess.run([sys.executable, SCRIPT, "-q", "--tb=short"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert int(done.stdout.splitlines()[-1].split(" passed")[0].split()[-1]) > 130
