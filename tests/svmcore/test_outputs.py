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


@pytest.mark.parametrize("rows", ["few", "wide", "pixels", "integers"])
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
