"""Sums that a solver keeps are right within what they say, and serve a proof only where they began where it thinks."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svmcore import RBF, SMO, CachedColumns, ComputedColumns, Status, certify, classification
from svmcore.certificate import evaluate
from svmcore.kernels.exact import ExactKernel
from svmcore.outputs import BoundedOutputs
from svmcore.solvers import base as solvers
from svmcore.solvers.base import Outcome
from svmcore.solvers.begun import begun
from svmcore.sources import ResidentGram, RunningProduct, base, served_after
from svmcore.sources import served as served_by
from svmcore.sources.resident import resident_gram
from svmcore.state import MemoryState

from ..small_programs import FewColumns

N = 300
KERNEL = RBF(0.4)
rng = np.random.default_rng(11)
X = rng.normal(size=(N, 5))
Y = np.where(X[:, 0] + 0.4 * rng.normal(size=N) > 0, 1.0, -1.0)
K = np.exp(-0.4 * ((X[:, None] - X) ** 2).sum(axis=2))  # shares no code with what is judged


def source(kind):
    points = KERNEL.prepare_gram(X, np.float32)
    computed = ComputedColumns(KERNEL, points, np.float32, ExactKernel(KERNEL, X, like=points))
    if kind == "whole":
        return resident_gram(computed)
    return CachedColumns(computed, 40 * N * 4 if kind == "few columns" else 1 << 24)


@pytest.mark.parametrize("kind", ["whole", "columns", "few columns"])
@given(seed=st.integers(0, 2**32 - 1), moves=st.integers(1, 6))
@settings(max_examples=12, deadline=None)
def test_product__is_within_the_bounds_that_it_states(kind, seed, moves):
    random = np.random.default_rng(seed)
    served, scale = source(kind), float(random.choice([1e-3, 1.0, 1e4]))
    qp = classification(served, Y, scale)
    beta = np.where(random.random(N) < 0.3, scale * random.random(N), 0.0) * Y
    off = 1e-6 * scale * random.uniform(-1.0, 1.0, N)  # of what somebody says that the scores are
    product = RunningProduct(served, beta)
    start = begun(qp, beta, qp.p - K @ beta + off, float(np.abs(off).max()))
    for size in random.integers(1, 120, moves):
        idx = random.permutation(N)[:size]
        changed = np.where(random.random(size) < 0.3, 0.0, scale * random.random(size)) * Y[idx]
        product.set(idx, changed)
        beta[idx] = changed
    found = BoundedOutputs(qp, beta, product.served(start))
    assert np.array_equal(product.coef, beta)
    assert (np.abs(found.values - K @ beta) <= found.errors).all()
    assert (np.abs(K) @ np.abs(beta) <= found.sizes * (1 + 1e-12)).all()


@pytest.mark.parametrize("kind", ["columns", "few columns"])
@given(seed=st.integers(0, 2**32 - 1), moves=st.integers(1, 4))
@settings(max_examples=12, deadline=None)
def test_served_after__is_within_its_bounds_at_the_rows_that_moved_and_at_others(kind, seed, moves):
    """Stages of shrinking: each on some rows, whose own sums serve there; few or all coefficients change in them."""
    random = np.random.default_rng(seed)
    whole, beta = source(kind), np.zeros(N)
    beta[:90] = random.random(90) * Y[:90]
    known = served_by(whole, beta)
    for few in random.random(moves) < 0.5:
        rows = np.union1d(np.flatnonzero(beta), random.permutation(N)[:40])
        product = RunningProduct(whole.take(rows), beta[rows])
        for size in (len(rows) // 8 if few else len(rows), 3):
            idx = random.permutation(len(rows))[:size]
            product.set(idx, np.where(random.random(size) < 0.2, 0.0, random.random(size)) * Y[rows[idx]])
        beta[rows] = product.coef
        before, known = known, served_after(whole, known, rows, product)
        assert known.length >= before.length + product.length
        assert known.terms >= before.terms + product.terms
        found = BoundedOutputs(classification(whole, Y, 1.0), beta, known)
        assert np.array_equal(known.coef, beta)
        assert (np.abs(found.values - K @ beta) <= found.errors).all()
        assert (np.abs(K) @ np.abs(beta) <= found.sizes * (1 + 1e-12)).all()
        assert found.errors.max() <= 1e-4 * known.length  # and is worth stating


def test_served_after__computes_values_of_other_rows_alone(monkeypatch):
    whole, beta, rows = source("columns"), np.zeros(N), np.arange(0, N, 3)
    product, asked = RunningProduct(whole.take(rows), beta[rows]), []
    product.set(np.arange(len(rows)), Y[rows])
    before, summed = served_by(whole, beta), ComputedColumns._summed
    monkeypatch.setattr(ComputedColumns, "_summed", lambda *of: asked.append(of[3]) or summed(*of))
    served_after(whole, before, rows, product)
    np.testing.assert_array_equal(np.concatenate(asked), np.setdiff1d(np.arange(N), rows))


def test_product__of_float32_values_is_no_better_than_they_are():
    """The bound is that of the values, not of nothing: a judge in float64 sees what they are off."""
    served = source("whole")
    product, beta = RunningProduct(served, np.zeros(N)), 1e3 * Y
    product.set(np.arange(N), beta)
    found = BoundedOutputs(classification(served, Y, 1e3), beta, product.served(begun_from_nothing(served)))
    off = np.abs(found.values - K @ beta)
    assert off.max() > 1e-7 * 1e3
    assert found.errors.min() > off.max() * 0.1
    assert (off <= found.errors).all()


def test_state__a_step_adds_no_more_rounding_than_it_is_large():
    """Beta went far and came back: sums of all that was added are large, and yet scores follow a step to its digits."""
    gram = source("whole")
    state, far = MemoryState(classification(gram, Y, 1e12), np.zeros(N)), 1e12 * Y
    for beta in (far, np.zeros(N), far, np.zeros(N)):
        state.apply(np.arange(N), beta)
    before = state.score.copy()
    state.apply(np.array([7]), Y[7:8])
    np.testing.assert_allclose(before - state.score, Y[7] * gram.matrix[7].astype(float), rtol=0, atol=1e-12)
    assert state.product().up.max() > 1e13


def begun_from_nothing(served):
    return begun(classification(served, Y, 1.0), np.zeros(N), None, np.inf)


def test_product__began_elsewhere_serves_no_proof():
    served = source("whole")
    product = RunningProduct(served, 0.5 * Y)
    product.set(np.arange(N), 1.0 * Y)
    assert product.served(begun_from_nothing(served)) is None
    assert Outcome(Status.CONVERGED, 1, Y, product=product).at_hand(begun_from_nothing(served)) is None


@pytest.mark.parametrize(
    ("score", "error"), [(None, 1e-9), (np.zeros(N), np.inf)], ids=["no scores", "scores of unknown error"]
)
def test_begun__is_not_known_where_scores_or_their_errors_are_not(score, error):
    assert begun(classification(source("whole"), Y, 1.0), 0.5 * Y, score, error) is None


def test_begun__is_not_known_of_a_kernel_that_may_be_indefinite():
    qp = classification(ResidentGram(K, psd=False), Y, 1.0)
    assert begun(qp, 0.5 * Y, np.zeros(N), 0.0) is None


def test_estimate__says_nothing_of_its_errors_so_that_nobody_proves_with_them():
    assert SMO().estimate(classification(source("whole"), Y, 1.0)).certificate.error == np.inf
    assert evaluate(classification(source("whole"), Y, 1.0), Y, known=(K @ Y, np.zeros(N))).certificate.error == np.inf


@pytest.mark.parametrize("as_served", [True, False])
def test_solve__that_went_on_with_another_K_hands_over_no_error(as_served, monkeypatch):
    """Where served values are meant, finer ones are of another K: what is right of it says nothing of the first."""
    gram, refuted = source("whole"), []

    def doubts(qp, *of, **at):
        found = evaluate(qp, *of, **at)
        if qp.source.dtype == np.float64:
            return found
        refuted.append(found)
        return dataclasses.replace(found, certificate=dataclasses.replace(found.certificate, uncertainty=1.0))

    monkeypatch.setattr(solvers, "evaluate", doubts)
    meant = ResidentGram(gram.matrix, gram.rows, as_served=as_served)
    found = SMO().solve(classification(meant, Y, 10.0))
    assert found.status is Status.CONVERGED
    assert refuted
    assert (found.certificate.error == np.inf) == as_served


@pytest.mark.parametrize("kind", ["whole", "columns"])
def test_certificate__error_bounds_every_output(kind):
    found = SMO(working_set=60, newcomers=20).solve(classification(source(kind), Y, 10.0))
    off = np.abs(found.decision - found.bias - K @ found.beta)
    assert off.max() <= found.certificate.error < 1e-3


@pytest.mark.parametrize("kind", ["whole", "columns", "few columns"])
def test_solve__from_handed_over_scores_proves_what_a_judge_finds(kind, monkeypatch):
    """A chain along C, whose proofs go on from each other: gap, primal and dual are those of float64."""
    monkeypatch.setattr("svmcore.solvers.rounds.WHOLE", 0)
    monkeypatch.setattr("svmcore.solvers.row_steps.MOST", 0)
    served, beta, score, error = source(kind), None, None, np.inf
    for C in (0.1, 1.0, 10.0, 100.0):
        qp = classification(served, Y, C)
        found = SMO(working_set=60, newcomers=20).solve(qp, beta, score=score, error=error)
        assert found.status is Status.CONVERGED
        exact = certify(classification(ResidentGram(K), Y, C), found.beta)
        said = found.certificate
        assert abs(said.kkt_gap - exact.kkt_gap) <= said.uncertainty + 1e-9
        assert abs(said.dual - exact.dual) <= said.bar + 1e-9 * abs(exact.dual)
        assert abs(said.primal - exact.primal) <= said.bar + 1e-9 * abs(exact.primal)
        beta, score, error = found.beta, found.score, said.error


def test_proof__reads_the_columns_of_the_few_that_mended_its_sums_alone(monkeypatch):
    monkeypatch.setattr("svmcore.solvers.rounds.WHOLE", 0)
    monkeypatch.setattr("svmcore.solvers.row_steps.MOST", 0)
    read, sums = [], base.matvec_and_sizes
    monkeypatch.setattr(
        base, "matvec_and_sizes", lambda of, coef: read.append(np.count_nonzero(coef)) or sums(of, coef)
    )
    found = SMO(working_set=60, newcomers=20).solve(classification(source("whole"), Y, 1.0))
    assert found.status is Status.CONVERGED
    assert sum(read) <= 4 < len(found.support)


def test_state__keeps_no_product_where_values_may_be_negative():
    qp = classification(FewColumns(np.eye(4)), np.array([1.0, -1.0, 1.0, -1.0]), 1.0)
    assert MemoryState(qp, np.zeros(4)).product() is None
