"""Large programs on a factor, solved in parts: the answers of other solvers, on any number of threads."""

import numpy as np
import pytest
from sklearn import svm

from svmcore.monitor import Monitor
from svmcore.runtime import threads
from svmcore.solution import Status
from svmcore.solvers import Solver
from svmcore.solvers.dual_ascent import DualAscent
from svmcore.solvers.linear import parts
from svmcore.solvers.linear.parts import solve_in_parts
from svmcore.sources import FactorRows, LinearRows
from svmcore.tasks import classification


def separated(n=2400, r=60, gap=1.0, dtype=np.float32):
    """Rows of two classes with few between them."""
    rng = np.random.default_rng(5)
    X, w = rng.normal(size=(n, r)), rng.normal(size=r)
    X = X + 0.3
    side = (X - 0.3) @ w / np.linalg.norm(w)
    return X.astype(dtype), np.where(side + 0.1 * rng.normal(size=n) > gap, 1.0, -1.0)


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch):
    monkeypatch.setattr(parts, "LARGE", 1000)
    monkeypatch.setattr(parts, "SHARE", 4)


def solved(qp, tol=1e-4, beta=None):
    beta = qp.feasible(beta)
    return solve_in_parts(qp, beta, tol, Monitor())


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("bias", ["free", "penalised", "none"])
def test_parts__end_at_the_optimum_of_every_machine(loss, bias):
    X, y = separated()
    qp = classification(FactorRows(X), y, 2.0, loss, bias)
    found = solved(qp)
    assert found.status is Status.CONVERGED
    assert np.all((found.beta >= qp.lo) & (found.beta <= qp.hi))
    if bias == "free":
        assert abs(found.beta.sum()) <= 1e-9 * np.abs(found.beta).sum()
        margin = X.astype(float) @ (X.T.astype(float) @ found.beta)
        other = svm.SVC(C=2.0, kernel="linear", tol=1e-6).fit(X.astype(float), y) if loss == "hinge" else None
        if other is not None:
            theirs = np.abs(other.dual_coef_).sum() - 0.5 * np.sum((other.dual_coef_ @ other.support_vectors_) ** 2)
            assert y @ found.beta - 0.5 * found.beta @ margin == pytest.approx(theirs, rel=1e-6)
    interior = Solver.create({"name": "interior-point", "tol": 1e-5}).solve(qp)
    whole = DualAscent(tol=1e-4).solve(qp)
    assert whole.certificate.proves(1e-4)
    assert whole.certificate.dual == pytest.approx(interior.certificate.dual, rel=1e-5)


def test_parts__of_rows_about_their_mean_and_in_another_order():
    X, y = separated(dtype=np.float64)
    qp = classification(LinearRows(X + 20.0, centred=True), y, 1.0)
    found = DualAscent(tol=1e-5).solve(qp)
    plain = svm.SVC(C=1.0, kernel="linear", tol=1e-7).fit(X, y)
    theirs = np.abs(plain.dual_coef_).sum() - 0.5 * np.sum((plain.dual_coef_ @ plain.support_vectors_) ** 2)
    assert found.certificate.proves(1e-5)
    assert found.certificate.dual == pytest.approx(theirs, rel=1e-6)


def test_parts__go_on_from_a_start():
    X, y = separated()
    before = solved(classification(FactorRows(X), y, 1.0)).beta
    found = solved(classification(FactorRows(X), y, 1.5), beta=before)
    again = solved(classification(FactorRows(X), y, 1.5))
    value = [y @ each.beta - 0.5 * np.sum((X.T.astype(float) @ each.beta) ** 2) for each in (found, again)]
    assert value[0] == pytest.approx(value[1], rel=1e-5)


def test_parts__give_the_same_bits_on_any_number_of_threads(monkeypatch):
    X, y = separated()
    found = []
    for count in (1, 3):
        monkeypatch.setattr(threads, "n_threads", lambda count=count: count)
        monkeypatch.setattr(threads, "_pools", [threads._Pool()])
        found.append(solved(classification(FactorRows(X), y, 1.0)).beta)
    np.testing.assert_array_equal(*found)


def test_parts__leave_programs_of_many_support_vectors_to_others(monkeypatch):
    X, y = separated()
    monkeypatch.setattr(parts, "MOST", 100)
    qp = classification(FactorRows(X), y, 1.0)
    assert solved(qp) is None
    assert DualAscent(tol=1e-4).solve(qp).certificate.proves(1e-4)


def test_parts__stop_when_they_are_told_to():
    X, y = separated()
    qp = classification(FactorRows(X), y, 1.0)
    found = solve_in_parts(qp, qp.feasible(None), 1e-4, Monitor(stop=lambda: True))
    assert found.status is Status.STOPPED
