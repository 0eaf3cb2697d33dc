"""Many rows of few features, of which a sample tells who is at which bound: against the whole program and LIBLINEAR."""

import warnings

import numpy as np
import pytest
from sklearn import svm

from svmcore import Bias, Solver, Status, classification
from svmcore.solvers.interior import narrowed
from svmcore.solvers.interior.iterate import LowRank, minimise
from svmcore.solvers.interior.program import Program
from svmcore.sources import LinearRows

N, P = 60_000, 4


def rows_of(seed, noise=0.5, order=False):
    """Rows (n, p) about a distant mean, and the labels of a noisy hyperplane; in the order of the first column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P)) + 3.0
    if order:
        X = X[np.argsort(X[:, 0])]
    return X, np.where((X - 3.0) @ [1.0, -1.0, 0.5, 0.0] + noise * rng.normal(size=N) > 0.0, 1.0, -1.0)


def judged(X, y, C, beta, b, free):
    """(primal - dual, dual) of the hinge from rows, beta and the bias, b inside the norm unless `free`."""
    w = X.T @ beta
    inside = 0.0 if free else beta.sum() ** 2
    square = w @ w + inside
    return 0.5 * square + C * np.maximum(0.0, 1.0 - y * (X @ w + b)).sum() - (y @ beta - 0.5 * square), (
        y @ beta - 0.5 * square
    )


@pytest.mark.parametrize("bias", [Bias.FREE, Bias.PENALISED])
@pytest.mark.parametrize("order", [False, True])
def test_narrowed__ends_at_the_optimum_of_all_rows(bias, order, monkeypatch):
    X, y = rows_of(1, order=order)
    freed = []
    solved = narrowed._solved
    monkeypatch.setattr(narrowed, "_solved", lambda *a: (freed.append(int(a[2].sum())), solved(*a))[1])
    found = Solver.create({"name": "interior-point", "tol": 1e-3}).solve(
        classification(LinearRows(X), y, 0.7, "hinge", bias)
    )
    gap, dual = judged(X, y, 0.7, found.beta, found.bias, bias is Bias.FREE)
    assert found.status is Status.CONVERGED
    assert -1e-9 * dual <= gap <= 1e-6 * dual
    assert freed
    assert max(freed) < N / 4


def test_narrowed__has_liblinears_objective():
    X, y = rows_of(2)
    found = Solver.create({"name": "auto", "tol": 1e-3}).solve(
        classification(LinearRows(X), y, 1.0, "hinge", "penalised")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it crawls here
        theirs = svm.LinearSVC(C=1.0, loss="hinge", tol=1e-6, max_iter=1000, random_state=0).fit(X, y)
    w, b = theirs.coef_[0], theirs.intercept_[0]
    primal = 0.5 * (w @ w + b * b) + np.maximum(0.0, 1.0 - y * (X @ w + b)).sum()
    assert found.certificate.primal <= primal * (1.0 + 1e-9)
    assert found.certificate.primal == pytest.approx(primal, rel=1e-2)
    assert found.certificate.relative_gap < 1e-6


def test_narrowed__a_class_that_the_sample_misses():
    X, y = rows_of(3)
    y = np.full(N, -1.0)
    y[[5, 17]] = 1.0
    for bias in (Bias.FREE, Bias.PENALISED):
        found = Solver.create({"name": "interior-point", "tol": 1e-3}).solve(
            classification(LinearRows(X), y, 10.0, "hinge", bias)
        )
        score = y - X @ (X.T @ found.beta) - (0.0 if bias is Bias.FREE else found.beta.sum())
        up, down = score[found.beta < np.maximum(10.0 * y, 0.0)], score[found.beta > np.minimum(10.0 * y, 0.0)]
        gap = up.max() - down.min() if bias is Bias.FREE else max(up.max(), -down.min())
        assert found.status is Status.CONVERGED
        assert gap <= 1.05e-3


@pytest.mark.parametrize("free", [False, True])
def test_narrowed__a_sample_that_errs_is_put_right(free, monkeypatch):
    X, y = rows_of(4, noise=2.0)
    codes, sums = (np.zeros(N, int), np.zeros(1)) if free else (np.full(N, -1), np.zeros(0))
    program = Program(LowRank(X - 3.0), y, np.minimum(0.1 * y, 0.0), np.maximum(0.1 * y, 0.0), np.zeros(N), codes, sums)
    whole = minimise(
        program.system, program.p, program.lo, program.hi, program.ridge, program.codes, program.sums, 1e-6
    )
    monkeypatch.setattr(narrowed, "SAMPLED", 0.05)
    monkeypatch.setattr(narrowed, "NEAR", 0.03)
    rounds = []
    solved = narrowed._solved
    monkeypatch.setattr(narrowed, "_solved", lambda *a: (rounds.append(1), solved(*a))[1])
    found = narrowed.minimise_narrowed(program, 1e-6, lambda: False, np.zeros(N))
    value = lambda beta: y @ beta - 0.5 * float(np.sum(((X - 3.0).T @ beta) ** 2))  # noqa: E731
    assert len(rounds) > 2
    assert found.status == "converged"
    assert value(found.beta) == pytest.approx(value(whole.beta), rel=1e-9)
    again = narrowed.minimise_narrowed(program, 1e-6, lambda: False, found.beta)
    assert again.n_iter == 0


def test_narrows__asks_for_many_rows_finite_boxes_and_sums_of_zero():
    def program(n, hi, sums, ridge):
        about = np.ones(n), np.zeros(n), np.full(n, hi), np.full(n, ridge), np.zeros(n, int), np.array([sums])
        return Program(LowRank(np.ones((n, 1))), *about)

    assert narrowed.narrows(program(N, 1.0, 0.0, 0.0), 5)
    for other in ((100, 1.0, 0.0, 0.0), (N, np.inf, 0.0, 0.0), (N, 1.0, 5.0, 0.0), (N, 1.0, 0.0, 0.1)):
        assert not narrowed.narrows(program(*other), 5)
    assert not narrowed.narrows(program(N, 1.0, 0.0, 0.0), 200)
