"""Split a range over threads: compiled passes and matrix products release the lock, so plain threads serve.

Matrix products run on the BLAS thread of whoever asks for them: `one_blas_thread` around everything that computes. Then
no answer depends on the number of threads, given that ranges begin at the same places whatever the number.
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ContextDecorator, contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["Turns", "n_threads", "one_blas_thread", "side_by_side", "split_range"]

Made = TypeVar("Made")


@lru_cache(maxsize=1)
def n_threads() -> int:
    """Threads a pass may use: OMP_NUM_THREADS if set (a Dask worker sets 1), else the cores this process may use.

    SVMCORE_THREADS goes before both, and may be more than the cores: so that a test sees many threads on any machine.
    """
    asked = os.environ.get("SVMCORE_THREADS", "")
    if asked.isdigit():
        return max(1, int(asked))
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return max(1, min(int(asked), n_cores())) if asked.isdigit() else n_cores()


def n_cores() -> int:
    """Cores that this process may use; where the system does not tell (macOS), those there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Pool:
    """The threads of this process, started when first needed, and again in the child of a fork, where none survive."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._inside = threading.local()
        self._beside = 0

    @property
    def share(self) -> int:
        """How many threads the caller may use: one of these none but itself, those side by side share them."""
        return 1 if getattr(self._inside, "pool", False) else max(1, n_threads() // max(1, self._beside))

    def beside(self, change: int) -> None:
        """So many more callers are under way at once."""
        with self._lock:
            self._beside += change

    def run(self, work: Callable[[int, int], None], edges: list[int]) -> None:
        """Call `work` on every range between two edges, and raise the first error.

        The caller does the first range itself: a thread that only waits leaves its core to one that it has woken, and
        the system may be slow to find that another core is free.
        """
        (first, stop), *others = itertools.pairwise(edges)
        executor = self._started()
        futures = [executor.submit(work, *ends) for ends in others]
        self._inside.pool = True
        try:
            work(first, stop)
        finally:
            self._inside.pool = False
        for future in futures:
            future.result()

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None:
                enter = lambda: setattr(self._inside, "pool", True)  # noqa: E731
                self._executor = ThreadPoolExecutor(n_threads(), "svmcore", initializer=enter)
            return self._executor


class Turns:
    """So many callers compute at a time; one that waits for others lends its turn to them.

    >>> turns = Turns(1)
    >>> with turns, turns.lent(), turns:
    ...     "another one's turn"
    "another one's turn"
    """

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    def __enter__(self) -> None:
        self._free.acquire()
        _pools[-1].beside(1)

    def __exit__(self, *error: object) -> None:
        _pools[-1].beside(-1)
        self._free.release()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """The turn is others' meanwhile."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def take(self, work: Callable[[], Made]) -> Made:
        """Call `work` when it is its turn."""
        with self:
            return work()


class _Holds(threading.local):
    """How often a thread holds the limit."""

    count = 0


class _BlasLimit(ContextDecorator):
    """One limit for all who want it, at any time and on any thread: the first sets it, the last one lifts it.

    Limits that each remember what they found would restore in the wrong order, and leave BLAS at one thread.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may interrupt its own thread here
        self._holders = 0
        self._mine = _Holds()
        self._found: list[tuple[Any, int]] | None = None  # while held: libraries of more threads

    def __enter__(self) -> None:
        with self._lock:
            if self._found is None:
                self._limit()
            self._holders += 1
            self._mine.count += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._holders -= 1
            self._mine.count -= 1
            if self._holders == 0:
                self._lift()

    def _limit(self) -> None:
        found = [(library, library.num_threads) for library in _blas()]
        self._found = [(library, count) for library, count in found if count != 1]
        _set_threads([(library, 1) for library, _ in self._found])

    def _lift(self) -> None:
        _set_threads(self._found or [])
        self._found = None

    def before_fork(self) -> None:
        """No other thread is half way through a change when the process is copied."""
        self._lock.acquire()

    def in_parent(self) -> None:
        """After the fork."""
        self._lock.release()

    def in_child(self) -> None:
        """After the fork: the other threads are gone, and so is what they hold."""
        self._lock = threading.RLock()
        self._holders = self._mine.count
        if self._holders == 0:
            self._lift()


@lru_cache(maxsize=1)
def _blas() -> list[Any]:
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _set_threads(wanted: list[tuple[Any, int]]) -> None:
    """Set the threads of BLAS libraries, from whatever thread.

    threadpoolctl lets the first thread that sets them do it until it is done, and the others do nothing, silently.
    """
    for library, count in wanted:
        give_up = getattr(library, "clear_controlling_thread", lambda force: None)  # since threadpoolctl 3.8
        give_up(force=True)
        library.set_num_threads(count)
        give_up(force=True)


_blas_limit = _BlasLimit()
_pools = [_Pool()]  # the last one is this process's; those before it belong to processes that it was forked from


def _in_child() -> None:
    _pools.append(_Pool())  # the old one is kept: to delete it would be to wake threads that are not there
    _blas_limit.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_blas_limit.before_fork, after_in_parent=_blas_limit.in_parent, after_in_child=_in_child)


def one_blas_thread() -> _BlasLimit:
    """Hold BLAS to one thread, as a context or a decorator; of several at once, the last one to end lifts it.

    >>> from threadpoolctl import threadpool_info
    >>> with one_blas_thread():
    ...     {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
    {1}
    """
    return _blas_limit


def split_range(n: int, work: Callable[[int, int], None], least: int = 1, grain: int = 1) -> None:
    """Call `work(start, stop)` over 0 ... n, one range per thread, none shorter than about `least`.

    Every start is a multiple of `grain`: work that goes by blocks of `grain` from its start does the same blocks on any
    number of threads, hence gives the same bits. BLAS is held to one thread meanwhile.

    >>> done = []
    >>> split_range(10, lambda start, stop: done.append((start, stop)), least=100)
    >>> done
    [(0, 10)]
    """
    pool, parts = _pools[-1], n // max(1, least)
    if parts > 1:  # a range split again inside a thread of the pool would wait for that very thread
        parts = min(pool.share, parts)
    with one_blas_thread():
        if parts <= 1:
            work(0, n)
            return
        blocks = -(-n // grain)
        pool.run(work, [min(n, grain * (blocks * part // parts)) for part in range(parts + 1)])


def side_by_side(
    work: Sequence[Callable[[], Made]],
    threads: int,
    give_up: Callable[[], object] | None = None,
    turns: Turns | None = None,
) -> Iterator[Made]:
    """Yield what each call returns, as they end, on so many threads of their own; 0 is the caller's, one by one.

    While as many are under way as there are threads, none splits its ranges; the last ones do. Where the caller stops
    or a call fails, `give_up` tells those under way, and no other is begun. Calls that wait for each other need a
    thread each: `turns` says how many of them compute at a time.

    >>> sorted(side_by_side([lambda: 1, lambda: 2], threads=2))
    [1, 2]
    """
    if not threads:
        yield from (each() for each in work)
        return
    turns = turns or Turns(threads)
    with ThreadPoolExecutor(threads, "svmcore-problem") as pool:
        try:
            futures = [pool.submit(turns.take, each) for each in work]
            for future in as_completed(futures):
                yield future.result()
        except BaseException:  # Ctrl-C, SIGTERM or an error: nobody waits for the rest
            if give_up is not None:
                give_up()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
