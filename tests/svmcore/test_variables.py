"""Loops over the variables of a program against fractions, definitions and whatever else may not depend on them."""

from fractions import Fraction

import numpy as np
import pytest

from svmcore import ResidentGram, SignedQP
from svmcore.errors import InvalidProblem
from svmcore.passes.proof.boxes import box_of_labels, boxes, clipped, costs_of_labels, widened
from svmcore.passes.proof.exact_sums import exact_sum
from svmcore.passes.proof.multipliers import group_ends, jump_multiplier
from svmcore.passes.proof.objectives import dual_sums, losses, weighted
from svmcore.qp import Groups

INF, EPS = np.inf, float(np.finfo(np.float64).eps)


def exactly(values):
    return sum((Fraction(v) for v in np.asarray(values).tolist()), Fraction(0))


def drawn(rng, m, size=3):
    """A random program: (p, output, error, lo, hi, ridge, codes), two groups and variables in none."""
    p, output, error = rng.normal(size=m), rng.normal(size=m), 0.1 * rng.random(m)
    lo, hi = -rng.integers(0, size, m) / 2.0, rng.integers(0, size, m) / 2.0
    ridge = np.where(rng.random(m) < 0.3, rng.integers(1, 5, m) / 4.0, 0.0)
    return p, output, error, lo, hi, ridge, rng.integers(-1, 2, m).astype(np.int8)


# ---- exact sums
@pytest.mark.parametrize("spread", [0, 5, 60, 300])
def test_exact_sum__is_rounded_once_however_far_the_sizes_are_apart(spread):
    rng = np.random.default_rng(spread)
    for m in (1, 2, 7, 100, 1000):
        values = rng.normal(size=m) * 10.0 ** rng.integers(-spread, spread + 1, m)
        values = np.concatenate([values, -values[::3], values[:1] * EPS])
        last = float(rng.normal())
        assert exact_sum(values, last) == float(exactly(values) + Fraction(last))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_exact_sum__half_a_digit_goes_where_what_is_below_it_says(sign):
    half, little = EPS / 2, 2.0**-1000
    for below in (0.0, little, -little):
        for first in (1.0, 1.0 + EPS):
            values = sign * np.array([below, half, first])
            for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
                assert exact_sum(values[order], 0.0) == float(exactly(values))


def test_exact_sum__of_digits_that_no_few_numbers_hold():
    """Forty powers of two, 50 apart, twice, then all but the least taken away again."""
    values = 2.0 ** np.arange(-1000, 1000, 50.0)
    every = np.concatenate([values, values, -values, -values[1:]])
    for order in (np.arange(len(every)), np.random.default_rng(0).permutation(len(every))):
        assert exact_sum(every[order], 0.0) == values[0]
        assert exact_sum(every[order], -values[0]) == 0.0


def test_long_sums__are_off_by_no_more_than_eight_lanes_allow():
    """Numbers that all round the same way, of which a plain sum would lose more."""
    m = 20_000
    beta, ones, zeros = np.full(m, 1.0 / 3.0) + 1e-9 * np.arange(m), np.ones(m), np.zeros(m)
    allowed = EPS * (m / 8.0 + 8.0) * float(exactly(beta))
    assert abs(Fraction(dual_sums(ones, zeros, beta)[0]) - exactly(beta)) <= allowed
    assert abs(Fraction(weighted(beta, ones)) - exactly(beta)) <= allowed
    codes, none = np.full(m, -1, np.int8), np.zeros(1)
    loss, sizes, doubt = losses(beta, zeros, ones, zeros, ones, zeros, codes, none, 1.0)
    assert max(abs(Fraction(loss) - exactly(beta)), abs(Fraction(sizes) - exactly(beta))) <= allowed
    assert doubt == m


# ---- boxes
def test_boxes__say_what_is_there():
    lo, hi, ridge = np.array([0.0, -2.0, -INF, -1.0]), np.array([1.0, 0.0, 0.5, -1.0]), np.array([0.0, 0.0, 2.0, 0.0])
    codes, least, most = np.array([0, 1, -1, 1], np.int8), *np.zeros((2, 2))
    assert boxes(lo, hi, ridge, codes, least, most) == (True, False, True, INF)
    assert (least.tolist(), most.tolist()) == ([0.0, -3.0], [1.0, -1.0])
    assert boxes(lo, hi, 0.0 * ridge, codes, least, most)[:3] == (True, True, False)
    assert boxes(lo[:2], hi[:2], ridge[:2], codes[:2], least, most) == (True, False, False, 3.0)


@pytest.mark.parametrize("wrong", ["lo", "hi", "ridge"])
@pytest.mark.parametrize("value", [np.nan, 9.0, -9.0])
def test_boxes__no_number_is_no_box(wrong, value):
    given = {"lo": np.zeros(3), "hi": np.ones(3), "ridge": np.zeros(3)}
    given[wrong][1] = value
    valid = {"lo": value == -9.0, "hi": value == 9.0, "ridge": value == 9.0}[wrong]
    assert boxes(*given.values(), np.zeros(3, np.int8), *np.zeros((2, 1)))[0] == valid


@pytest.mark.parametrize("codes", [[0, 1, 2], [0, -2, 1], [0, 1]])
def test_groups__a_code_of_no_group_is_refused(codes):
    with pytest.raises(InvalidProblem, match="codes of groups must be"):
        SignedQP(
            ResidentGram(np.eye(3)), np.ones(3), np.zeros(3), np.ones(3), groups=Groups((0.5, 0.5), np.array(codes))
        )


def test_widened__is_how_much_or_nothing():
    beta, lo, hi = np.array([0.0, 0.5, 1.0]), np.zeros(3), np.ones(3)
    assert widened(beta, lo, hi, lo, hi) == 1.0
    assert widened(beta, lo, hi, lo, np.array([3.0, 2.0, 1.0])) == 3.0
    assert widened(beta, lo, hi, lo, np.array([1.0, 1.0, 2.0])) == 0.0  # the last one was held by its bound
    assert widened(beta, lo, hi, np.array([-1.0, 0.0, 0.0]), hi) == 0.0
    assert widened(beta, lo, hi, np.array([0.0, -1.0, 0.0]), hi) == 2.0
    assert widened(beta, lo, hi, lo, np.array([0.5, 1.0, 1.0])) == 0.0  # narrower


def test_clipped__is_the_nearest_and_its_sums():
    beta, lo, hi = np.array([-2.0, 0.25, 5.0, -1.0]), np.array([-1.0, 0, 0, -3]), np.ones(4)
    sums, sizes = np.zeros((2, 2))
    found = clipped(beta, lo, hi, np.array([0, 0, 1, -1], np.int8), sums, sizes)
    np.testing.assert_array_equal(found, np.clip(beta, lo, hi))
    assert (sums.tolist(), sizes.tolist()) == ([-0.75, 1.0], [1.25, 1.0])


# ---- scores
def test_group_ends__by_their_definition():
    rng = np.random.default_rng(1)
    for _ in range(50):
        score, error = rng.normal(size=12), rng.random(12)
        lo, hi, codes = np.zeros(12), np.ones(12), rng.integers(-1, 2, 12).astype(np.int8)
        beta, ends = rng.choice([0.0, 0.5, 1.0], 12), np.empty((3, 6))
        assert group_ends(score, error, beta, lo, hi, codes, ends) == (0.0, True)
        for g, row in zip((0, 1, -1), ends, strict=True):
            up, down = (codes == g) & (beta < 1.0), (codes == g) & (beta > 0.0)
            expected = [score[up].max(initial=-INF), score[down].min(initial=INF)]
            expected += [(score + error)[up].max(initial=-INF), (score - error)[down].min(initial=INF)]
            np.testing.assert_array_equal(row[:4], expected)
            assert row[4] == pytest.approx(score[up & down].sum(), abs=1e-14)
            assert row[5] == (up & down).sum()


def test_group_ends__who_is_outside_and_what_is_no_number():
    score, zeros, codes = np.array([1.0, 2.0, 3.0]), np.zeros(3), np.zeros(3, np.int8)
    about = np.array([0.5, -0.25, 1.125]), np.zeros(3), np.ones(3), codes, np.empty((2, 6))
    assert group_ends(score, zeros, *about) == (0.25, True)
    for bad in (np.nan, INF, -INF):
        assert group_ends(np.array([1.0, bad, 3.0]), zeros, *about)[1] is False


@pytest.mark.parametrize("ties", [False, True])
def test_jump_multiplier__no_place_of_a_jump_is_better(ties):
    rng = np.random.default_rng(2)
    for m in (1, 2, 3, 10, 200):
        p, output, _, lo, hi, _, codes = drawn(rng, m)
        if ties:
            p, output = np.rint(p), np.zeros(m)
        lo[0], hi[0], codes[0] = -1.0, 1.0, 0
        inside = (codes == 0) & (hi > lo)
        total = float(rng.uniform(lo[codes == 0].sum(), hi[codes == 0].sum()))
        b = jump_multiplier(p, output, lo, hi, codes, 0, total)

        def value(b, t=(p - output)[codes == 0], lo=lo[codes == 0], hi=hi[codes == 0], total=total):
            return np.maximum(hi * (t - b), lo * (t - b)).sum() + b * total

        assert b in (p - output)[inside]
        assert value(b) <= min(value(t) for t in (p - output)[inside]) + 1e-12 * m


@pytest.mark.parametrize("order", ["up", "down", "pipes", "equal"])
def test_jump_multiplier__no_order_of_rows_is_slow(order):
    """A million rows in any order: work that grows with the square would not end."""
    m = 1_000_000
    p = {
        "up": np.arange(m, dtype=float),
        "down": -np.arange(m, dtype=float),
        "pipes": np.minimum(np.arange(m), m - np.arange(m)).astype(float),
        "equal": np.ones(m),
    }[order]
    b = jump_multiplier(p, np.zeros(m), np.zeros(m), np.ones(m), np.zeros(m, np.int8), 0, float(m // 4))
    assert b == np.sort(p)[m - m // 4 - 1]


# ---- objectives
def h(r, lo, hi, ridge):
    """The largest r t - ridge t^2 / 2 of a box, in fractions."""
    r, ridge = Fraction(r), Fraction(ridge)
    places = [Fraction(lo), Fraction(hi)]
    if ridge > 0 and places[0] <= r / ridge <= places[1]:
        places.append(r / ridge)
    return max(r * t - ridge * t * t / 2 for t in places)


def test_losses__are_what_they_are_defined_as_and_move_no_further_than_their_doubt():
    rng = np.random.default_rng(3)
    for _ in range(100):
        p, output, error, lo, hi, ridge, codes = drawn(rng, 9)
        b = np.append(rng.normal(size=2), 0.0)

        def exact(f, p=p, lo=lo, hi=hi, ridge=ridge):
            return sum(h(Fraction(p[v]) - f[v], lo[v], hi[v], ridge[v]) for v in range(9))

        f = [Fraction(u) + Fraction(b[c]) for u, c in zip(output, codes, strict=True)]
        loss, sizes, doubt = losses(p, output, error, lo, hi, ridge, codes, b, 1.0)
        assert abs(loss - float(exact(f))) <= 20 * EPS * max(sizes, 1.0)
        for moved in rng.uniform(-1.0, 1.0, (20, 9)):
            away = [u + Fraction(e) * Fraction(m) for u, e, m in zip(f, error, moved, strict=True)]
            assert abs(float(exact(away) - exact(f))) <= doubt * (1 + 1e-12)


def test_losses__a_variable_without_bound_has_none_and_no_part_in_the_doubt():
    lo, hi, ridge = np.array([0.0, -1.0]), np.array([INF, 0.0]), np.zeros(2)
    about = np.array([0.25, 0.25]), lo, hi, ridge, np.array([-1, -1], np.int8), np.zeros(1), 0.5
    assert losses(np.array([3.0, -2.0]), np.array([2.0, 1.0]), *about) == (2.5, 3.0, 0.25 + 0.5 * EPS)


def test_losses__the_doubt_covers_what_rounding_takes_from_a_residual():
    """0.75 + (0.25 - 2^-55) rounds to 1: of an output without an error there seems to be no loss at all, times C."""
    b, C = 0.25 - 2.0**-55, 1e4
    about = np.zeros(1), np.zeros(1), np.full(1, C), np.zeros(1), np.zeros(1, np.int8), np.array([b, 0.0])
    loss, _, doubt = losses(np.ones(1), np.full(1, 0.75), *about, 1.0)
    true = Fraction(C) * (1 - (Fraction(0.75) + Fraction(b)))
    assert loss == 0.0
    assert loss < true <= loss + doubt <= 4 * true


def test_weighted__an_error_that_nobody_weighs_may_be_infinite():
    assert weighted(np.array([0.0, -2.0, 0.5]), np.array([INF, 1.0, 4.0])) == 4.0


# ---- labels
@pytest.mark.parametrize(
    ("y", "C", "told"),
    [
        ([1, -1, 0], [1, 2, 3], (True, True)),
        ([1, -1, 0.5], [1, 2, 3], (False, True)),
        ([1, -1, np.nan], [1, 2, 3], (False, True)),
        ([1, -1, 0], [1, -2, 3], (True, False)),
        ([1, -1, 0], [0, 0, 0], (True, False)),
        ([1, -1, 0], [1, np.nan, 3], (True, False)),
        ([1, -1, 0], [1, INF, 3], (True, True)),
    ],
)
def test_costs_of_labels__what_is_refused(y, C, told):
    y, C = np.array(y, dtype=np.float64), np.array(C, dtype=np.float64)
    given = C.copy()
    assert costs_of_labels(y, C) == told
    np.testing.assert_array_equal(C, np.where(y == 0, 0.0, given))


def test_box_of_labels__on_the_side_of_the_label_without_negative_zeros():
    p, lo, hi = np.empty((3, 4))
    box_of_labels(np.array([1.0, -1.0, 0.0, -1.0]), np.array([2.0, 3.0, 0.0, 0.0]), p, lo, hi)
    assert (p.tolist(), lo.tolist(), hi.tolist()) == ([1, -1, -1, -1], [0, -3, 0, 0], [2, 0, 0, 0])
    assert not np.signbit(lo[[0, 2, 3]]).any()
