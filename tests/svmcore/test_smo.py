"""The production solver on inputs that break solvers: it ends, says how, and is never worse than LIBSVM."""

import itertools
import re
import threading
import time
import warnings

import numba
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.exceptions import ConvergenceWarning as SklearnWarning
from sklearn.svm import SVC as LibSVM

from svmcore import (
    RBF,
    SMO,
    Bias,
    CachedColumns,
    ComputedColumns,
    Kernel,
    Linear,
    Monitor,
    Points,
    ResidentGram,
    SignedQP,
    SquaredHinge,
    Status,
    Tanh,
    certify,
    classification,
)
from svmcore.passes.steps import pairs as _passes
from svmcore.solvers.base import ConvergenceWarning
from svmcore.state import MemoryState


def signs(mask: np.ndarray) -> np.ndarray:
    return np.where(mask, 1.0, -1.0)


def overlapping(n: int, p: int = 5, seed: int = 0, weights: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(
        n, p, n_informative=p - 1, n_redundant=0, flip_y=0.1, weights=[weights], class_sep=0.7, random_state=seed
    )
    return X, signs(y == 1)


def problem_of(
    kernel: Kernel, X: np.ndarray, y: np.ndarray, C: object, dtype: type = np.float64, **more: object
) -> SignedQP:
    points = kernel.prepare(X, None, dtype)
    return classification(ResidentGram(kernel.block(points, points), psd=kernel.psd), y, C, **more)


def libsvm_dual(kernel: Kernel, X: np.ndarray, y: np.ndarray, C: float, tol: float) -> float:
    """Dual objective of LIBSVM's beta, evaluated by our certificate in float64; of what it has where it gives up."""
    K = kernel(X, X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnWarning)
        peer = LibSVM(C=C, kernel="precomputed", tol=tol, cache_size=500, max_iter=300_000).fit(K, y)
    beta = np.zeros(len(y))
    beta[peer.support_] = peer.dual_coef_[0]
    return certify(classification(ResidentGram(K), y, C), beta).dual


def assert_no_worse(ours: float, theirs: float, relative: float = 1e-6) -> None:
    assert ours >= theirs - relative * abs(theirs), f"dual {ours} against LIBSVM's {theirs}"


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("gamma", [1e-4, 1e-1, 1e3])
def test_smo__any_C_and_gamma_ends_no_worse_than_libsvm(C: float, gamma: float) -> None:
    X, y = overlapping(150)
    kernel = RBF(gamma)
    solution = SMO(tol=1e-6, max_iter=3_000_000).solve(problem_of(kernel, X, y, C))
    assert solution.status is Status.CONVERGED
    assert solution.certificate.kkt_gap <= 1e-6
    assert_no_worse(solution.certificate.dual, libsvm_dual(kernel, X, y, C, 1e-6))


CASES = {
    "duplicate rows": lambda X, y: (np.repeat(X, 3, axis=0), np.repeat(y, 3)),
    "contradicting labels": lambda X, y: (np.concatenate([X, X[:40]]), np.concatenate([y, -y[:40]])),
    "all-zero rows": lambda X, y: (np.where(np.arange(len(X))[:, None] % 2 == 0, 0.0, X), y),
    "nothing but zeros": lambda X, y: (np.zeros_like(X), y),
    "a constant feature": lambda X, y: (np.column_stack([X, np.full(len(X), 7.0)]), y),
    "one positive row in a thousand": lambda X, y: (overlapping(1001, seed=3)[0], signs(np.arange(1001) == 17)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kernel", [RBF(0.5), Linear()], ids=["rbf", "linear"])
def test_smo__awkward_rows_end_no_worse_than_libsvm(case: str, kernel: Kernel) -> None:
    X, y = CASES[case](*overlapping(160))
    for C in (0.1, 100.0):
        solution = SMO(tol=1e-5, max_iter=5_000_000).solve(problem_of(kernel, X, y, C))
        assert solution.status is Status.CONVERGED
        assert_no_worse(solution.certificate.dual, libsvm_dual(kernel, X, y, C, 1e-5), 1e-5)
        assert solution.certificate.relative_gap >= -1e-9


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_smo__few_rows(n: int) -> None:
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, 2)), signs(np.arange(n) % 2 == 0)
    solution = SMO(tol=1e-8).solve(problem_of(RBF(1.0), X, y, 10.0))
    assert solution.status is Status.CONVERGED
    assert_no_worse(solution.certificate.dual, libsvm_dual(RBF(1.0), X, y, 10.0, 1e-8))


def test_smo__one_class_only_has_the_zero_solution() -> None:
    solution = SMO().solve(problem_of(RBF(1.0), np.eye(3), np.ones(3), 1.0))
    assert solution.status is Status.CONVERGED
    assert not solution.alpha.any()
    np.testing.assert_allclose(solution.decision, 1.0)


def test_smo__tanh_ends_with_a_small_gap_and_claims_no_bound() -> None:
    X, y = overlapping(200)
    solution = SMO(tol=1e-3, max_iter=200_000).solve(problem_of(Tanh(gamma=0.5, coef0=-1.0), X, y, 10.0))
    assert solution.status is Status.CONVERGED
    assert solution.certificate.kkt_gap <= 1e-3
    assert solution.certificate.relative_gap is None


@pytest.mark.parametrize("bias", list(Bias), ids=str)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_smo__float32_columns_reach_the_float64_optimum(bias: Bias, loss: str) -> None:
    digits = load_digits()
    X, y = digits.data[:700] / 16, signs(digits.target[:700] % 2 == 0)
    exact = problem_of(RBF(0.05), X, y, 10.0, loss=loss, bias=bias)
    coarse = problem_of(RBF(0.05), X, y, 10.0, np.float32, loss=loss, bias=bias)
    truth = SMO(tol=1e-8).solve(exact).certificate
    assert truth.relative_gap <= 1e-7
    ours = certify(exact, SMO(tol=1e-3).solve(coarse).beta)
    assert ours.kkt_gap <= 1.05e-3
    assert abs(ours.dual - truth.dual) <= 1e-5 * truth.dual


def test_smo__a_small_working_set_reaches_the_same_optimum() -> None:
    X, y = overlapping(400, seed=5)
    problem = problem_of(RBF(0.3), X, y, 5.0)
    whole = SMO(tol=1e-6).solve(problem).certificate.dual
    few = SMO(tol=1e-6, working_set=16, newcomers=4).solve(problem)
    assert few.status is Status.CONVERGED
    assert few.certificate.dual == pytest.approx(whole, rel=1e-7)


@pytest.mark.parametrize("bias", list(Bias), ids=str)
def test_smo__a_cache_of_few_columns_reaches_the_same_optimum(bias: Bias) -> None:
    X, y = overlapping(300, seed=6)
    points = Points.prepare(X, None, np.float64)
    source = ComputedColumns(RBF(0.3), points, np.float64)
    cached = classification(CachedColumns(source, 24 * 300 * 8), y, 5.0, bias=bias)
    solution = SMO(tol=1e-6, newcomers=8).solve(cached)
    whole = SMO(tol=1e-6).solve(problem_of(RBF(0.3), X, y, 5.0, bias=bias))
    assert solution.status is Status.CONVERGED
    assert solution.certificate.dual == pytest.approx(whole.certificate.dual, rel=1e-7)


def test_smo__a_fold_is_a_box_and_its_decision_is_the_prediction() -> None:
    X, y = overlapping(240, seed=8)
    held_out = np.arange(240) % 4 == 0
    C = np.where(held_out, 0.0, 2.0)
    fold = SMO(tol=1e-8).solve(problem_of(RBF(0.3), X, y, C))
    peer = LibSVM(C=2.0, gamma=0.3, tol=1e-8).fit(X[~held_out], y[~held_out])
    np.testing.assert_allclose(fold.decision[held_out], peer.decision_function(X[held_out]), atol=1e-5)


def test_smo__warm_start_from_a_smaller_C_and_from_the_optimum() -> None:
    X, y = overlapping(300, seed=9)
    small = SMO(tol=1e-6).solve(problem_of(RBF(0.3), X, y, 1.0))
    larger = problem_of(RBF(0.3), X, y, 10.0)
    cold, warm = SMO(tol=1e-6).solve(larger), SMO(tol=1e-6).solve(larger, small.beta)
    assert warm.certificate.dual == pytest.approx(cold.certificate.dual, rel=1e-7)
    assert SMO(tol=1e-6).solve(larger, cold.beta).n_iter == 0


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_smo__hard_margin_that_cannot_be_met_is_infeasible(loss: str) -> None:
    X, y = overlapping(200)
    with pytest.warns(ConvergenceWarning, match="infeasible"):
        solution = SMO(tol=1e-4).solve(problem_of(Linear(), X, y, np.inf, loss=loss))
    assert solution.status is Status.INFEASIBLE


def test_smo__hard_margin_that_can_be_met_equals_a_huge_C() -> None:
    data = load_breast_cancer()
    X, y = (data.data - data.data.mean(0)) / data.data.std(0), signs(data.target == 1)
    solution = SMO(tol=1e-6).solve(problem_of(RBF(0.1), X, y, np.inf))
    assert solution.status is Status.CONVERGED
    assert (y * solution.decision).min() >= 1 - 1e-5
    assert_no_worse(solution.certificate.dual, libsvm_dual(RBF(0.1), X, y, 1e8, 1e-6))


@pytest.fixture(scope="module")
def slow_problem() -> SignedQP:
    """A problem that needs far more than a second."""
    X, y = overlapping(3000, p=3, seed=1)
    points = Points.prepare(X)
    return classification(ResidentGram(RBF(1.0).block(points, points)), y, 1e6)


def assert_usable(problem: SignedQP, solution: object) -> None:
    assert solution.certificate.infeasibility <= 1e-3
    assert solution.certificate.kkt_gap == pytest.approx(certify(problem, solution.beta).kkt_gap)
    assert np.isfinite(solution.decision).all()


def test_smo__time_limit_ends_within_a_second(slow_problem: SignedQP) -> None:
    SMO(max_iter=10).solve(slow_problem, monitor=Monitor(warn=False))  # compiled
    started = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        solution = SMO(tol=1e-9, time_limit=0.3).solve(slow_problem)
    assert time.perf_counter() - started < 1.3
    assert solution.status is Status.TIME_LIMIT
    assert_usable(slow_problem, solution)


def test_smo__max_iter_is_kept(slow_problem: SignedQP) -> None:
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        solution = SMO(max_iter=500).solve(slow_problem)
    assert (solution.status, solution.n_iter) == (Status.MAX_ITER, 500)
    assert_usable(slow_problem, solution)


def test_smo__stop_flag_ends_it(slow_problem: SignedQP) -> None:
    flag = threading.Event()
    threading.Timer(0.2, flag.set).start()
    started = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="stopped"):
        solution = SMO(tol=1e-9).solve(slow_problem, monitor=Monitor(stop=flag.is_set))
    assert time.perf_counter() - started < 1.2
    assert solution.status is Status.STOPPED
    assert_usable(slow_problem, solution)


@pytest.mark.parametrize("whole", [0, 1024], ids=["rounds", "one set"])
def test_smo__ends_where_rounding_takes_back_what_steps_change(whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the gap nor the dual moves any more: that is said, not tried for ever."""
    monkeypatch.setattr("svmcore.solvers.rounds.WHOLE", whole)
    monkeypatch.setattr("svmcore.solvers.row_steps.MOST", 0)
    monkeypatch.setattr(MemoryState, "apply", lambda *_: None)
    asked = itertools.count()
    with pytest.warns(ConvergenceWarning, match="stalled"):
        solution = SMO().solve(
            problem_of(RBF(0.5), *overlapping(200), 1.0), monitor=Monitor(stop=lambda: next(asked) > 2000)
        )
    assert solution.status is Status.STALLED


def test_smo__squared_hinge_with_weights_equals_repeated_rows() -> None:
    X, y = overlapping(80, seed=11)
    counts = 1 + np.arange(80) % 3
    weighted = SMO(tol=1e-9).solve(problem_of(RBF(0.3), X, y, 2.0 * counts, loss=SquaredHinge()))
    repeated = SMO(tol=1e-9).solve(
        problem_of(RBF(0.3), np.repeat(X, counts, axis=0), np.repeat(y, counts), 2.0, loss=SquaredHinge())
    )
    assert weighted.certificate.dual == pytest.approx(repeated.certificate.dual, rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_smo__inner_scans_use_wide_integer_registers(dtype: type) -> None:
    """The loops are worth their form only while they vectorise."""
    K, row, one, starts = np.eye(64, dtype=dtype), np.zeros(64, np.float32), np.float32(1), np.array([0])
    bars = row[None], row[None], row[None]
    calls = {
        _passes._step_and_extremes: ("vmaxps", (row, one, K, 0, 1, 0, bars, starts)),
        _passes._step_and_largest: ("vmaxps", (row, one, K, 0, 1, row[None], starts)),
        _passes._best_gain: ("vpmaxs[dq]", (K, 0, row, row, 0, row[None], one, starts)),
    }
    for function, (instruction, arguments) in calls.items():
        fresh = numba.njit(nogil=True, error_model="numpy")(function.py_func)  # cached code has no assembly to show
        fresh(*arguments)
        assembly = "".join(fresh.inspect_asm().values())
        if "ymm" not in assembly and "zmm" not in assembly:
            pytest.skip("numba targets a processor without wide registers here")
        assert re.search(rf"{instruction}\s.*[yz]mm", assembly), f"{function.__name__} runs as scalars"
