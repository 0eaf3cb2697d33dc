"""SVC as scikit-learn's: meanings, attributes, weights, forms of data."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris, make_blobs, make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC as Theirs

from svmcore import RBF, SMO, Linear, Status, Sum, UnknownPlugin
from svmcore.estimator import SVC

FIVE = np.array([[0.0, 0], [2, 2], [-1, -8], [-1, -1], [3, 3]]), np.array([-1, 1, -1, -1, 1])


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


@pytest.fixture(scope="module")
def noisy():
    """400 rows of two classes that no kernel separates cheaply."""
    return make_classification(400, 8, n_informative=4, flip_y=0.2, random_state=1)


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
def test_fitted_attributes__are_scikit_learns(iris, kernel, form):
    X, y = form(iris[0]), iris[1]
    near = {"atol": 1e-6} if kernel in ("rbf", "sigmoid") else {"rtol": 1e-4, "atol": 1e-4}  # LIBSVM: float32 K
    given = {"kernel": kernel, "tol": 1e-9, "gamma": 0.1 if kernel != "sigmoid" else 1e-4, "C": 0.7}
    ours, theirs = SVC(**given).fit(X, y), Theirs(**given).fit(X, y)
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    np.testing.assert_array_equal(ours.n_support_, theirs.n_support_)
    coefs = [m.dual_coef_.toarray() if sparse.issparse(m.dual_coef_) else m.dual_coef_ for m in (ours, theirs)]
    assert coefs[0].shape == coefs[1].shape
    if kernel in ("rbf", "sigmoid"):  # the others have more free support vectors here than dimensions
        np.testing.assert_allclose(coefs[0], coefs[1], atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, **near)
    assert ours.shape_fit_ == theirs.shape_fit_
    assert ours.n_iter_.shape == theirs.n_iter_.shape
    for shape in ("ovr", "ovo"):
        ours.decision_function_shape = theirs.decision_function_shape = shape
        np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), **near)
    if kernel == "linear":
        weights = [m.coef_.toarray() if sparse.issparse(m.coef_) else m.coef_ for m in (ours, theirs)]
        np.testing.assert_allclose(weights[0], weights[1], **near)


def test_precomputed_and_callable__equal_the_kernel_itself(iris):
    X, y = iris
    linear = SVC(kernel="linear", tol=1e-8).fit(X, y)
    given = SVC(kernel="precomputed", tol=1e-8).fit(X @ X.T, y)
    called = SVC(kernel=lambda A, B: A @ B.T, tol=1e-8).fit(X, y)
    for other, rows in ((given, X @ X.T), (called, X)):
        np.testing.assert_array_equal(other.support_, linear.support_)
        np.testing.assert_allclose(other.dual_coef_, linear.dual_coef_, atol=1e-6)
        np.testing.assert_allclose(other.decision_function(rows), linear.decision_function(X), atol=1e-6)
        assert other.support_vectors_.size == 0


def test_kernel_objects__compose(iris):
    X, y = iris
    kernel = Sum(RBF(gamma=0.3), Linear())
    composed = SVC(kernel=kernel, tol=1e-8).fit(X, y)
    given = SVC(kernel="precomputed", tol=1e-8).fit(kernel(X, X), y)
    np.testing.assert_allclose(composed.decision_function(X), given.decision_function(kernel(X, X)), atol=1e-6)


def test_one_vs_rest__is_one_binary_problem_per_class(iris):
    X, y = iris
    whole = SVC(multi_class="ovr", tol=1e-8, gamma=0.2).fit(X, y)
    assert whole.dual_coef_.shape == (3, len(whole.support_))
    for k in range(3):
        alone = SVC(tol=1e-8, gamma=0.2).fit(X, y == k)
        np.testing.assert_allclose(whole.decision_function(X)[:, k], alone.decision_function(X), atol=1e-6)
        assert whole.certificate_[k].dual == pytest.approx(alone.certificate_[0].dual, rel=1e-9)
    np.testing.assert_array_equal(whole.predict(X), np.argmax(whole.decision_function(X), axis=1))


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_weight_of_two__is_the_row_twice_to_the_last_bit(iris, scheme, class_weight):
    X, y = iris
    rng = np.random.default_rng(5)
    times = rng.integers(0, 4, len(y))
    weighted = SVC(multi_class=scheme, class_weight=class_weight).fit(X, y, sample_weight=times)
    twice = np.repeat(np.arange(len(y)), times)
    rng.shuffle(twice)
    repeated = SVC(multi_class=scheme, class_weight=class_weight).fit(X[twice], y[twice])
    np.testing.assert_array_equal(weighted.decision_function(X), repeated.decision_function(X))
    assert weighted._gamma == repeated._gamma
    for one, other in zip(weighted.certificate_, repeated.certificate_, strict=True):
        # what copies' bounds lose in rounding is counted where there are copies
        assert (one.primal, one.dual, one.kkt_gap) == (other.primal, other.dual, other.kkt_gap)
    np.testing.assert_array_equal(np.unique(twice[repeated.support_]), np.sort(weighted.support_))


def test_copies_share_alpha__in_proportion_to_their_weights():
    X = np.array([[0.0], [0.0], [1.0]])
    model = SVC(kernel="linear", C=1.0, tol=1e-8).fit(X, [0, 0, 1], sample_weight=[1, 3, 4])
    # one pair of variables at distance 1: alpha = 2, below C times the weight of 4
    np.testing.assert_allclose(model.dual_coef_, [[-0.5, -1.5, 2.0]], atol=1e-7)


def test_weights_at_most_zero__are_absent_rows(iris):
    X, y = iris
    weights = np.where(np.arange(len(y)) % 3 == 0, -0.5, 1.0)
    model, kept = SVC().fit(X, y, sample_weight=weights), weights > 0
    alone = SVC().fit(X[kept], y[kept])
    np.testing.assert_array_equal(model.decision_function(X), alone.decision_function(X))
    np.testing.assert_array_equal(model.support_, np.flatnonzero(kept)[alone.support_])
    absent = SVC().fit(X, y, sample_weight=(y != 1).astype(float))
    assert absent.classes_.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("weights", "message"),
    [([0, 0, 0, 0, 0], "all samples have zero or negative"), ([1, 0, 1, 1, 0], "belong to the same class")],
)
def test_weights_that_leave_no_problem__say_so(weights, message):
    with pytest.raises(ValueError, match=message):
        SVC().fit(*FIVE, sample_weight=weights)


def test_infinite_C__is_the_hard_margin():
    model = SVC(kernel="linear", C=np.inf, tol=1e-9).fit(*FIVE)
    np.testing.assert_allclose(model.coef_, [[0.5, 0.5]], atol=1e-7)
    np.testing.assert_allclose(model.intercept_, [-1.0], atol=1e-7)


def test_infinite_C_without_a_margin__ends_infeasible_with_a_warning():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    with pytest.warns(ConvergenceWarning, match="infeasible"):
        model = SVC(kernel="linear", C=np.inf).fit(X, [0, 1, 0, 1])
    assert model.fit_status_ == 1
    assert model.status_ == (Status.INFEASIBLE,)
    assert np.isfinite(model.decision_function(X)).all()


def test_squared_hinge__has_the_closed_form():
    model = SVC(kernel="linear", C=0.1, loss="squared_hinge", tol=1e-9).fit(*FIVE)
    coef = np.zeros(5)
    coef[model.support_] = np.abs(model.dual_coef_[0])
    np.testing.assert_allclose(coef, [0.104, 0.104, 0, 0.008, 0.008], atol=1e-6)
    np.testing.assert_allclose(model.intercept_, [-0.48], atol=1e-6)


def test_gamma_zero__is_a_constant_kernel(iris):
    X, y = iris
    ours, theirs = SVC(gamma=0.0).fit(X, y), Theirs(gamma=0.0).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-9)


def test_float32_rows__stay_float32(iris):
    X = iris[0].astype(np.float32)
    model = SVC().fit(X, iris[1])
    assert model.support_vectors_.dtype == np.float32
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
    wide = SVC().fit(X.astype(np.float64), iris[1])
    np.testing.assert_array_equal(model.decision_function(X), wide.decision_function(X))


def test_csr_of_64_bit_indices__and_read_only_maps(iris, tmp_path):
    X, y = iris
    S = sparse.csr_matrix(X)
    wide = sparse.csr_matrix((S.data, S.indices.astype(np.int64), S.indptr.astype(np.int64)), shape=S.shape)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    expected = SVC().fit(X, y).decision_function(X)
    for rows in (S, wide, mapped):
        model = SVC().fit(rows, y)
        np.testing.assert_allclose(model.decision_function(rows), expected, atol=1e-10)
    with pytest.raises(ValueError, match="trained on dense data"):
        SVC().fit(X, y).predict(S)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames__give_their_feature_names(iris, library):
    frames = pytest.importorskip(library)
    names = ["a", "b", "c", "d"]
    frame = frames.DataFrame(dict(zip(names, iris[0].T, strict=True)))
    model = SVC().fit(frame, iris[1])
    assert model.feature_names_in_.tolist() == names
    np.testing.assert_array_equal(model.predict(frame), SVC().fit(*iris).predict(iris[0]))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[names[::-1]])


def test_meta_estimators__take_it(iris):
    X, y = iris
    search = GridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": [0.1, 10.0]}, cv=3).fit(X, y)
    theirs = GridSearchCV(make_pipeline(StandardScaler(), Theirs()), {"svc__C": [0.1, 10.0]}, cv=3).fit(X, y)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=0.01)
    rest = OneVsRestClassifier(SVC()).fit(X, y)
    np.testing.assert_array_equal(rest.predict(X), OneVsRestClassifier(Theirs()).fit(X, y).predict(X))


def test_warm_start__of_variables_without_a_bound(noisy):
    model = SVC(warm_start=True, loss="squared_hinge").fit(*noisy)
    first = model.certificate_[0].dual
    assert model.fit(*noisy).n_iter_.max() <= 1
    assert model.certificate_[0].dual == pytest.approx(first, rel=1e-9)


def test_warm_start__goes_on_where_the_last_fit_ended(noisy):
    model = SVC(warm_start=True, C=1.0).fit(*noisy)
    cold = SVC(C=2.0).fit(*noisy)
    assert model.fit(*noisy).n_iter_.sum() == 0
    model.set_params(C=2.0).fit(*noisy)
    assert model.n_iter_.sum() < cold.n_iter_.sum()
    assert model.certificate_[0].dual == pytest.approx(cold.certificate_[0].dual, rel=1e-4)
    model.fit(noisy[0][:100], noisy[1][:100])  # another number of rows: a cold start
    assert model.shape_fit_ == (100, 8)


def test_n_jobs__changes_no_bit():
    X, y = make_blobs(4500, 5, centers=3, cluster_std=4.0, random_state=0)
    for scheme in ("ovo", "ovr"):
        one, two = (SVC(multi_class=scheme, n_jobs=jobs).fit(X, y) for jobs in (1, 2))
        np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
def test_small_cache__gives_the_same_answer(scheme):
    X, y = make_blobs(3600, 4, centers=3, cluster_std=5.0, random_state=0)
    whole, little = (SVC(multi_class=scheme, cache_size=size, tol=1e-6).fit(X, y) for size in (500, 4))
    for a, b in zip(whole.certificate_, little.certificate_, strict=True):
        assert a.dual == pytest.approx(b.dual, rel=1e-9)


def test_pickle__keeps_every_decision(iris):
    model = SVC(multi_class="ovr").fit(*iris)
    expected = model.decision_function(iris[0])
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.decision_function(iris[0]), expected)


def test_solver_of_ones_own(iris):
    model = SVC(solver=SMO(tol=1e-7), multi_class="ovr").fit(*iris)
    assert max(c.kkt_gap for c in model.certificate_) <= 1.05e-7
    with pytest.raises(UnknownPlugin, match="did you mean 'smo'"):
        SVC(solver="smoo").fit(*iris)


def test_certificate__bounds_the_optimum(noisy):
    X, y = noisy
    rough, fine = SVC().fit(X, y).certificate_[0], SVC(tol=1e-9).fit(X, y).certificate_[0]
    assert rough.kkt_gap <= 1.05e-3
    assert rough.dual <= fine.dual + 1e-9
    assert fine.primal <= rough.primal + 1e-9
    assert fine.relative_gap < 1e-9


@pytest.mark.filterwarnings("ignore:The `probability` parameter:FutureWarning")
def test_probability__as_scikit_learns(iris):
    X, y = iris
    for scheme in ("ovo", "ovr"):
        model = SVC(probability=True, random_state=0, multi_class=scheme).fit(X, y)
        p = model.predict_proba(X)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p)
        assert np.mean(p.argmax(axis=1) == y) > 0.95
        theirs = Theirs(probability=True, random_state=0).fit(X, y).predict_proba(X)
        assert np.abs(p - theirs).mean() < (0.03 if scheme == "ovo" else 0.1)  # folds are drawn otherwise
    assert not hasattr(SVC(), "predict_proba")
    later = SVC().fit(X, y)
    later.probability = True
    with pytest.raises(NotFittedError):
        later.predict_proba(X)


def test_gamma_scale__of_constant_data_is_one():
    assert SVC().fit([[2.0], [2.0], [2.0]], [0, 1, 1])._gamma == Theirs().fit([[2.0], [2.0], [2.0]], [0, 1, 1])._gamma


def test_import__of_the_core_brings_no_library_of_the_estimators_or_the_pipeline():
    heavy = "{'sklearn', 'dask', 'distributed', 'zarr', 'prefect', 'matplotlib', 'onnx', 'pandas'}"
    code = f"import sys, svmcore; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
