"""NuSVC, SVR, NuSVR and OneClassSVM as scikit-learn's: meanings, attributes, weights, data, what is refused."""

import gc
import pickle
import warnings
import weakref

import numpy as np
import pytest
from scipy import sparse
from sklearn import svm
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import check_estimator

from svmcore import RBF, InvalidProblem, Linear, Status, Sum, Unsupported
from svmcore.estimator import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from svmcore.train import opening

MACHINES = [NuSVC, SVR, NuSVR, OneClassSVM]


def targets(machine, data):
    return data[2] if machine in (SVC, NuSVC) else data[1]


def told(model, X):
    """Values or decision values."""
    return model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)


def peer_of(model):
    shared = getattr(svm, type(model).__name__)
    given = {key: value for key, value in model.get_params().items() if key in shared().get_params()}
    return shared(**given | {"max_iter": 100_000})  # it does not end on all of these


@pytest.mark.parametrize(
    "model",
    [
        *(SVC(), SVC(multi_class="ovr"), SVC(kernel="linear"), SVC(kernel="precomputed")),
        *(NuSVC(), NuSVC(multi_class="ovr"), SVR(), NuSVR(), OneClassSVM(), SVR(kernel="precomputed")),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("default")  # the checks ask for warnings of their own
def test_check_estimator__no_expected_failures(model):
    results = check_estimator(model, expected_failed_checks={}, on_fail="raise", on_skip=None)
    weights = {r["status"] for r in results if "sample_weight_equivalence" in r["check_name"]}
    assert weights == (set() if model.kernel == "precomputed" else {"passed"})


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("machine", MACHINES)
def test_fitted_attributes__are_scikit_learns(data, machine, kernel, form):
    X, y = form(data[0]), targets(machine, data)
    gamma, coef0 = (0.03, -0.5) if kernel == "sigmoid" else (0.2, 1.0)  # else it has several local optima
    given = {"kernel": kernel, "gamma": gamma, "degree": 2, "coef0": coef0, "tol": 1e-8}
    ours = machine(**given) if machine is SVR else machine(nu=0.4, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = peer_of(ours).fit(X, y)
    ours.fit(X, y)
    assert ours.status_ == (Status.CONVERGED,) * len(ours.status_)
    np.testing.assert_allclose(told(ours, X), told(theirs, X), atol=2e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-5)
    assert ours.dual_coef_.shape[0] == theirs.dual_coef_.shape[0]
    assert ours.shape_fit_ == theirs.shape_fit_
    assert type(ours.n_iter_) is type(theirs.n_iter_)
    assert ours.n_support_.shape == theirs.n_support_.shape
    assert ours.support_.dtype == theirs.support_.dtype
    if kernel == "rbf":  # the others have more free support vectors here than dimensions
        np.testing.assert_array_equal(ours.support_, theirs.support_)
        np.testing.assert_array_equal(ours.n_support_, theirs.n_support_)
        coefs = [m.dual_coef_.toarray() if sparse.issparse(m.dual_coef_) else m.dual_coef_ for m in (ours, theirs)]
        np.testing.assert_allclose(*coefs, atol=1e-5)
    if kernel == "linear":
        weights = [m.coef_.toarray() if sparse.issparse(m.coef_) else m.coef_ for m in (ours, theirs)]
        np.testing.assert_allclose(*weights, atol=1e-5)
    if machine is OneClassSVM:
        np.testing.assert_allclose(ours.offset_, theirs.offset_, atol=2e-5)
        np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=2e-5)
    else:
        assert ours.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-5)


@pytest.mark.parametrize("machine", MACHINES)
def test_precomputed_callable_and_kernel_objects__equal_the_kernel_itself(data, machine):
    X, y = data[0], targets(machine, data)
    K = rbf_kernel(X, gamma=0.3)
    named = machine(gamma=0.3, tol=1e-8).fit(X, y)
    for other, rows in (
        (machine(kernel="precomputed", tol=1e-8), K),
        (machine(kernel=lambda A, B: rbf_kernel(A, B, gamma=0.3), tol=1e-8), X),
        (machine(kernel=RBF(gamma=0.3), tol=1e-8), X),
    ):
        other.fit(rows, y)
        np.testing.assert_array_equal(other.support_, named.support_)
        np.testing.assert_allclose(told(other, rows), told(named, X), atol=1e-6)
    composed = machine(kernel=Sum(RBF(gamma=0.3), Linear()), tol=1e-8).fit(X, y)
    given = machine(kernel="precomputed", tol=1e-8).fit(K + X @ X.T, y)
    np.testing.assert_allclose(told(composed, X), told(given, K + X @ X.T), atol=1e-5)


def test_kernel_function_of_another_shape__is_refused():
    with pytest.raises(ValueError, match=r"2 rows has shape \(1, 1\)"):
        SVR(kernel=lambda a, b: np.array([[1.0]])).fit([[0.0], [1.0]], [0.0, 0.5])


@pytest.mark.parametrize("machine", MACHINES)
def test_weight_of_two__is_the_row_twice_to_the_last_bit(data, machine):
    rng = np.random.default_rng(5)
    X, y = data[0], targets(machine, data)
    times = rng.integers(0, 4, len(y))
    twice = np.repeat(np.arange(len(y)), times)
    rng.shuffle(twice)
    model = machine() if machine is SVR else machine(nu=0.3)
    weighted, repeated = clone(model).fit(X, y, sample_weight=times), clone(model).fit(X[twice], y[twice])
    np.testing.assert_array_equal(told(weighted, X), told(repeated, X))
    for one, other in zip(weighted.certificate_, repeated.certificate_, strict=True):
        assert (one.primal, one.dual, one.kkt_gap) == (other.primal, other.dual, other.kkt_gap)
    np.testing.assert_array_equal(np.unique(twice[repeated.support_]), np.sort(weighted.support_))


def test_copies__are_merged_where_their_targets_are_equal():
    """Rows at 0 with targets 1, 1, 2: two variables, and the coefficient of the first is shared in equal parts."""
    X, y = np.array([[0.0], [0.0], [0.0], [1.0]]), np.array([1.0, 1.0, 2.0, 5.0])
    model = SVR(kernel="linear", C=10.0, epsilon=0.1, tol=1e-9).fit(X, y)
    assert len(model.model_.support_vectors) == 3
    coef = np.zeros(4)
    coef[model.support_] = model.dual_coef_[0]
    assert coef[0] == coef[1]
    whole = svm.SVR(kernel="linear", C=10.0, epsilon=0.1, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=1e-6)


@pytest.mark.parametrize("machine", MACHINES)
def test_weights_at_most_zero__are_absent_rows(data, machine):
    X, y = data[0], targets(machine, data)
    weights = np.where(np.arange(len(y)) % 3 == 0, -0.5, 1.0)
    model, kept = machine().fit(X, y, sample_weight=weights), weights > 0
    alone = machine().fit(X[kept], y[kept])
    np.testing.assert_array_equal(told(model, X), told(alone, X))
    np.testing.assert_array_equal(model.support_, np.flatnonzero(kept)[alone.support_])
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])


@pytest.mark.parametrize("machine", MACHINES)
def test_a_larger_cache__or_more_threads_changes_no_optimum(data, machine):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 3))
    y = np.digitize(X[:, 0], [-0.5, 0.5]) if machine is NuSVC else X[:, 0] ** 2
    model = machine(tol=1e-5) if machine is SVR else machine(tol=1e-5, nu=0.1)
    whole, little = (clone(model).set_params(cache_size=size).fit(X, y) for size in (200, 1))
    for one, other in zip(whole.certificate_, little.certificate_, strict=True):
        assert one.dual == pytest.approx(other.dual, rel=1e-6)


# ---- several targets


@pytest.mark.parametrize("machine", [SVR, NuSVR])
def test_several_targets__are_each_alone_on_one_kernel(data, machine):
    X, y, _ = data
    Y = np.column_stack([y, y**2, np.zeros(len(y))])
    model = machine(tol=1e-8, gamma=0.2).fit(X, Y)
    assert model.predict(X).shape == (120, 3)
    assert len(model.certificate_) == len(model.n_iter_) == len(model.intercept_) == len(model.dual_coef_) == 3
    for k in range(3):
        alone = machine(tol=1e-8, gamma=0.2).fit(X, Y[:, k])
        np.testing.assert_allclose(model.predict(X)[:, k], alone.predict(X), atol=1e-6)
        assert model.certificate_[k].dual == pytest.approx(alone.certificate_[0].dual, rel=1e-9, abs=1e-9)
    assert model.score(X, Y) == pytest.approx(machine(tol=1e-8, gamma=0.2).fit(X, Y).score(X, Y))


@pytest.mark.parametrize("k", [1, 3])
def test_several_targets__cost_one_kernel_matrix(k, monkeypatch):
    X, Y = make_regression(600, 5, n_targets=k, random_state=0)
    filled, fill = [], opening.resident_gram
    monkeypatch.setattr(opening, "resident_gram", lambda *given: filled.append(given) or fill(*given))
    assert SVR().fit(X, Y).fit_status_ == 0
    assert len(filled) == 1


def test_one_column_of_targets__is_scikit_learns(data):
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        model = SVR().fit(data[0], data[1][:, None])
    np.testing.assert_array_equal(model.predict(data[0]), SVR().fit(data[0], data[1]).predict(data[0]))


# ---- limits, starts, stops


def test_infinite_C__passes_through_all_points():
    X, y = np.array([[0.0], [1.0], [2.0], [5.0]]), np.array([1e6, 1e6 + 3, 1e6 - 2, 1e6])
    model = SVR(C=np.inf, epsilon=0.5, gamma=0.5, tol=1e-9).fit(X, y)
    assert model.status_ == (Status.CONVERGED,)
    assert np.abs(model.predict(X) - y).max() <= 0.5 + 1e-6
    with pytest.raises(InvalidProblem, match="finite C"):
        NuSVR(C=np.inf).fit(X, y)


def test_infinite_C__that_no_function_meets_ends_infeasible():
    X, y = np.array([[0.0], [0.0], [1.0], [2.0]]), np.array([0.0, 3.0, 1.0, 2.0])
    with pytest.warns(ConvergenceWarning, match="infeasible"):
        model = SVR(C=np.inf, kernel="linear", epsilon=0.1).fit(X, y)
    assert model.status_ == (Status.INFEASIBLE,)


def test_shifted_targets_and_rows__cost_no_digits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=200)
    plain = SVR(kernel="linear", tol=1e-8).fit(X, y)
    moved = SVR(kernel="linear", tol=1e-8).fit(X + 1e4, y + 1e4)
    assert moved.status_ == (Status.CONVERGED,)
    np.testing.assert_allclose(moved.predict(X + 1e4) - 1e4, plain.predict(X), atol=1e-6)
    assert moved.certificate_[0].bar < 1e-7 * moved.certificate_[0].primal


def test_no_support_vectors__is_a_constant():
    model = SVR(epsilon=2.0).fit([[0.0], [1.0], [2.0]], [5.0, 5.5, 4.5])
    assert len(model.support_) == 0
    np.testing.assert_allclose(model.predict([[7.0]]), [5.0], atol=1.5)
    assert model.dual_coef_.shape == (1, 0)


@pytest.mark.parametrize("machine", MACHINES)
def test_warm_start__goes_on_where_the_last_fit_ended(data, machine):
    X, y = data[0], targets(machine, data)
    model = machine(warm_start=True).fit(X, y)
    assert np.sum(model.n_iter_) > 0
    assert np.sum(model.fit(X, y).n_iter_) == 0
    changed = {"epsilon": 0.15} if machine is SVR else {"nu": 0.45}
    cold = machine(**changed).fit(X, y)
    warm = model.set_params(**changed).fit(X, y)
    for one, other in zip(warm.certificate_, cold.certificate_, strict=True):
        assert one.dual == pytest.approx(other.dual, rel=1e-3)
    model.fit(X[:100], y[:100])  # another number of rows: a cold start
    assert model.shape_fit_ == (100, 4)


@pytest.mark.parametrize("machine", MACHINES)
def test_early_ends__leave_a_certified_model_that_says_so(data, machine):
    X, y = data[0], targets(machine, data)
    with pytest.warns(ConvergenceWarning, match="max_iter=3.*KKT gap"):
        model = machine(max_iter=3, tol=1e-9).fit(X, y)
    assert model.fit_status_ == 1
    assert np.isfinite(told(model, X)).all()
    assert all(c.dual <= c.primal and c.infeasibility < 1e-9 for c in model.certificate_)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        machine(time_limit=1e-9, tol=1e-9).fit(X, y)


@pytest.mark.parametrize("machine", MACHINES)
def test_pickle__keeps_every_value(data, machine):
    model = machine().fit(data[0], targets(machine, data))
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(told(other, data[0]), told(model, data[0]))


@pytest.mark.parametrize(("machine", "why"), [(SVR, "one variable per row"), (NuSVC, "one equality")])
def test_solver_that_does_not_take_the_program__is_refused(data, machine, why):
    with pytest.raises(Unsupported, match=why):
        machine(solver="smo-mvp").fit(data[0], targets(machine, data))


def test_symmetric_problem__has_symmetric_weights():
    """scikit-learn has this at tol 1e-3, which does not promise it."""
    X = [[-2, -1], [-1, -1], [-1, -2], [1, 1], [1, 2], [2, 1]]
    model = NuSVR(kernel="linear", tol=1e-8).fit(X, [1, 1, 1, 2, 2, 2], sample_weight=[1, 1, 1, 0, 1, 1])
    assert model.coef_[0, 0] == pytest.approx(model.coef_[0, 1], rel=1e-6)


@pytest.mark.parametrize("solver", ["smo", "auto"])
@pytest.mark.parametrize("machine", [SVC, *MACHINES])
def test_rows_and_model__are_freed_with_their_estimator(machine, solver, data):
    """At once: what refers to itself stays until somebody collects garbage, and rows may be gigabytes."""
    model = machine(kernel="linear", solver=solver)
    gc.collect()
    gc.disable()
    try:
        X = np.array(data[0])
        model.fit(X, targets(machine, data))
        model.predict(X)
        left = [weakref.ref(X), weakref.ref(model.model_), weakref.ref(model)]
        del X, model
        assert [each() for each in left] == [None] * 3
    finally:
        gc.enable()
