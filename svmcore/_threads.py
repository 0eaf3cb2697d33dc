"""Split a range over the threads that BLAS was given: compiled passes release the lock, so plain threads serve."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from threadpoolctl import ThreadpoolController

__all__ = ["n_threads", "split_range"]


@lru_cache(maxsize=1)
def n_threads() -> int:
    """Threads a pass may use: OMP_NUM_THREADS if set (a Dask worker sets 1), else the cores this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(int(asked), cores)) if asked.isdigit() else cores


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads(), thread_name_prefix="svmcore")


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def split_range(n: int, work: Callable[[int, int], None], least: int = 1) -> None:
    """Call `work(start, stop)` over 0 ... n, one range per thread, none shorter than about `least`.

    BLAS is held to one thread meanwhile: each range does its own matrix products.

    >>> done = []
    >>> split_range(10, lambda start, stop: done.append((start, stop)), least=100)
    >>> done
    [(0, 10)]
    """
    parts = max(1, min(n_threads(), n // max(1, least)))
    if parts == 1:
        work(0, n)
        return
    edges = [n * part // parts for part in range(parts + 1)]
    with _blas().limit(limits=1, user_api="blas"):
        futures = [_pool().submit(work, edges[part], edges[part + 1]) for part in range(parts)]
        for future in futures:
            future.result()
