"""K of two classes at a time: the whole K's own entries, blocks within their budget, and a stop at any tile."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from svmcore.kernels import RBF, Polynomial
from svmcore.model import targets
from svmcore.points import Points
from svmcore.solution import Status
from svmcore.sources import ComputedColumns, PairGrams, resident_gram
from svmcore.sources.resident import TILE
from svmcore.train import Control, Recipe, train, training


@pytest.fixture(autouse=True)
def one_after_another(monkeypatch):
    """Pairs of so few rows would all be solved at once, in a K of their own."""
    monkeypatch.setattr(training, "takes", lambda *_: False)


KERNELS = {"rbf": RBF(gamma=0.02), "polynomial": Polynomial(degree=2, gamma=1.0, coef0=1.0)}


def integers(n, p=6, seed=0):
    """Rows (n, p) of small integers with mean 0: their products are exact, in any order of summation."""
    half = np.random.default_rng(seed).integers(-8, 9, (n // 2, p)).astype(np.float64)
    return np.concatenate([half, np.zeros((n % 2, p)), -half])


def slices(sizes):
    edges = np.cumsum([0, *sizes]).tolist()
    return [slice(start, end) for start, end in pairwise(edges)]


@pytest.mark.parametrize("sizes", [(600, 50, 1100), (TILE + 1, 3, TILE), (1, 7, 600)], ids=str)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_pair__is_its_rows_and_columns_of_the_whole_gram(kernel, dtype, form, sizes):
    points = Points.for_gram(form(integers(sum(sizes))), dtype)
    i, _, j = slices(sizes)
    rows = np.r_[i, j]
    whole = resident_gram(ComputedColumns(kernel, points, dtype)).matrix[np.ix_(rows, rows)]
    found = PairGrams(ComputedColumns(kernel, points, dtype), 1 << 30, lambda: False).pair(i, j).matrix
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, whole)


def test_pair__of_rows_with_rounded_products_is_exactly_symmetric_and_right_to_rounding():
    points = Points.for_gram(np.random.default_rng(0).normal(size=(1300, 20)), np.float64)
    i, j = slices((600, 700))
    source = ComputedColumns(RBF(gamma=0.1), points, np.float64)
    found = PairGrams(source, 1 << 30, lambda: False).pair(i, j).matrix
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, resident_gram(source).matrix, rtol=1e-13)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=5),
    kept_bytes=st.integers(0, 2 * 40 * 40 * 8),
    data=st.data(),
)
def test_pair__kept_blocks_stay_within_their_budget_and_change_no_answer(sizes, kept_bytes, data):
    kernel, points, classes = RBF(gamma=0.02), Points.for_gram(integers(sum(sizes)), np.float64), slices(sizes)
    whole = resident_gram(ComputedColumns(kernel, points, np.float64)).matrix
    grams = PairGrams(ComputedColumns(kernel, points, np.float64), kept_bytes, lambda: False)
    for i, j in data.draw(st.lists(st.sampled_from(list(combinations(classes, 2))), min_size=1, max_size=8)):
        rows = np.r_[i, j]
        np.testing.assert_array_equal(grams.pair(i, j).matrix, whole[np.ix_(rows, rows)])
        assert sum(block.nbytes for block in grams._kept.values()) <= kept_bytes


def test_pair__slices_that_begin_alike_are_two():
    points = Points.for_gram(integers(60), np.float64)
    whole = resident_gram(ComputedColumns(RBF(gamma=0.02), points, np.float64)).matrix
    grams = PairGrams(ComputedColumns(RBF(gamma=0.02), points, np.float64), 1 << 30, lambda: False)
    for end in (10, 30, 20):
        rows = np.r_[0:end, 40:60]
        np.testing.assert_array_equal(grams.pair(slice(0, end), slice(40, 60)).matrix, whole[np.ix_(rows, rows)])


def test_pair__in_use_counts_and_kept_blocks_make_room():
    points, (a, b, c) = Points.for_gram(integers(60), np.float64), slices((10, 10, 40))
    grams = PairGrams(ComputedColumns(RBF(gamma=0.02), points, np.float64), 8 * 1200, lambda: False)
    grams.pair(a, b)  # 400 entries in use, and twice 100 kept
    assert sorted(grams._kept) == [(0, 10), (10, 20)]
    grams.pair(a, c)  # 2,500 in use
    assert not grams._kept
    assert grams.at_once(20) == 3
    assert grams.at_once(50) == 1


@pytest.fixture
def computed(monkeypatch):
    """Entries of each block that a kernel was asked for, in order."""
    blocks, block = [], RBF.block

    def counting(self, left, right, out):
        blocks.append(out.size)
        block(self, left, right, out)

    monkeypatch.setattr(RBF, "block", counting)
    return blocks


@pytest.mark.parametrize(("kept_bytes", "times"), [(1 << 30, 1), (0, 3)], ids=["all kept", "none kept"])
def test_pair__own_blocks_are_computed_once_if_kept(computed, kept_bytes, times):
    sizes = (30, 40, 50, 60)
    points, pairs = Points.for_gram(integers(sum(sizes)), np.float64), list(combinations(slices(sizes), 2))
    grams = PairGrams(ComputedColumns(RBF(gamma=0.02), points, np.float64), kept_bytes, lambda: False)
    for i, j in pairs:
        grams.pair(i, j)
    own = sum(n * n for n in sizes)
    assert sum(computed) == times * own + sum((i.stop - i.start) * (j.stop - j.start) for i, j in pairs)


@pytest.mark.parametrize("answers", range(12))
def test_pair__is_whole_or_none_whenever_the_stop_comes(answers):
    """At any tile: the stop says no so many times, then yes for ever."""
    said = []
    points, (i, j) = Points.for_gram(integers(1100), np.float32), slices((TILE + 8, 1100 - TILE - 8))

    def stop():
        said.append(len(said) >= answers)
        return said[-1]

    gram = PairGrams(ComputedColumns(RBF(gamma=0.02), points, np.float32), 1 << 30, stop).pair(i, j)
    assert (gram is None) == any(said)
    if gram is not None:
        np.testing.assert_array_equal(
            gram.matrix, resident_gram(ComputedColumns(RBF(gamma=0.02), points, np.float32)).matrix
        )


@pytest.fixture(scope="module")
def four_classes():
    rng = np.random.default_rng(3)
    codes = np.repeat(np.arange(4), 60)
    return rng.normal(size=(240, 5)) + 2.0 * rng.normal(size=(4, 5))[codes], codes


def trained(rows, **control):
    X, codes = rows
    return train(Recipe(RBF(gamma=0.1)), X, codes, np.arange(4), control=Control(**control))


def test_train__a_stop_during_a_pair_keeps_what_is_solved_and_ends_the_rest(four_classes, monkeypatch):
    asked, between = [], PairGrams._between

    def counting(self, *arguments):
        asked.append(arguments)
        between(self, *arguments)

    whole = trained(four_classes)
    monkeypatch.setattr(PairGrams, "_between", counting)
    stopped = trained(four_classes, stop=lambda: len(asked) >= 3)
    assert [s.status for s in stopped.solutions] == [Status.CONVERGED] * 2 + [Status.STOPPED] * 4
    for solution, wanted in zip(stopped.solutions[:2], whole.solutions[:2], strict=True):
        np.testing.assert_array_equal(solution.alpha, wanted.alpha)
    check_usable(stopped, four_classes)


def test_train__no_time_for_the_first_pair_is_a_time_limit(four_classes):
    late = trained(four_classes, time_limit=1e-9)
    assert {s.status for s in late.solutions} == {Status.TIME_LIMIT}
    check_usable(late, four_classes)


def check_usable(training, rows):
    """Every solution is feasible and certified as far as it came, and the model answers."""
    X, codes = rows
    for target, solution in zip(targets(codes, 4, training.model.scheme), training.solutions, strict=True):
        y = target.y[target.y != 0]
        assert (solution.beta * y).min(initial=0.0) >= 0
        assert abs(solution.beta.sum()) < 1e-9
        assert solution.certificate.dual <= solution.certificate.primal
    assert np.isfinite(training.model.decision_function(X)).all()
    assert set(training.model.predict(X)) <= set(codes)
