"""What `auto` gives to pairs first: enough steps for small linear problems, of which most end in them."""

import numpy as np
import pytest

from svmcore import RBF, SMO, SVC, Bias, ComputedColumns, Linear, Solver, certify
from svmcore.kernels.exact import ExactKernel
from svmcore.monitor import Monitor
from svmcore.solvers import auto
from svmcore.solvers.auto import PATIENCE, TRIES, Auto
from svmcore.solvers.dual_ascent import DualAscent
from svmcore.solvers.interior_point import InteriorPoint
from svmcore.solvers.linear import parts
from svmcore.sources import LinearRows, resident_gram
from svmcore.tasks import SVR as SVRTask
from svmcore.tasks.losses import Hinge


def linear_program(m, p, C, seed):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(m) < 0.5, 1.0, -1.0)
    X = rng.normal(size=(m, p)) + 0.3 * y[:, None]
    kernel = Linear().centred()
    points = kernel.prepare_gram(X, np.float64)
    K = resident_gram(ComputedColumns(kernel, points, np.float64, ExactKernel(kernel, X, like=points)))
    return SVC().program(K, y, C), X, y


@pytest.mark.parametrize("seed", range(4))
def test_auto__of_few_variables_lets_pairs_go_on_and_proves_the_same_optimum(seed):
    """The dual optimum is one number, whoever finds it: that of the interior point alone."""
    qp, _, _ = linear_program(60, 6, 30.0, seed)
    found, other = (Solver.create({"name": name, "tol": 1e-4}).solve(qp) for name in ("auto", "interior-point"))
    assert found.status == other.status == "converged"
    assert certify(qp, found.beta).proves(1e-4)
    assert found.certificate.dual == pytest.approx(other.certificate.dual, rel=1e-4)


def test_auto__crawling_pairs_give_way():
    """A large C of classes that overlap: pairs would need far more steps than are worth it."""
    qp, _, _ = linear_program(60, 6, 1e5, 0)
    found = Solver.create({"name": "auto", "tol": 1e-4}).solve(qp)
    assert found.status == "converged"
    assert found.n_iter <= max(TRIES * 60, PATIENCE // (60 + 256)) + 500
    assert certify(qp, found.beta).proves(1e-4)


@pytest.mark.parametrize("C", [0.1, 1e4])
def test_auto__of_some_thousand_rows_of_many_features_lets_pairs_try_first_and_proves_the_same_optimum(C, monkeypatch):
    """More features than an interior point is for: what pairs do not end is `dual-ascent`'s."""
    monkeypatch.setattr(auto, "SMALL", 200)
    monkeypatch.setattr(auto, "MOST_TRIES", 300)
    monkeypatch.setattr(auto, "PATIENCE", 1)
    qp, _, _ = linear_program(300, 280, C, 1)
    found, other = (Solver.create({"name": name, "tol": 1e-4}).solve(qp) for name in ("auto", "dual-ascent"))
    assert found.status == other.status == "converged"
    assert certify(qp, found.beta).proves(1e-4)
    assert found.certificate.dual == pytest.approx(other.certificate.dual, rel=1e-4)


@pytest.fixture
def taken(monkeypatch):
    """Programs that went to an interior point."""
    found, solve = [], InteriorPoint._solve
    monkeypatch.setattr(InteriorPoint, "_solve", lambda *args: found.append(args) or solve(*args))
    return found


def overlapping(n=300, p=40, C=10.0):
    """Rows of two classes that a plane does not part, and their program on the rows themselves."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, p)).astype(np.float32)
    y = np.where(X[:, :20].sum(axis=1) + 4.0 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    return SVC().program(LinearRows(X, centred=True), y, C)


@pytest.mark.parametrize("large", [10**9, 100], ids=["visits", "parts"])
def test_auto__goes_on_with_an_interior_point_where_single_steps_crawl(large, monkeypatch, taken):
    qp = overlapping()
    expected = Solver.create({"name": "interior-point", "tol": 1e-4}).solve(qp)
    taken.clear()
    for name, value in {"SMALL": 100, "RANK": 10, "VISITS": 0.01, "STEP_PRODUCTS": 1e6}.items():
        monkeypatch.setattr(auto, name, value)
    monkeypatch.setattr(parts, "LARGE", large)
    found = Solver.create({"name": "auto", "tol": 1e-4}).solve(qp)
    assert taken
    assert found.status == "converged"
    assert certify(qp, found.beta).proves(1e-4)
    assert found.certificate.dual == pytest.approx(expected.certificate.dual, rel=1e-6)
    taken.clear()
    monkeypatch.setattr(auto, "MOST_PRODUCTS", 1.0)
    slow = Solver.create({"name": "auto", "tol": 1e-2}).solve(qp)  # an interior point is out of reach
    assert not taken
    assert slow.certificate.dual == pytest.approx(expected.certificate.dual, rel=1e-3)


def test_auto__with_a_limit_of_steps_never_exceeds_it(monkeypatch):
    qp = overlapping()
    for name, value in {"SMALL": 100, "RANK": 10, "VISITS": 0.01}.items():
        monkeypatch.setattr(auto, name, value)
    found = Solver.create({"name": "auto", "tol": 1e-6, "max_iter": 3}).solve(qp, monitor=Monitor(warn=False))
    assert found.status == "max_iter"
    assert found.n_iter <= 3


def test_auto__resolved_is_itself_where_the_rows_tell_more():
    """Of a linear kernel of many features, unless rows are in shards, which only pairs ask."""
    of = Linear(), 400, Hinge(), Bias.FREE
    assert Auto(tol=0.01).resolved(*of) == Auto(tol=0.01)
    assert Auto(tol=0.01).resolved(*of, near=False) == SMO(tol=0.01)
    assert Auto().resolved(Linear(), 20, Hinge(), Bias.FREE) == InteriorPoint()
    assert Auto().resolved(RBF(0.1), 400, Hinge(), Bias.FREE) == SMO()


def test_auto__a_K_at_hand_lets_pairs_try_first_however_many_rows_there_are(monkeypatch):
    monkeypatch.setattr(auto, "SMALL", 20)
    monkeypatch.setattr(auto, "RANK", 2)
    qp, _, _ = linear_program(200, 30, 0.01, 1)
    taken = []
    monkeypatch.setattr(DualAscent, "visit", lambda *args: taken.append(args))
    found = Solver.create({"name": "auto", "tol": 1e-4}).solve(qp)
    assert not taken
    assert found.status == "converged"


def test_auto__a_regression_of_many_features_goes_on_with_an_interior_point_where_pairs_crawl(monkeypatch, taken):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(150, 20))
    y = X @ rng.normal(size=20) + 0.3 * rng.normal(size=150)
    kernel = Linear().centred()
    points = kernel.prepare_gram(X, np.float64)
    K = resident_gram(ComputedColumns(kernel, points, np.float64, ExactKernel(kernel, X, like=points)))
    qp = SVRTask(epsilon=0.01).program(K, y, 10.0)
    expected = Solver.create({"name": "interior-point", "tol": 1e-4}).solve(qp)
    taken.clear()
    for name, value in {"SMALL": 20, "RANK": 10, "TRIES": 1, "PATIENCE": 1}.items():
        monkeypatch.setattr(auto, name, value)
    found = Solver.create({"name": "auto", "tol": 1e-4}).solve(qp)
    assert taken
    assert found.status == "converged"
    assert certify(qp, found.beta).proves(1e-4)
    assert found.certificate.dual == pytest.approx(expected.certificate.dual, rel=1e-6)
