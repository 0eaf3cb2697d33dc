"""A new machine, a new source and a new solver are one file each: here they are, and the core takes them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from sklearn.svm import SVR, NuSVC, OneClassSVM

from svmcore import RBF, Groups, ResidentGram, SignedQP, Solver, Source, Status, Task, certify, classification
from svmcore.solvers.base import Outcome, Solves, box_gap

from .. import problems

NAMES = ("slanted-tube", "two-nu", "ball", "test-gauss-southwell")


@pytest.fixture(scope="module", autouse=True)
def _registry():
    """What is defined below is known to the tests of this file alone."""
    for family, plugins in DEFINED.items():
        family._registry.update(plugins)
    yield
    _forget()


def _forget():
    return {family: {n: family._registry.pop(n) for n in NAMES if n in family._registry} for family in (Task, Solver)}


# ---- machines: two variables on one row, two groups, a sum that is not 0
@dataclass(frozen=True)
class SlantedTube(Task):
    """Regression with a tube whose upper side costs `slant` times as much as its lower one."""

    name: ClassVar[str] = NAMES[0]
    epsilon: float = 0.1
    slant: float = 1.0

    def program(self, source, target, C):
        n, zeros = source.n, np.zeros(source.n)
        p = np.concatenate([target - self.epsilon, target + self.epsilon])
        lo, hi = np.concatenate([zeros, zeros - C]), np.concatenate([zeros + self.slant * C, zeros])
        return SignedQP(source, p, lo, hi, groups=Groups((0.0,)), rows=np.tile(np.arange(n), 2))


@dataclass(frozen=True)
class TwoNu(Task):
    """nu-SVC with a share of its own for each class (Chew, Bogner, Lim 2001): p = 0, boxes of 1 / (nu n_class)."""

    name: ClassVar[str] = NAMES[1]
    positive: float = 0.3
    negative: float = 0.3

    def program(self, source, target, C):
        y = np.sign(target)
        box = y * C / np.where(y > 0, self.positive * (y > 0).sum(), self.negative * (y < 0).sum())
        groups = Groups((1.0, -1.0), np.where(y > 0, 0, 1).astype(np.int8))
        return SignedQP(source, np.zeros(source.n), np.minimum(box, 0.0), np.maximum(box, 0.0), groups=groups)


@dataclass(frozen=True)
class Ball(Task):
    """The smallest ball around all but a share of the rows (Tax, Duin 2004): p = k(x, x) / 2, the sum is 1."""

    name: ClassVar[str] = NAMES[2]
    nu: float = 0.2

    def program(self, source, target, C):
        zeros = np.zeros(source.n)
        return SignedQP(source, source.diagonal() / 2.0, zeros, zeros + C / (self.nu * source.n), groups=Groups((1.0,)))


@pytest.fixture(scope="module")
def rows():
    X, y = problems.overlapping()
    return X, y, RBF(gamma=0.5)(X, X)


@pytest.mark.parametrize("solver", ["smo", "auto"])
def test_machine__tube_is_scikit_learns_where_it_is_not_slanted(rows, solver):
    X, _, K = rows
    target = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    found = Solver.create({"name": solver, "tol": 1e-7}).solve(SlantedTube().program(ResidentGram(K), target, 2.0))
    peer = SVR(C=2.0, epsilon=0.1, gamma=0.5, tol=1e-7).fit(X, target)
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(found.decision, peer.predict(X), atol=1e-5)
    assert found.bias == pytest.approx(peer.intercept_[0], abs=1e-5)


def test_machine__slanted_tube_leaves_fewer_rows_above(rows):
    X, _, K = rows
    target = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(0).normal(size=len(X))
    above = []
    for slant in (1.0, 9.0):
        task = SlantedTube(0.0, slant)
        found = Solver.create({"name": "smo", "tol": 1e-7}).solve(task.program(ResidentGram(K), target, 1.0))
        above.append((target > found.decision + 1e-5).mean())
    assert above[1] < above[0] / 2


@pytest.mark.parametrize("solver", ["smo", "auto"])
def test_machine__two_equal_nus_are_scikit_learns_after_its_rescaling(rows, solver):
    X, y, _ = rows
    X, y = (np.concatenate([part[y > 0][:40], part[y < 0][:40]]) for part in (X, y))
    K = RBF(gamma=0.5)(X, X)
    found = Solver.create({"name": solver, "tol": 1e-9}).solve(TwoNu().program(ResidentGram(K), y, 1.0))
    peer = NuSVC(nu=0.3, gamma=0.5, tol=1e-8).fit(X, y)
    assert found.status is Status.CONVERGED
    on_the_margin = np.abs(peer.decision_function(X)).max() / np.abs(found.decision).max()
    np.testing.assert_allclose(found.decision * on_the_margin, peer.decision_function(X), atol=1e-4)


def test_machine__ball_is_the_one_class_machine_where_all_rows_are_as_long(rows):
    X, _, K = rows
    found = Solver.create({"name": "smo", "tol": 1e-9}).solve(Ball().program(ResidentGram(K), X, 1.0))
    peer = OneClassSVM(nu=0.2, gamma=0.5, tol=1e-8).fit(X)
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(0.2 * len(X) * (K @ found.beta), peer.score_samples(X), atol=1e-5)


@pytest.mark.parametrize("task", [SlantedTube(0.1, 3.0), TwoNu(0.3, 0.5), Ball()], ids=lambda task: task.name)
def test_machine__primal_and_dual_meet(rows, task):
    _, y, K = rows
    qp = task.program(ResidentGram(K), y, 1.0)
    found = Solver.create({"name": "smo", "tol": 1e-9}).solve(qp).certificate
    assert found.infeasibility <= 1e-12 * np.abs(certify(qp, qp.feasible(None)).dual + 100.0)
    assert found.primal == pytest.approx(found.dual, rel=1e-7, abs=1e-7)


def test_machine__is_found_by_its_name():
    assert Task.create({"name": NAMES[0], "epsilon": 0.5}) == SlantedTube(0.5)


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


DEFINED = _forget()
