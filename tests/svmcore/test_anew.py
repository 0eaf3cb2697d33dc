"""Values that are computed as fast as they are read: no column is kept, and they are what columns hold."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.svm import SVC as LibSVM

from svmcore import RBF, SMO, CachedColumns, ComputedColumns, Linear, ResidentGram, Status, classification
from svmcore.errors import Unsupported
from svmcore.estimator import SVC
from svmcore.kernels.exact import ExactKernel
from svmcore.passes.kernel.differences import SUMMED_FLOAT32, add_differences_by_sign, exp_of_differences
from svmcore.passes.kernel.exp2 import EXP_FLOAT32
from svmcore.passes.kernel.kernel_values import exp_pass
from svmcore.passes.matrix.gather import gather_square
from svmcore.solvers import shrinking
from svmcore.sources import LinearRows
from svmcore.sources.base import add_weighted
from svmcore.sources.together import solved_together
from svmcore.train import opening

RNG = np.random.default_rng(5)
KERNEL = RBF(0.3)
FEATURES = [1, 3, 8, 32]


def columns_of(X, kernel=KERNEL, dtype=np.float32):
    points = kernel.prepare_gram(X, dtype)
    return ComputedColumns(kernel, points, dtype, ExactKernel(kernel, X, like=points))


# ---- which sources do
@pytest.mark.parametrize(
    ("kernel", "p", "dtype", "expected"),
    [
        (RBF(0.3), 32, np.float32, True),
        (RBF(0.01), 33, np.float32, False),  # more features are products, which are stored
        (RBF(3.0), 40, np.float32, False),  # or differences, where products would be too coarse, but slower than memory
        (RBF(0.3), 4, np.float64, False),
        (Linear(), 4, np.float32, False),
    ],
)
def test_computes_anew__is_for_float32_differences_of_few_features(kernel, p, dtype, expected):
    source = columns_of(RNG.normal(size=(60, p)), kernel, dtype)
    assert source.computes_anew == CachedColumns(source, 1 << 20).computes_anew == expected


def test_square__of_a_source_with_whole_columns_says_so():
    with pytest.raises(Unsupported, match="LinearRows has whole columns"):
        LinearRows(np.eye(3), np.arange(3), False).square(np.arange(2), np.arange(2), np.empty((2, 2)), np.arange(2))
    with pytest.raises(Unsupported, match="'linear' stores its values"):
        Linear().place(*[Linear().prepare(np.eye(2))] * 2, np.empty((2, 2)), np.arange(2), 0.0, None)
    with pytest.raises(Unsupported, match="'linear' stores its values"):
        Linear().add_by_sign(*[Linear().prepare(np.eye(2))] * 2, np.ones((1, 2)), np.zeros((1, 2, 2)))


# ---- values
def test_exp__is_within_its_bound_from_1_to_its_least():
    """Exponents that are float32 numbers: squares of one feature, times gamma log2(e) = 1."""
    x = np.sqrt(np.concatenate([[0.0], np.linspace(0.0, 125.0, 300_001), np.logspace(-30, 2, 50_001)])).astype(
        np.float32
    )
    exponents = (x * x).astype(np.float64)
    found = exp_of_differences(np.zeros((1, 1), np.float32), x[:, None], np.log(2.0), np.empty((1, len(x)), np.float32))
    inside = exponents <= 125.0
    off = np.abs(found[0] / np.exp2(-exponents) - 1.0)[inside]
    assert found[0, 0] == 1.0
    assert 0.2 * EXP_FLOAT32 < off.max() <= EXP_FLOAT32


def test_exp__of_far_rows_is_next_to_nothing_and_of_products_never_above_1():
    far = exp_of_differences(
        np.zeros((1, 2), np.float32), np.full((40, 2), 1e9, np.float32), 1.0, np.empty((1, 40), np.float32)
    )
    assert (far > 0.0).all()
    assert (far < 1e-30).all()
    products, norms = np.array([[1.0 + 1e-6, 1.0, 0.5]], np.float32), np.ones(3)
    near = exp_pass(products, norms[:1], norms, 8.0, np.empty((1, 3), np.float32))
    np.testing.assert_allclose(near, [[1.0, 1.0, np.exp(-8.0)]], rtol=1e-6)


# ---- squares and sums
@pytest.mark.parametrize("p", FEATURES)
@pytest.mark.parametrize("unit", [None, 1.0 / 65535], ids=["float32", "16 bits"])
@pytest.mark.parametrize(("q", "m"), [(1, 1), (5, 17), (301, 3333)])
def test_square__has_the_bytes_of_one_gathered_from_columns(p, unit, q, m):
    source = columns_of(RNG.normal(size=(3400, p)))
    idx, others, at = (RNG.permutation(3400)[:size] for size in (q, m, q))
    at = np.argsort(at)
    shift, dtype = (0.0, np.uint16) if unit else (0.25, np.float32)
    found, gathered = np.full((2, q + 1, m + 2), 7, dtype)
    CachedColumns(source, 1 << 20).square(idx, others, found, at, shift, unit)
    gather_square(source.columns(idx), np.arange(q), others, gathered, at, shift=shift, unit=unit)
    np.testing.assert_array_equal(found, gathered)


def terms_of(values, weights):
    """Sums (n,) of values (n, q) times what is above 0 of the weights (q,), and times what is below it."""
    return values @ np.maximum(weights, 0.0), values @ np.maximum(-weights, 0.0)


@pytest.mark.parametrize("p", FEATURES)
@pytest.mark.parametrize("count", [0, 1, 6, 2500])
def test_by_sign__sums_what_has_a_plus_and_the_sizes_of_what_has_a_minus(p, count):
    X = RNG.normal(size=(3400, p))
    source, idx, weights = columns_of(X), RNG.permutation(3400)[:count], RNG.normal(size=count)
    found, served = source.by_sign(idx, weights), source.columns(idx).astype(np.float64).T
    lengths = np.maximum(weights, 0.0).sum(), np.maximum(-weights, 0.0).sum()
    for sums, exact, length in zip(
        found, terms_of(np.exp(-0.3 * cdist(X, X[idx], "sqeuclidean")), weights), lengths, strict=True
    ):
        assert (np.abs(sums - exact) <= source.rounding.relative * exact + source.rounding.absolute * length).all()
    for sums, expected in zip(found, terms_of(served, weights), strict=True):  # of the same values
        assert (np.abs(sums - expected) <= SUMMED_FLOAT32 * expected).all()


@pytest.mark.parametrize("largest", [1e300, 1.0, 1e-290, 5e-324])
@pytest.mark.parametrize("far", [0.0, 30.0], ids=["near", "values next to nothing"])
def test_by_sign__weights_of_any_size_lose_no_more(largest, far):
    X = np.vstack([RNG.normal(size=(40, 2)), RNG.normal(size=(40, 2)) + far])
    source, idx = columns_of(X), np.arange(40)
    weights = largest * np.array([1.0, -1.0])[idx % 2] * 10.0 ** -(idx % 20)
    for sums, expected in zip(
        source.by_sign(idx, weights), terms_of(source.columns(idx).astype(np.float64).T, weights), strict=True
    ):
        assert (np.abs(sums - expected) <= SUMMED_FLOAT32 * expected + 40 * 5e-324).all()


def test_rounding__of_a_matrix_is_that_of_values_and_of_sums_what_these_lose_too():
    source = columns_of(RNG.normal(size=(60, 3)))
    stored = ResidentGram(source.columns(np.arange(60)), source).rounding
    assert stored == KERNEL.rounding(source.points, source.points, np.float32)
    assert source.rounding.relative >= stored.relative + SUMMED_FLOAT32
    assert source.rounding.absolute >= stored.absolute * (1.0 + SUMMED_FLOAT32)
    whole = columns_of(RNG.normal(size=(60, 40)))  # too many features: its sums are of columns
    assert whole.rounding == whole.stored


def test_add_differences__goes_through_more_rows_than_stay_in_the_first_cache():
    X, Z, weights = RNG.normal(size=(6, 3)), RNG.normal(size=(3100, 3)), RNG.normal(size=(2, 6))
    sums, expected = np.zeros((2, 2, 3100)), np.exp(-0.3 * cdist(X, Z, "sqeuclidean"))
    add_differences_by_sign(X.astype(np.float32), Z.astype(np.float32), 0.3, weights, sums)
    np.testing.assert_allclose(sums[:, 0], np.maximum(weights, 0.0) @ expected, atol=1e-5)
    np.testing.assert_allclose(sums[:, 1], np.maximum(-weights, 0.0) @ expected, atol=1e-5)


def test_outputs_of__several_are_what_each_is_alone():
    source = columns_of(RNG.normal(size=(3400, 5)))
    coefs = RNG.normal(size=(3, 3400)) * (RNG.uniform(size=(3, 3400)) < 0.2)
    for (values, sizes), coef in zip(source.outputs_of(list(coefs)), coefs, strict=True):
        alone, alone_sizes = source.outputs(coef)
        assert (np.abs(values - alone) <= 2 * SUMMED_FLOAT32 * sizes).all()
        np.testing.assert_allclose(sizes, alone_sizes, rtol=2 * SUMMED_FLOAT32)


def test_add_weighted__columns_asked_for_twice_count_twice():
    source, out = columns_of(RNG.normal(size=(50, 2))), np.zeros(50)
    add_weighted(source, np.array([3, 3, 8]), np.array([1.0, 1.0, -2.0]), out)
    np.testing.assert_allclose(out, 2.0 * (source.columns([3])[0] - source.columns([8])[0]), atol=2 * SUMMED_FLOAT32)


# ---- solves
def test_together__one_that_sums_columns_of_all_rows_is_not_waited_for():
    source = CachedColumns(columns_of(RNG.normal(size=(300, 3))), 1 << 22)

    def solve(share):
        share.by_sign(np.arange(5), np.ones(5))
        return share._is_alone

    assert list(solved_together(source, [solve, solve], 2)) == [True, True]


@pytest.mark.parametrize("squared", [False, True], ids=["hinge", "squared hinge"])
@pytest.mark.parametrize("least", [64, 1 << 20], ids=["rows left out", "all rows"])
def test_solve__keeps_no_column_and_ends_at_libsvms_optimum(monkeypatch, squared, least):
    monkeypatch.setattr(shrinking, "LEAST", least)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 4))
    y = np.where(X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=1500) > 0, 1.0, -1.0)
    source = CachedColumns(columns_of(X), 1 << 26, None, 1 << 24)
    if least < len(X):  # however few bytes the columns would be
        monkeypatch.setattr(shrinking.Shrinking, "_on_all", lambda *given: pytest.fail("no row was left out"))
    qp = classification(source, y, 2.0, loss="squared_hinge" if squared else "hinge")
    solution = SMO(tol=1e-3).solve(qp)
    assert solution.status is Status.CONVERGED
    assert source.n_held == 0
    K = np.exp(-0.3 * cdist(X, X, "sqeuclidean")) + np.diag(qp.ridge)
    C = 1e9 if squared else 2.0
    beta = LibSVM(C=C, kernel="precomputed", tol=1e-5).fit(K, y)
    full = np.zeros(1500)
    full[beta.support_] = beta.dual_coef_[0] * (1 if beta.classes_[1] == 1.0 else -1)
    optimum = np.abs(full).sum() - 0.5 * full @ K @ full
    ours = np.abs(solution.beta).sum() - 0.5 * solution.beta @ K @ solution.beta
    assert ours == pytest.approx(optimum, rel=2e-6)


# ---- several classes
def three_classes(n, p=3):
    rng = np.random.default_rng(7)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, p)) + 2.0 * np.eye(3, p)[y]
    return X.astype(np.float32), y


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
def test_few_classes_of_many_rows__are_solved_without_their_K_and_are_scikit_learns(monkeypatch, scheme):
    monkeypatch.setattr(opening, "ALONE", 1900)
    X, y = three_classes(6500)
    model = SVC(C=1.0, gamma=0.5, multi_class=scheme, tol=1e-4).fit(X, y)
    assert model.plan_ == "columns"
    assert all(certificate.kkt_gap <= 1.05e-4 for certificate in model.certificate_)
    monkeypatch.setattr(opening, "ALONE", 2200)
    kept = SVC(C=1.0, gamma=0.5, multi_class=scheme, tol=1e-4).fit(X, y)
    assert kept.plan_ == "resident"
    duals = [[certificate.dual for certificate in each.certificate_] for each in (model, kept)]
    np.testing.assert_allclose(*duals, rtol=1e-6)
    theirs = LibSVM(C=1.0, gamma=0.5, tol=1e-4, decision_function_shape="ovo")
    apart = [theirs.fit(X, y)] if scheme == "ovo" else [clone(theirs).fit(X, y == label) for label in range(3)]
    values = np.column_stack([each.decision_function(X) for each in apart])
    ours = model.set_params(decision_function_shape=scheme).decision_function(X)
    np.testing.assert_allclose(ours, values, atol=2e-3)


@pytest.mark.parametrize(
    ("given", "n", "p"),
    [({"calibration": "folds", "random_state": 0}, 6500, 3), ({}, 4600, 3), ({}, 6500, 40)],
    ids=["probabilities", "few rows of each", "many features"],
)
def test_several_classes__share_a_K_that_is_asked_for_again_or_costs_less(monkeypatch, given, n, p):
    monkeypatch.setattr(opening, "ALONE", 1900)
    assert SVC(gamma=0.5, tol=0.1, **given).fit(*three_classes(n, p)).plan_ == "resident"
