"""Copies of a row become one variable: which rows, with which weight, in an order that content alone decides."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from svmcore import RBF, Linear, Precomputed
from svmcore.errors import InvalidProblem
from svmcore.estimator import SVC
from svmcore.train import opening
from svmcore.train.posing import distinct
from svmcore.train.posing.distinct import Distinct, distinct_rows, merge_precomputed, shared

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [5.0, 6.0], [1.0, 2.0], [3.0, 4.0]])
CODES = np.array([0, 1, 0, 1, 1, 1])
WEIGHTS = np.array([1.0, 0.5, 2.0, 4.0, 8.0, 0.25])


def table(found):
    """{(row, code): (copies, weight)} of the distinct rows."""
    rows = found.rows.toarray() if sparse.issparse(found.rows) else found.rows
    return {
        (tuple(x.tolist()), int(code)): (int(count), float(weight))
        for x, code, count, weight in zip(rows, found.codes, found.merged.counts, found.total, strict=True)
    }


# ---- rows
@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_distinct_rows__copies_add_their_weights(form, grouped):
    found = distinct_rows(Linear(), form(ROWS), CODES, WEIGHTS, grouped)
    expected = {
        ((1.0, 2.0), 0): (2, 3.0),
        ((1.0, 2.0), 1): (1, 8.0),
        ((3.0, 4.0), 1): (2, 0.75),
        ((5.0, 6.0), 1): (1, 4.0),
    }
    assert table(found) == expected
    np.testing.assert_array_equal(found.kept, np.arange(6))
    np.testing.assert_array_equal(found.weights, WEIGHTS)
    rows = found.rows.toarray() if sparse.issparse(found.rows) else found.rows
    np.testing.assert_array_equal(rows[found.merged.inverse], ROWS)
    np.testing.assert_array_equal(found.codes[found.merged.inverse], CODES)
    plain = distinct_rows(Linear(), form(ROWS), CODES, None, grouped)
    assert {key: count for key, (count, _) in table(plain).items()} == {
        key: count for key, (count, _) in expected.items()
    }
    np.testing.assert_array_equal(plain.total, plain.merged.counts)


def test_distinct_rows__without_weight_is_left_out():
    weights = np.array([1.0, 0.0, 2.0, -1.0, 1e-9, 0.25])
    found = distinct_rows(Linear(), ROWS, CODES, weights, False)
    np.testing.assert_array_equal(found.kept, [0, 2, 4, 5])
    np.testing.assert_array_equal(found.weights, [1.0, 2.0, 1e-9, 0.25])
    assert table(found) == {((1.0, 2.0), 0): (2, 3.0), ((1.0, 2.0), 1): (1, 1e-9), ((3.0, 4.0), 1): (1, 0.25)}
    np.testing.assert_array_equal(found.rows[found.merged.inverse], ROWS[found.kept])


def test_distinct_rows__some_weight_has_to_be_above_0():
    with pytest.raises(InvalidProblem, match="all samples have zero or negative weights"):
        distinct_rows(Linear(), np.eye(2), np.array([0, 1]), np.array([0.0, -1.0]), False)
    assert len(distinct_rows(Linear(), np.eye(2), np.array([0, 1]), np.array([0.0, 1.0]), False).rows) == 1


def many(seed=0, n=60):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, (n, 2)).astype(float), rng.integers(0, 3, n), rng.integers(1, 4, n).astype(float)


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("seed", [1, 2])
def test_distinct_rows__their_order_is_by_content_alone(seed, grouped):
    X, codes, weights = many()
    order = np.random.default_rng(seed).permutation(len(X))
    one = distinct_rows(RBF(1.0), X, codes, weights, grouped)
    other = distinct_rows(RBF(1.0), X[order], codes[order], weights[order], grouped)
    twice = np.repeat(np.arange(len(X)), weights.astype(int))
    rows = distinct_rows(RBF(1.0), X[twice], codes[twice], None, grouped)
    for again in (other, rows):
        np.testing.assert_array_equal(again.rows, one.rows)
        np.testing.assert_array_equal(again.codes, one.codes)
        np.testing.assert_array_equal(again.total, one.total)
    assert (len(one.rows) < len(X)) & (len(one.rows) == len({(*x, c) for x, c in zip(X.tolist(), codes, strict=True)}))


def test_distinct_rows__grouped_are_slices_in_the_order_of_all():
    X, codes, weights = many(3)
    whole, grouped = (distinct_rows(RBF(1.0), X, codes, weights, together) for together in (False, True))
    assert (np.diff(whole.codes) < 0).any()
    assert (np.diff(grouped.codes) >= 0).all()
    for code in range(3):
        np.testing.assert_array_equal(grouped.rows[grouped.codes == code], whole.rows[whole.codes == code])
    np.testing.assert_array_equal(grouped.rows[grouped.merged.inverse], X)
    np.testing.assert_array_equal(grouped.merged.counts, np.bincount(grouped.merged.inverse))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_distinct_rows__as_given_are_read_in_sequence_and_copied_by_nobody(form):
    X, codes, weights = many(4)
    found, sorted_ = (distinct_rows(Linear(), form(X), codes, weights, False, each) for each in (True, False))
    assert (found.as_given, sorted_.as_given) == (True, False)
    assert (np.diff(found.at) > 0).all() != (np.diff(sorted_.at) > 0).all()
    assert table(found) == table(sorted_)
    assert found.given.shape == X.shape
    for each in (found, sorted_):
        rows = each.rows.toarray() if sparse.issparse(each.rows) else each.rows
        np.testing.assert_array_equal(rows[each.merged.inverse], X)
        some = each.take(np.array([5, 0, 3]))
        np.testing.assert_array_equal(some.toarray() if sparse.issparse(some) else some, rows[[5, 0, 3]])


def test_distinct__of_rows_that_are_all_distinct_takes_them_where_they_are():
    """As the folds of a search have them: rows of the table, in its order."""
    whole = distinct_rows(Linear(), ROWS, CODES, None, False)
    fold = Distinct(whole.kept, whole.merged, whole.weights, whole.total, whole.codes, whole.rows)
    np.testing.assert_array_equal(fold.take(np.array([2, 0])), whole.rows[[2, 0]])
    assert fold.rows is whole.rows
    assert not fold.as_given  # their order is by content


def test_at_distinct__is_the_sum_over_the_copies():
    weights = np.array([1.0, 0.0, 2.0, 4.0, 8.0, 0.25])
    found = distinct_rows(Linear(), ROWS, CODES, weights, False)
    values = np.array([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [-1.0, 99.0, 0.5, 0.0, 0.0, 0.0]])
    sums = {key: tuple(column) for key, column in zip(table(found), found.at_distinct(values).T.tolist(), strict=True)}
    assert sums == {
        ((1.0, 2.0), 0): (5.0, -0.5),
        ((1.0, 2.0), 1): (16.0, 0.0),
        ((3.0, 4.0), 1): (32.0, 0.0),
        ((5.0, 6.0), 1): (8.0, 0.0),
    }
    alone = distinct_rows(Linear(), np.eye(3), np.array([0, 1, 1]), None, False)
    assert alone.at_distinct(np.zeros((0, 3))).shape[0] == 0


# ---- a given K
def gram(X):
    return X @ X.T + 1.0


@pytest.mark.parametrize("seed", [0, 1])
def test_merge_precomputed__copies_of_a_row_are_copies_of_a_column(seed):
    X, codes, _ = many(seed, 40)
    merged = merge_precomputed(gram(X), codes)
    assert len(merged.first) == len({(*x, c) for x, c in zip(X.tolist(), codes, strict=True)}) < 40
    np.testing.assert_array_equal(X[merged.first][merged.inverse], X)
    np.testing.assert_array_equal(codes[merged.first][merged.inverse], codes)
    np.testing.assert_array_equal(merged.counts, np.bincount(merged.inverse))


def test_merge_precomputed__the_order_is_by_the_values_of_K_alone():
    rng = np.random.default_rng(5)
    X, codes = rng.normal(size=(30, 3)).round(2)[rng.integers(0, 30, 50)], rng.integers(0, 2, 50)
    K = gram(X)
    one = merge_precomputed(K, codes)
    for _ in range(3):
        order = rng.permutation(50)
        other = merge_precomputed(K[np.ix_(order, order)], codes[order])
        np.testing.assert_array_equal(codes[order][other.first], codes[one.first])
        np.testing.assert_array_equal(other.counts, one.counts)
        np.testing.assert_array_equal(
            K[np.ix_(order, order)][np.ix_(other.first, other.first)], K[np.ix_(one.first, one.first)]
        )
    ranked = K[np.ix_(one.first, one.first)].sum(axis=1)
    assert (np.diff(ranked) > 0).any()  # scattered: a prefix is a sample
    assert (np.diff(ranked) < 0).any()
    assert (np.diff(codes[one.first]) < 0).any()


def test_merge_precomputed__copies_do_not_change_the_order():
    rng = np.random.default_rng(2)
    K, codes = gram(rng.normal(size=(30, 3))), rng.integers(0, 2, 30)
    given = np.append(np.arange(30), rng.integers(0, 30, 40))
    one, twice = merge_precomputed(K, codes), merge_precomputed(K[np.ix_(given, given)], codes[given])
    np.testing.assert_array_equal(given[twice.first], one.first)


def test_merge_precomputed__a_row_under_two_labels_is_told_by_its_label():
    K, codes = gram(np.array([[1.0], [1.0], [2.0]])), np.array([1, 0, 0])
    one, other = merge_precomputed(K, codes), merge_precomputed(K[:, [1, 0, 2]][[1, 0, 2]], codes[[1, 0, 2]])
    assert len(one.first) == 3
    np.testing.assert_array_equal(codes[one.first], codes[[1, 0, 2]][other.first])


@pytest.mark.parametrize("step", [1, 3, 4])
def test_merge_precomputed__rows_that_are_alike_in_most_columns_are_told_apart(step):
    given = np.arange(60) // step * step  # copies of every `step`-th row
    K = np.where(given[:, None] == given, 1.0 + given / 64, 0.0) * np.ones((60, 1))
    K[K == 0.0] = np.random.default_rng(step).choice([0.0, -0.0], (K == 0.0).sum())  # which are equal
    merged = merge_precomputed(K, np.zeros(60, int))
    assert len(merged.first) == 60 // step
    np.testing.assert_array_equal(given[merged.first][merged.inverse], given)
    order = np.random.default_rng(step).permutation(60)
    other = merge_precomputed(K[np.ix_(order, order)], np.zeros(60, int))
    np.testing.assert_array_equal(given[order][other.first], given[merged.first])


def test_merge_precomputed__equal_rows_of_an_unsymmetric_K_stay_apart():
    K = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [5.0, 6.0, 7.0]])  # rows 0 and 1, but not columns 0 and 1
    merged = merge_precomputed(K, np.array([0, 0, 1]))
    np.testing.assert_array_equal(merged.first, [0, 1, 2])
    np.testing.assert_array_equal(merged.counts, [1, 1, 1])
    np.testing.assert_array_equal(merged.inverse, [0, 1, 2])


def test_merge_precomputed__columns_are_compared_to_the_last_part(monkeypatch):
    monkeypatch.setattr(distinct, "ENTRIES", 8)  # two rows at a time
    K = gram(np.arange(9.0)[:, None])
    K[1:3], K[:, 1:3] = K[1], K[:, 1:2]
    assert len(merge_precomputed(K, np.zeros(9, int)).first) == 8
    K[8, 2] += 1.0  # rows 1 and 2 are equal still, their columns are not
    assert len(merge_precomputed(K, np.zeros(9, int)).first) == 9


@pytest.mark.parametrize("grouped", [True, False])
def test_distinct_rows__of_a_precomputed_K_are_its_rows_and_columns(grouped):
    X, codes, weights = many(7, 30)
    weights[[3, 8]] = 0.0
    K = gram(X)
    found = distinct_rows(Precomputed(), K, codes, weights, grouped)
    first = found.kept[found.merged.first]
    np.testing.assert_array_equal(found.rows, K[np.ix_(first, first)])
    np.testing.assert_array_equal(found.rows[np.ix_(found.merged.inverse, found.merged.inverse)], gram(X[found.kept]))
    np.testing.assert_array_equal(found.total, np.bincount(found.merged.inverse, weights=weights[found.kept]))
    assert not grouped or (np.diff(found.codes) >= 0).all()
    same = distinct_rows(Precomputed(), gram(X[found.kept]), codes[found.kept], weights[found.kept], grouped)
    np.testing.assert_array_equal(same.rows, found.rows)


# ---- what `gamma: scale` divides by
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_variance__is_that_of_all_entries_with_their_weights(form, dtype):
    X, codes, weights = many(9)
    X = X.astype(dtype)
    found = distinct_rows(RBF(), form(X), codes, weights, False)
    entries = np.repeat(X, weights.astype(int), axis=0).astype(np.float64)
    assert found.variance(RBF()) == pytest.approx(entries.var(), rel=1e-13, abs=0.0)


def test_variance__is_not_asked_for_where_nothing_depends_on_it():
    X, codes, weights = many(9)
    found = distinct_rows(Linear(), X, codes, weights, False)
    assert found.variance(Linear()) == found.variance(RBF(0.5)) == found.variance(Precomputed()) == 1.0


def test_variance__in_pieces_and_far_from_the_origin():
    rng = np.random.default_rng(0)
    X = 1e6 + rng.normal(size=(50, 1 << 14))  # 32 rows are a piece
    found = distinct_rows(RBF(), X, np.arange(50) % 2, None, False)
    assert found.variance(RBF()) == pytest.approx(X.var(), rel=1e-9, abs=0.0)


def test_variance__of_rows_wider_than_a_piece():
    X = np.arange(3 * 600_000, dtype=np.float64).reshape(3, -1)
    found = distinct_rows(RBF(), X, np.array([0, 1, 1]), None, False)
    assert found.variance(RBF()) == pytest.approx(((3 * 600_000) ** 2 - 1) / 12, rel=1e-12, abs=0.0)


def test_distinct__is_a_value_that_nobody_changes():
    found = distinct_rows(Linear(), ROWS, CODES, WEIGHTS, False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.total = WEIGHTS
    assert len({found, dataclasses.replace(found)}) == 2  # known by identity: arrays do not compare


# ---- parts of a coefficient
def test_shared__in_proportion_and_the_heaviest_takes_what_is_left():
    values, of = np.array([8.0, -0.3, 0.0, 1.0]), np.array([0, 3, 1, 3, 3, 2, 1])
    weights = np.array([5.0, 1.0, 1.0, 3.0, 2.0, 1.0, 2.0])
    parts = shared(values, of, weights)
    for k in range(4):
        assert sum(map(Fraction, parts[of == k])) == Fraction(values[k])
    np.testing.assert_allclose(parts, [8.0, 1 / 6, -0.1, 1 / 2, 1 / 3, 0.0, -0.2], rtol=1e-15)
    exact = np.array([Fraction(1, 6), Fraction(1, 3)])
    light = parts[[1, 4]]  # rounded towards 0, by less than the last digit of the value
    assert all(0 <= e - Fraction(part) < Fraction(np.spacing(1.0)) for e, part in zip(exact, light, strict=True))


def test_shared__a_value_that_divides_evenly_is_divided_evenly():
    np.testing.assert_array_equal(
        shared(np.array([-6.0]), np.zeros(3, int), np.array([1.0, 2.0, 1.0])), [-1.5, -3.0, -1.5]
    )


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("gamma", ["scale", 0.3])
def test_training__of_many_rows_makes_no_copy_of_them_that_stays(form, gamma, monkeypatch):
    """`gamma: scale` looks at all rows, and exact values are computed of those that were given."""
    rng = np.random.default_rng(3)
    X, kept = form(rng.normal(size=(1500, 5))), []
    y = np.where(rng.random(1500) < 0.5, 1, -1)
    expected = SVC(gamma=gamma).fit(X, y)

    def refuse(self):
        raise AssertionError("a copy of all rows was asked for")

    monkeypatch.setattr(Distinct, "rows", property(refuse))
    exact = opening.ExactKernel
    monkeypatch.setattr(
        opening, "ExactKernel", lambda *given, **named: (kept.append(given[1]), exact(*given, **named))[1]
    )
    model = SVC(gamma=gamma).fit(X, y)
    values = (lambda table: table.data) if sparse.issparse(X) else np.asarray
    assert all(np.shares_memory(values(rows), values(X)) for rows in kept)
    assert len(kept) == 1
    np.testing.assert_array_equal(model.decision_function(X[:50]), expected.decision_function(X[:50]))
