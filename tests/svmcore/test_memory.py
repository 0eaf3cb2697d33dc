"""Large arrays in memory that is kept between uses: nobody is served what somebody still sees."""

import gc
import os
import signal
import time

import numpy as np
import pytest

from svmcore.runtime import memory
from svmcore.runtime.memory import empty, release

SIZE = memory.LEAST  # float32 entries: four times the least that is kept


def address(array):
    return array.__array_interface__["data"][0]


@pytest.fixture(autouse=True)
def nothing_kept():
    gc.collect()
    release()
    yield
    release()


def test_empty__is_used_again_when_nothing_refers_to_it():
    first = empty(SIZE, np.float32)
    place = address(first)
    del first
    again = empty((SIZE // 2, 2), np.float32)
    assert address(again) == place
    assert again.shape == (SIZE // 2, 2)
    assert again.flags["C_CONTIGUOUS"]
    assert again.flags["WRITEABLE"]


VIEWS = {
    "slice": lambda a: a[3:],
    "row": lambda a: a.reshape(2, -1)[1],
    "type": lambda a: a.view(np.int32),
    "same": np.asarray,
}


@pytest.mark.parametrize("view", VIEWS)
def test_empty__never_serves_memory_that_a_view_still_sees(view):
    first = empty(SIZE, np.float32)
    first[:] = 1.0
    seen = VIEWS[view](first)
    before = seen.copy()
    del first
    others = [empty(SIZE, np.float32) for _ in range(3)]
    for other in others:
        other[:] = 2.0
        assert not np.shares_memory(other, seen)
    np.testing.assert_array_equal(seen, before)


@pytest.mark.parametrize("spare", [0, 2 * SIZE])
def test_empty__takes_a_kept_block_for_an_array_of_about_its_size(spare, monkeypatch):
    monkeypatch.setattr(memory, "SPARE", spare)
    first = empty(SIZE, np.float32)
    place = address(first)
    del first
    assert address(empty(int(SIZE / 1.2), np.float32)) == place
    small = empty(SIZE // 2, np.float32)
    assert (address(small) == place) == (spare > 0)
    assert small.nbytes == 2 * SIZE


def test_empty__a_small_budget_does_not_hold_a_large_block(monkeypatch):
    monkeypatch.setattr(memory, "STAYS", 4 * SIZE - 1)
    monkeypatch.setattr(memory, "SPARE", 0)
    large = empty(SIZE, np.float32)
    del large
    small = empty(SIZE // 2, np.float32)
    assert not memory._pools[0].free
    assert small.nbytes == 2 * SIZE


def test_empty__arrays_of_two_sizes_in_turn_find_their_memory_again(monkeypatch):
    """The square of a set and a smaller one of those that move: neither is given back for the other."""
    monkeypatch.setattr(memory, "SPARE", 0)
    places = [set(), set()]
    for _ in range(5):
        for seen, size in zip(places, (SIZE, SIZE // 2), strict=True):
            array = empty(size, np.float32)
            seen.add(address(array))
            del array
    pool = memory._pools[0]
    pool._collect()
    assert sorted(kept.nbytes for kept in pool.free) == [2 * SIZE, 4 * SIZE]
    assert address(empty(SIZE, np.float32)) in places[0]


def test_empty__a_large_block_stays_where_a_far_smaller_one_is_made(monkeypatch):
    """Columns of a fit are not given back for the rows of its model: the next fit wants both again."""
    monkeypatch.setattr(memory, "STAYS", SIZE)
    large = empty(64 * SIZE, np.float32)
    del large
    small = empty(SIZE, np.float32)
    assert [kept.nbytes for kept in memory._pools[0].free] == [64 * 4 * SIZE]
    assert small.nbytes == 4 * SIZE


def test_empty__keeps_no_more_than_was_asked_for_last():
    for size in (SIZE, 2 * SIZE, 4 * SIZE, 8 * SIZE):
        array = empty(size, np.float32)
        del array
    pool = memory._pools[0]
    pool._collect()
    assert sum(kept.nbytes for kept in pool.free) <= 1.5 * 8 * SIZE * 4


def test_kept_memory__goes_back_to_the_system_when_idle(monkeypatch):
    monkeypatch.setattr(memory, "IDLE", 0.05)
    pool = memory._Pool()
    long = pool.empty(SIZE, np.dtype(np.float32))
    time.sleep(0.2)  # longer than a pause: the loan outlives several looks
    del long
    deadline = time.monotonic() + 10.0
    while pool._watched and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not pool._watched
    assert not pool.free
    assert not pool._lent


def test_kept_memory__that_nobody_asks_for_goes_back_though_other_memory_is_in_use(monkeypatch):
    monkeypatch.setattr(memory, "IDLE", 0.05)
    pool = memory._Pool()
    large = pool.empty(2 * SIZE, np.dtype(np.float32))
    del large
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        array = pool.empty(SIZE, np.dtype(np.float32))
        del array
        time.sleep(0.01)
        if not any(kept.nbytes == 8 * SIZE for kept in pool.free):
            break
    assert not any(kept.nbytes == 8 * SIZE for kept in pool.free)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_empty__serves_the_child_of_a_fork():
    held = empty(SIZE, np.float32)
    held[:] = 1.0
    child = os.fork()
    if child == 0:
        other = empty(SIZE, np.float32)
        other[:] = 2.0
        os._exit(0 if held[0] == 1.0 and not np.shares_memory(other, held) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_empty__an_interrupt_is_not_lost_where_a_loan_ends():
    """A signal that comes while memory goes back is raised where the program is, not swallowed by a finaliser."""

    def interrupt(number, frame):
        raise KeyboardInterrupt

    def busy(delay):
        signal.setitimer(signal.ITIMER_REAL, delay)
        ends = time.monotonic() + 5.0
        while time.monotonic() < ends:
            empty(SIZE, np.float32)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for delay in np.random.default_rng(0).uniform(1e-4, 2e-3, 200):
            with pytest.raises(KeyboardInterrupt):
                busy(delay)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
