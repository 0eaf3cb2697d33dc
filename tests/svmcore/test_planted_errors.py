"""Errors planted in served values, up to what is promised: the certificate has to cover or to mend them."""

import dataclasses

import numpy as np
import pytest

from svmcore import Precomputed, ResidentGram
from svmcore.certificate import evaluate
from svmcore.kernels.exact import ExactKernel
from svmcore.kernels.rounding import Rounding
from svmcore.outputs import BoundedOutputs
from svmcore.qp import NO_GROUPS, Groups

from ..small_programs import Served, program, small, truth

INF = np.inf
EPS = 2.0**-52
KINDS = ["none", "one", "two", "two and none", "rows", "shift"]


def planted(kind, seed, relative, absolute, beta=None, errors=None):
    """A program whose served values are off by as much as is promised, the true K, and beta."""
    qp, own = small(kind, seed)
    beta = own if beta is None else beta
    K, rng = qp.source.matrix, np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], K.shape) if errors is None else errors
    source = Served(K, signs * (relative * np.abs(K) + absolute), (relative, absolute))
    return dataclasses.replace(qp, source=source), K, beta


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e-9, 1e-3, 0.2])
def test_planted_errors__are_covered_or_mended(kind, size):
    for seed in range(10):
        qp, K, beta = planted(kind, seed, size, 0.5 * size)
        true = truth(qp, beta, K)
        best = evaluate(dataclasses.replace(qp, source=ResidentGram(K)), beta).certificate
        for resolution in (INF, 0.1 * size, 0.0):
            c = evaluate(qp, beta, resolution).certificate
            assert abs(c.kkt_gap - float(true.gap)) <= c.uncertainty + 1e-13
            assert abs(c.dual - float(true.dual)) <= c.bar + 1e-13
            assert abs(c.primal - best.primal) <= c.bar + 1e-13
        assert c.uncertainty < 1e-11  # at a resolution of 0 nothing that decides is uncertain
        assert abs(c.dual - best.dual) <= 1e-11


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_planted_errors__the_uncertainty_is_no_more_than_they_can_do(sign):
    """Errors that all widen, or all narrow the gap reach the bound; bars are within their sum."""
    K = np.array([[2.0, 1.0, 0.5], [1.0, 2.0, 1.0], [0.5, 1.0, 2.0]])
    beta, size = np.array([0.5, -0.5, 0.25]), 2.0**-30  # p - K beta is 0.375, 0.25 and -0.25
    p, off = np.array([1.0, 0.0, 0.0]), np.zeros((3, 3))
    off[:, 0], off[:, 2] = sign * np.sign(beta) * size, -sign * np.sign(beta) * size  # column i makes output i
    qp = program(K, p, [-1] * 3, [1] * 3, Groups((0.25,)), Served(K, off, (0.0, size)))
    c, gap = evaluate(qp, beta, INF).certificate, float(truth(qp, beta, K).gap)
    assert (c.exact, evaluate(qp, beta, 1e-3).certificate.exact) == (0, 0)
    assert gap == 0.375 + 0.25
    error = size * np.abs(beta).sum()
    assert sign * (gap - c.kkt_gap) == pytest.approx(2.0 * error, rel=1e-5, abs=0.0)
    assert c.uncertainty == pytest.approx(2.0 * error, rel=1e-5, abs=0.0)
    # half of |beta|'e of the norm, and each loss by the largest of its slopes, which is 1, times e
    assert c.bar == pytest.approx((0.5 * 1.25 + 3.0) * error, rel=1e-5, abs=0.0)


def test_planted_errors__relative_ones_count_by_the_size_of_what_was_summed():
    K = np.array([[2.0, -1.0], [-1.0, 4.0]])
    qp = program(K, [2.0, -1.0], [-1, -1], [1, 1], source=Served(K, np.zeros((2, 2)), (2.0**-30, 0.0)))
    c = evaluate(qp, np.array([0.5, 0.25]), INF).certificate
    # s = 2 - 0.75 and -1 - 0.5, sizes 1.25 and 1.5: the gap is that of the second
    assert (c.kkt_gap, c.exact) == (1.5, 0)
    assert c.uncertainty == pytest.approx(1.5 * 2.0**-30, rel=1e-5, abs=0.0)
    shifted = dataclasses.replace(qp, shift=2.0)  # sizes and their error grow by 2 ||beta||_1
    assert evaluate(shifted, np.array([0.5, 0.25]), INF).certificate.uncertainty == pytest.approx(
        3.0 * 2.0**-30, rel=1e-5
    )


def exact_rows(up, down, groups, resolution=0.0, both=()):
    """How many rows are computed again, of rows that may grow, that may shrink, and that may do both; errors are 0.1.

    None of them is a support vector: a last variable, which cannot move, is the only one, and its row is among them.
    The objectives are so large that they ask for no more digits.
    """
    p = np.array([*up, *down, *both, 1e12])
    kinds = np.repeat([0, 1, 2, 3], [len(up), len(down), len(both), 1])
    lo, hi = np.choose(kinds, [0.0, -1.0, -1.0, 1.0]), np.choose(kinds, [1.0, 0.0, 1.0, 1.0])
    K = np.eye(len(p))
    beta = np.zeros(len(p))
    beta[-1] = 1.0
    qp = program(K, p, lo, hi, groups, Served(K, np.zeros(K.shape), (0.0, 0.1)))
    return evaluate(qp, beta, resolution).certificate.exact - (resolution < 0.1)


ONE = Groups((1.0,))


@pytest.mark.parametrize(
    ("up", "down", "groups", "expected"),
    [
        ([0.0, -0.15, -0.25], [1.0, 1.15, 1.25], ONE, 4),  # optimal: what is within two errors of the two extremes
        ([4.0, 1.0, 0.0, -0.15, -0.25], [0.0, 0.5, 3.0, 4.15, 4.25], ONE, 6),  # all that is between them
        ([], [1.0, 1.15, 1.25], ONE, 2),  # nobody grows
        ([1.0, 0.85, 0.75], [], ONE, 2),
        ([-0.05, -0.15], [0.05, 0.15], NO_GROUPS, 2),  # within its own error of 0
        ([-3.0], [2.0], NO_GROUPS, 0),
        ([3.0, 1.0, -0.15], [0.05, 0.15], NO_GROUPS, 4),  # 3 and 1 are losses, and 0.05 and 0.15 below them
    ],
)
def test_planted_errors__only_rows_that_could_decide_are_computed_again(up, down, groups, expected):
    assert exact_rows(up, down, groups) == expected
    assert exact_rows(up, down, groups, resolution=0.11) == 0
    assert exact_rows(up, down, groups, resolution=INF) == 0


def test_planted_errors__of_support_vectors_go_first():
    """Scores 4, 1, 0.25, 0, -1 and -4 with an error of 0.1 each; all may grow, the two support vectors may shrink."""
    size, beta = 0.1, np.array([0.0, 0.5, 0.0, 0.0, 0.5, 0.0])
    p = np.array([4.0, 1.5, 0.25, 0.0, -0.5, -4.0])
    K, lo = np.eye(6), np.zeros(6)

    def exact_of(p, hi=1.0, resolution=0.01):
        source = Served(K, np.zeros((6, 6)), (0.0, size))
        program_ = program(K, p, lo, np.r_[hi, np.ones(5)], Groups((1.0,)), source)
        return evaluate(program_, beta, resolution).certificate.exact

    assert exact_of(p) == 5  # all above -1, the lowest that may shrink; not the last
    assert exact_of(p, hi=0.0) == 4  # the first cannot move
    for last, expected in ((-1.05, 6), (-1.15, 5)):  # within its own error of the lowest, which is exact by then
        assert exact_of(np.r_[p[:5], last]) == expected
    optimal = np.array([-1.0, 1.5, -2.0, -0.05, 1.5, -4.0])  # scores -1, 1, -2, -0.05, 1, -4: no gap
    assert exact_of(optimal) == 2
    assert exact_of(np.r_[0.95, optimal[1:]]) == 3


@pytest.mark.parametrize(
    ("residual", "lo", "hi", "ridge", "slope"),
    [
        (0.2, -3.0, 1.0, 0.0, 1.0),
        (0.05, -3.0, 1.0, 0.0, 3.0),  # its sign is not known
        (-0.05, -3.0, 1.0, 0.0, 3.0),
        (-0.2, -3.0, 1.0, 0.0, 3.0),
        (0.05, -1.0, 3.0, 0.0, 3.0),
        (-0.05, -1.0, 3.0, 0.0, 3.0),
        (-0.2, -1.0, 3.0, 0.0, 1.0),
        (0.2, -9.0, 9.0, 0.5, 0.6),  # (0.2 + 0.1) / 0.5
        (-0.2, -9.0, 9.0, 0.5, 0.6),
        (0.2, 0.0, INF, 0.0, 0.0),  # the primal is none, or of a w without such a loss
        (-0.2, 0.0, INF, 0.0, 0.0),
    ],
)
@pytest.mark.parametrize("group", [False, True])
def test_bar__is_the_steepest_loss_times_its_error(residual, lo, hi, ridge, slope, group):
    """One support vector, which cannot move, and another variable with u = 0.5 by K_12 and the residual as given.

    All outputs have an error of 0.1, and the objectives are so large that it is allowed.
    With a group, two more that cannot be a loss put its multiplier to 2.
    """
    K = np.eye(4)
    K[0, 1] = K[1, 0] = 0.5
    p, los, his = [1e8, residual + 0.5, 0.0, 0.0], [1.0, lo, 0.0, 0.0], [1.0, hi, 0.0, 0.0]
    groups = NO_GROUPS
    if group:
        codes = np.array([-1, 0, 0, 0], np.int8)
        p, los, his = [1e8, residual + 2.5, 2.0, 2.0], [1.0, lo, -20.0, -20.0], [1.0, hi, 20.0, 20.0]
        groups = Groups((0.0,), codes)
    qp = program(
        K, p, los, his, groups, Served(K, np.zeros((4, 4)), (0.0, 0.1)), ridge=np.array([0.0, ridge, 0.0, 0.0])
    )
    found = evaluate(qp, np.array([1.0, 0.0, 0.0, 0.0]), INF)
    assert found.certificate.exact == 0
    if group and np.isinf(hi):
        return  # the multiplier is that of the unbounded variable
    others = 2 * 20.0 if group else 0.0  # residuals of 0
    assert found.certificate.bar == pytest.approx(0.1 * (0.5 + 1.0 + slope + others), rel=1e-5, abs=0.0)


OBJECTIVE = 5e-7  # of the larger objective: what uncertain outputs may move


@pytest.mark.parametrize(("share", "exact"), [(0.99, 0), (1.01, 2)])
@pytest.mark.parametrize(
    ("p", "lo", "hi", "resolution", "steepest"),
    [
        ([1.0, -2.0], [-1.0, -3.0], [2.0, 1.0], INF, 5.0),  # as steep as they can be
        ([-1.0, 0.5], [-1.0, -3.0], [2.0, 1.0], INF, 5.0),
        ([1.0, -2.0], [-2.0, -1.0], [1.0, 3.0], INF, 5.0),
        ([1.0, -2.0], [0.0, -3.0], [INF, 0.0], INF, 3.5),  # without a bound as steep as the variable is large
        ([1.0, -2.0], [0.0, -INF], [2.0, 0.0], INF, 3.0),
        ([1.0, -2.0], [-1.0, -3.0], [2.0, 1.0], 0.1, 5.0),  # residuals 0.5 and -1: known to be above and below 0
        ([0.25, -0.5], [-1.0, -3.0], [2.0, 1.0], 0.1, 2.0),  # -0.25 and 0.5
        ([0.25, -0.5], [-1.0, -3.0], [2.0, 1.0], 0.3, 3.0),  # of the first the sign is not known
    ],
)
def test_planted_errors__the_objectives_say_how_certain_outputs_must_be(p, lo, hi, resolution, steepest, share, exact):
    """K = I, two support vectors 0.5 and -1: all losses together may not move the objectives by more."""
    beta, length, third = np.array([0.5, -1.0, 0.0]), 1.5, ([*p, 0.0], [*lo, 0.0], [*hi, 0.0])
    plain = evaluate(program(np.eye(3), *third), beta).certificate
    value = max(abs(plain.primal), abs(plain.dual))
    source = Served(np.eye(3), np.zeros((3, 3)), (0.0, share * OBJECTIVE * value / steepest / length))
    assert evaluate(program(np.eye(3), *third, NO_GROUPS, source), beta, resolution).certificate.exact == exact


@pytest.mark.parametrize(("share", "exact"), [(0.99, 0), (1.01, 2)])
@pytest.mark.parametrize("small", [1.0, 2.0**-6])
def test_planted_errors__residuals_of_a_group_are_about_its_multiplier(small, share, exact):
    """Scores 1 and 2 of free variables, so b = 1.5: one loss is as steep as a lower bound, one as an upper.

    Where the primal is above twice the dual there, the best b is taken, 2, where losses are as steep.
    """
    beta = small * np.array([0.5, -1.0, 0.0])
    p, lo, hi = beta + np.array([1.0, 2.0, 0.0]), small * np.array([-1.0, -3.0, 0.0]), small * np.array([2.0, 4.0, 0.0])
    groups = Groups((-0.5 * small,))
    b, norm2 = 1.5, 1.25 * small**2
    dual = abs(float(p @ beta) - 0.5 * norm2)
    primal = 0.5 * norm2 + small * (0.5 * 1.0 + 0.5 * 4.0) - 0.5 * small * b
    best = 0.5 * norm2 + small * 1.0 - 0.5 * small * 2.0
    value = max(dual, primal if primal <= 2.0 * dual else best)
    size = share * OBJECTIVE * value / (5.0 * small) / (1.5 * small)
    source = Served(np.eye(3), np.zeros((3, 3)), (0.0, size))
    assert evaluate(program(None, p, lo, hi, groups, source), beta, 0.1).certificate.exact == exact


@pytest.mark.parametrize("kind", KINDS)
def test_planted_errors__the_quick_look_changes_no_proof(kind, monkeypatch):
    """Errors that are surely too small to matter are told first: never where a closer look finds more."""
    sizes = [10.0**power for power in range(-14, -2)]
    cases = [(seed, size, resolution) for seed in range(5) for size in sizes for resolution in (1e-5, 1.0)]

    def proofs():
        for seed, size, resolution in cases:
            qp, _, beta = planted(kind, seed, size, size)
            yield evaluate(qp, beta, resolution).certificate

    quick, said = [*proofs()], []
    monkeypatch.setattr(BoundedOutputs, "_is_fine", lambda self, resolution: bool(said.append(1)))
    close = [*proofs()]
    assert quick == close
    assert said
    assert {each.exact > 0 for each in quick} == {True, False}


@pytest.mark.parametrize("promise", [(INF, INF), (INF, 0.0), (1.0, 0.0), (1.5, 0.0), (5.0, 1.0)])
def test_planted_errors__of_values_that_nobody_knows_leave_what_was_served(promise):
    """Where the kernel does not say, and no exact value is any better: the bound is infinite, the numbers are not."""
    K = np.array([[2.0, 1.0], [1.0, 2.0]])

    source = Served(K, 0.0, promise)
    beta, p, groups = np.array([0.5, 0.0]), [1.0, 1.0], Groups((0.5,))  # scores 0 and 0.5, dual 0.5 - 0.25
    c = evaluate(program(K, p, [0, -1], [1, 0], groups, source), beta).certificate  # exact values are there: taken
    assert (c.kkt_gap, c.exact) == (0.0, 2)
    assert max(c.uncertainty, c.bar) < 1e-12

    class Unknown(ExactKernel):
        unit = Rounding(INF, INF)

    source.exact = Unknown(Precomputed(), K)
    for lo, hi, sums, gap in (
        ([0, -1], [1, 0], groups, 0.0),
        ([0, 0], [1, 0], groups, 0.0),
        ([0, 0], [1, 1], NO_GROUPS, 0.5),
    ):
        c = evaluate(program(K, p, lo, hi, sums, source), beta).certificate
        assert (c.kkt_gap, c.uncertainty, c.bar, c.dual, c.exact) == (gap, INF, INF, 0.25, 0)
