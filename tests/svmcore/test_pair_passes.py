"""Passes of pair steps over all rows of K, by their definitions in plain NumPy."""

import numpy as np
import pytest

from svmcore.passes.steps.box import FAR
from svmcore.passes.steps.textbook_pairs import (
    farthest,
    maximal_pass,
    next_violator,
    pair_extremes,
    step_pass,
    sweep_pass,
)
from svmcore.solvers.textbook.pairs import PairArrays

from ..reference import textbook
from ..small_programs import a_program, gap_of, scores

INF = np.inf


def arrays_of(q, seed, height=0.0, shift=0.0):
    """K, p and the arrays of a pass over K + shift, with p raised by `height`."""
    K, ridge, p, beta, lo, hi, _ = a_program(q, 1, seed)
    p = p + height
    arrays = PairArrays(
        beta=beta,
        score=scores(K + shift, ridge, p, beta),
        up=np.where(beta < hi, 0.0, FAR),
        low=np.where(beta > lo, 0.0, FAR),
        lo=lo,
        hi=hi,
        ridge=ridge,
        diagonal=K.diagonal() + shift,
    )
    return K, p, arrays


def assert_in_order(K, p, arrays, shift=0.0):
    """Scores and penalties are those of beta."""
    np.testing.assert_allclose(arrays.score, scores(K + shift, arrays.ridge, p, arrays.beta), atol=1e-10)
    np.testing.assert_array_equal(arrays.up, np.where(arrays.beta < arrays.hi, 0.0, FAR))
    np.testing.assert_array_equal(arrays.low, np.where(arrays.beta > arrays.lo, 0.0, FAR))


@pytest.mark.parametrize("height", [0.0, -30.0, 30.0])
@pytest.mark.parametrize("q", [3, 128, 140, 300])
def test_pair_extremes__are_those_of_numpy(q, height):
    for seed in range(3):
        _, _, arrays = arrays_of(q, seed, height)
        arrays.score[q // 2 :] = arrays.score[: q - q // 2]  # of equals the first
        up, low = np.where(arrays.up == 0, arrays.score, -INF), np.where(arrays.low == 0, arrays.score, INF)
        assert pair_extremes(arrays) == (np.argmax(up), np.argmin(low))


@pytest.mark.parametrize("x", [3.0, 0.5, 1e-300, -3.0, -0.5, -1e-300])
def test_pair_extremes__tells_neighbouring_numbers_apart(x):
    more = np.nextafter(x, INF)
    for score in ([x, more, x], [more, x, more]):
        arrays = arrays_of(3, 0)[2]
        arrays.score[:], arrays.up[:], arrays.low[:] = score, 0.0, 0.0
        assert pair_extremes(arrays) == (np.argmax(score), np.argmin(score))


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_step_pass__keeps_scores_penalties_and_threshold(shift):
    rng, thresholds = np.random.default_rng(2), set()
    for trial in range(60):
        if trial % 5 == 0:
            K, p, arrays = arrays_of(12, trial, shift=shift)
        i, j = rng.choice(12, 2, replace=False)
        before = arrays.beta.copy()
        t, b = step_pass(i, j, K[i], K[j], shift, 0.0, arrays)
        expected, _ = textbook.pair(K + shift, arrays.ridge, p, before, arrays.lo, arrays.hi, i, j)
        np.testing.assert_allclose(arrays.beta, expected, atol=1e-12)
        assert_in_order(K, p, arrays, shift)
        assert t == pytest.approx(expected[i] - before[i], abs=1e-12)
        if t == 0.0:
            assert b == 0.0
            continue
        free = (arrays.lo < arrays.beta) & (arrays.beta < arrays.hi)
        s = arrays.score
        assert b == (s[i] if free[i] else s[j] if free[j] else 0.5 * (s[i] + s[j]))
        thresholds.add((bool(free[i]), bool(free[j])))
    assert len(thresholds) == 4


def test_step_pass__a_change_below_the_least_is_none():
    arrays = arrays_of(4, 0)[2]
    arrays.beta[:], arrays.lo[:], arrays.hi[:] = 0.0, -1.0, 1.0
    arrays.up[:] = arrays.low[:] = 0.0
    arrays.ridge[:], arrays.score[:] = 0.0, [0.5, 0.0, 0.0, 0.0]
    K = np.eye(4)
    arrays.diagonal[:] = 1.0
    for least, expected in ((0.2500001, 0.0), (0.25, 0.25)):
        t, _ = step_pass(0, 1, K[0], K[1], 0.0, least, arrays)
        assert t == expected
        np.testing.assert_array_equal(arrays.beta, [expected, -expected, 0.0, 0.0])
        np.testing.assert_array_equal(arrays.score, [0.5 - expected, expected, 0.0, 0.0])


def unbounded_pair():
    """Two copies of a point under both labels, a hard margin."""
    two = np.zeros(2)
    score, lo, hi = np.array([1.0, -1.0]), np.array([0.0, -INF]), np.array([INF, 0.0])
    return PairArrays(two.copy(), score, np.array([0.0, FAR]), np.array([FAR, 0.0]), lo, hi, two.copy(), np.ones(2))


def test_passes__tell_of_a_step_without_an_end():
    K = np.ones((2, 2))
    assert step_pass(0, 1, K[0], K[1], 0.0, 0.0, unbounded_pair()) == (INF, 0.0)
    assert maximal_pass(K, 0.0, 1e-3, 10, unbounded_pair()) == (0, True)
    assert sweep_pass(K, 0.0, 0, 0.0, 1e-3, True, 10, unbounded_pair()) == (0, 0, 0.0, True)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_maximal_pass__takes_the_most_violating_pair_until_the_gap_is_small(shift):
    K, p, arrays = arrays_of(10, 6, shift=shift)
    beta = arrays.beta.copy()
    for _ in range(5):
        s = scores(K + shift, arrays.ridge, p, beta)
        i = np.argmax(np.where(beta < arrays.hi, s, -INF))
        j = np.argmin(np.where(beta > arrays.lo, s, INF))
        beta, _ = textbook.pair(K + shift, arrays.ridge, p, beta, arrays.lo, arrays.hi, i, j)
    assert maximal_pass(K, shift, 1e-3, 5, arrays) == (5, False)
    np.testing.assert_allclose(arrays.beta, beta, atol=1e-12)
    steps, unbounded = maximal_pass(K, shift, 1e-3, 5000, arrays)
    assert 0 < steps < 5000
    assert not unbounded
    assert_in_order(K, p, arrays, shift)
    assert gap_of(arrays.score, arrays.beta, arrays.lo, arrays.hi, np.zeros(10)) <= 1e-3
    i, j = pair_extremes(arrays)
    gap = arrays.score[i] - arrays.score[j]
    assert maximal_pass(K, shift, gap, 5, arrays) == (0, False)  # at most tol is enough
    assert maximal_pass(K, shift, np.nextafter(gap, 0), 1, arrays)[0] == 1


def test_maximal_pass__goes_on_after_a_step_of_one():
    zero, one = np.zeros(4), np.ones(4)
    arrays = PairArrays(
        zero.copy(), np.array([1.0, -1.0, 0.5, -0.5]), zero.copy(), zero.copy(), -9 * one, 9 * one, zero, one
    )
    assert maximal_pass(np.eye(4), 0.0, 1e-3, 9, arrays) == (2, False)
    np.testing.assert_array_equal(arrays.beta, [1.0, -1.0, 0.5, -0.5])


def test_maximal_pass__nothing_that_can_move_is_the_end():
    K, _, arrays = arrays_of(6, 0)
    arrays.up[:] = FAR
    assert maximal_pass(K, 0.0, 1e-3, 5, arrays) == (0, False)
    arrays.up[:], arrays.low[:] = 0.0, FAR
    assert maximal_pass(K, 0.0, 1e-3, 5, arrays) == (0, False)


@pytest.mark.parametrize("examine_all", [True, False])
def test_next_violator__is_the_first_by_definition(examine_all):
    for seed in range(4):
        _, _, arrays = arrays_of(30, seed)
        s, grows, shrinks = arrays.score, arrays.up == 0, arrays.low == 0
        for b, tau in ((0.0, 0.5), (float(s[3]) - 0.25, 0.25), (float(s[4]) + 0.25, 0.25), (float(np.median(s)), 1.0)):
            wrong = ((s > b + tau) & grows) | ((s < b - tau) & shrinks)
            wrong &= examine_all | (grows & shrinks)
            for start in (0, 3, 4, 29, 30):
                found = np.flatnonzero(wrong[start:])
                expected = start + found[0] if len(found) else 30
                assert next_violator(start, b, tau, examine_all, arrays) == expected


def test_farthest__is_the_row_that_can_move_with_the_violator():
    seen = set()
    for seed in range(6):
        _, _, arrays = arrays_of(9, seed)
        s = arrays.score
        for i in range(9):
            for b in (s[i] - 0.1, s[i] + 0.1, s[i]):
                above = s[i] > b
                j = (
                    np.argmin(np.where(arrays.low == 0, s, INF))
                    if above
                    else np.argmax(np.where(arrays.up == 0, s, -INF))
                )
                possible = s[j] < s[i] if above else s[j] > s[i]
                assert farthest(i, b, arrays) == (j if possible else -1)
                seen.add((bool(above), bool(possible)))
    assert len(seen) == 4
    arrays.up[:] = arrays.low[:] = FAR
    assert farthest(0, s[0] - 1.0, arrays) == farthest(0, s[0] + 1.0, arrays) == -1


def swept(K, p, arrays, i, b, tau, examine_all, limit):
    """(beta, steps, next violator, b) of a sweep by its definition; None where rounding decides who moves."""
    beta, lo, hi, ridge, steps = arrays.beta.copy(), arrays.lo, arrays.hi, arrays.ridge, 0
    while True:
        s, grows, shrinks = scores(K, ridge, p, beta), beta < hi, beta > lo
        wrong = ((s > b + tau) & grows) | ((s < b - tau) & shrinks)
        wrong &= examine_all | (grows & shrinks)
        i = next((v for v in range(i, len(p)) if wrong[v]), len(p))
        if i == len(p) or steps == limit:
            return beta, steps, i, b
        others = np.where(shrinks, s, INF) if s[i] > b else np.where(grows, -s, INF)
        j, nearest = np.argsort(others)[:2]
        if others[nearest] - others[j] < 1e-6:
            return None
        if (s[j] < s[i]) == (s[i] > b):
            beta, _ = textbook.pair(K, ridge, p, beta, lo, hi, i, j)
            s, free = scores(K, ridge, p, beta), (lo < beta) & (beta < hi)
            b = s[i] if free[i] else s[j] if free[j] else 0.5 * (s[i] + s[j])
            steps += 1
        i += 1


@pytest.mark.parametrize("examine_all", [True, False])
@pytest.mark.parametrize("limit", [100, 2, 0])
def test_sweep_pass__meets_each_violator_once_in_order(limit, examine_all):
    judged = 0
    for seed in range(40):
        K, p, arrays = arrays_of(8, seed)
        expected = swept(K, p, arrays, 2, 0.25, 0.1, examine_all, limit)
        if expected is None:
            continue
        beta, steps, i, b = expected
        found = sweep_pass(K, 0.0, 2, 0.25, 0.1, examine_all, limit, arrays)
        assert (found[0], found[1], found[3]) == (steps, i, False)
        assert found[2] == pytest.approx(b, abs=1e-10)
        np.testing.assert_allclose(arrays.beta, beta, atol=1e-10)
        assert_in_order(K, p, arrays)
        judged += 1
    assert judged > 10


def test_sweep_pass__a_violator_with_nobody_to_move_with_is_passed_over():
    _, _, arrays = arrays_of(4, 0)
    arrays.score[:], arrays.up[:], arrays.low[:] = [3.0, 2.0, 1.0, 0.0], 0.0, FAR
    arrays.beta[:], arrays.lo[:], arrays.hi[:] = 0.0, -1.0, 1.0
    assert sweep_pass(np.eye(4), 0.0, 0, 0.5, 0.1, True, 10, arrays) == (0, 4, 0.5, False)
