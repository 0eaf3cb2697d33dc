"""Faults that reviews found, each as a test: lies, hangs, wrong refusals. Judged by NumPy alone."""

import dataclasses
import time
import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris

from svmcore import RBF, SMO, ComputedColumns, Linear, Points, Precomputed, ResidentGram, Solver, Status, Tanh
from svmcore import classification as program
from svmcore.certificate import Certificate
from svmcore.errors import InputError, Unsupported
from svmcore.estimator import SVC
from svmcore.kernels.exact import ExactKernel
from svmcore.qp import Groups, SignedQP
from svmcore.train.posing.plan import cached


def shifted(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, 5)), np.array([1.0, 2.0, -1.0, 0.5, 0.0])
    return 1e4 + X, (X @ w + 0.3 * rng.normal(size=n) > 0).astype(int)


def true_gap(K, beta, y, C):
    """KKT gap of a classifier with a free bias, by the definition."""
    s = y - K @ beta
    hi, lo = np.where(y > 0, C, 0.0), np.where(y > 0, 0.0, -C)
    return s[beta < hi].max() - s[beta > lo].min()


def beta_of(model, n):
    beta = np.zeros(n)
    beta[model.support_] = model.dual_coef_[0]
    return beta


@pytest.mark.parametrize("solver", ["auto", "smo", "interior-point"])
def test_shifted_rows__cost_nothing_and_the_certificate_is_the_truth(solver):
    X, y = shifted()
    model = SVC(kernel="linear", solver=solver).fit(X, y)
    centred, beta = X - 1e4, beta_of(model, len(y))
    gap = true_gap(centred @ centred.T, beta, 2.0 * y - 1, 1.0)
    found = model.certificate_[0]
    assert model.status_ == (Status.CONVERGED,)
    assert abs(found.kkt_gap - gap) <= found.uncertainty + 2e-5
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
@pytest.mark.parametrize("C", [1.0, 100.0, 1e4])
def test_raw_table__says_what_float64_says(kernel, C):
    X, y = load_breast_cancer(return_X_y=True)
    gamma = 1 / (X.shape[1] * X.var())
    model = SVC(C=C, kernel=kernel, gamma=gamma, degree=2, coef0=1.0, time_limit=120).fit(X, y)
    U, beta = X - X.mean(axis=0), beta_of(model, len(y))
    squares = (U**2).sum(axis=1)
    K = {
        "linear": lambda: U @ U.T,
        "rbf": lambda: np.exp(-gamma * (squares[:, None] + squares - 2 * U @ U.T)),
        "poly": lambda: (gamma * X @ X.T + 1.0) ** 2,
    }[kernel]()
    found = model.certificate_[0]
    assert model.status_ == (Status.CONVERGED,)
    assert abs(found.kkt_gap - true_gap(K, beta, 2.0 * y - 1, C)) <= found.uncertainty + 2e-5
    assert sum(map(Fraction, beta)) == 0  # exactly: what is left of it would count as much as the largest value of K


def test_float32_columns__a_large_C_is_proved_in_float64():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2500, 5))
    y = (np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=2500) > 0).astype(int)
    model = SVC(C=1000.0, gamma=0.2).fit(X, y)
    squares = (X**2).sum(axis=1)
    K = np.exp(-0.2 * np.maximum(0, squares[:, None] + squares - 2 * X @ X.T))
    found, gap = model.certificate_[0], true_gap(K, beta_of(model, 2500), 2.0 * y - 1, 1000.0)
    assert model.status_ == (Status.CONVERGED,)
    assert gap <= 1.05e-3
    assert abs(found.kkt_gap - gap) <= found.uncertainty + 2e-5
    assert 0 < found.exact < 2500  # rows that could decide, and no others


@pytest.mark.parametrize("total", [0.0, 0.3, -7.25])
def test_sums__are_mended_to_the_last_bit_within_the_box(total):
    rng = np.random.default_rng(5)
    beta = rng.uniform(-1, 1, 200) * 10.0 ** rng.integers(-9, 4, 200)
    lo, hi = np.full(200, -1e4), np.full(200, 1e4)
    beta[:50] = hi[:50]
    beta[50:100] = lo[50:100]
    beta[100] += total - float(sum(map(Fraction, beta)))
    qp = SignedQP(ResidentGram(np.eye(200)), np.zeros(200), lo, hi, groups=Groups(sums=(total,)))
    found = qp.mended(beta + 1e-13 * rng.normal(size=200) * (np.abs(beta) < 1e4))
    assert sum(map(Fraction, found)) == Fraction(total)
    assert (lo <= found).all()
    assert (found <= hi).all()
    np.testing.assert_array_equal(found[:100], beta[:100])  # what is at a bound stays there


def test_tight_tolerance__of_a_cubic_polynomial_is_proved():
    X, y = load_iris(return_X_y=True)
    model = SVC(kernel="poly", degree=3, gamma=0.1, C=0.7, tol=1e-11).fit(X, y)
    assert set(model.status_) == {Status.CONVERGED}
    assert max(found.uncertainty for found in model.certificate_) <= 2e-13


@pytest.mark.parametrize("far", [500.0, 1000.0, 1500.0])
def test_bounds_far_beyond_all_of_beta__objectives_are_known_to_a_millionth(far):
    """beta is 1e-6 and C is 1: scores 1e-4 apart, well within tol, cost thousands of objectives in the primal of the
    free scores. What is needed to know the larger one to a millionth is needed all the same.
    """
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0) + far
    model = SVC(kernel="poly", degree=2, gamma=0.25, coef0=1.0, C=1.0).fit(X, y == 0)
    [found] = model.certificate_
    assert model.status_ == (Status.CONVERGED,)
    assert 0.0 < found.dual < 1e-5
    assert found.bar <= 1e-6 * max(found.primal, found.dual)


def test_wide_proof__is_none():
    """Where float64 leaves more doubt than 2 % of tol, or a millionth of the objectives, nothing is called proved."""
    found = Certificate(primal=1.0, dual=1.0, kkt_gap=0.0, infeasibility=0.0, relative_gap=0.0)
    assert found.proves(1e-3)
    assert not dataclasses.replace(found, uncertainty=2.1e-5).proves(1e-3)
    assert not dataclasses.replace(found, bar=1.1e-6).proves(1e-3)
    assert not dataclasses.replace(found, kkt_gap=1.04e-3, uncertainty=1.9e-5).proves(1e-3)
    assert not dataclasses.replace(found, kkt_gap=np.nan).proves(1e-3)


def test_certificate__of_rounded_values_does_not_depend_on_them():
    """The same beta, judged over float32 and over float64 columns of the same rows."""
    from svmcore import certify

    X, y = shifted(600)
    y = 2.0 * y - 1
    beta = SVC(gamma=0.1, C=10.0).fit(X, y)
    beta = beta_of(beta, 600)
    found = []
    for dtype in (np.float32, np.float64):
        points = RBF(0.1).prepare_gram(X, dtype)
        source = ComputedColumns(RBF(0.1), points, dtype, ExactKernel(RBF(0.1), X, like=points))
        found.append(certify(program(source, y, 10.0), beta))
    single, double = found
    assert abs(single.kkt_gap - double.kkt_gap) <= single.uncertainty + double.uncertainty
    assert abs(single.dual - double.dual) <= single.bar + double.bar
    assert single.uncertainty < 1e-8


# ---- status
@pytest.mark.parametrize("solver", ["smo", "smo-mvp", "smo-platt", "auto"])
def test_infeasible__is_never_said_of_a_program_whose_variables_have_an_end(solver):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    X *= 1000 / np.linalg.norm(X, axis=1)[:, None]
    X[1], y = X[0], np.where(np.arange(300) % 2 == 0, 1.0, -1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        squared = SVC(kernel="linear", loss="squared_hinge", C=20.0, solver=solver, time_limit=2).fit(X, y)
    assert squared.status_[0] is not Status.INFEASIBLE


def test_infeasible__finite_C_beside_infinite_ones_that_can_be_met():
    X = np.array([[0.0], [1.0], [2.0], [3.0], [1.5], [1.5]])
    y = np.array([-1.0, -1.0, 1.0, 1.0, 1.0, -1.0])
    C = np.array([np.inf, np.inf, np.inf, np.inf, 1.0, 1.0])
    for name in ("smo", "smo-mvp", "smo-platt"):
        found = Solver.create({"name": name, "tol": 1e-6}).solve(program(ResidentGram(X @ X.T), y, C))
        assert found.status is Status.CONVERGED
        assert (y * found.decision)[:4].min() >= 1 - 1e-5


def test_dual_ascent__ends_on_a_kernel_with_negative_diagonal():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 3)), np.where(rng.random(60) < 0.5, 1.0, -1.0)
    K = Tanh(gamma=0.5, coef0=-2.0)(X, X)
    assert (K.diagonal() <= 0).any()
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Solver.create({"name": "dual-ascent", "time_limit": 5.0}).solve(
            program(ResidentGram(K, psd=False), y, 1.0, bias="none")
        )
    assert time.perf_counter() - started < 10


def test_max_iter__counts_all_steps_of_a_solve():
    X, y = shifted(5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SVC(C=100.0, gamma=0.2, max_iter=300, cache_size=50, solver="smo").fit(X, y)
    assert model.status_ == (Status.MAX_ITER,)
    assert model.n_iter_[0] <= 300


# ---- refusals
def test_primal_newton__refuses_a_kernel_that_is_not_psd():
    X, y = shifted(50)
    with pytest.raises(Unsupported, match="positive semi-definite kernels, not kernel=tanh"):
        SVC(kernel="sigmoid", solver="primal-newton", loss="squared_hinge").fit(X, y)
    K = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    with pytest.raises(Unsupported, match="positive semi-definite"):
        SVC(kernel="precomputed", solver="primal-newton", loss="squared_hinge").fit(K, [0, 1, 1])


def test_precomputed__claims_bounds_only_for_a_psd_matrix():
    X, y = shifted(80)
    X = X - 1e4
    assert SVC(kernel="precomputed").fit(X @ X.T, y).certificate_[0].relative_gap is not None
    K = Tanh(gamma=1.0, coef0=-1.0)(X, X)
    assert SVC(kernel="precomputed").fit(K, y).certificate_[0].relative_gap is None
    assert not Precomputed().psd


@pytest.mark.parametrize("parameter", ["working_set", "newcomers"])
@pytest.mark.parametrize("value", [0, 1])
def test_smo__refuses_sets_too_small_to_hold_a_pair(parameter, value):
    with pytest.raises(InputError, match=rf"{parameter} must be an integer >= 2; given {value}"):
        Solver.create({"name": "smo", parameter: value})


def test_warm_start__after_two_classes_with_three_begins_anew():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 3)), np.arange(90) % 3
    model = SVC(warm_start=True).fit(X, np.minimum(y, 1))
    cold = SVC().fit(X, y)
    np.testing.assert_array_equal(model.fit(X, y).dual_coef_, cold.dual_coef_)
    assert model.fit(X, y).n_iter_.sum() == 0
    assert SVC(multi_class="ovr", warm_start=True).fit(X, y).set_params(multi_class="ovo").fit(X, y).score(X, y) > 0


def test_squares__are_given_back_after_a_training():
    from svmcore.squares import squares

    X, y = shifted(1500)
    SVC(C=10.0, gamma=0.1).fit(X, y)
    assert squares().kept is None


def test_working_set__square_and_columns_share_the_budget():
    X, _ = shifted(3000)
    points = Points.prepare(X, None, np.float32)
    from svmcore import CachedColumns

    cached = CachedColumns(ComputedColumns(Linear(), points), 8 << 20, None, 2 << 20)
    assert cached.arena.nbytes <= 6 << 20
    assert cached.scratch_bytes == 2 << 20


def test_small_budget__leaves_a_set_room_for_more_variables_than_columns_are_held():
    """Or a large problem in a small cache would take a round for every few columns, and compute them all each time."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 8))
    y = np.where((X**2).sum(axis=1) + 4.0 * rng.normal(size=3000) > 8.0, 1.0, -1.0)
    source = ComputedColumns(RBF(0.3), Points.prepare(X, None, np.float32))
    sources = [cached(source, 100 * 12_000), ResidentGram(source.columns(np.arange(3000)))]
    assert sources[0].capacity < 100
    assert sources[0].scratch_bytes >= SMO.square_bytes(2500, np.float32)
    small, whole = (SMO().solve(program(each, y, 10.0)) for each in sources)
    assert len(small.support) > 5 * sources[0].capacity
    assert small.status == whole.status == "converged"
    assert small.certificate.dual == pytest.approx(whole.certificate.dual, rel=1e-6)


@pytest.mark.parametrize("megabytes", [200, 1000])
def test_larger_budget__is_for_columns_and_square_together(megabytes):
    source = ComputedColumns(RBF(0.3), Points.prepare(np.zeros((20_000, 2)), None, np.float32))
    found = cached(source, megabytes << 20)
    assert found.scratch_bytes == min(megabytes << 18, SMO.square_bytes(20_000, np.float32))
    assert found.arena.nbytes + found.scratch_bytes <= megabytes << 20
