"""The certificate of small programs, by hand and in fractions."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from svmcore import ResidentGram
from svmcore.certificate import Certificate, certify, evaluate
from svmcore.primal import best_multiplier
from svmcore.qp import Groups

from ..small_programs import program, small, truth

INF = np.inf
EPS = 2.0**-52
KINDS = ["none", "one", "two", "two and none", "rows", "shift"]


def primal_of(qp, found, b):
    """P(b) of `svmcore.qp` at the outputs `found`, in fractions; the loss at its best of both bounds and the ridge."""
    total = Fraction(found.norm2) / 2 + sum(Fraction(m) * Fraction(d) for m, d in zip(b, qp.groups.sums, strict=True))
    for v in range(qp.m):
        u = found.outputs[v if qp.rows is None else qp.rows[v]]
        r = Fraction(qp.p[v]) - u - (Fraction(b[qp.codes[v]]) if qp.codes[v] >= 0 else 0)
        lo, hi, ridge = Fraction(qp.lo[v]), Fraction(qp.hi[v]), Fraction(qp.ridge[v])
        t = min(max(r / ridge, lo), hi) if ridge else (hi if r > 0 else lo)
        total += r * t - ridge * t * t / 2 if ridge or r else 0
    return total


# ---- in fractions
@pytest.mark.parametrize("kind", KINDS)
def test_evaluate__is_what_fractions_say(kind):
    for seed in range(12):
        qp, beta = small(kind, seed)
        found, true = evaluate(qp, beta), truth(qp, beta)
        certificate = found.certificate
        np.testing.assert_array_equal(found.outputs, [float(u) for u in true.outputs])
        np.testing.assert_array_equal(found.score, [float(s) for s in true.score])
        assert (found.norm2, certificate.dual, certificate.kkt_gap) == (true.norm2, true.dual, true.gap)
        best = [best_multiplier(qp, found.outputs, g) for g in range(len(qp.groups.sums))]
        assert certificate.primal == pytest.approx(float(primal_of(qp, true, best)), rel=1e-14, abs=0.0)
        assert certificate.primal >= certificate.dual
        assert certificate.infeasibility == 0.0
        rounds = np.abs(qp.source.matrix + qp.shift) @ np.abs(qp.at_rows(beta)) > 0  # a sum of zeros has no error
        assert (certificate.exact, evaluate(qp, beta, INF).certificate.exact) == (rounds.sum(), 0)
        scale = max(abs(certificate.primal), abs(certificate.dual))
        assert certificate.relative_gap == (certificate.primal - certificate.dual) / scale
        assert certify(qp, list(beta)) == certificate


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_evaluate__its_bounds_cover_rounding_and_are_of_its_size(kind, seed):
    """The gap and the objectives of numbers that float64 rounds everywhere."""
    qp, beta = small(kind, seed, scale=3.0)
    rng = np.random.default_rng(seed)
    n = qp.source.n
    G = rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-3, 4, (n, 1))
    source = ResidentGram(G @ G.T)
    beta = np.clip(beta * (1 + 0.3 * rng.random(qp.m)), qp.lo, qp.hi)
    sums = tuple(float(beta[qp.codes == g].sum()) for g in range(len(qp.groups.sums)))
    qp = dataclasses.replace(qp, source=source, groups=Groups(sums, qp.groups.codes))
    for resolution in (INF, 0.0):
        found, true = evaluate(qp, beta, resolution), truth(qp, beta)
        c, K = found.certificate, source.matrix + qp.shift
        size = float((np.abs(K) @ np.abs(qp.at_rows(beta))).max())
        assert abs(Fraction(c.kkt_gap) - true.gap) <= Fraction(c.uncertainty) + Fraction(4 * EPS * float(true.gap))
        assert abs(Fraction(c.dual) - true.dual) <= Fraction(c.bar) + Fraction(8 * EPS * abs(float(true.dual)))
        assert c.uncertainty <= 40 * EPS * size + 4e-12 * np.abs(beta).sum() * K.max()
        assert c.bar <= 1e3 * EPS * size * (np.abs(beta).sum() + 20)


# ---- by hand
def test_multipliers__are_the_mean_of_the_free_scores():
    qp = program(np.eye(4), [1.0, 2.0, 4.0, -9.0], [0] * 4, [1] * 4, Groups((2.0,)))
    found = evaluate(qp, np.array([0.5, 0.5, 1.0, 0.0]))
    np.testing.assert_array_equal(found.multipliers, [1.0])  # of 0.5 and 1.5; the others are at their bounds
    assert found.certificate.kkt_gap == 1.0
    # P(b) = ||w||^2 / 2 + losses + 2 b with losses 0.5, 1.5 and 3 at b = 0: two of the four slopes are above 0
    assert found.certificate.primal == 0.75 + (1.5 + 3.0)
    assert found.certificate.dual == 0.5 + 1.0 + 4.0 - 0.75


def test_multipliers__without_a_free_one_are_the_middle_or_what_is_best():
    K, lo, hi = np.eye(3), [0] * 3, [1] * 3
    between = program(K, [1.0, 3.0, 0.5], lo, hi, Groups((1.0,)))
    np.testing.assert_array_equal(evaluate(between, np.array([0.0, 1.0, 0.0])).multipliers, [1.5])  # of 1 and 2
    c = evaluate(between, np.array([0.0, 1.0, 0.0])).certificate  # who may grow is below who may shrink
    assert (c.kkt_gap, c.uncertainty) == (0.0, 0.0)
    for beta, total in ((np.zeros(3), 0.0), (np.ones(3), 3.0)):  # nobody may shrink, or grow
        qp = program(K, [1.0, 3.0, 0.5], lo, hi, Groups((total,)))
        found = evaluate(qp, beta)
        best = best_multiplier(qp, found.outputs, 0)
        np.testing.assert_array_equal(found.multipliers, [best])
        assert found.certificate.primal == pytest.approx(found.certificate.dual, abs=1e-15)
    codes = np.array([0, 1, -1], np.int8)
    two = program(K, [1.0, 3.0, 0.25], lo, hi, Groups((0.5, 0.25), codes))
    found = evaluate(two, np.array([0.5, 0.25, 0.25]))
    np.testing.assert_array_equal(found.multipliers, [0.5, 2.75])
    assert found.certificate.kkt_gap == 0.0


def test_gap__of_the_group_that_is_furthest_off():
    codes = np.array([0, 0, 1, 1, -1], np.int8)
    p = np.array([1.0, 0.0, 7.0, 4.0, 0.0])
    qp = program(np.zeros((5, 5)), p, [-1] * 5, [1] * 5, Groups((0.0, 0.0), codes))
    assert certify(qp, np.zeros(5)).kkt_gap == 3.0
    for last, expected in ((3.5, 3.5), (-3.5, 3.5), (2.0, 3.0)):
        assert certify(dataclasses.replace(qp, p=np.r_[p[:4], last]), np.zeros(5)).kkt_gap == expected
    far = dataclasses.replace(qp, p=np.array([1.0, 1.0, 4.0, 4.0, 0.0]), lo=np.array([0.0, -1.0, 0.0, -1.0, -1.0]))
    apart = np.array([0.0, 1.0, 0.0, 1.0, 0.0])  # who may grow is below who may shrink: no gap, and nothing uncertain
    apart = dataclasses.replace(far, p=np.array([0.0, 1.0, 3.0, 4.0, 0.0]), groups=Groups((1.0, 1.0), codes)), apart
    assert (certify(*apart).kkt_gap, certify(*apart).uncertainty) == (0.0, 0.0)
    held = np.array([1.0, -1.0, 0.0, 0.0, 0.0])  # as far as it goes: the first group has no gap
    assert certify(dataclasses.replace(qp, p=np.r_[9.0, 0.0, p[2:]]), held).kkt_gap == 3.0
    alone = program(np.zeros((2, 2)), [2.0, -3.0], [0, 0], [1, 1])
    assert certify(alone, np.zeros(2)).kkt_gap == 2.0  # the second cannot shrink
    assert certify(alone, np.array([1.0, 1.0])).kkt_gap == 3.0  # the first cannot grow


def test_gap__of_variables_beside_a_group_that_nobody_is_in():
    qp = program(np.zeros((2, 2)), [2.0, -3.0], [-1, -1], [1, 1], Groups((0.0,), np.array([-1, -1], np.int8)))
    found = certify(qp, np.zeros(2))
    assert (found.kkt_gap, found.primal, found.dual) == (3.0, 5.0, 0.0)


def test_infeasibility__is_the_worst_of_box_and_sums():
    K, codes = np.eye(3), np.array([0, 0, 1], np.int8)
    qp = program(K, [1, 1, 1], [0, 0, 0], [1, 1, 1], Groups((0.5, 0.25), codes))
    for beta, expected in (
        ([0.25, 0.25, 0.25], 0.0),
        ([0.25, 0.5, 0.25], 0.25),
        ([0.25, 0.25, 1.5], 1.25),
        ([1.25, -0.75, 0.25], 0.75),
        ([1.75, -0.5, 0.25], 0.75),
        ([0.25, 0.25, 0.25 + 2.0**-54], 2.0**-54),
    ):
        assert certify(qp, np.array(beta)).infeasibility == expected
    box = program(K, [1, 1, 1], [0] * 3, [1] * 3)
    assert certify(box, np.array([0.5, 1.125, 0.0])).infeasibility == 0.125
    assert certify(box, np.array([0.5, 0.25, 0.75])).infeasibility == 0.0


def test_infeasibility__a_sum_is_judged_to_the_last_bit():
    values = np.array([0.1, 0.2, -0.3])
    qp = program(np.eye(3), [1, 1, 1], [-1] * 3, [1] * 3, Groups((0.0,)))
    assert certify(qp, values).infeasibility == abs(float(sum(map(Fraction, values.tolist()))))


def test_uncertainty__a_sum_that_is_off_counts_with_twice_the_largest_value_of_K():
    K = np.diag([1.0, 2.0, 16.0])
    for off in (2.0**-45, -(2.0**-45)):
        qp = program(K, [1, 1, 1], [-1] * 3, [1] * 3, Groups((0.0,)))
        beta = np.array([0.5 + off, -0.5, 0.0])
        rest = certify(dataclasses.replace(qp, groups=Groups((off,))), beta).uncertainty
        assert certify(qp, beta).uncertainty - rest == pytest.approx(2.0 * 2.0**-45 * 16.0, rel=1e-9, abs=0.0)
    codes = np.array([0, 1, 1], np.int8)
    two = program(K, [1, 1, 1], [-1] * 3, [1] * 3, Groups((0.5, -0.5), codes))
    off = np.array([0.5 + 2.0**-45, -0.5 + 2.0**-45, 0.0])
    assert certify(two, off).uncertainty == pytest.approx(2.0 * 2.0**-44 * 16.0, rel=1e-2, abs=0.0)
    much = np.array([0.75, -0.5, 0.0])  # no rounding: the infeasibility says so, the gap is what it is
    assert certify(qp, much).uncertainty == pytest.approx(2.0 * 1.25e-12 * 16.0, rel=1e-2, abs=0.0)
    assert certify(qp, much).infeasibility == 0.25


def test_relative_gap__is_none_where_nothing_bounds_the_optimum():
    K = np.array([[1.0, 2.0], [2.0, 1.0]])
    one = {"p": [1.0, -1.0], "lo": [0, -1], "hi": [1, 0]}
    assert certify(program(K, **one, source=ResidentGram(K, psd=False)), np.zeros(2)).relative_gap is None
    hard = certify(program(K, [1.0, -1.0], [0, -INF], [INF, 0]), np.zeros(2))
    assert (hard.primal, hard.relative_gap) == (INF, None)
    nothing = certify(program(K, [0.0, 0.0], [0, 0], [1, 1]), np.zeros(2))
    assert (nothing.primal, nothing.dual, nothing.relative_gap) == (0.0, 0.0, 0.0)
    half = certify(program(K, [1.0, -1.0], [0, 0], [1, 0]), np.array([0.5, 0.0]))
    # u = 0.5, 1: P = 1/8 + 1/2, D = 1/2 - 1/8
    assert (half.primal, half.dual, half.relative_gap) == (0.625, 0.375, 0.4)
    below = certify(program(K, [0.0, 0.0], [0, 0], [1, 1]), np.array([1.0, 0.0]))  # primal 1/2, dual -1/2
    assert below.relative_gap == 2.0


def test_bar__counts_the_rounding_of_the_objectives_own_sums():
    """K = 0: no output is uncertain. The losses are 2 and 6, p'beta is made of 0.5 and 2: eight terms at a time."""
    qp = program(np.zeros((2, 2)), [1.0, -2.0], [-1.0, -3.0], [2.0, 1.0])
    assert certify(qp, np.array([0.5, -1.0])).bar == pytest.approx(EPS * (2 / 8 + 8) * (8.0 + 2.5), rel=1e-12, abs=0.0)
    hard = dataclasses.replace(qp, hi=np.array([INF, 1.0]))  # such a loss is none
    assert certify(hard, np.array([0.5, -1.0])).bar == pytest.approx(
        EPS * (2 / 8 + 8) * (6.0 + 2.5), rel=1e-12, abs=0.0
    )


@pytest.mark.parametrize("is_positive", [True, False])
@pytest.mark.parametrize("m", [4, 64, 800])
def test_uncertainty__of_served_sums_is_a_rounding_for_every_addition_in_a_chain(m, is_positive):
    """K = 1 and beta = 1: every output is 1, and so is what it is made of.

    256 columns at a time, of these eight, or four where values have both signs; what is over one by one.
    """
    p = 1.0 + np.array([2.0**-30, -(2.0**-30)] * (m // 2))
    source = ResidentGram(np.eye(m))
    source.is_positive = is_positive
    qp = program(np.eye(m), p, [-2] * m, [2] * m, Groups((float(m),)), source=source)
    found = evaluate(qp, np.ones(m), INF).certificate
    assert (found.kkt_gap, found.exact) == (2.0**-29, 0)
    chain = {4: 4, 64: 64 / 8 + 7, 800: 800 / 8 + 4 * 7} if is_positive else {4: 4, 64: 64 / 4 + 3, 800: 800 / 4 + 12}
    assert found.uncertainty == pytest.approx(2.0 * EPS * (chain[m] + 8), rel=1e-4, abs=0.0)


# ---- what counts as a proof
def test_proves__gap_and_uncertainty_together_within_a_twentieth_more_than_tol():
    c = Certificate(2.0, 1.0, kkt_gap=0.0, infeasibility=0.0, relative_gap=0.5, uncertainty=0.0, bar=0.0)
    for gap, uncertainty, proved in (
        (1.04, 0.009, True),
        (1.04, 0.011, False),
        (1.0, 0.02, True),
        (1.0, 0.0201, False),  # a proof within wide bounds is none
        (1.051, 0.0, False),
        (0.0, np.nan, False),
        (np.nan, 0.0, False),
    ):
        assert dataclasses.replace(c, kkt_gap=1e-3 * gap, uncertainty=1e-3 * uncertainty).proves(1e-3) is proved
    assert dataclasses.replace(c, kkt_gap=1.05).proves(1.0)  # exactly


def test_certificate__is_a_value_that_nobody_changes():
    plain = Certificate(1.0, 0.5, 0.0, 0.0, 0.5)
    assert (plain.uncertainty, plain.bar, plain.exact) == (0.0, 0.0, 0)
    qp, beta = small("one", 0)
    found = evaluate(qp, beta)
    for value, name in ((plain, "kkt_gap"), (found, "certificate")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, None)
    assert len({found, dataclasses.replace(found)}) == 2  # known by identity: arrays do not compare


@pytest.mark.parametrize(("primal", "dual"), [(2.0, 1.0), (1.0, -2.0), (-1.0, -2.0)])
def test_is_wide__by_the_larger_objective(primal, dual):
    c = Certificate(primal, dual, 0.5, 0.0, None, uncertainty=0.0, bar=0.0)
    for uncertainty, bar, wide in (
        (0.0, 1.999e-6, False),
        (0.0, 2.001e-6, True),
        (0.0199, 0.0, False),
        (0.0201, 0.0, True),
        (INF, 0.0, True),
        (0.0, np.nan, True),
    ):
        assert dataclasses.replace(c, uncertainty=uncertainty, bar=bar).is_wide(1.0) is wide
    assert not Certificate(0.0, 0.0, 0.0, 0.0, None).is_wide(1e-3)
    for bar, wide in ((0.9e-20, True), (1e-20, False), (1e-3, False), (INF, True)):  # cannot be told from 0, but known
        assert Certificate(1e-20, -1e-21, 0.0, 0.0, None, bar=bar).is_wide(1e-3) is wide
