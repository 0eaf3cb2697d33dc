"""What opening a Dask cluster changes in the driver's process, and how it is taken back.

Configuration, log levels, environment, signals and `__main__`: a program that opens workers finds itself as it was.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.compute.workers import LOST_SECONDS

__all__ = [
    "dask_settings",
    "exit_on_sigterm",
    "main_stays_here",
    "restore_environment",
    "signals_kept",
    "silence_dask",
]

LOGGERS = ("distributed", "distributed.client")  # the second has a level of its own
PRE_SPAWN = "distributed.nanny.pre-spawn-environ"
SETTINGS: dict[str, Any] = {
    "distributed.scheduler.no-workers-timeout": f"{LOST_SECONDS:.0f}s",
    "distributed.scheduler.allowed-failures": 3,
    "distributed.scheduler.active-memory-manager.start": False,
    # looking at themselves that often took 3 % of a core of the driver, and 3 % of each worker
    "distributed.admin.tick.interval": "500ms",
    "distributed.worker.profile.interval": "100ms",
    "distributed.adaptive.target-duration": "1s",  # of work for each worker: only four tasks a worker are under way
    PRE_SPAWN: {
        # Dask's 64 KB gave all memory back at once: faults of pages that were had again took a tenth of a batch
        "MALLOC_TRIM_THRESHOLD_": 1 << 26,
        "MALLOC_MMAP_THRESHOLD_": 1 << 25,
        "OMP_NUM_THREADS": 1,
        "MKL_NUM_THREADS": 1,
        "OPENBLAS_NUM_THREADS": 1,
        "NUMBA_NUM_THREADS": 1,
        "SVMCORE_THREADS": 1,
        "NUMBA_THREADING_LAYER": "omp",
        "DASK_LOGGING__DISTRIBUTED": "critical",  # what matters comes back to the driver
    },
}


@contextlib.contextmanager
def dask_settings() -> Iterator[None]:
    """Our Dask configuration, a quiet log and an unchanged environment for the time the workers are open."""
    import dask
    import distributed  # noqa: F401  (sets its loggers up at import: a level set before would be lost)

    environment = dict(os.environ)
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    _set_levels(dict.fromkeys(LOGGERS, logging.WARNING))
    try:
        with dask.config.set(SETTINGS):
            yield
    finally:
        _set_levels(levels)
        restore_environment(environment)


def _set_levels(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def silence_dask() -> None:
    """Log nothing more: the heartbeats and comms that closing a cluster cuts off are not worth a line."""
    _set_levels(dict.fromkeys(LOGGERS, logging.CRITICAL))


def restore_environment(environment: dict[str, str]) -> None:
    """Take back what a nanny's pre-spawn environment left in ours: it would cap our own threads."""
    for key in os.environ.keys() - environment.keys():
        if key in SETTINGS[PRE_SPAWN] or key == "PYTHONHASHSEED":
            del os.environ[key]


@contextlib.contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Turn a SIGTERM nobody handles into SystemExit(143), so that everything is closed on the way out."""

    def leave(signum: int, frame: Any) -> None:
        raise SystemExit(128 + signum)

    main_thread = threading.current_thread() is threading.main_thread()
    ours = main_thread and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def main_stays_here() -> Iterator[None]:
    """Keep spawned workers from importing the driver's script: one without a guard would run itself again."""
    names: dict[str, Any] = vars(sys.modules["__main__"])
    hidden: dict[str, Any] = {key: names.pop(key) for key in ("__file__", "__spec__") if key in names}
    names["__spec__"] = None
    try:
        yield
    finally:
        names.update(hidden)


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Undo what an import does to Ctrl-C: dask_jobqueue makes it end the process without a word."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not before:
        signal.signal(signal.SIGINT, before)
