"""The primal by its definition, in fractions, and multipliers that no other value beats."""

from fractions import Fraction

import numpy as np
import pytest

from svmcore import ResidentGram, SignedQP
from svmcore.primal import at_groups, best_multiplier, primal_at, slope
from svmcore.qp import NO_GROUPS, Groups

INF = np.inf


def program(p, lo, hi, ridge=None, groups=NO_GROUPS, **more):
    p, lo, hi = (np.array(v, dtype=np.float64) for v in (p, lo, hi))
    ridge = None if ridge is None else np.array(ridge, dtype=np.float64)
    n = len(np.unique(more["rows"])) if "rows" in more else len(p)
    return SignedQP(ResidentGram(np.eye(n)), p, lo, hi, ridge, groups, **more)


def h(r, lo, hi, ridge):
    """The largest r t - ridge t^2 / 2 of a box, in fractions."""
    r, ridge = Fraction(r), Fraction(ridge)
    places = [Fraction(end) for end in (lo, hi) if np.isfinite(end)]
    if ridge > 0 and lo <= r / ridge <= hi:
        places.append(r / ridge)
    if ridge == 0 and r == 0:
        places.append(Fraction(0))
    return max(r * t - ridge * t * t / 2 for t in places)


def primal(qp, outputs, norm2, multipliers):
    """P(b) of `svmcore.qp`, in fractions."""
    u, codes = qp.at_variables(np.asarray(outputs)), qp.codes
    b = [Fraction(0) if c < 0 else Fraction(multipliers[c]) for c in codes]
    losses = [h(Fraction(qp.p[v]) - Fraction(u[v]) - b[v], qp.lo[v], qp.hi[v], qp.ridge[v]) for v in range(qp.m)]
    sums = [Fraction(m) * Fraction(d) for m, d in zip(multipliers, qp.groups.sums, strict=True)]
    return Fraction(norm2) / 2 + sum(losses) + sum(sums)


# ---- the primal
def test_slope__is_where_the_loss_is_taken():
    residual = np.array([2.0, -2.0, 0.0, 0.5, -0.5, 9.0, -9.0, 9.0, 0.0])
    lo, hi = [-1.0] * 7 + [0.0, 0.5], [3.0] * 7 + [INF, 3.0]
    qp = program([0] * 9, lo, hi, [0, 0, 0, 0.25, 0.25, 0.25, 0.25, 2.0, 0.0])
    np.testing.assert_array_equal(slope(qp, residual), [3.0, -1.0, 0.0, 2.0, -1.0, 3.0, -1.0, 4.5, 0.5])


def test_at_groups__a_variable_in_no_group_has_none():
    codes = np.array([0, -1, 1, 0], np.int8)
    qp = program([0] * 4, [0] * 4, [1] * 4, groups=Groups((1.0, 0.5), codes))
    np.testing.assert_array_equal(at_groups(qp, np.array([3.0, 5.0])), [3.0, 0.0, 5.0, 3.0])
    np.testing.assert_array_equal(at_groups(program([0] * 2, [0] * 2, [1] * 2), np.empty(0)), [0.0, 0.0])
    one = program([0] * 2, [0] * 2, [1] * 2, groups=Groups((1.0,)))
    np.testing.assert_array_equal(at_groups(one, np.array([7.0])), [7.0, 7.0])


@pytest.mark.parametrize("kind", ["none", "one", "two", "rows"])
def test_primal_at__is_its_definition(kind):
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, lo, hi = rng.integers(-8, 9, 6) / 4, -rng.integers(0, 5, 6) / 2, rng.integers(1, 5, 6) / 2
        ridge = np.array([0.0, 0.5, 0.0, 2.0, 0.0, 1.0])
        hi[3], lo[5] = INF, -INF
        groups, more = NO_GROUPS, {}
        if kind == "one":
            groups = Groups((0.5,))
        elif kind == "two":
            groups = Groups((0.5, -0.25), np.array([0, 1, -1, 0, 1, 1], np.int8))
        elif kind == "rows":
            more = {"rows": np.array([0, 1, 2, 0, 1, 2])}
        qp = program(p, lo, hi, ridge, groups, **more)
        outputs, b = rng.integers(-8, 9, qp.source.n) / 4, rng.integers(-4, 5, len(groups.sums)) / 2
        assert primal_at(qp, outputs, 1.5, b) == float(primal(qp, outputs, 1.5, b))


def test_primal_at__a_hard_margin_shrinks_w_until_no_unbounded_variable_has_a_loss():
    """Labels + - +, margins 4, 2 and -1 of which the last has a bound: half of w does."""
    qp = program([1, -1, 1], [0, -INF, 0], [INF, 0, 3])
    scale, outputs = 0.5, np.array([4.0, -2.0, -1.0])
    assert primal_at(qp, outputs, 8.0, np.empty(0)) == 0.5 * scale**2 * 8.0 + 3.0 * (1.0 + scale)
    grouped = program([1, -1, 1], [0, -INF, 0], [INF, 0, 3], groups=Groups((0.25,)))
    value = primal_at(grouped, outputs - 1.0, 8.0, np.array([1.0]))
    assert value == 0.5 * scale**2 * 8.0 + 3.0 * (1.0 + scale) + scale * 0.25


def test_primal_at__a_hard_margin_stretches_a_w_that_is_too_short():
    qp = program([1, -1], [0, -INF], [INF, 0])
    assert primal_at(qp, np.array([0.5, -0.25]), 2.0, np.empty(0)) == 0.5 * 16.0 * 2.0


def test_primal_at__is_infinite_where_no_scale_will_do():
    qp = program([1, -1], [0, -INF], [INF, 0])
    assert primal_at(qp, np.array([1.0, 0.0]), 2.0, np.empty(0)) == INF
    assert primal_at(qp, np.array([-1.0, -1.0]), 2.0, np.empty(0)) == INF
    nothing_needed = program([0, -1], [0, -INF], [INF, 0])  # p = 0: any w with a margin >= 0
    assert primal_at(nothing_needed, np.array([0.0, -2.0]), 2.0, np.empty(0)) == 0.25
    assert primal_at(program([1, 0], [0, -INF], [INF, 0]), np.array([2.0, 0.0]), 2.0, np.empty(0)) == 0.25


@pytest.mark.parametrize(
    ("p", "f", "scale"),
    [
        ([1.0, 1.0], [0.5, 0.25], 4.0),  # the shorter margin
        ([1.0, -1.25], [0.5, -0.5], 2.0),  # at least 2, at most 2.5
        ([1.0, -1.0], [0.5, -0.5], 2.0),  # at least and at most 2
        ([1.0, -0.5], [0.5, -0.5], INF),  # at least 2, at most 1
        ([-1.0, -2.0], [1.0, 0.5], 0.0),  # nothing is needed
        ([1.0, 1.0], [2.0, 0.0], INF),  # a margin that no scale moves
        ([1.0, 0.0], [2.0, 0.0], 0.5),
        ([1.0, -1.0], [1.0, 0.0], 1.0),
        ([1.0, 1.0], [1.0, -0.5], INF),
    ],
)
def test_primal_at__of_a_hard_margin_is_that_of_the_shortest_w_that_has_it(p, f, scale):
    expected = 0.5 * scale**2 * 3.0
    for sign, lo, hi in ((1.0, [0, 0], [INF, INF]), (-1.0, [-INF, -INF], [0, 0])):
        qp = program(sign * np.array(p), lo, hi)
        assert primal_at(qp, sign * np.array(f), 3.0, np.empty(0)) == expected


# ---- the best multiplier
def value_at(qp, outputs, b):
    """The part of P that depends on b of the only group, in float64."""
    r = qp.p - qp.at_variables(outputs) - b
    t = np.where(r > 0, qp.hi, qp.lo)
    soft = qp.ridge > 0
    t[soft] = r[soft] / qp.ridge[soft]
    t = np.where(r == 0, np.clip(0.0, qp.lo, qp.hi), np.clip(t, qp.lo, qp.hi))
    return float(r @ t - 0.5 * (qp.ridge * t) @ t + b * qp.groups.sums[0])


def assert_best(qp, outputs):
    b = best_multiplier(qp, outputs, 0)
    here, spread = value_at(qp, outputs, b), 1.0 + np.abs(qp.p - qp.at_variables(outputs)).max()
    for step in (1e-6, 1e-3, 0.1, 1.0, 10.0):
        for side in (-1, 1):
            other = value_at(qp, outputs, b + side * step * spread)
            assert here <= other + 1e-12 * max(1.0, abs(other)), (b, side * step * spread)
    return b


@pytest.mark.parametrize("soft", ["no ridge", "ridge", "some ridge", "ridge without bounds", "ridge and one side"])
@pytest.mark.parametrize("total", [-1.5, -0.3, 0.0, 0.7, 2.5])
def test_best_multiplier__no_other_is_better(soft, total):
    rng = np.random.default_rng(1)
    for trial in range(25):
        m = 1 + trial % 7
        p, outputs = rng.normal(size=m), rng.normal(size=m)
        lo, hi = -rng.uniform(0.0, 2.0, m), rng.uniform(0.0, 2.0, m)
        ridge = rng.uniform(0.1, 2.0, m) * {"no ridge": 0.0, "some ridge": rng.random(m) < 0.5}.get(soft, 1.0)
        if soft == "ridge without bounds":
            lo[:], hi[:] = -INF, INF
        elif soft == "ridge and one side":
            side = rng.random(m) < 0.5
            lo, hi = np.where(side, 0.0, -INF), np.where(side, INF, 0.0)
        hi[0], lo[0] = max(hi[0], 2.6), min(lo[0], -2.6)
        qp = program(p, lo, hi, ridge, Groups((total,)))
        assert_best(qp, outputs)


def test_best_multiplier__by_hand():
    # two of one side and three of the other: at the median of 1, 1, -1 - 2, ...
    five = program([1.0, 1.0, -1.0, -1.0, -1.0], [0, 0, -1, -1, -1], [1, 1, 0, 0, 0], groups=Groups((0.0,)))
    assert best_multiplier(five, np.zeros(5), 0) == -1.0
    # least squares without bounds: the mean of p - u, and a sum d lowers it by d / sum(1 / ridge)
    free = program([1.0, 2.0, 6.0], [-INF] * 3, [INF] * 3, [0.5] * 3, Groups((0.0,)))
    assert best_multiplier(free, np.zeros(3), 0) == pytest.approx(3.0)
    free = program([1.0, 2.0, 6.0], [-INF] * 3, [INF] * 3, [0.5] * 3, Groups((3.0,)))
    assert best_multiplier(free, np.zeros(3), 0) == pytest.approx(2.5)


def test_best_multiplier__variables_that_cannot_move_add_to_the_sum_alone():
    fixed = program([5.0, 1.0, 3.0], [0.5, 0, 0], [0.5, 1, 1], groups=Groups((1.5,)))
    assert 1.0 <= assert_best(fixed, np.zeros(3)) <= 3.0
    sums = {}
    for total in (0.75, 1.25, 2.25):  # 0.25, 0.75 and 1.75 are left for the two
        sums[total] = assert_best(
            program([5.0, 1.0, 3.0], [0.5, 0, 0], [0.5, 1, 1], groups=Groups((total,))), np.zeros(3)
        )
    assert sums == {0.75: 3.0, 1.25: 3.0, 2.25: 1.0}
    held = program([5.0, 4.0], [0.5, 0.25], [0.5, 0.25], groups=Groups((0.75,)))
    assert best_multiplier(held, np.zeros(2), 0) == 0.0


def test_best_multiplier__each_group_alone():
    codes = np.array([0, 1, 0, 1, -1], np.int8)
    groups = Groups((0.25, 1.75), codes)
    qp = program([1.0, 1.0, 3.0, 3.0, 99.0], [0] * 5, [1] * 5, groups=groups)
    assert (best_multiplier(qp, np.zeros(5), 0), best_multiplier(qp, np.zeros(5), 1)) == (3.0, 1.0)
    rows = program([1.0, 3.0], [0, 0], [1, 1], groups=Groups((0.25,)), rows=np.array([0, 0]))
    assert best_multiplier(rows, np.array([0.5]), 0) == 2.5


def test_best_multiplier__between_unbounded_variables_is_the_middle():
    """t = p - u: one that may grow for ever needs b >= t, one that may shrink b <= t."""
    lo, hi = [0, 0, -INF, -INF], [INF, INF, 0, 0]
    p = np.array([1.0, 2.0, 5.0, 7.0])
    assert best_multiplier(program(p, lo, hi, groups=Groups((0.0,))), np.zeros(4), 0) == 3.5
    crossed = program(-p, lo, hi, groups=Groups((0.0,)))  # where it would be
    assert best_multiplier(crossed, np.zeros(4), 0) == -4.0
    grow = program(p[:2], lo[:2], hi[:2], groups=Groups((0.0,)))
    assert best_multiplier(grow, np.array([0.0, 0.5]), 0) == 1.5
    shrink = program(p[2:], lo[2:], hi[2:], groups=Groups((0.0,)))
    assert best_multiplier(shrink, np.zeros(2), 0) == 5.0
    mixed = program(p, [0, 0, -INF, -2], [INF, 1, 0, 0], groups=Groups((0.0,)))  # bounded ones have no say
    assert best_multiplier(mixed, np.zeros(4), 0) == 3.0
    ridged = program(p, lo, hi, [0, 0, 0, 0.5], groups=Groups((0.0,)))
    assert best_multiplier(ridged, np.zeros(4), 0) == 3.5


def test_best_multiplier__a_sum_at_the_end_of_what_the_box_allows():
    for total in (0.0, 2.0):
        qp = program([1.0, 3.0], [0, 0], [1, 1], groups=Groups((total,)))
        b = assert_best(qp, np.zeros(2))
        assert b >= 3.0 if total == 0.0 else b <= 1.0
    for total in (0.0, 2.0):
        qp = program([1.0, 3.0], [0, 0], [1, 1], [0.5, 0.25], Groups((total,)))
        b = assert_best(qp, np.zeros(2))
        assert b >= 3.0 if total == 0.0 else b <= 0.5


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_best_multiplier__a_sum_that_rounding_puts_outside_the_box(ridge):
    """No b is best: the ends of what changes anything stand for it."""
    for sign in (1.0, -1.0):
        groups = Groups((sign * 3.0 * (1 + 5e-10),))
        b = best_multiplier(program([1.0, 3.0, 2.0], [-1] * 3, [1] * 3, [ridge] * 3, groups), np.zeros(3), 0)
        assert b == (1.0 - ridge if sign > 0 else 3.0 + ridge)


def test_best_multiplier__copies_of_one_row_jump_together():
    for copies in (2, 5):
        qp = program([1.0] * copies + [2.0], [0] * (copies + 1), [1] * (copies + 1), groups=Groups((1.5,)))
        assert best_multiplier(qp, np.zeros(copies + 1), 0) == 1.0


@pytest.mark.parametrize("ridge", [None, [0.5, 0.5]], ids=["hinge", "squared"])
def test_best_multiplier__where_no_output_is_finite_is_nothing(ridge):
    """Every b is as good: no jump and no slope says where the least is."""
    qp = program([1.0, -1.0], [0.0, -1.0], [1.0, 0.0], ridge, Groups((0.0,)))
    assert best_multiplier(qp, np.array([-INF, -INF]), 0) == 0.0
