"""Where tasks run: in this process, or on the workers of a Dask client; the same calls for both.

Results come back as they complete; no task is pinned to a worker, because a pinned task waits for ever for a lost one
(dask/distributed#8600). Arrays do not belong in items: paths, row ranges and fingerprints do.
"""

import contextlib
import functools
import importlib.metadata
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from svmcore.errors import InputError, MemoryLimit, SVMError
from svmcore.runtime.threads import one_blas_thread

__all__ = ["LOST_SECONDS", "VERSION", "ClusterLost", "DaskWorkers", "InlineWorkers", "Workers", "check_versions"]

Item = TypeVar("Item")
Result = TypeVar("Result")

LOST_SECONDS = 60.0  # no worker at all for this long ends the work
POLL_SECONDS = 5.0  # how often it is asked whether a worker is left; a result is seen at once
VERSION = importlib.metadata.version("marginflow")


class ClusterLost(RuntimeError):
    """The scheduler or every worker went away, or a task ended each process it ran in."""


class Workers(ABC):
    """Where tasks run; `n` of them at a time. `client` is the `distributed.Client`, None in process."""

    n: int
    client: Any = None

    @abstractmethod
    def map(
        self, fn: Callable[[Item], Result], items: Sequence[Item], retries: int = 2
    ) -> Iterator[tuple[int, Result]]:
        """Yield (index, fn(items[index])) as they complete, with a bounded number in flight.

        An SVMError raised by `fn` comes back as it is and is not tried again; anything else is, `retries`
        times. A lost worker's tasks run again elsewhere.
        """


class InlineWorkers(Workers):
    """Tasks in the driver's own process, one after another: the same bytes."""

    n = 1

    def map(
        self, fn: Callable[[Item], Result], items: Sequence[Item], retries: int = 2
    ) -> Iterator[tuple[int, Result]]:
        """Yield (index, result) in order."""
        for index, item in enumerate(items):
            with one_blas_thread():
                result = fn(item)
            yield index, result


class DaskWorkers(Workers):
    """The workers of a `distributed.Client`."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._count()

    def map(
        self, fn: Callable[[Item], Result], items: Sequence[Item], retries: int = 2
    ) -> Iterator[tuple[int, Result]]:
        """Yield (index, result) as they complete; what is in flight is cancelled when the caller stops."""
        task = functools.partial(_run_task, VERSION, fn)
        waiting = enumerate(items)
        flight: dict[Any, int] = {}
        self._count()
        try:
            while True:
                # four a worker: the client sends batches every 10 ms, and no worker may wait for the next
                while len(flight) < 4 * self.n and (entry := next(waiting, None)) is not None:
                    flight[self.client.submit(task, entry[1], retries=retries, pure=False)] = entry[0]
                if not flight:
                    return
                for future in self._completed(list(flight)):
                    yield flight.pop(future), _result(future)
        finally:
            if flight and self.client.status == "running":
                self.client.cancel(list(flight))

    def _count(self) -> int:
        """Count the workers' threads, 0 if there is nobody: those of a batch system come and go."""
        found = 0
        with contextlib.suppress(OSError):  # the connection is lost, or is being made again
            found = sum(self.client.nthreads().values())
        self.n, self._counted = max(1, found), time.monotonic()
        return found

    def _completed(self, futures: list[Any]) -> list[Any]:
        """Wait until at least one is done; ClusterLost when nobody is left to do them."""
        from distributed import wait
        from distributed.client import FuturesCancelledError

        seen = time.monotonic()
        if seen - self._counted > POLL_SECONDS:
            self._count()
        while True:
            try:
                return list(wait(futures, timeout=POLL_SECONDS, return_when="FIRST_COMPLETED").done)
            except FuturesCancelledError as error:
                raise ClusterLost("the connection to the cluster was lost; run the command again") from error
            except TimeoutError:
                pass
            if self.client.status == "running" and self._count():
                seen = time.monotonic()
            elif time.monotonic() - seen > LOST_SECONDS:
                raise ClusterLost(f"the cluster had no worker for {LOST_SECONDS:.0f} s; run the command again")


# ---- one task
class _Refusal(NamedTuple):
    """An error of the input, returned and not raised: Dask would only try the task again."""

    error: SVMError


def _run_task(version: str, fn: Callable[[Any], Any], item: Any) -> Any:
    """Run `fn(item)` in a worker process that has the driver's version, with one BLAS thread."""
    if version != VERSION:
        return _Refusal(_wrong_version(version, {"a worker": VERSION}))
    _one_blas_thread()
    try:
        return fn(item)
    except SVMError as error:
        return _Refusal(error)
    except MemoryError as error:
        return _Refusal(MemoryLimit(f"a task does not fit a worker's memory ({error}); raise cluster.memory"))
    except (Exception, SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # Dask's `Future.result` waits for ever for one of these
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


@functools.cache
def _one_blas_thread() -> None:
    """Fix BLAS at one thread for the life of this worker: a remote one has an environment of its own."""
    import scipy.linalg  # noqa: F401  (loads the second BLAS, which must exist to be limited)
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, "blas")


def _result(future: Any) -> Any:
    """Return the task's result or raise its error."""
    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker, NoValidWorkerError

    try:
        result = future.result()
    except KilledWorker as error:
        raise ClusterLost(
            "a task ended its worker process four times, most likely for want of memory; "
            "raise cluster.memory, use fewer workers or lower data.rows"
        ) from error
    except NoValidWorkerError as error:
        raise ClusterLost(f"the cluster had no worker for {LOST_SECONDS:.0f} s; run the command again") from error
    except FutureCancelledError as error:
        raise ClusterLost("the connection to the cluster was lost; run the command again") from error
    if isinstance(result, _Refusal):
        raise result.error
    return result


# ---- versions
def check_versions(client: Any) -> None:
    """Refuse workers that run another marginflow: their blocks might differ."""
    found = client.run(importlib.metadata.version, "marginflow", on_error="return")
    named = {worker: "none" if isinstance(v, Exception) else str(v) for worker, v in found.items()}
    others = {worker: version for worker, version in named.items() if version != VERSION}
    if others:
        raise _wrong_version(VERSION, others)


def _wrong_version(wanted: str, others: Mapping[str, str]) -> InputError:
    listed = ", ".join(f"{worker} has {version}" for worker, version in sorted(others.items())[:3])
    return InputError(f"workers must run marginflow {wanted}, and {listed}; install {wanted} there")
