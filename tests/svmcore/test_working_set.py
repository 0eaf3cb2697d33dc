"""Squares of working sets: parts of K, whatever they were copied from, as sets grow and change."""

import dataclasses
import gc

import numpy as np
import pytest

from svmcore import RBF, ComputedColumns, Monitor, ResidentGram, Status
from svmcore.runtime import memory
from svmcore.runtime.aligned import LINE
from svmcore.shards.state import ShardedState
from svmcore.solvers import rounds, set_steps, working_set
from svmcore.solvers.smo import SMO
from svmcore.solvers.working_set import WorkingSet
from svmcore.sources import resident_gram
from svmcore.squares import Squares, coarse_unit, give_back, squares
from svmcore.state import MemoryState
from svmcore.tasks import classification

from .. import problems
from ..small_programs import AFewAtOnce, FewColumns, of_integers

KINDS = ["none", "one", "two", "two and none", "rows", "shift", "rows and shift"]


@pytest.fixture
def no_squares():
    give_back()
    yield
    give_back()


def square_of(qp, idx, members):
    rows = np.arange(qp.m) if qp.rows is None else qp.rows
    return qp.source.matrix[np.ix_(rows[idx], rows[members])] + qp.shift


@pytest.mark.usefixtures("no_squares")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("source", [ResidentGram, FewColumns])
@pytest.mark.parametrize("kind", ["one", "rows", "shift", "rows and shift"])
def test_square__is_the_part_of_K(kind, source, dtype):
    qp, beta = of_integers(kind, 5, source=source, dtype=dtype)
    idx, members = np.array([8, 1, 5, 0, 9, 2, 4]), np.array([3, 8, 0, 1])
    out, at = np.full((9, 5), 77.0, dtype), np.array([4, 0, 8, 1, 2, 7, 5])
    MemoryState(qp, beta).square(idx, members, out, at)
    np.testing.assert_array_equal(out[at, :4], square_of(qp, idx, members))
    assert (out[[3, 6]] == 77.0).all()
    assert (out[:, 4] == 77.0).all()


@pytest.mark.usefixtures("no_squares")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("source", [ResidentGram, AFewAtOnce])
@pytest.mark.parametrize("kind", ["one", "shift"])
def test_square__is_copied_from_the_last_one_where_that_has_the_pair(kind, source, dtype):
    qp, beta = of_integers(kind, 6, source=source, dtype=dtype)
    held = np.array([8, 2, 5])
    kept = square_of(qp, held, held) + dtype(1000.0)  # marked, so that it shows what was copied
    squares().keep(qp.source, qp.shift, held, kept)
    idx, members = np.array([8, 1, 5, 0, 9]), np.array([3, 8, 0, 2, 5])
    out, at = np.full((6, 5), 77.0, dtype), np.array([5, 1, 0, 4, 2])
    MemoryState(qp, beta).square(idx, members, out, at)
    marked = np.isin(idx, held)[:, None] & np.isin(members, held)
    np.testing.assert_array_equal(out[at], square_of(qp, idx, members) + 1000.0 * marked)
    assert (out[3] == 77.0).all()


@pytest.mark.usefixtures("no_squares")
def test_square__is_not_copied_where_little_of_it_is_known():
    qp, beta = of_integers("one", 6, source=ResidentGram, dtype=np.float32)
    held, members = np.array([8, 2]), np.array([3, 8, 0, 2, 5])
    squares().keep(qp.source, qp.shift, held, square_of(qp, held, held) + np.float32(1000.0))
    out = np.empty((5, 5), np.float32)
    MemoryState(qp, beta).square(members, members, out, np.arange(5))
    np.testing.assert_array_equal(out, square_of(qp, members, members))


@pytest.mark.usefixtures("no_squares")
def test_square__of_another_K_or_shift_is_not_copied():
    qp, beta = of_integers("shift", 7)
    held = np.array([0, 1])
    for source, shift in ((qp.source, 0.0), (ResidentGram(qp.source.matrix), 1.0)):
        squares().keep(source, shift, held, np.full((2, 2), 99.0))
        out = np.empty((2, 2))
        MemoryState(qp, beta).square(held, held, out, np.arange(2))
        np.testing.assert_array_equal(out, square_of(qp, held, held))


@pytest.mark.usefixtures("no_squares")
def test_square__two_variables_on_a_row_are_never_copied():
    """Members of a kept square are rows of K where every variable has its own."""
    qp, beta = of_integers("rows", 8)
    squares().keep(qp.source, 0.0, np.array([0, 1]), np.full((2, 2), 99.0))
    idx, out = np.array([0, 1, 5]), np.empty((3, 3))
    MemoryState(qp, beta).square(idx, idx, out, np.arange(3))
    np.testing.assert_array_equal(out, square_of(qp, idx, idx))


def test_squares__the_last_one_is_kept():
    own, source = Squares(), ResidentGram(np.eye(3))
    first, second = np.empty((3, 3)), np.empty((4, 4))
    own.keep(source, 0.0, np.array([0]), first)
    assert own.known(source, 0.0).square is first
    own.keep(source, 0.0, np.array([1]), second)
    assert own.known(source, 0.0).square is second


# ---- working sets
@pytest.mark.usefixtures("no_squares")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("source", [ResidentGram, FewColumns])
@pytest.mark.parametrize("kind", KINDS)
def test_working_set__its_square_is_that_of_its_members_as_it_grows_and_changes(kind, source, dtype):
    qp, beta = of_integers(kind, 9, m=40, source=source, dtype=dtype)
    state, rng = MemoryState(qp, beta), np.random.default_rng(9)
    for _ in range(2):  # the second set finds the square of the first
        working = WorkingSet(state, qp, 12)
        for count in (5, 4, 3, 2, 12, 1):  # grows to 12, then others leave
            newcomers = rng.permutation(np.flatnonzero(working.outside))[:count]
            working.admit(newcomers)
            members, q = working.members, len(working.members)
            assert set(newcomers) <= set(members)
            assert q == len(set(members)) <= 12
            np.testing.assert_array_equal(np.flatnonzero(~working.outside), np.sort(members))
            np.testing.assert_array_equal(working.square[:q, :q], square_of(qp, members, members))
        working.release()


@pytest.mark.usefixtures("no_squares")
@pytest.mark.parametrize("strip", [1, 3, 100])
@pytest.mark.parametrize("source", [ResidentGram, AFewAtOnce])
def test_working_set__of_each_pair_of_newcomers_one_value_is_gathered_in_strips(strip, source, monkeypatch):
    monkeypatch.setattr(working_set, "STRIP", strip)
    qp, beta = of_integers("one", 5, source=source, dtype=np.float32)
    state, asked = MemoryState(qp, beta), []
    square = state.square
    count = lambda idx, to, *where: (asked.append(len(idx) * len(to)), square(idx, to, *where))  # noqa: E731
    monkeypatch.setattr(state, "square", count)
    working = WorkingSet(state, qp, 7)
    for newcomers in ([0, 1, 8], [5, 2, 7, 9], [3, 4]):  # the last ones take the places of others
        working.admit(np.array(newcomers))
        q = len(working.members)
        np.testing.assert_array_equal(working.square[:q, :q], square_of(qp, working.members, working.members))
    if source is ResidentGram and strip == 1:
        assert sum(asked) == 7 * 8 / 2 + 2 * 7


@pytest.mark.usefixtures("no_squares")
def test_working_set__one_after_the_other_has_the_same_memory_whatever_its_size_and_type():
    """Fresh pages cost more than what is written to them: the stages of a fit touch the same ones."""
    gc.collect()
    memory.release()  # what other tests have left
    seen = set()
    for m, dtype in ((1500, np.float32), (2600, np.float32), (1500, np.float64)):
        qp = classification(FewColumns(np.eye(m, dtype=dtype)), np.where(np.arange(m) % 2, 1.0, -1.0), 1.0)
        working = WorkingSet(MemoryState(qp, np.zeros(m)), qp, m)
        seen.add(working.square.__array_interface__["data"][0])
        working.refine()
        seen.add(working.square.__array_interface__["data"][0])
        del working
    assert len(seen) == 1


@pytest.mark.usefixtures("no_squares")
def test_working_set__the_least_important_leave():
    qp, beta = of_integers("one", 10, m=40)
    state = MemoryState(qp, beta)
    working = WorkingSet(state, qp, 12)
    working.admit(np.arange(12))
    worth = state.importance(np.arange(12))
    working.admit(np.arange(20, 24))
    left = np.setdiff1d(np.arange(12), working.members)
    assert len(left) == 4
    assert worth[left].max() <= np.delete(worth, left).min()


@pytest.mark.usefixtures("no_squares")
def test_working_set__room_grows_with_the_free_members_up_to_the_capacity(monkeypatch):
    monkeypatch.setattr(working_set, "ROOM", 8)
    qp, beta = of_integers("one", 11, m=40)
    working = WorkingSet(MemoryState(qp, beta), qp, 12)
    working.admit(np.arange(7))
    working.admit(np.arange(7, 12))
    assert len(working.members) == 8
    working.makes_room(7)  # a quarter more than the free ones is what it has already
    working.admit(np.flatnonzero(working.outside)[:3])
    assert len(working.members) == 8
    working.makes_room(8)
    working.admit(np.flatnonzero(working.outside)[:3])
    assert len(working.members) == 10
    working.makes_room(30)
    working.admit(np.flatnonzero(working.outside)[:3])
    assert len(working.members) == 12
    members = working.members
    np.testing.assert_array_equal(working.square[:12, :12], square_of(qp, members, members))


def test_working_set__of_variables_elsewhere_has_all_its_room_at_once(monkeypatch):
    monkeypatch.setattr(working_set, "ROOM", 8)
    qp, beta = of_integers("one", 11, m=40)
    state = MemoryState(qp, beta)
    assert WorkingSet(state, qp, 12).room == 8
    monkeypatch.setattr(MemoryState, "is_near", ShardedState.is_near)
    assert WorkingSet(state, qp, 12).room == 12


@pytest.mark.parametrize("bias", ["free", "none"])
def test_smo__a_set_grows_until_it_holds_the_free_variables(bias, monkeypatch):
    X, y = problems.overlapping()
    qp = classification(ResidentGram(X @ X.T + np.eye(len(y))), y, C=100.0, bias=bias)
    monkeypatch.setattr(rounds, "WHOLE", 0)
    monkeypatch.setattr("svmcore.solvers.row_steps.MOST", 0)
    roomy = SMO(tol=1e-8).solve(qp)
    monkeypatch.setattr(working_set, "ROOM", 4)
    sizes, admit = [], WorkingSet.admit
    monkeypatch.setattr(WorkingSet, "admit", lambda self, idx: (admit(self, idx), sizes.append(len(self.members)))[0])
    grown = SMO(tol=1e-8).solve(qp)
    free = ((grown.beta > qp.lo) & (grown.beta < qp.hi)).sum()
    assert sizes[0] <= 4
    assert max(sizes) >= free > 4
    assert roomy.status == grown.status == "converged"
    assert grown.certificate.dual == pytest.approx(roomy.certificate.dual, rel=1e-9)


def test_rounds__of_a_large_support_begin_with_its_free_variables(monkeypatch):
    """However many these are, as long as half of a set holds them: nearly all of them will move."""
    X, y = problems.overlapping()
    qp = classification(ResidentGram(X @ X.T + np.eye(len(y))), y, C=0.3)
    before = SMO().solve(qp).beta
    free = np.flatnonzero((before > qp.lo) & (before < qp.hi))
    assert np.count_nonzero(before) > len(free) > 4
    monkeypatch.setattr(rounds, "WHOLE", 0)
    monkeypatch.setattr(rounds, "ROOM", 4)
    monkeypatch.setattr("svmcore.solvers.row_steps.MOST", 0)
    came, admit = [], WorkingSet.admit
    monkeypatch.setattr(WorkingSet, "admit", lambda self, idx: (came.append(idx), admit(self, idx))[1])
    found = SMO(tol=1e-9, newcomers=2).solve(qp, before)  # else all that violate are the free ones, and come at once
    assert found.status is Status.CONVERGED
    np.testing.assert_array_equal(came[0], free)


# ---- squares of 16 bits
def of_values(n=90, **more):
    """A program on float32 values of RBF, and the same values in whole numbers of its unit."""
    X = np.random.default_rng(4).normal(size=(n, 3))
    rows = ComputedColumns(RBF(0.5), RBF(0.5).prepare(X, None, np.float32))
    qp = classification(resident_gram(rows), np.where(np.arange(n) % 2 == 0, 1.0, -1.0), C=2.0, **more)
    return qp, np.rint(qp.source.matrix.astype(np.float64) * 65535)


@pytest.mark.usefixtures("no_squares")
def test_working_set__of_a_large_program_is_in_units_until_it_is_refined(monkeypatch):
    """Gathered, or copied from the last square in units."""
    monkeypatch.setattr(working_set, "ROOM", 16)
    (qp, units), rng = of_values(), np.random.default_rng(1)
    for _ in range(2):
        working = WorkingSet(MemoryState(qp, np.zeros(qp.m)), qp, 40)
        for count, room in ((5, 16), (9, 16), (12, 26), (6, 32), (9, 32)):  # grows, then others leave
            working.makes_room(int(room / working_set.SPARE) + 1)
            working.admit(rng.permutation(np.flatnonzero(working.outside))[:count])
            members, q = working.members, len(working.members)
            square = working.square[:q, :q]
            assert square.dtype == np.uint16
            assert {row.ctypes.data % LINE for row in square} == {0}
            assert np.abs(square - units[np.ix_(members, members)]).max() <= 1
            np.testing.assert_array_equal(square, square.T)
        working.release()
        unit = working.state.unit
        assert unit == pytest.approx(1.0 / 65535)
        assert squares().known(qp.source, qp.shift, unit).square is working.square
        assert squares().known(qp.source, qp.shift) is None
    working.refine()
    for count in (3, 8):
        q, members = len(working.members), working.members
        np.testing.assert_array_equal(working.square[:q, :q], qp.source.matrix[np.ix_(members, members)])
        working.makes_room(q)
        working.admit(np.flatnonzero(working.outside)[:count])
    assert working.square.dtype == np.float32
    assert {row.ctypes.data % LINE for row in working.square} == {0}
    moves = np.arange(qp.m) < 16
    few = dataclasses.replace(qp, lo=np.where(moves, qp.lo, 0.0), hi=np.where(moves, qp.hi, 0.0))
    assert WorkingSet(MemoryState(few, np.zeros(qp.m)), few, 40).square.dtype == np.float32


def test_unit__is_of_programs_whose_steps_are_of_pairs_on_a_definite_k_that_is_nowhere_below_0():
    qp, _ = of_values()
    assert coarse_unit(qp) == pytest.approx(1.0 / 65535)
    hard = dataclasses.replace(qp, lo=np.where(qp.p < 0, -np.inf, 0.0), hi=np.where(qp.p > 0, np.inf, 0.0))
    bare = dataclasses.replace(qp, source=ResidentGram(qp.source.matrix))
    fine = dataclasses.replace(qp, source=ResidentGram(qp.source.matrix.astype(np.float64), qp.source.rows))
    others = hard, bare, fine, of_values(bias="none")[0], of_values(bias="penalised")[0]
    assert [coarse_unit(other) for other in others] == [None] * 5


@pytest.mark.usefixtures("no_squares")
@pytest.mark.parametrize(("target", "stays"), [(1e-2, True), (1e-4, False)])
def test_rounds__leave_16_bits_where_variables_move_so_far_that_rounding_hides_what_is_aimed_at(
    monkeypatch, target, stays
):
    """Some 30 variables that move by some 2, times a unit, are about 2e-4."""
    monkeypatch.setattr(working_set, "ROOM", 16)
    qp, _ = of_values()
    state = MemoryState(qp, np.zeros(qp.m))
    members = working_set.WorkingSet(state, qp, qp.m)
    members.makes_room(40)
    members.admit(np.arange(40))
    part = state.part(members.members)
    steps, _ = set_steps.SetSteps(SMO(), qp, state, Monitor(), 0, 0.0).on_pairs(
        members, part, part.score.copy(), None, target
    )
    assert steps > 20
    assert 5.0 < np.linalg.norm(part.beta) < 20.0
    assert (state.unit is not None) == stays


@pytest.mark.usefixtures("no_squares")
@pytest.mark.parametrize(("C", "tol", "refined"), [(1.0, 1e-3, False), (1e4, 1e-5, True)])
def test_smo__on_squares_of_16_bits_finds_the_optimum_and_leaves_them_where_they_do_not_tell(
    monkeypatch, C, tol, refined
):
    """The primal of one solution is never below the dual of the other."""
    rng, units, refine = np.random.default_rng(6), [], WorkingSet.refine
    X = rng.normal(size=(1500, 4))
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=1500) > 0, 1.0, -1.0)
    source = resident_gram(ComputedColumns(RBF(0.5), RBF(0.5).prepare(X, None, np.float32)))
    monkeypatch.setattr(working_set, "ROOM", 128)
    monkeypatch.setattr(WorkingSet, "refine", lambda self: (units.append(self.state.unit), refine(self)))
    coarse = SMO(tol=tol).solve(classification(source, y, C=C))
    assert any(units) == refined
    monkeypatch.setattr(working_set, "coarse_unit", lambda qp: None)
    fine = SMO(tol=tol).solve(classification(source, y, C=C))
    assert [each.status for each in (coarse, fine)] == [Status.CONVERGED] * 2
    assert coarse.certificate.kkt_gap <= 1.05 * tol
    assert coarse.certificate.dual <= fine.certificate.primal * (1 + 1e-12)
    assert fine.certificate.dual <= coarse.certificate.primal * (1 + 1e-12)


# ---- likely variables
@pytest.mark.usefixtures("no_squares")
def test_smo__likely_variables_are_the_first_of_the_working_set(monkeypatch):
    """And the square that they were copied from stays the one that is known."""
    X, y = problems.overlapping()
    qp = classification(ResidentGram(X @ X.T), y, C=1.0)
    likely, admitted, admit = np.array([3, 17, 40]), [], WorkingSet.admit
    kept = square_of(qp, likely, likely)
    squares().keep(qp.source, qp.shift, likely, kept)
    monkeypatch.setattr(rounds, "WHOLE", 0)
    monkeypatch.setattr("svmcore.solvers.row_steps.MOST", 0)
    monkeypatch.setattr(WorkingSet, "admit", lambda self, idx: (admitted.append(idx), admit(self, idx))[1])
    told = SMO(tol=1e-8).solve(dataclasses.replace(qp, likely=likely))
    np.testing.assert_array_equal(admitted[0], likely)
    assert squares().known(qp.source, qp.shift).square is kept
    admitted.clear()
    free = SMO(tol=1e-8).solve(qp)
    assert len(admitted[0]) > 3
    assert squares().known(qp.source, qp.shift).square is not kept
    assert told.certificate.dual == pytest.approx(free.certificate.dual, rel=1e-9)


# ---- rounds on the members that may move
@pytest.mark.parametrize("bias", ["free", "none", "penalised"])
def test_smo__rounds_without_the_members_far_behind_find_the_same_optimum(bias, monkeypatch):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(400, 3)), np.where(rng.random(400) < 0.5, 1.0, -1.0)  # noise: most are at a bound
    K = np.exp(-0.1 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    qp = classification(ResidentGram(K), y, C=1.0, bias=bias)
    monkeypatch.setattr(rounds, "WHOLE", 0)
    monkeypatch.setattr("svmcore.solvers.row_steps.MOST", 0)
    parts, gather = [], set_steps.gather_square
    monkeypatch.setattr(set_steps, "gather_square", lambda *given: (parts.append(len(given[1])), gather(*given)))
    solver = SMO(tol=1e-8, newcomers=100)
    some = solver.solve(qp)
    assert 0 < min(parts) < 0.5 * 400  # there were such rounds
    monkeypatch.setattr(set_steps, "FEW", 0.0)
    whole = solver.solve(qp)
    assert some.status == whole.status == "converged"
    assert some.certificate.dual == pytest.approx(whole.certificate.dual, rel=1e-9)


def test_rounds__finish_directly_where_pairs_crawl():
    """Features of scales 1 to 100 at a large C: three million pair steps alone come to a hundredth of the dual."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5)) * [1.0, 1.0, 1.0, 10.0, 100.0]
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=200) > 0, 1.0, -1.0)
    qp = classification(ResidentGram(X @ X.T), y, C=1e4)
    found = SMO(tol=1e-3, max_iter=1_000_000).solve(qp)
    assert found.status == "converged"
    score = qp.p - X @ (X.T @ found.beta)
    assert score[found.beta < qp.hi].max() - score[found.beta > qp.lo].min() <= 1.05e-3
    assert found.beta.sum() == pytest.approx(0.0, abs=1e-6)
