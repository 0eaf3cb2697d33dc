"""Split a range over the threads that BLAS was given: compiled passes release the lock, so plain threads serve."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache

from threadpoolctl import ThreadpoolController

__all__ = ["n_threads", "one_blas_thread", "split_range"]


@lru_cache(maxsize=1)
def n_threads() -> int:
    """Threads a pass may use: OMP_NUM_THREADS if set (a Dask worker sets 1), else the cores this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(int(asked), cores)) if asked.isdigit() else cores


_inside = threading.local()


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads(), initializer=lambda: setattr(_inside, "pool", True))


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Hold BLAS to one thread: on small matrices its own threads cost more than they bring."""
    return _blas().limit(limits=1, user_api="blas")


def split_range(n: int, work: Callable[[int, int], None], least: int = 1) -> None:
    """Call `work(start, stop)` over 0 ... n, one range per thread, none shorter than about `least`.

    BLAS is held to one thread meanwhile: each range does its own matrix products.

    >>> done = []
    >>> split_range(10, lambda start, stop: done.append((start, stop)), least=100)
    >>> done
    [(0, 10)]
    """
    # a range split again inside a thread of the pool would wait for that very thread
    parts = 1 if getattr(_inside, "pool", False) else max(1, min(n_threads(), n // max(1, least)))
    if parts == 1:
        work(0, n)
        return
    edges = [n * part // parts for part in range(parts + 1)]
    with one_blas_thread():
        futures = [_pool().submit(work, edges[part], edges[part + 1]) for part in range(parts)]
        for future in futures:
            future.result()
