"""Predictions at speed: quick values within their bound, labels those of float64."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from svmcore.kernels import RBF, Linear, Polynomial, Sum, Tanh
from svmcore.model import Model
from svmcore.model import trained as module
from svmcore.model.multiclass import is_told, vote
from svmcore.model.outputs import Outputs
from svmcore.passes.kernel.differences import exp_of_differences, sums_of_differences
from svmcore.passes.kernel.kernel_values import sums_of_values
from svmcore.points.listed import listed_products, listed_rows
from svmcore.runtime import threads

KERNELS = {
    "rbf": (RBF(0.05), lambda A, B: np.exp(-0.05 * cdist(A, B, "sqeuclidean"))),
    "steep": (RBF(3.0), lambda A, B: np.exp(-3.0 * cdist(A, B, "sqeuclidean"))),
    "polynomial": (Polynomial(3, 0.1, 1.0), lambda A, B: (0.1 * A @ B.T + 1.0) ** 3),
    "tanh": (Tanh(0.02, -0.1), lambda A, B: np.tanh(0.02 * A @ B.T - 0.1)),
    "linear": (Linear(), lambda A, B: A @ B.T),
    "sum": (Sum(RBF(0.05), Linear()), lambda A, B: np.exp(-0.05 * cdist(A, B, "sqeuclidean")) + A @ B.T),
}
ROWS = {
    "few": lambda rng, n: rng.normal(size=(n, 5)),
    "wide": lambda rng, n: rng.normal(size=(n, 60)) + 2.0,
    "pixels": lambda rng, n: (rng.integers(0, 256, (n, 40)) / 255.0).astype(np.float32),
    "integers": lambda rng, n: rng.integers(0, 9, (n, 30)).astype(float),
    "some": lambda rng, n: rng.normal(size=(n, 27)),
    "sparse": lambda rng, n: sparse.random_array((n, 200), density=0.03, rng=rng, format="csr"),
}


def model_of(kernel, rows, rng, k=1, m=700):
    classes = np.arange(max(2, k))
    return Model(kernel, rows(rng, m), rng.normal(size=(k, m)), rng.normal(size=k), classes)


def exact(of, model, X):
    A, B = (np.asarray(side.todense() if sparse.issparse(side) else side, float) for side in (X, model.support_vectors))
    return of(A, B) @ model.coef.T + model.bias


@pytest.mark.parametrize(("kernel", "rows"), list(itertools.product(KERNELS, ROWS)))
def test_decisions__tell_what_float64_tells(kernel, rows):
    rng = np.random.default_rng(0)
    for k in (1, 3):
        model = model_of(KERNELS[kernel][0], ROWS[rows], rng, k)
        X = ROWS[rows](rng, 500)
        expected = exact(KERNELS[kernel][1], model, X)
        size = np.abs(expected).max()
        np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-11 * size)
        found = model.decisions(X)
        np.testing.assert_array_equal(vote(found, len(model.classes), "ovr"), vote(expected, len(model.classes), "ovr"))
        np.testing.assert_allclose(found, expected, atol=1e-3 * size)


@pytest.mark.parametrize("rows", ["few", "some", "wide", "pixels", "integers", "sparse"])
@pytest.mark.parametrize("kernel", ["rbf", "steep", "polynomial", "tanh"])
def test_quick_values__are_within_their_bound(kernel, rows):
    rng = np.random.default_rng(1)
    model = model_of(KERNELS[kernel][0], ROWS[rows], rng, 3)
    X, out = ROWS[rows](rng, 300), np.zeros((300, 3))
    error = Outputs(model.kernel, model.support_vectors, model.coef).add_quickly(X, out)
    off = np.abs(out - (exact(KERNELS[kernel][1], model, X) - model.bias))
    assert (off <= error[:, None]).all()
    assert off.max() > 0.0  # they are quick ones


def test_decisions__are_computed_again_where_the_label_hangs_on_less(monkeypatch):
    """A bias that puts the quick value of one row on the wrong side."""
    rng = np.random.default_rng(2)
    plain, X = model_of(RBF(0.05), ROWS["pixels"], rng), ROWS["pixels"](rng, 400)
    out = np.zeros((400, 1))
    plain._outputs.add_quickly(X, out)
    true = plain.decision_function(X) - plain.bias
    row = int(np.abs(out - true).argmax())
    bias = -(out[row] + true[row]) / 2.0
    model = Model(plain.kernel, plain.support_vectors, plain.coef, bias, plain.classes)
    quick = out[row] + bias
    assert np.sign(quick) != np.sign(true[row] + bias)
    np.testing.assert_array_equal(model.predict(X), (true[:, 0] + bias >= 0).astype(int))
    monkeypatch.setattr(module, "is_told", lambda decision, *_: np.ones(len(decision), bool))
    assert model.predict(X)[row] != (true[row] + bias >= 0).astype(int)


def test_decision_values_of_pixels__are_those_of_the_rows_with_their_rounding():
    """Float32 pixels are near a lattice: what they are off by is a digit of theirs, and tells in the tenth place."""
    rng = np.random.default_rng(9)
    model, X = model_of(RBF(0.05), ROWS["pixels"], rng, 3), ROWS["pixels"](rng, 400)
    of, bias = KERNELS["rbf"][1], model.bias
    expected = exact(of, model, X)
    nearest = np.rint(X.astype(float) * 255.0) / 255.0
    assert np.abs(exact(of, model, nearest) - expected).max() > 1e-10 * np.abs(expected - bias).max()
    found = model.decision_function(X)
    np.testing.assert_allclose(found, expected, atol=1e-13 * np.abs(model.coef).sum(axis=1).max())


@pytest.mark.parametrize("rows", ["pixels", "integers"])
def test_a_row_that_is_on_no_lattice__changes_no_bit_of_rows_that_are_computed_apart(rows, monkeypatch):
    rng = np.random.default_rng(10)
    model, X = model_of(RBF(0.05), ROWS[rows], rng, 3), ROWS[rows](rng, 900)
    grain = model._outputs.grain
    found = model.decision_function(X)
    off = X.copy()
    off[5, 3] += 0.3 / 255.0
    moved = model.decision_function(off)
    np.testing.assert_array_equal(moved[grain:], found[grain:])
    np.testing.assert_allclose(moved[:grain], exact(KERNELS["rbf"][1], model, off)[:grain], rtol=1e-11)
    for number in (1, 3, 4):
        monkeypatch.setattr(threads, "n_threads", lambda number=number: number)
        np.testing.assert_array_equal(model.decision_function(off), moved)


def test_quick_values__are_none_where_rows_reach_too_far_for_differences():
    rng = np.random.default_rng(6)
    model = model_of(RBF(3.0), ROWS["few"], rng)
    X = np.vstack([ROWS["few"](rng, 20), np.full((1, 5), 1e4)])
    assert model._outputs.add_quickly(X, np.zeros((21, 1))) is None
    expected = exact(KERNELS["steep"][1], model, X)
    np.testing.assert_array_equal(model.predict(X), (expected[:, 0] >= 0).astype(int))


def test_a_sparse_row__has_the_same_bits_alone_and_among_others():
    rng = np.random.default_rng(7)
    model, X = model_of(RBF(0.1), ROWS["sparse"], rng, 3), ROWS["sparse"](rng, 60)
    together = [values for _, _, K in model._outputs._values(*_sparse_rows(model, X)) for values in K.copy()]
    for i in (0, 23, 24, 59):
        [(_, _, alone)] = model._outputs._values(*_sparse_rows(model, X[i : i + 1]))
        np.testing.assert_array_equal(alone[0], together[i])


def _sparse_rows(model, X):
    parts = model._outputs._plain
    return model.kernel.prepare(X, parts[0].points.centre, np.float64), parts, np.float64


def test_listed_products__are_those_of_the_rows_whatever_their_columns_hold():
    """Empty, full and rare columns, explicit zeros."""
    rng = np.random.default_rng(8)
    X, Z = (sparse.random_array((n, 90), density=0.05, rng=rng, format="lil") for n in (40, 300))
    Z[:, 3], Z[:, 4], Z[:, 5:8], X[:, 3:9] = rng.normal(size=300), 0.0, rng.normal(size=(300, 3)), 1.5
    X, Z = sparse.csr_matrix(X), sparse.csr_matrix(Z)
    X.data[::7] = 0.0
    expected = X.toarray() @ Z.toarray().T
    for dtype, close in ((np.float64, 1e-14), (np.float32, 1e-5)):
        listed = listed_rows(Z, dtype)
        assert 4 <= len(listed.full) < 90
        found = listed_products(X, 10, listed, np.full((25, 300), np.nan, dtype))
        np.testing.assert_allclose(found, expected[10:35], atol=close * np.abs(expected).max())


def test_rows__that_are_on_another_lattice_are_predicted_in_float64():
    rng = np.random.default_rng(3)
    model = model_of(RBF(0.001), ROWS["integers"], rng)
    X = ROWS["integers"](rng, 50) * 40.0 - 7.25
    expected = exact(lambda A, B: np.exp(-0.001 * cdist(A, B, "sqeuclidean")), model, X)
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-10)
    np.testing.assert_array_equal(model.predict(X), (expected[:, 0] >= 0).astype(int))


@pytest.mark.parametrize("rows", ["wide", "pixels", "sparse"])
def test_values__do_not_depend_on_the_number_of_threads(rows, monkeypatch):
    rng = np.random.default_rng(4)
    model, X, found = model_of(RBF(0.1), ROWS[rows], rng), ROWS[rows](rng, 2500), []
    for count in (1, 2, 5):
        monkeypatch.setattr(threads, "n_threads", lambda count=count: count)
        found.append((model.decision_function(X), model.predict(X)))
    for values, labels in found[1:]:
        np.testing.assert_array_equal(values, found[0][0])
        np.testing.assert_array_equal(labels, found[0][1])


@pytest.mark.parametrize("scheme", ["ovr", "ovo"])
@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_a_label_is_told__where_no_values_within_the_error_have_another(scheme, n_classes):
    """Against all corners of the box of values; of rows that are not told most have a corner that says another."""
    rng = np.random.default_rng(5)
    k = 1 if n_classes == 2 else n_classes if scheme == "ovr" else n_classes * (n_classes - 1) // 2
    decision, error = rng.normal(size=(400, k)), rng.uniform(0.0, 0.6, 400)
    labels, told = vote(decision, n_classes, scheme), is_told(decision, error, n_classes, scheme)
    corners = itertools.product((-1.0, 1.0), repeat=k)
    same = np.all([vote(decision + np.array(c) * error[:, None], n_classes, scheme) == labels for c in corners], axis=0)
    assert same[told].all()
    assert told[same].mean() > 0.9


@pytest.mark.parametrize(("n", "m", "p", "k"), [(1, 1, 1, 1), (3, 130, 5, 2), (4, 16, 2, 1), (9, 1700, 31, 3)])
def test_sums_of_differences__are_sums_of_values_that_are_never_stored(n, m, p, k):
    rng = np.random.default_rng(9)
    X, Z = (rng.normal(size=(rows, p)).astype(np.float32) for rows in (n, m))
    weights, values = rng.normal(size=(k, m)).astype(np.float32), np.empty((n, m), np.float32)
    exact = np.exp(-0.1 * cdist(X, Z, "sqeuclidean"))
    np.testing.assert_allclose(exp_of_differences(X, Z, 0.1, values), exact, rtol=1e-5)
    found = np.ones((n, k))
    sums_of_differences(X, Z, 0.1, weights, found)
    np.testing.assert_allclose(found, 1.0 + exact @ weights.T, atol=1e-5 * (1.0 + np.abs(weights).sum()))
    signed = np.zeros((n, k))
    sums_of_values(-values, weights, True, signed)
    expected = -exact @ weights.T
    expected[:, -1] *= -1.0
    np.testing.assert_allclose(signed, expected, atol=1e-5 * (1.0 + np.abs(weights).sum()))


def test_exp_of_differences__rows_without_features_are_all_the_same():
    X, Z = np.empty((3, 0), np.float32), np.empty((20, 0), np.float32)
    np.testing.assert_array_equal(exp_of_differences(X, Z, 0.1, np.zeros((3, 20), np.float32)), 1.0)


def test_decisions__of_few_rows_are_those_of_float64():
    """Bounds of quick values would take longer than the values."""
    rng = np.random.default_rng(11)
    model, X = model_of(RBF(0.05), ROWS["some"], rng, 3), ROWS["some"](rng, 400)
    np.testing.assert_array_equal(model.decisions(X[:5]), model.decision_function(X[:5]))
    assert (model.decisions(X) != model.decision_function(X)).any()
