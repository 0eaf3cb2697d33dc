"""Steps of all free variables together: by the equations of the optimum, and by what LIBSVM's pairs leave."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.svm import SVC as LibSVM

from svmcore.estimator import SVC as Estimator
from svmcore.passes.steps.free_steps import free_steps

from ..small_programs import a_program, scores


def value(K, ridge, p, beta):
    return p @ beta - 0.5 * beta @ (K @ beta + ridge * beta)


def steps_on(program, most, groups):
    """(start, end, scores that were kept, steps, gain)."""
    K, ridge, p, beta, lo, hi, codes = program
    start, s = beta.copy(), scores(K, ridge, p, beta)
    for g in range(groups):
        s[codes == g] -= s[codes == g].mean()
    return start, beta, s, *free_steps(K, s, beta, lo, hi, ridge, codes.astype(np.int64), groups, most)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("groups", [0, 1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_steps__gain_what_they_say_within_the_box_and_the_sums(seed, groups, dtype):
    program = a_program(40, max(1, groups), seed, dtype=dtype)
    K, ridge, p, _, lo, hi, codes = program
    K = K.astype(np.float64)
    before, after, s, steps, gain = steps_on(program, 30, groups)
    assert steps > 0
    assert gain > 0
    assert value(K, ridge, p, after) - value(K, ridge, p, before) == pytest.approx(gain, rel=1e-9)
    assert (lo <= after).all()
    assert (after <= hi).all()
    off = s - scores(K, ridge, p, after)
    for g in range(groups):
        assert np.ptp(off[codes == g]) < 1e-9  # scores are about a middle
        assert after[codes == g].sum() == pytest.approx(before[codes == g].sum(), abs=1e-12)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_steps__leave_the_free_variables_of_a_group_with_one_score(seed, groups):
    K, ridge, p, beta, lo, hi, codes = a_program(40, groups, seed)
    before, after, _, steps, _ = steps_on((K, ridge + 0.5, p, beta, lo, hi, codes), 5000, groups)
    assert steps < 5000
    apart = {}
    for name, at in (("before", before), ("after", after)):
        s, free = scores(K, ridge + 0.5, p, at), (at > lo) & (at < hi)
        apart[name] = max(np.ptp(s[free & (codes == g)]) for g in range(groups) if (free & (codes == g)).any())
    assert apart["after"] < 0.01 * apart["before"]


def test_steps__without_bounds_in_the_way_solve_the_equations_of_the_optimum():
    rng = np.random.default_rng(0)
    G, p, ones = rng.normal(size=(12, 12)), rng.normal(size=12), np.ones((12, 1))
    K, far, zero = G @ G.T, np.full(12, 1e6), np.zeros(12)
    beta = zero.copy()
    steps, _ = free_steps(K, p - p.mean(), beta, -far, far, zero, np.zeros(12, np.int64), 1, 200)
    exact = np.linalg.solve(np.block([[K, ones], [ones.T, np.zeros((1, 1))]]), np.append(p, 0.0))[:12]
    assert steps < 200
    np.testing.assert_allclose(beta, exact, rtol=1e-3, atol=1e-4 * np.abs(exact).max())


def test_steps__end_where_the_program_is_not_convex():
    K, s, beta = -np.eye(4), np.array([1.0, 2.0, 3.0, 4.0]), np.zeros(4)
    steps, gain = free_steps(K, s, beta, -np.ones(4), np.ones(4), np.zeros(4), np.full(4, -1), 0, 10)
    assert (steps, gain) == (0, 0.0)
    assert not beta.any()


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_dual__is_not_below_libsvms_where_the_program_is_flat(load, C, side):
    """Along a small eigenvalue a KKT gap within tol can be far from the optimum: LIBSVM was up to 1e-5 ahead."""
    X, labels = load(return_X_y=True)
    y, gamma = np.where(labels == 2, side, -side), 1.0 / (X.shape[1] * X.var())
    chosen = {"C": C, "kernel": "poly", "gamma": gamma, "degree": 2, "coef0": 1.0, "tol": 1e-3}
    K, found = (gamma * X @ X.T + 1.0) ** 2, {}
    for name, model in (("ours", Estimator(**chosen, solver="smo")), ("LIBSVM's", LibSVM(**chosen))):
        model.fit(X, y)
        beta = np.zeros(len(y))
        beta[model.support_] = model.dual_coef_[0]
        found[name] = value(K, np.zeros(len(y)), y, beta)
    assert found["ours"] >= found["LIBSVM's"] * (1 - 1e-6)
