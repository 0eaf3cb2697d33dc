"""The step on two variables, and working sets, against fractions and the textbook in plain NumPy."""

from fractions import Fraction

import numpy as np
import pytest

from svmcore.passes.steps import pairs
from svmcore.passes.steps.pairs import pair_step, solve_pairs

from ..reference import textbook
from ..small_programs import a_program, gap_of, scores

INF = np.inf


def stepped(beta, lo, hi, eta, difference, ridge=0.0):
    """beta after a step on variables 0 and 1 of a K with K_00 + K_11 - 2 K_01 = eta, and the step."""
    beta, lo, hi = (np.array(v, dtype=np.float64) for v in (beta, lo, hi))
    K_ij = 0.5 * (8.0 - eta)  # exact for the dyadic eta of these tests
    return beta, pair_step(0, 1, 8.0, K_ij, ridge, difference, beta, lo, hi)


def best_step(beta, lo, hi, eta, difference):
    """(t, value) of the least eta t^2 / 2 - difference t over the segment, in fractions."""
    ahead = min(Fraction(hi[0]) - Fraction(beta[0]), Fraction(beta[1]) - Fraction(lo[1]))
    behind = min(Fraction(beta[0]) - Fraction(lo[0]), Fraction(hi[1]) - Fraction(beta[1]))
    places = [ahead, -behind, Fraction(0)]
    if eta > 0:
        places.append(min(max(Fraction(difference) / Fraction(eta), -behind), ahead))
    return min((Fraction(eta) * t * t / 2 - Fraction(difference) * t, t) for t in places)


# ---- one step
@pytest.mark.parametrize("eta", [4.0, 0.25, 0.0, -0.5])
def test_pair_step__is_the_best_of_its_segment(eta):
    rng = np.random.default_rng(0)
    for _ in range(60):
        lo, hi = -rng.integers(0, 13, 2) / 4.0, rng.integers(0, 13, 2) / 4.0
        before = lo + (hi - lo) * rng.integers(0, 5, 2) / 4.0
        difference = float(rng.integers(-8, 9)) / 4.0
        after, t = stepped(before, lo, hi, eta, difference)
        value, best = best_step(before, lo, hi, eta, difference)
        assert Fraction(eta) * Fraction(t) ** 2 / 2 - Fraction(difference) * Fraction(t) == value
        assert (after[0] - before[0], after[1] - before[1]) == (t, -t)
        if eta > 0:
            assert t == best


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("which", [0, 1])
def test_pair_step__a_variable_that_reaches_its_bound_is_put_on_it(sign, which):
    """Values whose difference and sum are both rounded: beta + (hi - beta) is beside hi for one in a few."""
    rng, beside = np.random.default_rng(1), 0
    for _ in range(200):
        near, far = rng.uniform(0.1, 1.0), 100.0
        beta, bounds = rng.uniform(-1.0, 0.1, 2), np.full((2, 2), [[-far], [far]])
        end = int((sign > 0) == (which == 0))  # 1: the variable grows
        bounds[end, which] = near if end else -2.0 * near - 1.0
        after, t = stepped(beta, *bounds, 4.0, sign * 4000.0)
        assert after[which] == bounds[end, which]
        assert np.sign(t) == sign
        assert after[1 - which] == beta[1 - which] + (-t if which == 0 else t)
        beside += beta[which] + (t if which == 0 else -t) != bounds[end, which]
    assert beside > 5


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_pair_step__both_that_reach_their_bounds_are_put_on_them(sign):
    beta = np.array([0.1, -0.1])
    lo, hi = np.array([-0.3, -0.3]), np.array([0.3, 0.3])
    after, _ = stepped(beta * sign, lo, hi, 4.0, sign * 50.0)
    np.testing.assert_array_equal(after, [sign * 0.3, -sign * 0.3])


def test_pair_step__a_ridge_is_curvature():
    assert stepped([0.0, 0.0], [-9, -9], [9, 9], 2.0, 6.0, ridge=1.0)[1] == 2.0
    assert stepped([0.0, 0.0], [-9, -9], [9, 9], 0.0, 6.0, ridge=1.5)[1] == 4.0
    assert stepped([0.0, 0.0], [-9, -9], [9, 9], -1.0, 6.0, ridge=3.0)[1] == 3.0


def test_pair_step__curvature_of_rounding_is_none():
    """Of duplicate points: the step goes to the end, not to where a quotient of rounding points."""
    for eta, expected in ((4e-12, 9.0), (-4e-12, 9.0), (2e-11, 0.5)):
        beta = np.zeros(2)
        t = pair_step(0, 1, 8.0, 0.5 * (8.0 - eta), 0.0, 1e-11, beta, np.full(2, -9.0), np.full(2, 9.0))
        assert t == pytest.approx(expected, rel=1e-3)
    beta = np.zeros(2)  # an indefinite K: the scale is negative
    assert pair_step(0, 1, -8.0, -4.0 - 2e-12, 0.0, 1e-11, beta, np.full(2, -9.0), np.full(2, 9.0)) == 9.0


def test_pair_step__nothing_to_gain_is_no_step():
    assert stepped([0.0, 0.0], [-1, -1], [1, 1], 0.0, 0.0)[1] == 0.0
    assert stepped([0.0, 0.0], [-1, -1], [1, 1], 2.0, 0.0)[1] == 0.0
    after, t = stepped([0.5, 0.5], [-1, 0.5], [0.5, 1], 2.0, 3.0)  # both at their bounds
    assert t == 0.0
    np.testing.assert_array_equal(after, [0.5, 0.5])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_pair_step__without_an_end_goes_far_and_says_so(sign):
    before = np.array([0.5, -0.25, 3.0])
    beta = before.copy()
    t = pair_step(0, 1, 2.0, 1.0, 0.0, sign * 0.5, beta, np.full(3, -INF), np.full(3, INF))
    assert t == INF
    np.testing.assert_array_equal(beta - before, sign * 1e6 * 4.75 * np.array([1.0, -1.0, 0.0]))


def test_pair_step__downhill_without_an_end_beats_a_better_end_uphill():
    beta = np.zeros(2)
    t = pair_step(0, 1, 2.0, 2.0, 0.0, 1.0, beta, np.array([-8.0, -INF]), np.array([INF, 8.0]))
    assert t == INF
    assert beta[0] > 1e5


# ---- working sets
CASES = {
    "one block": (40, 1, 0, 0.0, False),
    "blocks": (270, 1, 1, 0.0, False),
    "negative scores": (140, 1, 2, -50.0, False),
    "positive scores": (140, 1, 3, 50.0, False),
    "two groups": (270, 2, 4, 3.0, False),
    "whole blocks": (256, 2, 5, -3.0, False),
    "copies": (260, 2, 6, 0.0, True),
    "a pair": (2, 1, 7, 0.0, False),
}


def solve_scans(scans, K, ridge, s, beta, lo, hi, codes, groups, tol, steps):
    """As `solve_pairs`, by the scans for sets of one length, "short" or "long", with steps as long as a pair's best."""
    own, kind = K.diagonal().astype(np.float64), s.dtype
    diagonal = (own + ridge).astype(kind)
    bars = pairs._bars(codes, groups, diagonal, beta, lo, hi, pairs.KEYS if scans == "short" else pairs.SCORES)
    given = K, ridge, s, beta, lo, hi, diagonal, own, bars, tol, steps, 1.0
    if scans == "short":
        return pairs._solve_short(*given)
    return pairs._solve_long(*given, 1.0, 1, pairs._blocks_that_move(lo, hi))


@pytest.mark.parametrize("scans", ["short", "long"])
@pytest.mark.parametrize(("q", "groups", "seed", "shift", "twice"), CASES.values(), ids=CASES.keys())
def test_solve_pairs__takes_the_textbooks_steps(q, groups, seed, shift, twice, scans):
    K, ridge, p, beta, lo, hi, codes = a_program(q, groups, seed, shift, twice=twice)
    for steps in (0, 1, 2, 12):
        expected, taken = textbook.second_order_smo(K, ridge, p, beta, lo, hi, codes, steps)
        after, s = beta.copy(), scores(K, ridge, p, beta)
        n_iter, gap, unbounded = solve_scans(scans, K, ridge, s, after, lo, hi, codes, groups, 1e-9, steps)
        assert (n_iter, unbounded) == (taken, False)
        np.testing.assert_allclose(after, expected, atol=1e-12)
        np.testing.assert_allclose(s, scores(K, ridge, p, after), atol=1e-11)
        assert gap == pytest.approx(gap_of(s, after, lo, hi, codes), abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("q", [pairs.SHORT, 700], ids=["short", "long"])
def test_solve_pairs__the_partner_has_nearly_the_largest_gain(q, dtype):
    """No less than 2^-0.26 of it: what logarithms that are straight between powers of two leave undecided."""
    for seed in range(20):
        K, _, p, beta, lo, hi, codes = a_program(q, 1, seed, dtype=dtype)
        none, after, s = np.zeros(q), beta.copy(), scores(K.astype(np.float64), 0.0, p, beta)
        solve_pairs(K, none, s.astype(dtype), after, lo, hi, codes, 1, 1e-9, 1)
        i, (j,) = np.argmax(np.where(beta < hi, s, -INF)), np.flatnonzero(after < beta)
        able = (beta > lo) & (s < s[i])
        gain = np.where(able, (s[i] - s) ** 2 / np.where(able, K[i, i] + K.diagonal() - 2.0 * K[i], 1.0), 0.0)
        assert gain[j] >= 0.835 * gain.max()


@pytest.mark.parametrize("q", [3, 600], ids=["short", "long"])
def test_solve_pairs__a_gain_that_float32_does_not_hold_leaves_the_furthest_partner(q):
    """Nobody but 0 and 1 can move: 2 is further behind, and at its bound."""
    K, none, beta = 1e38 * np.eye(q) * 3.0, np.zeros(q), np.zeros(q)
    s = np.concatenate([[0.5, -0.5, -1e9], np.zeros(q - 3)])
    lo, hi = np.zeros(q), np.zeros(q)
    hi[0], lo[1] = 1.0, -1.0
    n_iter, gap, _ = solve_pairs(K, none, s, beta, lo, hi, np.zeros(q, np.int8), 1, 1e-3, 90)
    assert gap <= 1e-3
    assert 0 < n_iter < 90
    np.testing.assert_allclose(beta[:2], [0.5 / 3e38, -0.5 / 3e38], rtol=1e-2)


@pytest.mark.parametrize("groups", [1, 2])
def test_solve_pairs__ends_at_the_optimum(groups):
    K, ridge, p, beta, lo, hi, codes = a_program(12, groups, 11)
    sums = [beta[codes == g].sum() for g in range(groups)]
    s = scores(K, ridge, p, beta)
    n_iter, gap, unbounded = solve_pairs(K, ridge, s, beta, lo, hi, codes, groups, 1e-6, 5000)
    assert 0 < n_iter < 5000
    assert not unbounded
    assert gap_of(scores(K, ridge, p, beta), beta, lo, hi, codes) == pytest.approx(gap, abs=1e-9)
    assert gap <= 1e-6
    again = solve_pairs(K, ridge, s, beta, lo, hi, codes, groups, gap, 5)
    assert again == (0, gap, False)  # at most tol is enough
    assert ((lo <= beta) & (beta <= hi)).all()
    np.testing.assert_allclose([beta[codes == g].sum() for g in range(groups)], sums, atol=1e-12)


def test_solve_pairs__float32_scores_and_a_square_inside_a_larger_one():
    K, ridge, p, beta, lo, hi, codes = a_program(30, 1, 12, dtype=np.float32)
    larger = np.full((40, 50), np.float32(7.0))
    larger[:30, :30] = K
    s = scores(K.astype(np.float64), ridge, p, beta).astype(np.float32)
    _, gap, _ = solve_pairs(larger, ridge, s, beta, lo, hi, codes, 1, 1e-3, 5000)
    assert s.dtype == np.float32
    true = scores(K.astype(np.float64), ridge, p, beta)
    np.testing.assert_allclose(s, true, atol=1e-4)
    assert gap <= 1e-3
    assert gap_of(true, beta, lo, hi, codes) <= 1e-3 + 2e-4


def test_solve_pairs__a_hard_margin_without_a_minimum_is_told():
    K = np.ones((2, 2))
    beta, s = np.zeros(2), np.array([1.0, -1.0])
    lo, hi, codes = np.array([0.0, -INF]), np.array([INF, 0.0]), np.zeros(2, np.int8)
    n_iter, gap, unbounded = solve_pairs(K, np.zeros(2), s, beta, lo, hi, codes, 1, 1e-3, 10)
    assert (n_iter, gap, unbounded) == (0, 2.0, True)
    assert beta[0] == -beta[1] > 1e5


def test_solve_pairs__a_group_that_cannot_move_has_no_gap():
    K, codes = np.eye(3), np.array([0, 0, 1], np.int8)
    beta, s = np.zeros(3), np.array([0.25, 0.25, 9.0])
    lo, hi = np.array([-1.0, -1.0, 0.0]), np.array([1.0, 1.0, 5.0])
    assert solve_pairs(K, np.zeros(3), s, beta, lo, hi, codes, 2, 1e-3, 10) == (0, 0.0, False)
    held = solve_pairs(K[:1, :1], np.zeros(1), s[2:], beta[:1], lo[2:], hi[2:], codes[:1], 1, 1e-3, 10)
    assert held == (0, 0.0, False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("only_grows", [True, False])
@pytest.mark.parametrize("held", [0, 1])
def test_solve_pairs__a_long_group_without_one_of_its_ends_leaves_the_others_theirs(dtype, only_grows, held):
    """In group `held` nobody may shrink, or nobody grow; the other one is solved."""
    codes = np.arange(600, dtype=np.int8) % 2
    K, beta, s = np.eye(600, dtype=dtype), np.zeros(600), np.where(np.arange(600) % 4 < 2, 1.0, -1.0).astype(dtype)
    lo, hi = np.full(600, -1.0), np.full(600, 1.0)
    (lo if only_grows else hi)[codes == held] = 0.0
    n_iter, gap, unbounded = solve_pairs(K, np.zeros(600), s, beta, lo, hi, codes, 2, 1e-3, 5000)
    assert (gap <= 1e-3, unbounded) == (True, False)
    assert n_iter >= 150
    np.testing.assert_array_equal(beta[codes == held], 0.0)
    np.testing.assert_allclose(
        beta[codes != held], np.where(np.arange(600) % 4 < 2, 1.0, -1.0)[codes != held], atol=1e-3
    )


def test_solve_pairs__an_indefinite_pair_ends_at_its_better_end():
    K = np.array([[0.0, 1.0], [1.0, 0.0]])
    beta, s = np.zeros(2), np.array([0.5, 0.0])
    lo, hi = np.array([-1.0, -1.0]), np.array([1.0, 1.0])
    n_iter, gap, _ = solve_pairs(K, np.zeros(2), s, beta, lo, hi, np.zeros(2, np.int8), 1, 1e-3, 10)
    np.testing.assert_array_equal(beta, [1.0, -1.0])
    np.testing.assert_array_equal(s, [1.5, -1.0])
    assert (n_iter, gap) == (1, 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("groups", [1, 2])
def test_solve_pairs__short_and_long_sets_take_the_same_steps(dtype, groups):
    """Two ways to scan, one to choose."""
    rng = np.random.default_rng(groups)
    X = rng.integers(0, 3, size=(200, 4)).astype(np.float64)  # of many equal scores the first counts
    K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(axis=2)).astype(dtype)
    y, codes = np.where(rng.random(200) < 0.5, 1.0, -1.0), rng.integers(0, groups, 200).astype(np.int8)
    lo, hi, ridge = np.minimum(5.0 * y, 0.0), np.maximum(5.0 * y, 0.0), np.where(X[:, 0] > 0, 0.0, 0.1)
    found = []
    for scans in ("short", "long"):
        s, beta = y.astype(dtype), np.zeros(200)
        told = solve_scans(scans, K, ridge, s, beta, lo, hi, codes, groups, 1e-3, 5000)
        found.append((*told, beta.tolist(), s.tolist()))
    assert found[0] == found[1]
    assert found[0][0] > 100


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("held", [slice(0, 512), slice(300, 900), slice(900, 1200), slice(100, 200)], ids=str)
def test_solve_pairs__leaves_blocks_out_in_which_no_variable_moves(held, groups):
    """The steps are those of the variables that move, alone."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(1200, 3))
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2)).astype(np.float32)
    y, codes = (
        np.where(X[:, 0] + 0.5 * rng.normal(size=1200) > 0, 1.0, -1.0),
        rng.integers(0, groups, 1200).astype(np.int8),
    )
    C = np.full(1200, 2.0)
    C[held] = 0.0
    at = np.flatnonzero(C)
    blocks = lambda values: [values[start : start + pairs.BLOCK] for start in range(0, 1200, pairs.BLOCK)]  # noqa: E731
    found, scores = [], np.empty(0)
    for idx in (np.arange(1200), at):
        lo, hi, s, beta = -C[idx] * (y[idx] < 0), C[idx] * (y[idx] > 0), y[idx].astype(np.float32), np.zeros(len(idx))
        square = np.ascontiguousarray(K[np.ix_(idx, idx)])
        told = solve_pairs(square, np.zeros(len(idx)), s, beta, lo, hi, codes[idx], groups, 1e-3, 10**6)
        whole, score = np.zeros(1200), np.zeros(1200, np.float32)
        whole[idx], score[idx] = beta, s
        found.append((*told, whole.tolist(), score[at].tolist()))
        scores = scores if len(found) > 1 else s
    assert found[0] == found[1]
    kept = [start for start in range(0, 1200, pairs.BLOCK) if not C[start : start + pairs.BLOCK].any()]
    changed = [not np.array_equal(*pair) for pair in zip(blocks(scores), blocks(y), strict=True)]
    assert changed == [start not in kept for start in range(0, 1200, pairs.BLOCK)]


@pytest.mark.parametrize("groups", [1, 2])
def test_solve_pairs__of_a_long_set_the_gap_is_asked_for_now_and_then_and_at_the_end(groups):
    """One group: after eight steps, or as many as are allowed. Two: after each, as one has to be chosen."""
    K, ridge, p, beta, lo, hi, codes = a_program(300, groups, 3)
    for most in (3, 8, 13, 10**6):
        after, s = beta.copy(), scores(K, ridge, p, beta)
        n_iter, gap, _ = solve_pairs(K, ridge, s, after, lo, hi, codes, groups, 1e-3, most)
        assert gap == pytest.approx(gap_of(s, after, lo, hi, codes), abs=1e-12)
        assert n_iter == most if most < 10**6 else (groups == 2 or n_iter % pairs.ASKED == 0)
    assert gap <= 1e-3


def test_solve_pairs__where_no_variable_moves_no_step_is_taken():
    s, nothing = np.ones(900, np.float32), np.zeros(900)
    told = solve_pairs(
        np.eye(900, dtype=np.float32), nothing, s, nothing, nothing, nothing, nothing.astype(np.int8), 1, 1e-3, 9
    )
    assert told == (0, 0.0, False)


@pytest.mark.parametrize("n", [pairs.SHORT, pairs.SHORT + 1, 900, pairs.NEAR + 1])
def test_solve_pairs__of_any_length_ends_at_the_minimum(n):
    """Longer steps than a pair alone would take end at the same place: optimality is told without the scores."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3))
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    lo, hi = np.minimum(2.0 * y, 0.0), np.maximum(2.0 * y, 0.0)
    beta, s = np.zeros(n), y.copy()
    _, gap, unbounded = solve_pairs(K, np.zeros(n), s, beta, lo, hi, np.zeros(n, np.int8), 1, 1e-6, 10**6)
    score = y - K @ beta
    assert (gap <= 1e-6, unbounded) == (True, False)
    assert abs(beta.sum()) < 1e-10
    assert ((lo <= beta) & (beta <= hi)).all()
    assert score[beta < hi].max() - score[beta > lo].min() <= 1e-6 + 1e-9
    np.testing.assert_allclose(s, score, atol=1e-9)


@pytest.mark.parametrize("q", [60, pairs.SHORT + 40, pairs.NEAR + 40])
def test_solve_pairs__of_whole_numbers_takes_the_steps_of_the_numbers_that_they_are(q):
    """With a unit that float32 multiplies by without rounding; a shift of K is left out."""
    rng, unit = np.random.default_rng(q), 2.0**-16
    X = rng.normal(size=(q, 3))
    K = np.rint(np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2)) * 65535)
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=q) > 0, 1.0, -1.0)
    bounds, codes = (np.minimum(2.0 * y, 0.0), np.maximum(2.0 * y, 0.0)), (np.arange(q) % 2).astype(np.int8)
    found = []
    for matrix, more in ((unit * K, ()), (K, (unit,))):
        s, beta = y.astype(np.float32), np.zeros(q)
        square = matrix.astype(np.uint16 if more else np.float32)
        told = solve_pairs(square, np.zeros(q), s, beta, *bounds, codes, 2, 1e-3, 10**6, *more)
        found.append((*told, beta.tobytes(), s.tobytes()))
    assert found[0] == found[1]
    assert found[0][0] > 30


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf], ids=str)
def test_solve_pairs__a_score_that_is_no_number_ends_a_long_set(number, groups, dtype):
    """Steps on it would go on for as many as are allowed; here it may move, and overflows after the first."""
    q = 300
    K, y = np.eye(q, dtype=dtype), np.where(np.arange(q) % 4 < 2, 1.0, -1.0)
    K[:, 5] = K[5] = np.inf
    for s in (np.where(np.arange(q) == 7, number, y), y):
        told = solve_pairs(
            K, np.zeros(q), s.astype(dtype), np.zeros(q), -np.ones(q), np.ones(q), np.arange(q, dtype=np.int8) % groups,
            groups, 1e-3, 10**6, 1.0, np.ones(q),
        )  # fmt: skip
        assert told[0] <= 400
        assert not told[1] <= 1e-3
