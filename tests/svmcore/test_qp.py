"""The program itself: what it refuses, which variable is on which row, and points of its box with the right sums."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from svmcore import ResidentGram, SignedQP
from svmcore.errors import InvalidProblem
from svmcore.passes.proof.exact_sums import exact_sum, two_sum
from svmcore.qp import NO_GROUPS, Groups

INF = np.inf
K3 = ResidentGram(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 4.0]]))
TWO_A_ROW = np.array([0, 1, 2, 0, 1])  # variables 3 and 4 share rows with 0 and 1


def program(lo, hi, groups=NO_GROUPS, source=None, **more):
    lo, hi = np.array(lo, dtype=np.float64), np.array(hi, dtype=np.float64)
    source = ResidentGram(np.eye(len(lo))) if source is None else source
    return SignedQP(source, np.ones(len(lo)), lo, hi, groups=groups, **more)


# ---- what is refused
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": np.ones(2)}, r"one variable per row of K, 3; given 2"),
        ({"lo": np.zeros(2)}, r"must all be \(3,\)"),
        ({"hi": np.zeros(4)}, r"must all be \(3,\)"),
        ({"ridge": np.zeros(2)}, r"must all be \(3,\)"),
        ({"lo": np.array([0.0, 2.0, 0.0])}, "lo <= hi"),
        ({"ridge": np.array([0.0, -1e-9, 0.0])}, "every ridge must be >= 0"),
        ({"groups": Groups((3.1,))}, r"sum of group 0 must be in \[0, 3\]; given 3.1"),
        ({"groups": Groups((-0.1,))}, r"sum of group 0 must be in \[0, 3\]; given -0.1"),
        ({"groups": Groups((0.5, 1.5), np.array([0, 0, 1], np.int8))}, r"sum of group 1 must be in \[0, 1\]"),
        ({"p": np.ones(4), "rows": np.array([0, 1, 2])}, r"must all be \(4,\)"),
    ],
)
def test_signed_qp__refuses_what_is_no_program(change, message):
    given = {"source": K3, "p": np.ones(3), "lo": np.zeros(3), "hi": np.ones(3), "groups": Groups((1.0,))}
    SignedQP(**given)
    with pytest.raises(InvalidProblem, match=message):
        SignedQP(**given | change)


def test_signed_qp__takes_the_edges_of_what_is_allowed():
    assert program([1.0, 1.0], [1.0, 1.0], Groups((2.0,))).m == 2  # every box a point
    for total in (300.0 * (1 + 5e-10), 300.0, -300.0, -300.0 * (1 + 5e-10)):  # what rounding does to a sum of bounds
        program([-100.0] * 3, [100.0] * 3, Groups((total,)))
    for total in (300.0 * (1 + 2e-9), -300.0 * (1 + 2e-9)):
        with pytest.raises(InvalidProblem, match="sum of group 0"):
            program([-100.0] * 3, [100.0] * 3, Groups((total,)))
    for lo, hi in (([0.0, 0.0], [1.0, 1.0]), ([-1.0, -1.0], [0.0, 0.0])):  # bounds that allow the sum and no other
        program(lo, hi, Groups((0.0,)))
    assert not program([0.0], [1.0], source=ResidentGram(np.zeros((1, 1)))).diagonal.any()


def test_signed_qp__is_a_value_that_nobody_changes():
    qp = program([0.0], [1.0], Groups((0.5,), np.zeros(1, np.int8)))
    for value, name in ((qp, "hi"), (qp.groups, "sums")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, 2.0)
    assert len({qp, qp.groups, dataclasses.replace(qp)}) == 3  # known by identity: arrays do not compare


@pytest.mark.parametrize("value", [INF, -INF, np.nan])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_signed_qp__refuses_a_kernel_that_overflows(value, dtype):
    K = np.diag(np.array([1.0, value], dtype))
    with pytest.raises(InvalidProblem, match="overflows"):
        program([0, 0], [1, 1], source=ResidentGram(K))


def test_signed_qp__a_diagonal_up_to_the_largest_number_is_taken():
    class Rising(ResidentGram):
        def diagonal(self):
            return np.array([1.0, self.largest])

    source = Rising(np.eye(2, dtype=np.float32))
    source.largest = float(np.finfo(np.float32).max)
    assert program([0, 0], [1, 1], source=source).diagonal[1] == source.largest
    source.largest *= 1.01  # fits float64, but not the columns
    with pytest.raises(InvalidProblem, match="overflows"):
        program([0, 0], [1, 1], source=source)


# ---- variables, rows, groups
def test_signed_qp__one_variable_a_row():
    qp = SignedQP(K3, np.ones(3), np.zeros(3), np.ones(3), shift=0.5)
    np.testing.assert_array_equal(qp.diagonal, [2.5, 3.5, 4.5])
    np.testing.assert_array_equal(dataclasses.replace(qp, shift=0.0).diagonal, [2.0, 3.0, 4.0])
    np.testing.assert_array_equal(SignedQP(K3, np.ones(3), np.zeros(3), np.ones(3)).diagonal, [2.0, 3.0, 4.0])
    np.testing.assert_array_equal(qp.ridge, np.zeros(3))
    values, idx = np.array([3.0, 4.0, 5.0]), np.array([2, 0])
    np.testing.assert_array_equal(qp.at_variables(values), values)
    np.testing.assert_array_equal(qp.at_rows(values), values)
    np.testing.assert_array_equal(qp.rows_of(idx), idx)


def test_signed_qp__two_variables_on_a_row():
    qp = SignedQP(K3, np.ones(5), np.zeros(5), np.ones(5), rows=TWO_A_ROW, shift=1.0)
    np.testing.assert_array_equal(qp.diagonal, [3.0, 4.0, 5.0, 3.0, 4.0])
    np.testing.assert_array_equal(qp.at_variables(np.array([3.0, 4.0, 5.0])), [3.0, 4.0, 5.0, 3.0, 4.0])
    np.testing.assert_array_equal(qp.at_rows(np.array([1.0, 2.0, 4.0, 8.0, -16.0])), [9.0, -14.0, 4.0])
    np.testing.assert_array_equal(qp.rows_of(np.array([4, 2])), [1, 2])
    some = SignedQP(K3, np.ones(1), np.zeros(1), np.ones(1), rows=np.array([1]))
    np.testing.assert_array_equal(some.at_rows(np.array([7.0])), [0.0, 7.0, 0.0])  # rows without a variable too


def test_signed_qp__unbounded_is_without_a_bound_and_without_a_ridge():
    lo, hi = np.array([-INF, 0.0, 0.0, -INF, 0.0]), np.array([0.0, INF, 1.0, 0.0, INF])
    qp = SignedQP(K3, np.ones(5), lo, hi, ridge=np.array([0.0, 0.0, 0.0, 0.1, 0.1]), rows=TWO_A_ROW)
    np.testing.assert_array_equal(qp.unbounded, [True, True, False, False, False])


def test_groups__codes_and_members():
    codes = np.array([0, -1, 1, 0], np.int8)
    two = program([0] * 4, [1] * 4, Groups((1.0, 0.5), codes))
    np.testing.assert_array_equal(two.codes, codes)
    np.testing.assert_array_equal(two.groups.members(0, 4), [0, 3])
    np.testing.assert_array_equal(two.groups.members(1, 4), [2])
    one, none = program([0] * 3, [1] * 3, Groups((1.0,))), program([0] * 3, [1] * 3)
    np.testing.assert_array_equal(one.codes, [0, 0, 0])
    np.testing.assert_array_equal(none.codes, [-1, -1, -1])
    np.testing.assert_array_equal(np.arange(3)[one.groups.members(0, 3)], [0, 1, 2])


# ---- points of the box
def test_feasible__without_groups_is_the_nearest_point_of_the_box():
    qp = program([-1, 0, 1], [0, 2, 1])
    np.testing.assert_array_equal(qp.feasible(None), [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(qp.feasible([-3.0, 3.0, 5.0]), [-1.0, 2.0, 1.0])


def test_feasible__leaves_what_is_right_as_it_is_and_copies():
    given = np.array([0.1, 0.2, -0.3])
    for total in (0.0, 1e-13):
        found = program([-1] * 3, [1] * 3, Groups((total,))).feasible(given)
        np.testing.assert_array_equal(found, given)
        assert found is not given
    moved = program([-1] * 3, [1] * 3, Groups((1e-9,))).feasible(given)
    assert moved.sum() == pytest.approx(1e-9, abs=1e-16)


@pytest.mark.parametrize(
    ("beta", "lo", "hi", "total", "expected"),
    [
        # room of 0.5 and 1 up: 1.5 in all, of which half is used
        ([0.5, 0.0], [0, 0], [1, 1], 1.25, [0.75, 0.5]),
        # towards 0 first, where that is enough: the negative one stays
        ([0.5, 0.25, -0.125], [-1] * 3, [1] * 3, 0.25, [0.25, 0.125, -0.125]),
        ([-0.5, -0.25, 0.125], [-1] * 3, [1] * 3, -0.25, [-0.25, -0.125, 0.125]),
        # just enough
        ([0.5, 0.25], [-1, -1], [1, 1], 0.0, [0.0, 0.0]),
        # not enough: all of them, by the room down
        ([0.5, 0.0], [-1, -0.5], [1, 1], -0.5, [-0.25, -0.25]),
        ([0.0, 0.0], [-1, -0.5], [1, 1], -0.75, [-0.5, -0.25]),
        # every room used up
        ([0.0, 0.5], [0, 0], [1, 1], 2.0, [1.0, 1.0]),
        # no room at all in one of them
        ([1.0, 0.0], [1, 0], [1, 1], 1.5, [1.0, 0.5]),
        # nor in any, and more is asked than rounding of the bounds allows
        ([1.0, 0.5], [0, 0], [1, 0.5], 1.5 * (1 + 5e-10), [1.0, 0.5]),
        # without bounds: in equal parts
        ([0.0, 0.0], [0, 0], [INF, INF], 3.0, [1.5, 1.5]),
        ([0.0, 0.0], [-INF, -INF], [0, 0], -3.0, [-1.5, -1.5]),
        # some of them without: those carry it
        ([0.0, 0.0], [0, 0], [INF, 0.5], 10.0, [10.0, 0.0]),
    ],
)
def test_feasible__repairs_a_sum_by_the_room_that_there_is(beta, lo, hi, total, expected):
    np.testing.assert_allclose(program(lo, hi, Groups((total,))).feasible(beta), expected, atol=1e-15)


def test_feasible__repairs_each_group_alone():
    codes = np.array([0, 1, 0, 1, -1], np.int8)
    qp = program([0] * 5, [1] * 5, Groups((1.0, 0.5), codes))
    np.testing.assert_array_equal(qp.feasible(np.zeros(5)), [0.5, 0.25, 0.5, 0.25, 0.0])
    np.testing.assert_array_equal(qp.feasible([0.5, 0.25, 0.5, 0.25, 0.75]), [0.5, 0.25, 0.5, 0.25, 0.75])
    np.testing.assert_array_equal(qp.feasible(None), [1.0, 0.5, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("lo", "hi", "total", "expected"),
    [
        ([0, 0, 0], [1, 0.5, 1], 1.25, [1.0, 0.25, 0.0]),
        ([0, 0, 0], [1, 0.5, 1], 2.5, [1.0, 0.5, 1.0]),
        ([-1, -0.5, -1], [0, 0, 0], -1.25, [-1.0, -0.25, 0.0]),
        ([-1, -0.5, -1], [2, 2, 2], -0.5, [-0.5, 0.0, 0.0]),
        ([-0.25, -0.5, -1], [2, 2, 2], -0.5, [-0.25, -0.25, 0.0]),
        ([-1, -0.5, -1], [2, 2, 2], -1.0, [-1.0, 0.0, 0.0]),
        ([0.25, 0, 0], [1, 1, 1], 1.5, [1.0, 0.5, 0.0]),  # what the box asks for is there already
        ([-1, -1, -1], [-0.25, 0, 0], -1.5, [-1.0, -0.5, 0.0]),
        ([0, 0, 0.25], [1, 0.5, 1], 1.25, [1.0, 0.0, 0.25]),
        ([-1, -0.5, -1], [0, 0, -0.25], -1.25, [-1.0, 0.0, -0.25]),
        ([-1, 0, 0], [1, 1, 1], 0.0, [0.0, 0.0, 0.0]),
        ([0, 0, 0], [1, INF, 1], 1.5, [0.0, 1.5, 0.0]),  # who has no bound carries it all
        ([-INF, 0, 0], [1, 1, 1], 1.5, [1.0, 0.5, 0.0]),
        ([-INF, -1, 0], [0, 1, 1], -1.5, [-1.5, 0.0, 0.0]),
    ],
)
def test_feasible__from_nothing_the_first_ones_are_put_on_their_bounds(lo, hi, total, expected):
    np.testing.assert_array_equal(program(lo, hi, Groups((total,))).feasible(None), expected)


# ---- sums to the last bit
def total_of(values):
    return sum(map(Fraction, values.tolist()))


@pytest.mark.parametrize("total", [0.0, 0.75])
def test_mended__the_sum_is_right_to_the_last_bit(total):
    rng, off = np.random.default_rng(0), 0
    for _ in range(50):
        lo, hi = -rng.uniform(0.5, 2, 9), rng.uniform(0.5, 2, 9)
        qp = program(lo, hi, Groups((total,)))
        beta = qp.feasible(rng.uniform(lo, hi))
        hi[3] = beta[3]  # at its bound
        found = program(lo, hi, Groups((total,))).mended(beta.copy())
        assert total_of(found) == total
        moved = found != beta
        assert not moved[3]
        assert ((lo < found) & (found < hi))[moved].all()
        off += bool(moved.any())
    assert off > 20


def test_mended__who_loses_no_digit_carries_it_and_of_those_who_has_most_room():
    qp = program([0, 0, 0, 0], [1, 1, 1, 1], Groups((2.0,)))
    np.testing.assert_array_equal(qp.mended(np.array([1.0, 0.0, 0.5, 0.375])), [1.0, 0.0, 0.625, 0.375])
    for free, expected in (([0.125, 0.375], [0.25, 0.5]), ([0.375, 0.125], [0.5, 0.25])):
        beta = np.array([1.0, 0.0, 0.25, *free])  # room of 0.25, 0.125 and 0.375
        found = program([0] * 5, [1, 1, 0.5, 1, 1], Groups((2.0,))).mended(beta.copy())
        np.testing.assert_array_equal(np.flatnonzero(found != beta), [3 + int(free[1] > free[0])])
        assert found.sum() == 2.0 == sum(expected) + 1.25
    full = np.array([1.0, 0.0, 1.0, 1.0])  # nobody has room: it stays, and is judged
    np.testing.assert_array_equal(qp.mended(full.copy()), full)
    for total in (1.875, 2.0, 3.0):  # all of the room of the one that is free, or more: it would reach its bound
        some = np.array([1.0, 0.0, 0.5, 0.0])
        found = program([0] * 4, [1] * 4, Groups((total,))).mended(some.copy())
        np.testing.assert_array_equal(found, [1.0, 0.0, 0.875, 0.0] if total < 2.0 else some)
    low = np.array([1.0, 0.0, 0.5, 0.0])
    np.testing.assert_array_equal(program([0] * 4, [1] * 4, Groups((1.0,))).mended(low.copy()), low)
    np.testing.assert_array_equal(program([0] * 4, [1] * 4, Groups((1.25,))).mended(low.copy()), [1.0, 0.0, 0.25, 0.0])


def test_mended__without_bounds():
    qp = program([-INF, 0, 0], [0, INF, INF], Groups((0.0,)))
    found = qp.mended(np.array([-0.5, 4.0, 0.0]))
    assert found.sum() == 0.0
    assert found[2] == 0.0


def test_mended__a_second_step_takes_what_the_first_has_rounded():
    """2^-10 has no digit of 2^-70, and 2^-30 too little room for 2^-12: each takes its part."""
    beta, hi = np.array([2.0**-10, 2.0**-30, 2.0**-70]), [1.0, 2.0**-20, 2.0**-70]
    total = 2.0**-10 + 2.0**-30 + 2.0**-12
    found = program([0.0, 0.0, 0.0], hi, Groups((total,))).mended(beta.copy())
    assert total_of(found) == Fraction(total)
    np.testing.assert_array_equal(found, [2.0**-10 + 2.0**-12, 2.0**-30 - 2.0**-70, 2.0**-70])


def test_mended__what_no_variable_has_digits_for_is_left():
    """1 and 2 cannot take 2^-60: it stays, and nothing is moved to and fro."""
    beta = np.array([1.0, 2.0, 2.0**-60])
    found = program([0, 0, 0], [4, 4, 2.0**-60], Groups((3.0,))).mended(beta.copy())
    np.testing.assert_array_equal(found, beta)


@pytest.mark.parametrize("missing", [1.0, -1.0, 0.25])
def test_mended__any_amount_is_put_where_there_is_room(missing):
    found = program([-4, -4], [4, 4], Groups((1.5 + missing,))).mended(np.array([1.0, 0.5]))
    assert found.sum() == 1.5 + missing


def test_two_sum__knows_what_is_lost():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=200) * 10.0 ** rng.integers(-9, 9, 200), rng.normal(size=200)
    for x, y in zip(a, b, strict=True):
        total, lost = two_sum(float(x), float(y))
        assert Fraction(x) + Fraction(y) == Fraction(total) + Fraction(lost)


def test_mended__groups_are_mended_apart():
    codes = np.array([0, 1, 0, 1, -1], np.int8)
    qp = program([0] * 5, [1] * 5, Groups((1.0, 0.5), codes))
    found = qp.mended(np.array([0.5, 0.25, 0.25, 0.125, 0.3]))
    np.testing.assert_array_equal(found, [0.75, 0.375, 0.25, 0.125, 0.3])


def test_exact_sum__is_rounded_once():
    values = np.array([1e16, 1.0, -1e16, 0.0, 1e-9, 2.0**-60])
    assert exact_sum(values, 0.0) == float(total_of(values)) != values.sum()
    assert exact_sum(np.zeros(3), 0.0) == exact_sum(np.empty(0), 0.0) == 0.0


# ---- back from a scaling
@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("bound", [4.0, 1e-3, 1e9])
def test_snapped__a_variable_within_the_rounding_of_a_scaling_was_on_its_bound(side, bound):
    near, far = bound * (1.0 - 0.9e-12), bound * (1.0 - 1.1e-12)
    beyond, middle = bound * (1.0 + 0.9e-12), 0.5 * bound
    beta = side * np.array([near, far, beyond, middle, 0.0, -near, 1e-300])
    lo, hi = sorted([side * bound, -2.0 * side * bound])
    qp = program(np.full(7, lo), np.full(7, hi))
    expected = beta.copy()
    expected[[0, 2]] = side * bound
    np.testing.assert_array_equal(qp.snapped(beta), expected)


def test_snapped__nothing_is_next_to_no_bound():
    beta = np.array([0.0, 1.0, -1e300])
    np.testing.assert_array_equal(program([-INF] * 3, [INF] * 3).snapped(beta), beta)
