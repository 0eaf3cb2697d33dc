"""Where tasks run: in this process, or on the workers of a Dask client; the same calls for both.

Results come back as they complete; no task is pinned to a worker, because a pinned task waits for ever for a lost one
(dask/distributed#8600). Arrays do not belong in items: paths, row ranges and fingerprints do.
"""

import contextlib
import functools
import importlib.metadata
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pipeline.compute.direct import asked
from svmcore.errors import InputError, MemoryLimit, SVMError
from svmcore.runtime.threads import one_blas_thread

__all__ = [
    "LOST_SECONDS",
    "VERSION",
    "ClusterLost",
    "DaskWorkers",
    "InlineWorkers",
    "Sign",
    "Workers",
    "named",
    "never",
    "wrong_version",
]

Sign = Callable[[], float]
Item = TypeVar("Item")
Result = TypeVar("Result")

LOST_SECONDS = 60.0  # no worker at all for this long ends the work
COPY_SECONDS = 60.0  # no result and no progress for this long: what is in flight is given to others too
HANG_SECONDS = 900.0  # and for this long: it hangs
NEAR_SECONDS = 1.0  # how often it is asked whether the worker is there that a task is for
POLL_SECONDS = 5.0  # how often it is asked whether a worker is left; a result is seen at once
VERSION = importlib.metadata.version("marginflow")


def never() -> float:
    """Tasks that are not seen before they end."""
    return 0.0


class ClusterLost(RuntimeError):
    """The scheduler or every worker went away, or a task ended each process it ran in."""


class Workers(ABC):
    """Where tasks run; `n` of them at a time. `client` is the `distributed.Client`, None in process."""

    n: int
    client: Any = None

    @abstractmethod
    def map(
        self,
        fn: Callable[[Item], Result],
        items: Sequence[Item],
        retries: int = 2,
        sign: Sign = never,
        near: str | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Yield (index, fn(items[index])) as they complete, with a bounded number in flight.

        An SVMError raised by `fn` comes back as it is and is not tried again; anything else is, `retries`
        times. A lost worker's tasks run again elsewhere. Where nothing comes back for long, though workers live, each
        task in flight gets one copy on another worker, and the first of the two counts.

        Parameters
        ----------
        sign
            When (`time.monotonic`) the tasks were last seen at work, if that can be told before they end.
        near
            Address of the worker that is to do them while it is there.

        Raises
        ------
        ClusterLost
            Nobody is left to do the tasks, or they and their copies hang.
        """

    def ask(self, fn: Callable[[Item], Result], item: Item, where: str) -> Result | None:
        """What `fn(item)` is on the worker at `where`, sooner than by a task; None if that fails, computed or not."""
        return None

    def addresses(self) -> list[str]:
        """Of the workers that are there; of this process an empty one."""
        return [""]

    def steady(self) -> "Workers":
        """These and no others: once they are lost every call says so, where others would be opened."""
        return self


class InlineWorkers(Workers):
    """Tasks in the driver's own process, one after another: the same bytes."""

    n = 1

    def map(
        self,
        fn: Callable[[Item], Result],
        items: Sequence[Item],
        retries: int = 2,
        sign: Sign = never,
        near: str | None = None,
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
        self._seen = time.monotonic()
        self._count()

    def map(
        self,
        fn: Callable[[Item], Result],
        items: Sequence[Item],
        retries: int = 2,
        sign: Sign = never,
        near: str | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Yield (index, result) as they complete; what is in flight is cancelled when the caller stops."""
        flight = _Flight(self.client, functools.partial(_run_task, VERSION, fn), retries, named(fn), near)
        waiting = enumerate(items)
        if near is None:
            self._count()
        try:
            while True:
                # four a worker: the client sends batches every 10 ms, and no worker may wait for the next
                while len(flight.items) < 4 * self.n and (entry := next(waiting, None)) is not None:
                    flight.start(*entry)
                if not flight.items:
                    return
                started = time.monotonic()
                done = self._completed(list(flight.futures), NEAR_SECONDS if near else POLL_SECONDS)
                flight.waited += min(time.monotonic() - started, 2 * POLL_SECONDS)  # this process may have slept
                for future in done:
                    yield from flight.landed(future)
                flight.look_after(sign())
        finally:
            flight.cancel()

    def ask(self, fn: Callable[[Item], Result], item: Item, where: str) -> Result | None:
        """Hand the question through to the worker."""
        return _unrefused(asked(self.client, functools.partial(_run_task, VERSION, fn), item, where))

    def addresses(self) -> list[str]:
        """Of the workers that the scheduler knows."""
        with contextlib.suppress(OSError):
            return sorted(self.client.nthreads())
        return []

    def _count(self) -> int:
        """Count the workers' threads, 0 if there is nobody: those of a batch system come and go."""
        found = 0
        with contextlib.suppress(OSError):  # the connection is lost, or is being made again
            found = sum(self.client.nthreads().values())
        now = time.monotonic()
        self.n, self._counted = max(1, found), now
        self._seen = now if found else self._seen
        return found

    def _completed(self, futures: list[Any], seconds: float) -> list[Any]:
        """Those that are done, after `seconds` at the latest; ClusterLost when nobody is left to do them."""
        from distributed import wait
        from distributed.client import FuturesCancelledError

        if time.monotonic() - self._counted > POLL_SECONDS:
            self._count()
        try:
            with self.client.as_current():  # else `wait` asks for any other, once this one has closed itself
                return list(wait(futures, timeout=seconds, return_when="FIRST_COMPLETED").done)
        except (FuturesCancelledError, RuntimeError) as error:  # or its loop has ended
            raise ClusterLost("the connection to the cluster was lost; run the command again") from error
        except TimeoutError:
            pass
        if self.client.status in ("closing", "closed"):
            raise ClusterLost("the connection to the cluster was closed; run the command again")
        if (self.client.status != "running" or not self._count()) and time.monotonic() - self._seen > LOST_SECONDS:
            raise ClusterLost(f"the cluster had no worker for {LOST_SECONDS:.0f} s; run the command again")
        return []


class _Flight:
    """Tasks under way on a client: `items` by their index, and one or two `futures` of each.

    What was given up is refused: its future is dropped and cancelled, so a result that comes late goes to nobody.
    """

    def __init__(self, client: Any, task: Callable[[Any], Any], retries: int, name: str, near: str | None) -> None:
        self.client, self.task, self.retries, self.name, self.near = client, task, retries, name, near
        self.items: dict[int, Any] = {}
        self.futures: dict[Any, int] = {}
        self.copied: set[int] = set()
        self.waited = 0.0  # seconds since something landed

    def start(self, index: int, item: Any, **where: Any) -> None:
        """Submit a task, or a copy of it."""
        self.items[index] = item
        if self.near is not None:
            where = {"workers": [self.near], "allow_other_workers": True}
        try:
            key = f"{self.name}-{uuid.uuid4().hex}"
            future = self.client.submit(self.task, item, key=key, retries=self.retries, pure=False, **where)
        except RuntimeError as error:  # a client that is closed
            raise ClusterLost("the connection to the cluster was lost; run the command again") from error
        self.futures[future] = index

    def landed(self, future: Any) -> Iterator[tuple[int, Any]]:
        """Yield the result of what is done; of two copies the first counts, and an error only if it is both's."""
        index = self.futures.pop(future, None)
        if index is None:
            return
        twins = [other for other, of in self.futures.items() if of == index]
        if twins and future.status == "error":
            return
        for twin in twins:
            del self.futures[twin]
        if twins and self.client.status == "running":
            self.client.cancel(twins)
        del self.items[index]
        self.waited = 0.0
        yield index, _result(future)

    def look_after(self, sign: float) -> None:
        """Copy what seems to hang to other workers, once; ClusterLost when the copies do too."""
        if self.near is not None and self.waited >= NEAR_SECONDS and self.client.status == "running":
            self._leave()
        quiet = min(self.waited, time.monotonic() - sign)
        if quiet > HANG_SECONDS:
            raise ClusterLost(
                f"tasks hang ({len(self.items)} of them): no result and no progress for {HANG_SECONDS:.0f} s, though "
                "the cluster has workers; look at them and at their disks, and run the command again"
            )
        if quiet > COPY_SECONDS and self.client.status == "running" and not self.copied.issuperset(self.items):
            busy = {worker for worker, keys in self.client.processing().items() if keys}
            free = [worker for worker in self.client.nthreads() if worker not in busy]
            for index in self.items.keys() - self.copied:
                self.copied.add(index)
                self.start(index, self.items[index], **({"workers": free, "allow_other_workers": True} if free else {}))

    def _leave(self) -> None:
        """Give what was near a worker that has gone to any other.

        A task that finds no worker at all when it is submitted waits for that one alone, whatever it allows.
        """
        if self.near not in self.client.nthreads():
            self.near = None
            for index, item in self.items.items():
                self.start(index, item)

    def cancel(self) -> None:
        """Give all up."""
        if self.futures and self.client.status == "running":
            self.client.cancel(list(self.futures))


# ---- one task
def named(fn: Callable[..., Any]) -> str:
    """What the tasks of a function are called, on Dask's dashboard too.

    >>> named(functools.partial(_run_task, "1.0"))
    'run task'
    """
    called = getattr(fn, "func", fn)
    return str(getattr(called, "__name__", type(called).__name__)).strip("_").replace("_", " ")


class _Refusal(NamedTuple):
    """An error of the input, returned and not raised: Dask would only try the task again."""

    error: SVMError


def _run_task(version: str, fn: Callable[[Any], Any], item: Any) -> Any:
    """Run `fn(item)` in a worker process that has the driver's version, with one BLAS thread."""
    if version != VERSION:
        return _Refusal(wrong_version(version, {"a worker": VERSION}))
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
    return _unrefused(result)


def _unrefused(result: Any) -> Any:
    """The result, or the error of the input that it is."""
    if isinstance(result, _Refusal):
        raise result.error
    return result


def wrong_version(wanted: str, others: Mapping[str, str]) -> InputError:
    """What workers with `others` are told, by their names."""
    listed = ", ".join(f"{worker} has {version}" for worker, version in sorted(others.items())[:3])
    return InputError(f"workers must run marginflow {wanted}, and {listed}; install {wanted} there")
