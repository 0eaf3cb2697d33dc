"""Workers from the `cluster` section: in this process, local processes, or somebody else's Dask cluster.

One method set for all kinds, so that what runs on a laptop runs unchanged on many hosts. Results come back as
they complete; no task is pinned to a worker, because a pinned task waits for ever for a lost one
(dask/distributed#8600). Arrays do not belong in items: paths, row ranges and fingerprints do.
"""

import contextlib
import functools
import getpass
import importlib
import importlib.metadata
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from svmcore.errors import InputError, MemoryLimit, SVMError, did_you_mean

__all__ = ["ClusterLost", "DaskWorkers", "InlineWorkers", "Workers", "open_workers"]

Item = TypeVar("Item")
Result = TypeVar("Result")

CONNECT_SECONDS = 12.0  # an address that does not answer is an error within 15 s
QUEUE_SECONDS = 900.0  # a factory's workers may first wait in a batch system's queue
LOST_SECONDS = 60.0  # no worker at all for this long ends the work
POLL_SECONDS = 5.0
VERSION = importlib.metadata.version("marginflow")

LOGGERS = ("distributed", "distributed.client")  # the second has a level of its own
PRE_SPAWN = "distributed.nanny.pre-spawn-environ"
SETTINGS: dict[str, Any] = {
    "distributed.scheduler.no-workers-timeout": f"{LOST_SECONDS:.0f}s",
    "distributed.scheduler.allowed-failures": 3,
    "distributed.scheduler.active-memory-manager.start": False,
    PRE_SPAWN: {
        "MALLOC_TRIM_THRESHOLD_": 65536,
        "OMP_NUM_THREADS": 1,
        "MKL_NUM_THREADS": 1,
        "OPENBLAS_NUM_THREADS": 1,
        "NUMBA_NUM_THREADS": 1,
        "NUMBA_THREADING_LAYER": "omp",
        "DASK_LOGGING__DISTRIBUTED": "critical",  # what matters comes back to the driver
    },
}


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
        from threadpoolctl import threadpool_limits

        for index, item in enumerate(items):
            with threadpool_limits(1, "blas"):
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


# ---- opening and closing
@contextlib.contextmanager
def open_workers(config: Any) -> Iterator[Workers]:
    """Open the workers of `config`, a `pipeline.config.Cluster` or a mapping with its keys; they are closed at the end.

    Raises
    ------
    InputError
        An address or scheduler file that does not answer within 15 s, a factory that cannot be imported, or
        workers with another version of marginflow.

    Examples
    --------
    >>> with open_workers({"kind": "inline"}) as workers:
    ...     list(workers.map(abs, [-1, -2]))
    [(0, 1), (1, 2)]
    """
    options = dict(config if isinstance(config, Mapping) else config.model_dump(exclude_none=True))
    kind = options.pop("kind", "local")
    if kind != "inline" and kind not in _OPENERS:
        known = ["inline", *_OPENERS]
        near = did_you_mean(kind, known)
        raise InputError(f"unknown cluster.kind {kind!r}{near} known: {', '.join(known)}")
    with _exit_on_sigterm():
        if kind == "inline":
            yield InlineWorkers()
            return
        with _dask_settings(), _OPENERS[kind](options) as client:
            if kind != "local":
                _check_versions(client)
            try:
                yield DaskWorkers(client)
            finally:  # heartbeats and comms that closing cuts off are not worth a line
                _set_levels(dict.fromkeys(LOGGERS, logging.CRITICAL))


@contextlib.contextmanager
def _dask_settings() -> Iterator[None]:
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
        _restore(environment)


def _set_levels(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def _restore(environment: dict[str, str]) -> None:
    """Take back what a nanny's pre-spawn environment left in ours: it would cap our own threads."""
    for key in os.environ.keys() - environment.keys():
        if key in SETTINGS[PRE_SPAWN] or key == "PYTHONHASHSEED":
            del os.environ[key]


@contextlib.contextmanager
def _exit_on_sigterm() -> Iterator[None]:
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
def _main_stays_here() -> Iterator[None]:
    """Keep spawned workers from importing the driver's script: one without a guard would run itself again."""
    names: dict[str, Any] = vars(sys.modules["__main__"])
    hidden: dict[str, Any] = {key: names.pop(key) for key in ("__file__", "__spec__") if key in names}
    names["__spec__"] = None
    try:
        yield
    finally:
        names.update(hidden)


@contextlib.contextmanager
def _local(options: dict[str, Any]) -> Iterator[Any]:
    """Start one-thread worker processes on this host; they end with this process, even when it is killed."""
    from distributed import LocalCluster

    environment = dict(os.environ)
    folder = Path(tempfile.gettempdir()) / f"marginflow-{getpass.getuser()}"
    with (
        _main_stays_here(),
        LocalCluster(
            n_workers=options.get("workers") or len(os.sched_getaffinity(0)),
            threads_per_worker=1,
            processes=True,
            memory_limit=None,  # Dask would take a mapped K for a worker's own memory; see _limit_memory
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # its HTTP server starts even so, on 8787
            local_directory=str(folder),  # Dask purges what killed processes left below it
        ) as cluster,
        _client(cluster, "the local cluster") as client,
    ):
        _restore(environment)
        if options.get("memory"):
            _limit_memory(client, options["memory"])
        yield client


def _limit_memory(client: Any, memory: int | str) -> None:
    """Cap what each worker allocates, now and after a restart: beyond it NumPy raises MemoryError."""
    from dask.utils import parse_bytes
    from distributed import WorkerPlugin

    class Limit(WorkerPlugin):
        """RLIMIT_DATA counts private memory and leaves mapped files out."""

        name = "marginflow-memory"

        def __init__(self, limit_bytes: int) -> None:
            self.limit_bytes = limit_bytes

        def setup(self, worker: Any) -> None:
            """Lower the soft limit of the worker's process."""
            import resource

            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            limit = self.limit_bytes if hard == resource.RLIM_INFINITY else min(self.limit_bytes, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))

    client.register_plugin(Limit(parse_bytes(memory)))


@contextlib.contextmanager
def _address(options: dict[str, Any]) -> Iterator[Any]:
    """Connect to a running scheduler, plainly or over TLS."""
    address = str(options["address"])
    with _client(address, f"cluster address {address}", _security(options.get("tls"))) as client:
        yield client


@contextlib.contextmanager
def _scheduler_file(options: dict[str, Any]) -> Iterator[Any]:
    """Connect to the scheduler that wrote a file."""
    path = Path(options["path"])
    try:
        address = json.loads(path.read_text())["address"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"scheduler file {path} cannot be read ({type(error).__name__}: {error}); "
            f"write it with `dask scheduler --scheduler-file {path}`"
        ) from error
    with _client(address, f"the scheduler of {path}, {address},", _security(options.get("tls"))) as client:
        yield client


@contextlib.contextmanager
def _factory(options: dict[str, Any]) -> Iterator[Any]:
    """Start a cluster class by name, such as dask_jobqueue.SLURMCluster, with its keyword arguments."""
    name = str(options["factory"])
    module, _, attribute = name.rpartition(".")
    try:
        with _signals_kept():
            factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"cluster.factory {name!r} cannot be imported ({error}); install it") from error
    with _main_stays_here(), contextlib.closing(_made(factory, name, options.get("kwargs", {}))) as cluster:
        if options.get("workers"):
            cluster.scale(options["workers"])
        with _client(cluster, f"cluster {name}", queue_seconds=QUEUE_SECONDS) as client:
            yield client


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Undo what an import does to Ctrl-C: dask_jobqueue makes it end the process without a word."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not before:
        signal.signal(signal.SIGINT, before)


def _made(factory: Callable[..., Any], name: str, kwargs: Mapping[str, Any]) -> Any:
    try:
        return factory(**kwargs)
    except (TypeError, ValueError, RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"cluster.factory {name!r} does not start ({reason}); correct cluster.kwargs") from error


_OPENERS: dict[str, Callable[[dict[str, Any]], contextlib.AbstractContextManager[Any]]] = {
    "local": _local,
    "address": _address,
    "scheduler_file": _scheduler_file,
    "factory": _factory,
}


@contextlib.contextmanager
def _client(target: Any, what: str, security: Any = None, queue_seconds: float = 0.0) -> Iterator[Any]:
    """Yield a client with at least one worker; InputError if the scheduler does not answer or has none."""
    from distributed import Client

    started = time.monotonic()
    try:
        client = Client(target, timeout=CONNECT_SECONDS, security=security)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{what} does not answer ({reason}); start it or correct the address") from error
    with client:
        left = max(queue_seconds, CONNECT_SECONDS - (time.monotonic() - started), 1.0)
        try:
            client.wait_for_workers(1, timeout=left)
        except TimeoutError as error:
            raise InputError(f"{what} answers but has no worker after {left:.0f} s; start workers") from error
        yield client


def _security(tls: Any) -> Any:
    """`distributed.Security` from {ca, cert, key}; None without TLS."""
    if not tls:
        return None
    from distributed.security import Security

    for key in ("ca", "cert", "key"):
        if not Path(str(tls.get(key))).is_file():
            raise InputError(f"cluster.tls.{key} names no file: {tls.get(key)!r}; give a PEM file's path")
    return Security(
        require_encryption=True, tls_ca_file=tls["ca"], tls_client_cert=tls["cert"], tls_client_key=tls["key"]
    )


def _check_versions(client: Any) -> None:
    """Refuse workers that run another marginflow: their blocks might differ."""
    found = client.run(importlib.metadata.version, "marginflow", on_error="return")
    named = {worker: "none" if isinstance(v, Exception) else str(v) for worker, v in found.items()}
    others = {worker: version for worker, version in named.items() if version != VERSION}
    if others:
        raise _wrong_version(VERSION, others)


def _wrong_version(wanted: str, others: Mapping[str, str]) -> InputError:
    listed = ", ".join(f"{worker} has {version}" for worker, version in sorted(others.items())[:3])
    return InputError(f"workers must run marginflow {wanted}, and {listed}; install {wanted} there")
