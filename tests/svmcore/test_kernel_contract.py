"""What every kernel of the registry promises, and the algebra: closure rules, explicit maps, scikit-learn's values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from sklearn.metrics import pairwise

from svmcore import RBF, Conformal, Kernel, Linear, Polynomial, Product, Scaled, Sum, Tanh
from svmcore.errors import InputError, UnknownPlugin
from svmcore.kernels.base import InnerProductKernel
from svmcore.kernels.compose import Gaussian, Normalise
from svmcore.kernels.feature_maps import product_map, quadratic_map, sum_map
from svmcore.points import Points

NAMED = {name: Kernel.create({"name": name, **Kernel.named(name).example}) for name in Kernel.names()}
KERNELS = {
    **{name: kernel for name, kernel in NAMED.items() if name != "precomputed"},
    "conformal-normalise": Conformal(Polynomial(degree=3, gamma=0.2, coef0=0.5)),
    "nested": Sum(Scaled(Linear(), 0.3), Product(RBF(gamma=0.2), Polynomial(degree=2, gamma=0.1, coef0=1.0))),
}
ROWS = np.random.default_rng(0).normal(size=(40, 5))
OTHERS = np.random.default_rng(1).normal(size=(23, 5))

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
points = arrays(np.float64, st.tuples(st.integers(2, 7), st.just(3)), elements=st.floats(-3, 3, width=32))


def mostly_zero(X):
    """The same rows among 300 columns of zeros, as CSR: no kernel of the inner product sees a difference."""
    return sparse.hstack([sparse.csr_matrix(X), sparse.csr_matrix((len(X), 300))], format="csr")


def smallest_eigenvalue(K):
    return np.linalg.eigvalsh(K).min() / max(1.0, np.abs(K).max())


@every_kernel
def test_kernel__values_of_a_block_are_those_of_its_parts(kernel):
    K = kernel(ROWS, OTHERS)
    assert K.shape == (40, 23)
    idx, jdx = np.array([3, 1, 39]), np.array([0, 22, 7, 7])
    np.testing.assert_allclose(kernel(ROWS[idx], OTHERS[jdx]), K[np.ix_(idx, jdx)], rtol=1e-12, atol=1e-13)


@every_kernel
def test_kernel__is_symmetric_with_its_diagonal(kernel):
    K = kernel(ROWS, ROWS)
    np.testing.assert_allclose(K, K.T, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(kernel.diagonal(ROWS), np.diag(K), rtol=1e-12, atol=1e-13)
    P = kernel.prepare(ROWS)
    np.testing.assert_allclose(kernel.diagonal_of(P), np.diag(K), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("most", [1, 255])
@pytest.mark.parametrize("gamma", [1e-9, 0.02, 1e9])
def test_rbf__mirrors_on_a_lattice(gamma, most):
    """Blocks of other sizes and places: the loop's whole vectors meet its remainder."""
    rows = np.random.default_rng(0).integers(0, most + 1, (300, 30)).astype(np.uint8)
    P, kernel = Points.of_bytes(rows, 1 / 255, always=True), RBF(gamma=gamma)
    K = kernel.block(P, P, np.empty((300, 300), np.float32))
    assert [name for name, each in KERNELS.items() if each.mirrors_on_lattice] == ["rbf"]
    assert np.isfinite(K).all()
    assert np.array_equal(K, K.T)
    for start, stop in [(0, 1), (5, 22), (37, 299)]:
        part = kernel.block(P.rows(start, stop), P, np.empty((stop - start, 300), np.float32))
        assert np.array_equal(part, K[:, start:stop].T)


@every_kernel
def test_kernel__gram_matrices_are_psd_where_it_says_so(kernel):
    smallest = smallest_eigenvalue(kernel(ROWS, ROWS))
    assert (smallest > -1e-12) == kernel.psd


@every_kernel
def test_kernel__sparse_rows_have_the_values_of_dense_ones(kernel):
    if not isinstance(kernel, InnerProductKernel):
        return
    assert kernel.prepare(mostly_zero(OTHERS)).is_sparse
    found = kernel(mostly_zero(ROWS), mostly_zero(OTHERS))
    np.testing.assert_allclose(found, kernel(ROWS, OTHERS), rtol=1e-11, atol=1e-12)


@every_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernel__blocks_of_prepared_rows_have_its_values(kernel, dtype):
    P = kernel.prepare(ROWS, None, dtype)
    Q = kernel.prepare(OTHERS, P.centre, dtype)
    scale = np.sqrt(np.abs(np.outer(kernel.diagonal(ROWS), kernel.diagonal(OTHERS))))
    error = np.abs(kernel.block(P, Q, np.empty((40, 23), dtype)) - kernel(ROWS, OTHERS)) / np.maximum(scale, 1e-3)
    assert error.max() < (2e-6 if dtype is np.float32 else 1e-12)


@every_kernel
def test_kernel__round_trips_through_its_spec(kernel):
    assert Kernel.create(kernel.spec()) == kernel


@every_kernel
@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernel__a_shift_of_ten_thousand_spreads_costs_no_digits(kernel, form, dtype):
    shifted = (ROWS + 1e4 * ROWS.std(axis=0)).astype(np.float64)
    factor = 1e-8 if kernel.name != "rbf" else 1.0  # x'x is 5e8 here: keep polynomials and tanh within their range
    kernel = _rescaled(kernel, factor)
    X = mostly_zero(shifted) if form == "csr" and isinstance(kernel, InnerProductKernel) else shifted
    P = kernel.prepare(X, None, dtype)
    K = kernel.block(P, P, np.empty((40, 40), dtype))
    exact = _in_long_doubles(kernel, shifted)
    scale = np.sqrt(np.abs(np.outer(np.diag(exact), np.diag(exact)))).astype(np.float64)
    assert (np.abs(K - exact) / scale).max() <= 1e-5


def _rescaled(kernel, factor):
    """The kernel with every gamma of an inner product times `factor`."""
    spec = kernel.spec()

    def walk(part):
        if isinstance(part, dict):
            changed = {key: walk(value) for key, value in part.items()}
            if changed.get("name") in ("polynomial", "tanh") or (changed.get("name") == "gaussian"):
                changed["gamma"] *= factor
            return changed
        return part

    return Kernel.create(walk(spec))


def _in_long_doubles(kernel, X):
    """Kernel matrix by the definition, in extended precision."""
    X = X.astype(np.longdouble)
    G = X @ X.T
    square = np.diag(G)
    return _value(kernel, G, X, square)


def _value(kernel, G, X, square):
    match kernel.name:
        case "linear":
            return G
        case "polynomial":
            return (np.longdouble(kernel.gamma) * G + kernel.coef0) ** kernel.degree
        case "tanh":
            return np.tanh(np.longdouble(kernel.gamma) * G + kernel.coef0)
        case "rbf":
            return np.exp(-np.longdouble(kernel.gamma) * ((X[:, None] - X) ** 2).sum(axis=-1))
        case "scaled":
            return kernel.scale * _value(kernel.kernel, G, X, square)
        case "sum":
            return _value(kernel.left, G, X, square) + _value(kernel.right, G, X, square)
        case "product":
            return _value(kernel.left, G, X, square) * _value(kernel.right, G, X, square)
        case "conformal":
            K = _value(kernel.kernel, G, X, square)
            gaussian = isinstance(kernel.factor, Gaussian)
            c = np.exp(-np.longdouble(kernel.factor.gamma) * square) if gaussian else 1 / np.sqrt(np.diag(K))
            return c[:, None] * K * c
    return kernel(X.astype(np.float64), X.astype(np.float64))  # a kernel of the user's: no other definition is known


@pytest.mark.parametrize(
    ("kernel", "reference"),
    [
        (Linear(), pairwise.linear_kernel),
        (Polynomial(degree=3, gamma=0.4, coef0=1.5), lambda X, Z: pairwise.polynomial_kernel(X, Z, 3, 0.4, 1.5)),
        (Polynomial(degree=2, gamma=1.0), lambda X, Z: pairwise.polynomial_kernel(X, Z, 2, 1.0, 0.0)),
        (RBF(gamma=0.7), lambda X, Z: pairwise.rbf_kernel(X, Z, 0.7)),
        (Tanh(gamma=0.1, coef0=-0.2), lambda X, Z: pairwise.sigmoid_kernel(X, Z, 0.1, -0.2)),
        (Conformal(Linear(), Normalise()), pairwise.cosine_similarity),
    ],
    ids=["linear", "polynomial", "homogeneous", "rbf", "tanh", "cosine"],
)
def test_kernel__values_are_scikit_learns(kernel, reference):
    np.testing.assert_allclose(kernel(ROWS, OTHERS), reference(ROWS, OTHERS), rtol=0, atol=1e-6)
    P = kernel.prepare(ROWS)
    np.testing.assert_allclose(kernel.block(P, P), reference(ROWS, ROWS), rtol=1e-6, atol=1e-5)


# --- the four closure rules (Shawe-Taylor and Cristianini 2004, prop. 3.22) -----------------------------------------
@settings(max_examples=40, deadline=None)
@given(points, st.floats(0.01, 100.0))
def test_scaled__is_psd_and_has_a_scaled_map(X, scale):
    K = Scaled(Polynomial(degree=2, gamma=1.0, coef0=1.0), scale)(X, X)
    assert smallest_eigenvalue(K) > -1e-10
    F = np.sqrt(scale) * quadratic_map(X, coef0=1.0)
    np.testing.assert_allclose(K, F @ F.T, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize(
    ("compose", "its_map"),
    [(Sum, sum_map), (Product, product_map)],
    ids=["sum: maps side by side", "product: outer product of the maps"],
)
@settings(max_examples=40, deadline=None)
@given(points, st.floats(0.0, 5.0))
def test_composed__is_psd_and_has_the_map_of_its_parts(compose, its_map, X, coef0):
    K = compose(Linear(), Polynomial(degree=2, gamma=1.0, coef0=coef0))(X, X)
    assert smallest_eigenvalue(K) > -1e-10
    F = its_map(X, quadratic_map(X, coef0=coef0))
    np.testing.assert_allclose(K, F @ F.T, rtol=1e-9, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(points, st.floats(0.01, 1.0))
def test_conformal__is_psd_and_its_map_is_multiplied_by_the_factor(X, gamma):
    K = Conformal(Polynomial(degree=2, gamma=1.0, coef0=1.0), Gaussian(gamma))(X, X)
    assert smallest_eigenvalue(K) > -1e-10
    F = np.exp(-gamma * (X * X).sum(axis=1))[:, None] * quadratic_map(X, coef0=1.0)
    np.testing.assert_allclose(K, F @ F.T, rtol=1e-9, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(points, st.sampled_from(sorted(name for name, kernel in KERNELS.items() if kernel.psd)))
def test_psd_kernel__every_gram_matrix_is_psd(X, name):
    assert smallest_eigenvalue(KERNELS[name](X, X)) > -1e-10


@settings(max_examples=40, deadline=None)
@given(points, st.floats(0.0, 3.0), st.floats(0.1, 2.0))
def test_quadratic_map__is_that_of_the_polynomial_kernel(X, coef0, gamma):
    F = quadratic_map(X, gamma=gamma, coef0=coef0)
    np.testing.assert_allclose(F @ F.T, Polynomial(degree=2, gamma=gamma, coef0=coef0)(X, X), rtol=1e-9, atol=1e-9)


def test_tanh__is_not_psd():
    assert not Tanh().psd
    X = np.array([[0.0], [1.0], [3.0]])
    assert smallest_eigenvalue(Tanh(gamma=1.0, coef0=-1.0)(X, X)) < -1e-3


# --- errors ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("rfb", UnknownPlugin, "did you mean 'rbf'"),
        ({"name": "rbf", "gama": 1}, InputError, "did you mean 'gamma'"),
        ({"name": "rbf", "gamma": 0}, InputError, "gamma must be a number > 0; given 0"),
        ({"name": "rbf", "gamma": "wide"}, InputError, "gamma must be scale, auto or a number > 0"),
        ({"name": "polynomial", "degree": 1.5}, InputError, "degree must be an integer >= 0; given 1.5"),
        ({"name": "scaled", "kernel": "rbf", "scale": -1}, InputError, "scale must be a number > 0"),
        ({"name": "scaled", "scale": 2}, InputError, "needs the parameter 'kernel'"),
        ({"name": "sum", "left": "linear", "right": "precomputed"}, InputError, "cannot be part of a composite"),
        ({"name": "conformal", "kernel": "rbf", "factor": "gausian"}, UnknownPlugin, "did you mean 'gaussian'"),
        ({"gamma": 1}, InputError, "needs a 'name'"),
    ],
)
def test_kernel__refuses_a_bad_spec(spec, error, message):
    with pytest.raises(error, match=message):
        Kernel.create(spec)


def test_kernel__resolves_gamma_in_every_part():
    kernel = Sum(Scaled(RBF(), 2.0), Polynomial(gamma="auto", degree=2))
    resolved = kernel.resolved(4, 0.5)
    assert (resolved.left.kernel.gamma, resolved.right.gamma) == (1 / (4 * 0.5), 0.25)
