"""Approximations of low rank: closed forms, both certificates against the exact machine, judges without our code."""

import numpy as np
import pytest
from scipy.cluster.vq import kmeans2
from sklearn import svm
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV

from svmcore import RBF, InputError, Nystroem, Tanh, Unsupported
from svmcore.approximation import factor_rows
from svmcore.approximation.landmarks import MEANS
from svmcore.estimator import SVC, SVR, OneClassSVM
from svmcore.points import Points

GAMMA = 0.05


@pytest.fixture(scope="module")
def two_classes():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(2400, 6))
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] + 0.4 * rng.normal(size=2400) > 0.3, 1, -1)
    return X, y


def exact_value(X, y, C, gamma=GAMMA):
    """The optimal value by LIBSVM, in float64."""
    model = svm.SVC(C=C, gamma=gamma, tol=1e-6).fit(X, y)
    coef = model.dual_coef_[0]
    K = rbf_kernel(model.support_vectors_, gamma=gamma)
    return float(np.abs(coef).sum() - 0.5 * coef @ K @ coef)


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans", "rpcholesky"])
def test_factor__of_as_many_landmarks_as_rows_is_k(landmarks):
    X = np.random.default_rng(0).normal(size=(60, 4))
    G = factor_rows(Nystroem(60, landmarks).map(RBF(gamma=0.5), X, np.float64), X, np.float64)
    np.testing.assert_allclose(G @ G.T, rbf_kernel(X, gamma=0.5), atol=1e-8)


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans", "rpcholesky"])
def test_factor__is_the_textbooks_nystroem_kernel(landmarks):
    X = np.random.default_rng(1).normal(size=(300, 4))
    map_ = Nystroem(25, landmarks).map(RBF(gamma=0.2), X)
    cross, Z = rbf_kernel(X, map_.landmarks, gamma=0.2), map_.landmarks
    expected = cross @ np.linalg.solve(rbf_kernel(Z, gamma=0.2), cross.T)
    G = factor_rows(map_, X).astype(float)
    np.testing.assert_allclose(G @ G.T, expected, atol=1e-4)
    assert np.linalg.eigvalsh(rbf_kernel(X, gamma=0.2) - expected).min() > -1e-9  # it leaves a definite rest


def test_kmeans__is_lloyds():
    X, rng = np.random.default_rng(3).normal(size=(500, 6)), np.random.default_rng(0)
    rng.choice(500, 500, replace=False)  # the sample: all rows, in their order
    expected, _ = kmeans2(X, X[rng.choice(500, 50, replace=False)], iter=MEANS, minit="matrix")
    found = Nystroem(50, "kmeans").map(RBF(gamma=0.1), X).landmarks
    np.testing.assert_allclose(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)], atol=1e-5)


def pixels(n, seed):
    """Rows whose values are whole numbers of 0 ... 255 over 255, as float32 has them; two classes."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(40, 200, size=(4, 20))
    which = rng.integers(4, size=n)
    X = np.clip(np.rint(means[which] + rng.normal(0, 40, size=(n, 20))), 0, 255).astype(np.float32)
    return X / np.float32(255), which % 2


def test_kmeans__of_pixels_are_pixels():
    X, _ = pixels(600, 4)
    map_ = Nystroem(40, "kmeans").map(RBF(gamma=0.5), X)
    points, landmarks = map_.sides(X, np.float32)
    if Points.for_gram(X).on_lattice:  # where products of bytes are fast
        np.testing.assert_allclose(map_.landmarks * 255, np.rint(map_.landmarks * 255), atol=1e-4)
        assert points.on_lattice
        assert landmarks.on_lattice
    expected = rbf_kernel(X.astype(float), map_.landmarks, gamma=0.5)
    np.testing.assert_allclose(RBF(gamma=0.5).block(points, landmarks), expected, atol=1e-6)


def test_certificate__through_means_on_a_lattice():
    X, y = pixels(900, 5)
    low = SVC(C=3.0, gamma=0.5, approximation=Nystroem(60, "kmeans")).fit(X, y)
    found, Z = low.certificate_[0], low.landmarks_.astype(float)
    L = np.linalg.cholesky(rbf_kernel(Z, gamma=0.5))
    G = np.linalg.solve(L, rbf_kernel(X.astype(float), Z, gamma=0.5).T).T
    judge = svm.SVC(C=3.0, kernel="linear", tol=1e-6).fit(G, y)
    coef = judge.dual_coef_[0]
    dual = np.abs(coef).sum() - 0.5 * np.sum((coef @ G[judge.support_]) ** 2)
    assert found.dual <= dual * (1 + 1e-6)
    assert found.primal >= dual * (1 - 1e-6)
    assert found.kkt_gap + found.uncertainty <= 1e-3


def test_random_pivots__leave_a_smaller_rest_than_uniform_rows():
    rng = np.random.default_rng(2)
    X = np.concatenate([0.05 * rng.normal(size=(360, 3)), 4.0 * rng.normal(size=(40, 3))])

    def rest(landmarks):
        maps = [Nystroem(40, landmarks, seed=seed).map(RBF(gamma=1.0), X) for seed in range(5)]
        return np.mean([len(X) - (factor_rows(map_, X) ** 2).sum() for map_ in maps])

    assert rest("rpcholesky") < 0.5 * rest("uniform")


def test_landmarks__that_others_span_are_left_out():
    X = np.repeat(np.random.default_rng(0).normal(size=(10, 3)), 3, axis=0)
    assert Nystroem(30, "uniform").map(RBF(gamma=1.0), X).rank == 10


def test_svc__of_full_rank_is_the_exact_machine():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(150, 5))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=150) > 0, "a", "b")
    low = SVC(C=2.0, gamma=0.5, tol=1e-6, approximation={"rank": 150, "landmarks": "uniform"}).fit(X, y)
    exact = svm.SVC(C=2.0, gamma=0.5, tol=1e-6).fit(X, y)
    test = rng.normal(size=(50, 5))
    np.testing.assert_allclose(low.decision_function(test), exact.decision_function(test), atol=1e-4)
    assert low.exact_bound_[0].relative_gap < 1e-5
    assert low.plan_ == "factor"


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans", "rpcholesky"])
def test_certificate__is_of_the_low_rank_machine(two_classes, landmarks):
    X, y = two_classes
    low = SVC(C=3.0, gamma=GAMMA, approximation=Nystroem(80, landmarks)).fit(X, y)
    Z, found = low.landmarks_, low.certificate_[0]
    cross = rbf_kernel(X, Z, gamma=GAMMA)
    L = np.linalg.cholesky(rbf_kernel(Z, gamma=GAMMA))
    G = np.linalg.solve(L, cross.T).T
    judge = svm.SVC(C=3.0, kernel="linear", tol=1e-5).fit(G, y)
    coef = judge.dual_coef_[0]
    dual = np.abs(coef).sum() - 0.5 * np.sum((coef @ G[judge.support_]) ** 2)
    assert found.dual <= dual + 1e-6 * dual
    assert found.primal >= dual - 1e-6 * dual
    assert found.relative_gap < 2e-3
    assert str(low.status_[0]) == "converged"


@pytest.mark.parametrize("rank", [40, 400])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_exact_bound__holds_and_its_primal_is_that_of_the_model(two_classes, rank, C):
    X, y = two_classes
    low = SVC(C=C, gamma=GAMMA, approximation={"rank": rank}).fit(X, y)
    bound, optimum = low.exact_bound_[0], exact_value(X, y, C)
    assert bound.dual <= optimum * (1 + 1e-6)
    assert bound.primal >= optimum * (1 - 1e-6)
    c = low.model_.coef[0]
    norm2 = c @ rbf_kernel(low.landmarks_, gamma=GAMMA) @ c
    primal = 0.5 * norm2 + C * np.maximum(0.0, 1.0 - y * low.decision_function(X)).sum()
    assert bound.primal == pytest.approx(primal, rel=1e-3)
    assert bound.dual > 0.0


@pytest.mark.parametrize("rank", [40, 400])
def test_claims__that_a_factor_in_float32_cannot_bear_go_on_in_float64(two_classes, rank):
    X, y = two_classes
    low = SVC(C=10.0, gamma=GAMMA, tol=1e-4, approximation={"rank": rank}).fit(X, y)
    found = low.certificate_[0]
    assert str(low.status_[0]) == "converged"
    assert found.kkt_gap + found.uncertainty <= 1.05e-4
    assert low.exact_bound_[0].dual <= exact_value(X, y, 10.0) * (1 + 1e-6)


def test_polish__ends_at_the_exact_machine(two_classes):
    X, y = two_classes
    polished = SVC(C=3.0, gamma=GAMMA, tol=1e-4, approximation={"rank": 100, "polish": True}).fit(X, y)
    assert polished.certificate_[0].dual == pytest.approx(exact_value(X, y, 3.0), rel=1e-6)
    assert polished.exact_bound_ == ()
    assert len(polished.support_vectors_) == len(polished.support_)


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
def test_digits__several_classes_share_the_factor(scheme):
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    low = SVC(C=10.0, gamma=0.1, multi_class=scheme, approximation={"rank": 300}).fit(X[:1400], y[:1400])
    exact = svm.SVC(C=10.0, gamma=0.1).fit(X[:1400], y[:1400])
    assert low.score(X[1400:], y[1400:]) >= exact.score(X[1400:], y[1400:]) - 0.01
    assert {str(status) for status in low.status_} == {"converged"}
    assert low.dual_coef_.shape[1] == len(low.support_)


@pytest.mark.parametrize(("name", "loss", "bias"), [("smo", "hinge", 0), ("interior-point", "squared_hinge", 0)])
def test_solver__is_free_to_choose(two_classes, name, loss, bias):
    X, y = two_classes
    found = [
        SVC(C=1.0, gamma=GAMMA, loss=loss, solver=solver, approximation={"rank": 50}).fit(X, y).certificate_[0].dual
        for solver in (name, "dual-ascent")
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_regression_and_novelty__have_factors_too(two_classes):
    X, _ = two_classes
    target = np.sin(X[:, 0]) + X[:, 1]
    low = SVR(C=1.0, gamma=0.1, approximation={"rank": 300}).fit(X, target)
    assert low.score(X, target) > 0.95
    assert low.exact_bound_[0].dual <= low.exact_bound_[0].primal
    inside = OneClassSVM(nu=0.1, gamma=0.1, approximation={"rank": 100}).fit(X)
    assert np.mean(inside.predict(X) < 0) == pytest.approx(0.1, abs=0.01)


def test_search__fits_approximations_one_by_one():
    X, y = load_digits(return_X_y=True)
    grid = {"approximation": [{"rank": 20}, {"rank": 100}]}
    from svmcore.estimator import GridSearchCV as Shared

    ours, theirs = (kind(SVC(gamma=0.001), grid, cv=3).fit(X[:500], y[:500]) for kind in (Shared, GridSearchCV))
    np.testing.assert_array_equal(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rank": 0}, "rank must be a whole number, 1 or more; given 0"),
        ({"landmarks": "kmean"}, "landmarks must be uniform, kmeans, rpcholesky; given 'kmean'"),
        ({"polish": "yes"}, "polish must be true or false; given 'yes'"),
        ({"ranks": 3}, "did you mean 'rank'"),
    ],
)
def test_nystroem__refuses_what_it_cannot_be(two_classes, given, message):
    with pytest.raises(InputError, match=message):
        SVC(approximation=given).fit(*two_classes)


def test_nystroem__refuses_kernels_that_are_not_definite():
    with pytest.raises(Unsupported, match="positive semi-definite kernel of rows, not kernel=tanh"):
        Nystroem(3).map(Tanh(gamma=0.1), np.eye(4))
