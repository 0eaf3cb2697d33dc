"""A new machine, a new source and a new solver are one file each: here they are, and the core takes them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from sklearn.svm import SVR, NuSVC, OneClassSVM

from svmcore import RBF, Groups, ResidentGram, SignedQP, Solver, Source, Status, Task, certify, classification
from svmcore.solvers.base import Outcome, Solves, box_gap

from .. import problems

NAMES = ("test-epsilon-svr", "test-nu-svc", "test-one-class", "test-gauss-southwell")


@pytest.fixture(scope="module", autouse=True)
def _registry():
    yield
    for family in (Task, Solver):
        for name in NAMES:
            family._registry.pop(name, None)


# ---- machines: two variables on one row, two groups, p = 0
@dataclass(frozen=True)
class EpsilonSVR(Task):
    """Regression with a tube: p = y - epsilon on [0, C] and y + epsilon on [-C, 0], one column for both."""

    name: ClassVar[str] = NAMES[0]
    epsilon: float = 0.1

    def program(self, source, target, C):
        n, zeros = source.n, np.zeros(source.n)
        p = np.concatenate([target - self.epsilon, target + self.epsilon])
        lo, hi = np.concatenate([zeros, zeros - C]), np.concatenate([zeros + C, zeros])
        return SignedQP(source, p, lo, hi, groups=Groups((0.0,)), rows=np.tile(np.arange(n), 2))


@dataclass(frozen=True)
class NuClassifier(Task):
    """nu-SVC: p = 0, the sum of each class fixed."""

    name: ClassVar[str] = NAMES[1]
    nu: float = 0.3

    def program(self, source, target, C):
        c = np.zeros(source.n) + C
        half = 0.5 * self.nu * c.sum()
        codes = np.where(target > 0, 0, 1).astype(np.int8)
        box = {"lo": np.where(target > 0, 0.0, -c), "hi": np.where(target > 0, c, 0.0)}
        return SignedQP(source, np.zeros(source.n), groups=Groups((half, -half), codes), **box)


@dataclass(frozen=True)
class OneClass(Task):
    """The support of a distribution: p = 0, sum = nu n."""

    name: ClassVar[str] = NAMES[2]
    nu: float = 0.2

    def program(self, source, target, C):
        zeros = np.zeros(source.n)
        return SignedQP(source, zeros, zeros, zeros + C, groups=Groups((self.nu * C * source.n,)))


@pytest.fixture(scope="module")
def rows():
    X, y = problems.overlapping()
    return X, y, RBF(gamma=0.5)(X, X)


@pytest.mark.parametrize("solver", ["smo", "auto"])
def test_machine__epsilon_svr_is_scikit_learns(rows, solver):
    X, _, K = rows
    target = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    found = Solver.create({"name": solver, "tol": 1e-7}).solve(EpsilonSVR().program(ResidentGram(K), target, 2.0))
    peer = SVR(C=2.0, epsilon=0.1, gamma=0.5, tol=1e-7).fit(X, target)
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(found.decision, peer.predict(X), atol=1e-5)
    assert found.bias == pytest.approx(peer.intercept_[0], abs=1e-5)


@pytest.mark.parametrize("solver", ["smo", "auto"])
def test_machine__nu_svc_is_scikit_learns_after_its_rescaling(rows, solver):
    X, y, K = rows
    found = Solver.create({"name": solver, "tol": 1e-8}).solve(NuClassifier().program(ResidentGram(K), y, 1.0))
    peer = NuSVC(nu=0.3, gamma=0.5, tol=1e-8).fit(X, y)
    assert found.status is Status.CONVERGED
    on_the_margin = np.abs(peer.decision_function(X)).max() / np.abs(found.decision).max()
    np.testing.assert_allclose(found.decision * on_the_margin, peer.decision_function(X), atol=1e-4)


def test_machine__one_class_is_scikit_learns(rows):
    X, _, K = rows
    found = Solver.create({"name": "smo", "tol": 1e-8}).solve(OneClass().program(ResidentGram(K), X, 1.0))
    peer = OneClassSVM(nu=0.2, gamma=0.5, tol=1e-8).fit(X)
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(found.decision, peer.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("task", [EpsilonSVR(), NuClassifier(), OneClass()], ids=lambda task: task.name)
def test_machine__primal_and_dual_meet(rows, task):
    _, y, K = rows
    qp = task.program(ResidentGram(K), y, 1.0)
    found = Solver.create({"name": "smo", "tol": 1e-9}).solve(qp).certificate
    assert found.infeasibility <= 1e-12 * np.abs(certify(qp, qp.feasible(None)).dual + 100.0)
    assert found.primal == pytest.approx(found.dual, rel=1e-7, abs=1e-7)


def test_machine__is_found_by_its_name():
    assert Task.create({"name": NAMES[0], "epsilon": 0.5}) == EpsilonSVR(0.5)


# ---- a source: columns that are asked for one row range at a time
class Banded(Source):
    """K_ij = max(0, 1 - |i - j| / width), computed on demand."""

    def __init__(self, n, width):
        self.n, self.width, self.dtype = n, width, np.dtype(np.float64)

    def diagonal(self):
        return np.ones(self.n)

    def columns(self, idx):
        return np.maximum(0.0, 1.0 - np.abs(np.asarray(idx)[:, None] - np.arange(self.n)) / self.width)


@pytest.mark.parametrize("solver", ["smo", "smo-mvp", "smo-platt"])
def test_source__any_class_with_a_diagonal_and_columns_serves(solver):
    source, y = Banded(150, 7.0), np.where(np.arange(150) % 10 < 5, 1.0, -1.0)
    whole = ResidentGram(source.columns(np.arange(150)))
    found = Solver.create({"name": solver, "tol": 1e-6}).solve(classification(source, y, 3.0))
    assert found.status is Status.CONVERGED
    same = certify(classification(whole, y, 3.0), found.beta)
    assert same.kkt_gap <= 1.05e-6
    assert found.certificate.dual == pytest.approx(same.dual, rel=1e-12)


# ---- a solver
@dataclass(frozen=True)
class GaussSouthwell(Solver):
    """The variable with the largest projected gradient takes the step that makes its gradient zero."""

    name: ClassVar[str] = NAMES[3]
    solves: ClassVar[Solves] = Solves(biases=("penalised", "none"), float32=False)

    def _solve(self, qp, beta, score, monitor, n_iter):
        s = qp.p - qp.source.columns(np.arange(qp.m)).T @ beta - qp.shift * beta.sum() - qp.ridge * beta
        while (status := self.ends(box_gap(s, beta, qp.lo, qp.hi), n_iter, monitor)) is None:
            violation = np.where(beta < qp.hi, np.maximum(s, 0), 0) + np.where(beta > qp.lo, np.maximum(-s, 0), 0)
            i = int(np.argmax(violation))
            new = np.clip(beta[i] + s[i] / (qp.diagonal[i] + qp.ridge[i]), qp.lo[i], qp.hi[i])
            s -= (qp.source.columns(np.array([i]))[0] + qp.shift) * (new - beta[i])
            s[i] -= qp.ridge[i] * (new - beta[i])
            beta[i], n_iter = new, n_iter + 1
        return Outcome(status, n_iter, beta)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_solver__is_found_by_its_name_and_proved(rows, loss):
    _, y, K = rows
    qp = classification(ResidentGram(K), y, 1.0, loss, "penalised")
    found = Solver.create({"name": NAMES[3], "tol": 1e-6}).solve(qp)
    wanted = Solver.create({"name": "smo", "tol": 1e-6}).solve(qp)
    assert found.status is Status.CONVERGED
    assert found.certificate.dual == pytest.approx(wanted.certificate.dual, rel=1e-8)
