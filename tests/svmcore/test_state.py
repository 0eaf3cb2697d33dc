"""Scores and extremes of a working-set solve, exactly recomputed: all numbers are small multiples of powers of two."""

import numpy as np
import pytest

from svmcore import ResidentGram, SignedQP
from svmcore.qp import Groups
from svmcore.sources.base import CHUNK, Lookup
from svmcore.state import MemoryState

from ..small_programs import FewColumns, of_integers

INF = np.inf
KINDS = ["none", "one", "two", "two and none", "rows", "shift", "rows and shift"]


def scores(qp, beta):
    rows = np.arange(qp.m) if qp.rows is None else qp.rows
    K = qp.source.matrix.astype(np.float64)[np.ix_(rows, rows)] + qp.shift
    return qp.p - K @ beta - qp.ridge * beta


def extremes(qp, beta, s):
    """(group, highest that may grow, lowest that may shrink) of each group with variables, and of those in none."""
    for g in range(-1, len(qp.groups.sums)):
        at = qp.codes == g
        up, low = s[at & (beta < qp.hi)].tolist(), s[at & (beta > qp.lo)].tolist()
        ground = [0.0] if g < 0 else []
        yield g, max(up + ground, default=-INF), min(low + ground, default=INF)


@pytest.mark.parametrize("kind", KINDS)
def test_state__first_scores_are_those_of_beta(kind):
    qp, beta = of_integers(kind)
    np.testing.assert_array_equal(MemoryState(qp, beta).score, scores(qp, beta))
    at_zero = MemoryState(qp, np.zeros(qp.m))
    np.testing.assert_array_equal(at_zero.score, qp.p)
    assert at_zero.score is not qp.p
    given = np.arange(float(qp.m))
    held = MemoryState(qp, beta, given)
    np.testing.assert_array_equal(held.score, given)
    assert held.score is not given


@pytest.mark.parametrize("source", [ResidentGram, FewColumns])
@pytest.mark.parametrize("kind", KINDS)
def test_apply__scores_are_those_of_beta_to_the_last_bit(kind, source):
    qp, beta = of_integers(kind, 1, source=source)
    state, rng = MemoryState(qp, beta.copy()), np.random.default_rng(1)
    for size in (1, 2, 7, 8, 10):
        idx = rng.permutation(qp.m)[:size]
        changed = np.choose(rng.integers(0, 3, size), [qp.lo[idx], qp.hi[idx], beta[idx]])
        state.kkt_gap()  # extremes are known, and have to be forgotten
        state.apply(idx, changed)
        beta[idx] = changed
        np.testing.assert_array_equal(state.snapshot(), beta)
        np.testing.assert_array_equal(state.score, scores(qp, beta))
        assert (
            state.kkt_gap() == max(0.0, *(high - low for _, high, low in extremes(qp, beta, state.score)))
            or (qp.codes < 0).any()
        )


def test_apply__reads_only_columns_of_variables_that_change():
    asked = []

    class Watched(ResidentGram):
        def lookup(self, idx):
            asked.append(list(idx))
            return super().lookup(idx)

    qp, beta = of_integers("one", 2, source=Watched)
    state = MemoryState(qp, beta.copy())
    asked.clear()
    after = beta[[4, 7, 2]].copy()
    after[1] += 0.5
    state.apply(np.array([4, 7, 2]), after)
    assert asked == [[7]]
    state.apply(np.array([4, 7, 2]), after)
    assert asked == [[7]]


def test_apply__many_columns_are_read_in_pieces():
    m, asked = 16 * CHUNK + 3, []

    class Narrow(ResidentGram):
        """The first three rows of K = 1."""

        def __init__(self):
            self.n, self.dtype, self.psd = m, np.dtype(np.float32), True

        def diagonal(self):
            return np.ones(m)

        def lookup(self, idx):
            asked.append(len(idx))
            return Lookup(np.ones((1, m), np.float32), np.zeros(len(idx), np.int64))

    qp = SignedQP(Narrow(), np.ones(m), np.zeros(m), np.ones(m))
    state = MemoryState(qp, np.zeros(m))
    state.apply(np.arange(m), np.full(m, 0.5))
    assert asked == [16 * CHUNK, 3]
    np.testing.assert_array_equal(state.score, np.full(m, 1.0 - 0.5 * m))


@pytest.mark.parametrize("kind", KINDS)
def test_kkt_gap__and_centres_are_their_definitions(kind):
    for seed in range(12):
        qp, beta = of_integers(kind, seed)
        state = MemoryState(qp, beta)
        ends = {g: (high, low) for g, high, low in extremes(qp, beta, scores(qp, beta))}
        high, low = ends.pop(-1)
        assert state.kkt_gap() == max(0.0, high, -low, *(up - down for up, down in ends.values()))
        middles = [0.5 * (up + down) if np.isfinite(up + down) else 0.0 for up, down in ends.values()]
        np.testing.assert_array_equal(state.centres(), [*middles, 0.0])


def test_kkt_gap__by_hand():
    K = ResidentGram(np.eye(4))
    codes = np.array([0, 0, 1, -1], np.int8)
    lo, hi, beta = np.zeros(4), np.ones(4), np.array([0.0, 1.0, 0.0, 0.0])
    qp = SignedQP(K, np.array([1.0, 3.0, 5.0, -4.0]), lo, hi, groups=Groups((1.0, 0.0), codes))
    state = MemoryState(qp, beta)  # scores 1, 2, 5, -4; the first may grow, the second shrink, the others grow
    assert state.kkt_gap() == 0.0
    np.testing.assert_array_equal(state.centres(), [1.5, 0.0, 0.0])
    state.apply(np.array([3]), np.array([1.0]))  # score -5, and it may shrink
    assert state.kkt_gap() == 5.0
    state.apply(np.array([3]), np.array([0.5]))
    assert state.kkt_gap() == 4.5
    one = SignedQP(K, np.array([1.0, 1.5, 0.75, 1.25]), lo, hi, groups=Groups((1.25,)))
    np.testing.assert_array_equal(MemoryState(one, np.array([0.25, 0.75, 0.0, 0.5])).score, [0.75] * 4)
    assert MemoryState(one, np.array([0.25, 0.75, 0.0, 0.5])).kkt_gap() == 0.0
    alone = SignedQP(K, np.array([-1.0, 3.0, -2.0, -4.0]), lo, hi)
    assert MemoryState(alone, np.zeros(4)).kkt_gap() == 3.0
    assert MemoryState(alone, np.array([0.0, 1.0, 0.5, 0.0])).kkt_gap() == 2.5
    np.testing.assert_array_equal(MemoryState(alone, np.zeros(4)).centres(), [0.0])
    low = SignedQP(K, np.full(4, -3.0), lo, hi)
    assert MemoryState(low, np.zeros(4)).kkt_gap() == 0.0
    high = SignedQP(K, np.full(4, 3.0), lo, hi)
    assert MemoryState(high, np.ones(4)).kkt_gap() == 0.0


def worst(qp, beta, s, outside, half, sides):
    """The variables that `candidates` may give: of each part the `half` worst from both ends."""
    chosen = set()
    for g, high, low in sides:
        inside = (qp.codes == g) & outside
        up = np.flatnonzero(inside & (beta < qp.hi) & (s > low))
        down = np.flatnonzero(inside & (beta > qp.lo) & (s < high))
        chosen |= set(up[np.argsort(-s[up])][:half]) | set(down[np.argsort(s[down])][:half])
    return chosen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [1, 2, 6, 9, 12, 100])
def test_candidates__are_the_worst_violators_of_each_part(kind, q):
    for seed in range(8):
        qp, beta = of_integers(kind, seed, m=24)
        rng = np.random.default_rng(seed)
        s, outside = rng.permutation(24) / 4.0 - 2.5, rng.random(24) < 0.8  # no two alike
        state = MemoryState(qp, beta, s)
        found = state.candidates(q, outside)
        sides = [(g, high, low) if g >= 0 else (g, 0.0, 0.0) for g, high, low in extremes(qp, beta, s)]
        half = q // 2 if qp.groups.codes is None else q // 6
        assert set(found) == worst(qp, beta, s, outside, max(1, half), sides)
        assert (np.diff(found) > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_importance__free_ones_first_then_by_violation(kind):
    for seed in range(6):
        qp, beta = of_integers(kind, seed)
        state = MemoryState(qp, beta)
        s, ends = state.score, {g: (high, low) for g, high, low in extremes(qp, beta, scores(qp, beta))}
        idx = np.random.default_rng(seed).permutation(qp.m)[:8]
        for v, found in zip(idx, state.importance(idx), strict=True):
            high, low = ends[qp.codes[v]]
            grows, shrinks = beta[v] < qp.hi[v], beta[v] > qp.lo[v]
            assert found == (INF if grows and shrinks else s[v] - low if grows else high - s[v] if shrinks else -INF)


def test_importance__a_variable_that_cannot_move_is_worth_nothing():
    qp = SignedQP(ResidentGram(np.eye(2)), np.ones(2), np.zeros(2), np.array([0.0, 1.0]))
    np.testing.assert_array_equal(MemoryState(qp, np.zeros(2)).importance(np.array([0, 1])), [-INF, 1.0])


def test_importance__in_no_group_counts_from_0():
    """Scores 2, 1 and -2, -1 of variables at a bound and free ones, beside a group."""
    codes, p = np.array([-1, -1, 0], np.int8), np.array([2.0, 1.0, 0.0])
    for sign in (1.0, -1.0):
        lo, hi = (np.zeros(3), np.ones(3)) if sign > 0 else (-np.ones(3), np.zeros(3))
        lo[1], hi[1] = -1.0, 1.0
        qp = SignedQP(ResidentGram(np.eye(3)), sign * p, lo, hi, groups=Groups((0.0,), codes))
        np.testing.assert_array_equal(MemoryState(qp, np.zeros(3)).importance(np.arange(2)), [2.0, INF])


@pytest.mark.parametrize("kind", KINDS)
def test_part__is_what_belongs_to_the_variables(kind):
    qp, beta = of_integers(kind, 3)
    state, idx = MemoryState(qp, beta), np.array([7, 0, 3])
    part = state.part(idx)
    for found, whole in zip(part, (state.score, beta, qp.lo, qp.hi, qp.ridge, qp.codes), strict=True):
        np.testing.assert_array_equal(found, whole[idx])
    part.beta[:] = 99.0
    part.score[:] = 99.0
    assert (state.beta != 99.0).all()
    assert (state.score != 99.0).all()


def test_support_and_snapshot():
    qp, beta = of_integers("one", 4)
    state = MemoryState(qp, beta)
    np.testing.assert_array_equal(state.support(), np.flatnonzero(beta))
    assert 0 < len(state.support()) < qp.m
    copy = state.snapshot()
    copy[:] = 7.0
    assert (state.beta != 7.0).all()


# ---- a run of variables that cannot move, as of a fold that is left out
@pytest.mark.parametrize("run", [(0, 5), (3, 9), (6, 12), (0, 12), (4, 6)])
@pytest.mark.parametrize("kind", ["one", "none", "two and none", "shift"])
def test_state__scores_of_all_that_can_move_are_kept_where_a_run_of_others_is_left_out(kind, run, monkeypatch):
    monkeypatch.setattr("svmcore.state.LONG", 3)
    given, beta = of_integers(kind, 3, m=12)
    fixed = np.arange(12)
    fixed = (fixed >= run[0]) & (fixed < run[1])
    lo, hi, beta = (np.where(fixed, 0.0, values) for values in (given.lo, given.hi, beta))
    sums = tuple(float(beta[given.codes == g].sum()) for g in range(len(given.groups.sums)))
    groups = Groups(sums, given.groups.codes)
    qp = SignedQP(given.source, given.p, lo, hi, given.ridge, groups, shift=given.shift)
    state, rng = MemoryState(qp, beta.copy()), np.random.default_rng(3)
    for _ in range(4):
        idx = rng.permutation(np.flatnonzero(~fixed))[:5]
        beta[idx] = np.choose(rng.integers(0, 2, len(idx)), [lo[idx], hi[idx]])
        state.apply(idx, beta[idx])
        expected = scores(qp, beta)
        np.testing.assert_array_equal(state.score[~fixed], expected[~fixed])
        ends = extremes(qp, beta, expected)
        assert state.kkt_gap() == max(0.0, *(high - low if g >= 0 else max(high, -low) for g, high, low in ends))
    short = run[1] - run[0] < 3
    assert (state.scores() is not None) == short  # what is not up to date is not given away
    if short:
        np.testing.assert_array_equal(state.scores(), expected)
