"""Linear machines that read rows where they are, and dual ascent with w kept: against BLAS, LIBSVM and LIBLINEAR."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import svm

from svmcore import Bias, Solver, classification
from svmcore.estimator import SVC
from svmcore.solvers import dual_ascent
from svmcore.solvers.dual_ascent import DualAscent
from svmcore.sources import LinearRows, RowMap

RNG = np.random.default_rng(7)
ROWS = RNG.normal(size=(6000, 9)).round(3)
ROWS[RNG.random(ROWS.shape) < 0.6] = 0.0
LABELS = np.where(ROWS @ RNG.normal(size=9) + RNG.normal(size=6000) > 0.3, 1.0, -1.0)


@pytest.mark.parametrize("form", [np.float32, np.float64, sparse.csr_matrix])
def test_row_map__products_are_those_of_the_matrix(form):
    rows = form(ROWS) if form is sparse.csr_matrix else ROWS.astype(form)
    centre = None if form is sparse.csr_matrix else RNG.normal(size=9)
    at = RNG.permutation(6000)[:5000]
    kept = ROWS.astype(np.float32) if form is np.float32 else ROWS
    G = np.column_stack([kept[at] - (0.0 if centre is None else centre), np.full(5000, 2.0)])
    found, w, coef = RowMap(rows, centre, at, 2.0), RNG.normal(size=10), RNG.normal(size=5000)
    np.testing.assert_allclose(found.dense(), G, atol=1e-12)
    np.testing.assert_allclose(found.times(w), G @ w, atol=1e-10)
    np.testing.assert_allclose(found.weights(coef), G.T @ coef, atol=1e-9)
    np.testing.assert_allclose(found.normal_matrix(coef**2), G.T @ (coef[:, None] ** 2 * G), rtol=1e-10, atol=1e-8)
    np.testing.assert_allclose(found.square_lengths(), (G**2).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(found.take([3, 1]).dense(), G[[3, 1]], atol=1e-12)


def test_linear_rows__serve_columns_and_outputs_about_their_mean():
    source, coef = LinearRows(ROWS + 100.0, None, centred=True), RNG.normal(size=6000)
    G = ROWS - ROWS.mean(axis=0)
    np.testing.assert_allclose(source.columns(np.array([5, 0])), G[[5, 0]] @ G.T, atol=1e-9)
    values, errors = source.direct_outputs(coef)
    assert (np.abs(values - G @ (G.T @ coef)) <= errors + 1e-8).all()
    np.testing.assert_allclose(source.diagonal(), (G**2).sum(axis=1), atol=1e-9)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_svc__of_many_rows_is_libsvms_and_reads_them_in_sequence(as_sparse):
    X = sparse.csr_matrix(ROWS) if as_sparse else ROWS.astype(np.float32)
    ours = SVC(kernel="linear", C=0.1, tol=1e-5).fit(X, LABELS)
    theirs = svm.SVC(kernel="linear", C=0.1, tol=1e-5).fit(ROWS, LABELS)
    assert ours.plan_ == "factor"
    np.testing.assert_allclose(np.asarray(ours.coef_.todense() if as_sparse else ours.coef_), theirs.coef_, atol=1e-4)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-4)
    assert str(ours.status_[0]) == "converged"


def test_svc__weights_and_copies_are_the_same_machine():
    weights = RNG.integers(1, 3, 6000).astype(float)
    weighted = SVC(kernel="linear", C=0.1, tol=1e-6).fit(ROWS, LABELS, weights)
    twice = np.repeat(np.arange(6000), weights.astype(int))
    copied = SVC(kernel="linear", C=0.1, tol=1e-6).fit(ROWS[twice], LABELS[twice])
    np.testing.assert_allclose(weighted.coef_, copied.coef_, atol=1e-6)
    assert weighted.certificate_[0].dual == pytest.approx(copied.certificate_[0].dual, rel=1e-8)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("bias", list(Bias))
@pytest.mark.parametrize("as_sparse", [False, True])
def test_dual_ascent__with_w_kept_ends_at_the_interior_points_optimum(loss, bias, as_sparse):
    rows = sparse.csr_matrix(ROWS) if as_sparse else ROWS
    found = [
        Solver.create({"name": name, "tol": 1e-4}).solve(classification(LinearRows(rows), LABELS, 0.1, loss, bias))
        for name in ("dual-ascent", "interior-point")
    ]
    assert [str(each.status) for each in found] == ["converged", "converged"]
    assert found[0].certificate.dual == pytest.approx(found[1].certificate.dual, rel=1e-5)


def test_dual_ascent__of_wide_sparse_rows_has_liblinears_objective():
    X = sparse.random(5000, 3000, 0.004, "csr", random_state=1)
    y = np.where(X @ RNG.normal(size=3000) + 0.2 * RNG.normal(size=5000) > 0, 1.0, -1.0)
    found = Solver.create("auto").solve(classification(LinearRows(X), y, 1.0, "hinge", Bias.PENALISED))
    peer = svm.LinearSVC(C=1.0, loss="hinge", tol=1e-6, max_iter=100_000).fit(X, y)
    w, b = peer.coef_[0], peer.intercept_[0]
    primal = 0.5 * (w @ w + b * b) + np.maximum(0.0, 1.0 - y * (X @ w + b)).sum()
    assert str(found.status) == "converged"
    assert found.certificate.dual <= primal * (1 + 1e-9)
    assert found.certificate.primal == pytest.approx(primal, rel=1e-3)


def noisy(n, p, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.where(X @ rng.normal(size=p) + 0.3 * np.sqrt(p) * rng.normal(size=n) > 0, 1.0, -1.0)


def test_auto__takes_newton_steps_where_many_rows_have_the_squared_hinge():
    X, y = noisy(3000, 5)
    for bias in ("free", "penalised"):
        qp = classification(LinearRows(X, centred=bias == "free"), y, 1.0, "squared_hinge", bias)
        found = Solver.create({"name": "auto", "tol": 1e-6}).solve(qp)
        assert found.status == "converged"
        assert found.n_iter < 20
        assert found.certificate.primal - found.certificate.dual <= 1e-9 * found.certificate.primal


@pytest.mark.parametrize(("noise", "by_pairs"), [(0.05, True), (3.0, False)])
def test_auto__tries_pairs_first_on_some_thousand_rows_and_goes_on_from_there(noise, by_pairs):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(3000, 12))
    y = np.where(X @ rng.normal(size=12) + noise * rng.normal(size=3000) > 0, 1.0, -1.0)
    qp = classification(LinearRows(X), y, 100.0 if noise > 1 else 0.01)
    found = Solver.create("auto").solve(qp)
    assert found.status == "converged"
    assert (found.n_iter < 60_000) == by_pairs  # else an interior point has counted on from where they ended
    peer = Solver.create("interior-point").solve(qp)
    assert found.certificate.dual == pytest.approx(peer.certificate.dual, rel=1e-5)


def test_dual_ascent__moves_all_that_are_inside_their_box_together(monkeypatch):
    """Half as many free variables as features leave K_FF ill-conditioned: single steps take hundreds of epochs."""
    X, y = noisy(2000, 300)
    qp = classification(LinearRows(X), y, 1.0, "hinge", "penalised")
    found = DualAscent(tol=1e-4).solve(qp)
    monkeypatch.setattr(dual_ascent, "TOGETHER", 0)
    single = DualAscent(tol=1e-4).solve(qp)
    assert found.certificate.proves(1e-4)
    assert single.certificate.proves(1e-4)
    assert found.n_iter < single.n_iter / 4
    assert abs(found.certificate.dual - single.certificate.dual) <= 1e-6 * single.certificate.dual
