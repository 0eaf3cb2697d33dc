"""Several classes: targets, votes, and models assembled from binary solutions, against scikit-learn."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris, load_wine
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC as Reference

from svmcore import RBF, SMO, Linear, Precomputed, ResidentGram, assemble, classification, targets
from svmcore.errors import InputError, InvalidProblem
from svmcore.model import Part, model_of, model_of_rows, support_of, vote


def trained(kernel, X, codes, classes, scheme, K=None, **problem):
    K = kernel(X, X) if K is None else K
    goals = targets(codes, len(classes), scheme)
    solutions = [SMO(tol=1e-6).solve(classification(ResidentGram(K), goal.y, 1.0, **problem)) for goal in goals]
    return assemble(kernel, X, solutions, np.asarray(classes), scheme)


@pytest.fixture(scope="module")
def wine():
    X, codes = load_wine(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), codes


def test_ovr__is_scikit_learns(wine):
    X, codes = wine
    model, support = trained(RBF(gamma=0.1), X, codes, [0, 1, 2], "ovr")
    reference = OneVsRestClassifier(Reference(C=1.0, gamma=0.1, tol=1e-6)).fit(X, codes)
    np.testing.assert_allclose(model.decision_function(X), reference.decision_function(X), atol=1e-4)
    np.testing.assert_array_equal(model.predict(X), reference.predict(X))
    assert (np.diff(support) > 0).all()


def test_ovo__is_scikit_learns(wine):
    X, codes = wine
    model, _ = trained(RBF(gamma=0.1), X, codes, [0, 1, 2], "ovo")
    reference = Reference(C=1.0, gamma=0.1, tol=1e-6, decision_function_shape="ovo").fit(X, codes)
    np.testing.assert_allclose(model.decision_function(X), -reference.decision_function(X), atol=1e-4)  # later class +
    np.testing.assert_array_equal(model.predict(X), reference.predict(X))


def test_two_classes__are_one_problem_with_the_second_positive():
    X, codes = load_iris(return_X_y=True)
    X, codes = X[codes < 2], codes[codes < 2]
    model, _ = trained(Linear(), X, codes, ["a", "b"], "ovr")
    assert model.coef.shape[0] == 1
    assert model.predict(X).tolist() == ["a" if code == 0 else "b" for code in codes]
    assert (model.decision_function(X)[codes == 1, 0] > 0).all()
    np.testing.assert_allclose(X @ model.weights[0] + model.bias[0], model.decision_function(X)[:, 0], atol=1e-10)


def test_model__sparse_and_dense_rows_predict_alike(wine):
    X, codes = wine
    dense, _ = trained(RBF(gamma=0.1), X, codes, [0, 1, 2], "ovr")
    other, _ = trained(RBF(gamma=0.1), sparse.csr_matrix(X), codes, [0, 1, 2], "ovr")
    for model in (dense, other):
        np.testing.assert_allclose(model.decision_function(sparse.csr_matrix(X)), dense.decision_function(X), atol=1e-9)


def test_model__precomputed_takes_rows_of_kernel_values(wine):
    X, codes = wine
    K = RBF(gamma=0.1)(X, X)
    model, support = trained(Precomputed(), K, codes, [0, 1, 2], "ovr", K=K)
    direct, _ = trained(RBF(gamma=0.1), X, codes, [0, 1, 2], "ovr")
    np.testing.assert_allclose(model.decision_function(K), direct.decision_function(X), atol=1e-9)
    assert model.support_vectors.shape == (len(support), len(X))


def test_model__refuses_another_number_of_features(wine):
    X, codes = wine
    model, _ = trained(Linear(), X, codes, [0, 1, 2], "ovr")
    with pytest.raises(InputError, match="trained on 13 features; given 5"):
        model.decision_function(X[:, :5])


def test_model__has_weights_for_linear_kernels_alone(wine):
    X, codes = wine
    assert trained(RBF(gamma=0.1), X, codes, [0, 1, 2], "ovr")[0].weights is None


def test_targets__ovo_leaves_the_other_classes_out():
    goals = targets(np.array([0, 1, 2, 1]), 3, "ovo")
    assert [(g.positive, g.negative, g.y.tolist()) for g in goals][1] == (2, 0, [-1, 0, 1, 0])


@pytest.mark.parametrize(("n_classes", "scheme", "error"), [(1, "ovr", InvalidProblem), (3, "ovx", InputError)])
def test_targets__refuses(n_classes, scheme, error):
    with pytest.raises(error):
        targets(np.array([0, 0]), n_classes, scheme)


def test_vote__ties_go_to_the_first_class():
    circle = np.array([[1.0, -1.0, 1.0]])  # 1 beats 0, 0 beats 2, 2 beats 1
    assert vote(circle, 3, "ovo").tolist() == [0]
    assert vote(np.array([[0.5, 0.5, 0.1]]), 3, "ovr").tolist() == [0]


def test_targets__of_many_classes_take_the_memory_of_one():
    codes = np.arange(20_000) % 1000
    tracemalloc.start()
    try:
        positives = [int((target.y > 0).sum()) for target in targets(codes, 1000)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert positives == [20] * 1000
    assert peak < 4e6  # all of them are 160 MB


def test_vote__in_blocks_is_that_of_all_rows_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    decision = rng.normal(size=(50, 6)).round(1)
    whole = [vote(decision[:, :k], n, scheme) for k, n, scheme in ((1, 2, "ovr"), (6, 6, "ovr"), (6, 4, "ovo"))]
    monkeypatch.setattr("svmcore.model.multiclass.BLOCK", 7)
    parts = [vote(decision[:, :k], n, scheme) for k, n, scheme in ((1, 2, "ovr"), (6, 6, "ovr"), (6, 4, "ovo"))]
    assert all(np.array_equal(*pair) for pair in zip(whole, parts, strict=True))
    assert np.array_equal(whole[1], decision.argmax(axis=1))


def test_model_of_rows__is_the_model_of_the_parts():
    """Problems that share some rows, one of them on a row twice."""
    coef = np.array([[0.0, 1.0, 0.0, -2.0, 0.0], [0.5, 0.0, 0.0, 3.0, 0.0]])
    parts = [Part(np.array([3, 1]), np.array([-2.0, 1.0]), 0.25, 2.0)]
    parts += [Part(np.array([0, 3, 3]), np.array([0.5, 1.0, 2.0]), -1.0, 4.0)]
    X, about = np.arange(10.0).reshape(5, 2), (np.array([0, 1, 2]), "ovo")
    bias, scale = np.array([0.25, -1.0]), np.array([2.0, 4.0])
    one, support = model_of(Linear(), lambda rows: X[rows], parts, *about)
    other, same = model_of_rows(Linear(), lambda rows: X[rows], coef, bias, scale, *about)
    assert support.tolist() == same.tolist() == [0, 1, 3]
    np.testing.assert_array_equal(one.coef, [[0.0, 0.5, -1.0], [0.125, 0.0, 0.75]])
    np.testing.assert_array_equal(other.coef, one.coef)
    np.testing.assert_array_equal(other.bias, [0.125, -0.25])
    np.testing.assert_array_equal(other.support_vectors, X[[0, 1, 3]])
    assert support_of([Part(np.empty(0, np.int64), np.empty(0), 0.0)]).tolist() == []
