"""Shrinking ends at the optimum of all rows, whatever rows it leaves out first, and its pass over all rows is right."""

import dataclasses

import numpy as np
import pytest
from sklearn.svm import SVC as LibSVM

from svmcore import (
    RBF,
    SMO,
    CachedColumns,
    ComputedColumns,
    Monitor,
    Points,
    Polynomial,
    Status,
    certify,
    classification,
)
from svmcore.certificate import evaluate
from svmcore.kernels.exact import ExactKernel
from svmcore.outputs import BoundedOutputs
from svmcore.solvers import shrinking
from svmcore.sources import ResidentGram, Source, cached, served

from .test_threads import printed, python

N = 1200
KERNEL = RBF(0.3)


def rows(n=N, p=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    return X, y


def columns_of(X, kernel=KERNEL, dtype=np.float64, limit=1 << 26):
    points = kernel.prepare_gram(X, dtype)
    computed = ComputedColumns(kernel, points, dtype, ExactKernel(kernel, X, like=points))
    return CachedColumns(computed, limit, None, limit // 4)


@pytest.fixture
def early(monkeypatch):
    """Shrinks from 64 rows on, however many of them violate."""
    monkeypatch.setattr(shrinking, "LEAST", 64)
    monkeypatch.setattr(shrinking, "WORTH_BYTES", 0)
    monkeypatch.setattr(shrinking, "MANY", 1.0)


def dual_of(X, y, C, **more):
    return SMO(tol=1e-7).solve(classification(ResidentGram(KERNEL(X, X)), y, C, **more)).certificate.dual


# ---- the pass over all rows
@pytest.mark.parametrize("kernel", [KERNEL, Polynomial(2, 0.5, 1.0)], ids=["positive", "of both signs"])
@pytest.mark.parametrize("held", [0, 40, 300], ids=["none held", "some held", "all held"])
def test_outputs__are_sums_of_all_columns_and_of_their_sizes(kernel, held):
    X, _ = rows(3500)
    source, coef = columns_of(X, kernel), np.zeros(3500)
    used = np.sort(np.random.default_rng(1).choice(3500, 300, replace=False))
    coef[used] = np.random.default_rng(2).normal(size=300)
    source.lookup(used[:held])
    there, K = source.held(np.arange(3500)), kernel(X, X[used])
    values, sizes = source.outputs(coef)
    np.testing.assert_allclose(values, K @ coef[used], atol=1e-10 * np.abs(K).max())
    np.testing.assert_allclose(sizes, np.abs(K) @ np.abs(coef[used]), rtol=1e-10)
    np.testing.assert_array_equal(source.held(np.arange(3500)), there)


def test_outputs_within__are_a_part_of_those_of_all_rows():
    X, _ = rows(3500)
    source, idx = columns_of(X, dtype=np.float32).source, np.arange(0, 3500, 9)
    coef, weights = np.zeros(3500), np.random.default_rng(3).normal(size=len(idx))
    coef[idx] = weights
    whole, part = np.array(source.outputs(coef)), np.array(source.outputs_within(idx, weights, 1536, 3500))
    np.testing.assert_array_equal(part, whole[:, 1536:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [4, 40], ids=["of differences", "of products"])
def test_outputs_at__are_those_of_some_rows(p, dtype):
    X, _ = rows(3500, p)
    source, some = columns_of(X, dtype=dtype), np.random.default_rng(3).permutation(3500)[:1600]
    coef = np.where(np.arange(3500) % 9, 0.0, np.random.default_rng(4).normal(size=3500))
    K = KERNEL(X[some], X)
    for found, expected in zip(source.outputs_at(coef, some), (K @ coef, K @ np.abs(coef)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(coef).sum())
    np.testing.assert_array_equal(source.source.outputs_at(coef, some[:0]), np.zeros((2, 0)))


def test_outputs__of_values_that_are_what_is_meant_are_of_the_bits_of_columns():
    """No other products: without rows to go back to, K is what was served."""
    X, _ = rows(3500, p=40)
    points = Points.prepare(X, None, np.float32)
    source, coef, used = ComputedColumns(RBF(0.01), points, np.float32), np.zeros(3500), np.arange(0, 1792, 7)
    coef[used] = 1.0
    sums = source.columns(used).astype(np.float64).sum(axis=0)
    for each in (source, CachedColumns(source, 1 << 26)):
        np.testing.assert_allclose(each.outputs(coef)[0], sums, rtol=1e-14)
        np.testing.assert_array_equal(each.outputs_at(coef, used)[0], each.outputs(coef)[0][used])


class Counted(ResidentGram):
    """Counts the columns that are summed."""

    summed = 0

    def outputs(self, coef):
        self.summed += int(np.count_nonzero(coef))
        return super().outputs(coef)


def test_served__after_few_changes_sums_these_alone_and_still_bounds_sizes():
    rng = np.random.default_rng(4)
    K = rng.normal(size=(50, 50))
    source, first = Counted(K + K.T), rng.normal(size=50)
    before = served(source, first)
    second = first.copy()
    second[:3] = rng.normal(size=3)
    known = second.copy()
    after = served(source, second, before)
    assert source.summed == 53
    np.testing.assert_allclose(after.values, (K + K.T) @ second, atol=1e-12)
    assert (after.sizes >= np.abs(K + K.T) @ np.abs(second) * (1 - 1e-12)).all()
    assert after.length >= np.abs(second).sum() * (1 - 1e-12)
    assert after.terms > before.terms
    second[:] = 0.0  # whoever asked may change what they gave
    np.testing.assert_array_equal(after.coef, known)
    served(source, rng.normal(size=50), after)
    assert source.summed == 103


@pytest.mark.parametrize("moves", [0, 1, 4])
def test_outputs__in_several_sums_are_within_the_bounds_that_are_stated(moves):
    X, y = rows(400, seed=5)
    source = columns_of(X, dtype=np.float32)
    rng, known = np.random.default_rng(6), None
    beta = np.zeros(400)
    for _ in range(moves + 1):
        beta[rng.choice(400, 60, replace=False)] = rng.uniform(0.0, 50.0, size=60)
        beta = np.abs(beta) * y
        known = served(source, beta, known)
    qp = classification(source, y, 100.0)
    found = BoundedOutputs(qp, beta, known)
    off = np.abs(found.values - KERNEL(X, X) @ beta)
    assert (off <= found.errors).all()
    assert found.errors.max() <= 1e-4 * np.abs(beta).sum()  # and are worth stating


def test_evaluate__goes_on_from_what_was_served_at_another_beta():
    X, y = rows(200)
    qp = classification(columns_of(X), y, 10.0)
    beta = 0.1 * y
    found = evaluate(qp, beta, at_hand=served(qp.source, 0.5 * beta)).certificate
    alone = evaluate(qp, beta).certificate
    assert abs(found.kkt_gap - alone.kkt_gap) <= found.uncertainty + alone.uncertainty
    assert abs(found.primal - alone.primal) + abs(found.dual - alone.dual) <= 2 * (found.bar + alone.bar)


# ---- the solve
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("bias", ["free", "penalised", "none"])
def test_solve__reaches_the_optimum_of_all_rows(loss, bias, early):
    X, y = rows()
    found = SMO(tol=1e-6).solve(classification(columns_of(X), y, 5.0, loss=loss, bias=bias))
    assert found.status is Status.CONVERGED
    assert found.certificate.dual == pytest.approx(dual_of(X, y, 5.0, loss=loss, bias=bias), rel=1e-7)


@pytest.mark.parametrize("share", [1.0, 1.05, 4.0])
def test_solve__finds_the_rows_that_were_missed(share, early, monkeypatch):
    """With no row but those that already violate, the first guess is far from enough."""
    monkeypatch.setattr(shrinking, "SHARE", share)
    X, y = rows(seed=7)
    found = SMO(tol=1e-5).solve(classification(columns_of(X), y, 50.0))
    assert found.status is Status.CONVERGED
    peer = LibSVM(C=50.0, gamma=0.3, tol=1e-5).fit(X, y)
    beta = np.zeros(N)
    beta[peer.support_] = peer.dual_coef_[0]
    theirs = certify(classification(ResidentGram(KERNEL(X, X)), y, 50.0), beta).dual
    assert found.certificate.dual >= theirs - 1e-7 * theirs


def test_solve__rows_of_a_box_without_room_stay_at_zero(early):
    X, y = rows(seed=8)
    C = np.where(np.arange(N) % 5 == 0, 0.0, 5.0)
    fold = SMO(tol=1e-6).solve(classification(columns_of(X), y, C))
    assert not fold.alpha[C == 0].any()
    assert fold.certificate.dual == pytest.approx(dual_of(X[C > 0], y[C > 0], 5.0), rel=1e-7)


def test_solve__goes_on_from_a_beta_that_is_given(early):
    X, y = rows(seed=9)
    small = SMO(tol=1e-6).solve(classification(columns_of(X), y, 1.0))
    larger = classification(columns_of(X), y, 10.0)
    warm = SMO(tol=1e-6).solve(larger, small.beta)
    assert warm.certificate.dual == pytest.approx(dual_of(X, y, 10.0), rel=1e-7)
    again = SMO(tol=1e-6).solve(larger, warm.beta)
    assert again.n_iter == 0
    assert again.status is Status.CONVERGED


def test_solve__of_one_class_is_zero(early):
    X, _ = rows()
    found = SMO().solve(classification(columns_of(X), np.ones(N), 1.0))
    assert found.status is Status.CONVERGED
    assert not found.alpha.any()


@pytest.mark.parametrize("limit", [0, 1, 50, 400])
def test_solve__ends_after_max_iter_with_a_feasible_answer(limit, early):
    X, y = rows()
    found = SMO(tol=1e-6, max_iter=limit).solve(classification(columns_of(X), y, 5.0), monitor=Monitor(warn=False))
    assert found.status is Status.MAX_ITER
    assert found.n_iter <= limit
    assert found.certificate.infeasibility <= 1e-12


def test_solve__keeps_no_variables_of_a_part(early, monkeypatch):
    X, y = rows()
    monkeypatch.setattr("svmcore.monitor.KEEP_SECONDS", 0.0)
    kept = []
    SMO(tol=1e-6).solve(
        classification(columns_of(X), y, 5.0), monitor=Monitor(keep=lambda beta: kept.append(len(beta)))
    )
    assert set(kept) <= {N}


def test_solve__what_was_served_last_is_what_is_proved(early, monkeypatch):
    """No pass over all rows is made twice."""
    X, y = rows()
    passes = []
    outputs = CachedColumns.outputs

    def counted(self, coef):
        passes.append(self.n)
        return outputs(self, coef)

    monkeypatch.setattr(CachedColumns, "outputs", counted)
    stages = []
    on = shrinking.Shrinking._on
    monkeypatch.setattr(shrinking.Shrinking, "_on", lambda self, qp, *rest: stages.append(qp.m) or on(self, qp, *rest))
    found = SMO().solve(classification(columns_of(X, dtype=np.float32), y, 5.0))
    assert found.status is Status.CONVERGED
    assert stages.count(N) >= 2
    assert passes.count(N) == 1  # to begin with: after a stage the other rows alone are looked at


def test_solve__a_look_computes_no_value_at_the_rows_of_its_stage(early, monkeypatch):
    """There the stage has kept its own sums."""
    X, y = rows()
    elsewhere, stages, at, on = [], [], CachedColumns.outputs_at, shrinking.Shrinking._on
    monkeypatch.setattr(
        CachedColumns, "outputs_at", lambda self, coef, some: elsewhere.append(len(some)) or at(self, coef, some)
    )
    monkeypatch.setattr(
        shrinking.Shrinking,
        "_on",
        lambda self, qp, some, *of: stages.append((qp.m, len(some))) or on(self, qp, some, *of),
    )
    found = SMO().solve(classification(columns_of(X, dtype=np.float32), y, 5.0))
    assert found.status is Status.CONVERGED
    assert elsewhere == [N - some for m, some in stages if m == N]
    assert elsewhere


def test_solve__where_served_values_are_what_is_meant_a_look_has_columns_of_all_rows(early, monkeypatch):
    """Products of fewer rows may round in another way, and there is no other K that bounds how far they are off."""
    X, y = rows()
    computed = ComputedColumns(KERNEL, KERNEL.prepare_gram(X, np.float32), np.float32)
    called, after = [], shrinking.served_after
    monkeypatch.setattr(shrinking, "served_after", lambda *of: called.append(of) or after(*of))
    found = SMO().solve(classification(CachedColumns(computed, 1 << 26), y, 5.0))
    assert found.status is Status.CONVERGED
    assert not called
    assert SMO().solve(classification(columns_of(X, dtype=np.float32), y, 5.0)).status is Status.CONVERGED
    assert called


def test_solve__stages_have_one_memory_for_their_columns(early, monkeypatch):
    """That of the whole, which is lent to one after the other: none has memory of its own."""
    X, y = rows()
    source, asked = columns_of(X, dtype=np.float32), []
    monkeypatch.setattr(cached, "empty", lambda *of: asked.append(of) or np.empty(*of))
    monkeypatch.setattr(shrinking, "PRECISION", 0.1)
    assert SMO().solve(classification(source, y, 5.0)).status is Status.CONVERGED
    assert asked == [(source.capacity * source.n, np.float32)]


@pytest.mark.parametrize(("p", "told_by"), [(4, "QUICK"), (40, "PRECISION")], ids=["computed anew", "of products"])
def test_solve__a_stage_is_as_precise_as_a_look_at_all_rows_is_dear(p, told_by, early, monkeypatch):
    X, y = rows()
    wide = np.hstack([X, 0.01 * np.random.default_rng(1).normal(size=(N, p - 4))])
    aims, on_rows = [], SMO._rounds
    monkeypatch.setattr(SMO, "_rounds", lambda self, *of: (aims.append(of[-1]), on_rows(self, *of))[1])

    def rough_stages(quick, precise):
        monkeypatch.setattr(shrinking, "QUICK", quick)
        monkeypatch.setattr(shrinking, "PRECISION", precise)
        aims.clear()
        found = SMO().solve(classification(columns_of(wide, dtype=np.float32), y, 5.0))
        assert found.status is Status.CONVERGED
        return sum(aim > SMO().tol and aim != shrinking.ROUGH for aim in aims)

    counts = rough_stages(0.2, 1e-9), rough_stages(1e-9, 0.2)
    assert [count > 0 for count in counts] == [told_by == "QUICK", told_by == "PRECISION"]


def test_can_shrink__needs_columns_that_are_computed_and_a_program_that_begins_at_zero():
    X, y = rows(shrinking.LEAST)
    qp = classification(columns_of(X), y, 1.0)
    assert shrinking.can_shrink(qp)
    assert not shrinking.can_shrink(dataclasses.replace(qp, source=_Fixed(qp.source)))
    few = classification(columns_of(X[:-1]), y[:-1], 1.0)
    assert not shrinking.can_shrink(few)


class _Fixed(Source):
    """Columns that can be had of all rows alone."""

    def __init__(self, source):
        self.source, self.n, self.dtype = source, source.n, source.dtype

    def diagonal(self):
        return self.source.diagonal()

    def columns(self, idx):
        return self.source.columns(idx)


SOLVE = """
    import json
    import numpy as np
    from svmcore.estimator import SVC
    from svmcore.solvers import shrinking

    shrinking.WORTH_BYTES = 0
    stages, on = [], shrinking.Shrinking._on
    shrinking.Shrinking._on = lambda self, *rest: stages.append(1) or on(self, *rest)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 6))
    y = X[:, 0] + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=9000) > 0
    machine = SVC(C=5.0, gamma=0.2, cache_size=40).fit(X, y)
    print(json.dumps([len(stages), machine.support_.tolist(), machine.dual_coef_.tolist()]))
"""


def test_solve__has_the_same_bits_on_any_number_of_threads():
    one, two, four = (printed(process) for process in [python(SOLVE, threads) for threads in (1, 2, 4)])
    assert one[0] >= 1  # rows were left out
    assert one == two == four
