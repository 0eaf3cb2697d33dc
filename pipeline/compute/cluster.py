"""A Dask client from the `cluster` section: local processes, or somebody else's cluster; or no client, in process.

One set of workers (`pipeline.compute.workers`) for all kinds, so that what runs on a laptop runs unchanged on many
hosts.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.compute.driver import (
    dask_settings,
    exit_on_sigterm,
    main_stays_here,
    restore_environment,
    signals_kept,
    silence_dask,
)
from pipeline.compute.workers import VERSION, ClusterLost, DaskWorkers, InlineWorkers, Workers, wrong_version
from pipeline.config.values import check_encrypted, check_factory, expand
from pipeline.storage.private import cache_folder, private_folder
from svmcore.errors import InputError, did_you_mean
from svmcore.runtime.threads import n_cores

__all__ = ["open_workers"]

CONNECT_SECONDS = 12.0  # an address that does not answer is an error within 15 s
QUEUE_SECONDS = 900.0  # a factory's workers may first wait in a batch system's queue
LOST_WORKER = "distributed.deploy.lost-worker-timeout"


@contextlib.contextmanager
def open_workers(config: Any, client: Any = None) -> Iterator[Workers]:
    """Open the workers of `config`, a `config.schema.Cluster` or a mapping with its keys; they are closed at the end.

    With a `client`, a `distributed.Client` of the user, its workers are taken instead, and stay open.

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
    with exit_on_sigterm():
        if kind == "inline":
            yield InlineWorkers()
            return
        given = None if client is None else contextlib.nullcontext(client)
        with dask_settings(), given or _OPENERS[kind](options) as client:
            if kind != "local":
                _check_versions(client)
            try:
                yield DaskWorkers(client)
            finally:
                if given is None:
                    silence_dask()


@contextlib.contextmanager
def _local(options: dict[str, Any]) -> Iterator[Any]:
    """Start one-thread worker processes on this host; they end with this process, even when it is killed.

    Keys made for this cluster, in memory alone, encrypt it: another user of the host can reach its ports, and no more.
    A worker that was ended is started again, however long that takes: Dask looks once, after 15 s, and gives up
    for good a worker that is not there at that moment, also one that was back and was ended again. Clusters of a batch
    system keep that: a job that is gone does not come back, and is to be asked for anew.
    """
    import dask

    environment = dict(os.environ)
    with (
        main_stays_here(),
        dask.config.set({LOST_WORKER: "1 day"}),
        _local_cluster(options.get("workers") or n_cores()) as cluster,
        _client(cluster, "the local cluster") as client,
    ):
        restore_environment(environment)
        if options.get("memory"):
            _limit_memory(client, options["memory"])
        yield client


def _local_cluster(n_workers: int) -> Any:
    """A started cluster; ClusterLost if a worker is killed as it starts."""
    from distributed import LocalCluster, Security

    try:
        return LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=None,  # Dask would take a mapped K for a worker's own memory; see _limit_memory
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # its HTTP server starts even so, on 8787
            security=Security.temporary(),
            local_directory=str(private_folder(cache_folder() / "workers")),  # Dask purges what killed processes left
        )
    except RuntimeError as error:
        raise ClusterLost(f"the local workers did not start ({error}); run the command again") from error


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
            """Lower the soft limit of the worker's process, where the system has one."""
            with contextlib.suppress(ImportError, OSError, ValueError):
                import resource

                hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
                limit = self.limit_bytes if hard == resource.RLIM_INFINITY else min(self.limit_bytes, hard)
                resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))

    client.register_plugin(Limit(parse_bytes(memory)))


@contextlib.contextmanager
def _address(options: dict[str, Any]) -> Iterator[Any]:
    """Connect to a running scheduler, plainly or over TLS."""
    address = str(options["address"])
    check_encrypted(address, options.get("insecure", False))
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
    check_encrypted(str(address), options.get("insecure", False))
    with _client(address, f"the scheduler of {path}, {address},", _security(options.get("tls"))) as client:
        yield client


@contextlib.contextmanager
def _factory(options: dict[str, Any]) -> Iterator[Any]:
    """Start a cluster class by name, such as dask_jobqueue.SLURMCluster, with its keyword arguments."""
    name = str(options["factory"])
    dasks_own = check_factory(name)
    module, _, attribute = name.rpartition(".")
    try:
        with signals_kept():
            factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"cluster.factory {name!r} cannot be imported ({error}); install it") from error
    if dasks_own and not _is_cluster(factory):
        raise InputError(f"cluster.factory {name!r} is no class of clusters; name one, as dask_jobqueue.SLURMCluster")
    with main_stays_here(), contextlib.closing(_made(factory, name, _filled(options.get("kwargs", {})))) as cluster:
        check_encrypted(str(cluster.scheduler_address), options.get("insecure", False))  # before workers are asked for
        _ask_for(cluster, options.get("workers"))
        with _client(cluster, f"cluster {name}", queue_seconds=QUEUE_SECONDS) as client:
            yield client


def _ask_for(cluster: Any, workers: int | Mapping[str, int] | None) -> None:
    """Ask for so many workers, or for as many as there is work for between {minimum, maximum}."""
    if isinstance(workers, Mapping):
        cluster.adapt(**workers)
    elif workers:
        cluster.scale(workers)


def _is_cluster(factory: Any) -> bool:
    from distributed.deploy import Cluster

    return isinstance(factory, type) and issubclass(factory, Cluster)


def _filled(value: Any) -> Any:
    """Fill `${NAME}` from the environment into keyword arguments, at the last moment."""
    if isinstance(value, Mapping):
        return {key: _filled(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(part) for part in value]
    return expand(value) if isinstance(value, str) else value


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
    started = time.monotonic()
    try:
        client = _connected(target, security)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{what} does not answer ({reason}); start it or correct the address") from error
    with contextlib.closing(client):  # `with client` could be left by the thread alone that entered it
        left = max(queue_seconds, CONNECT_SECONDS - (time.monotonic() - started), 1.0)
        try:
            client.wait_for_workers(1, timeout=left)
        except TimeoutError as error:
            raise InputError(f"{what} answers but has no worker after {left:.0f} s; start workers") from error
        yield client


def _connected(target: Any, security: Any) -> Any:
    """A client of `target`; one that does not connect is closed before the error goes on.

    Else whichever thread collects it closes it, and that takes Dask's one lock of all loops that start and stop. Who
    holds it may be waiting for just that thread.
    """
    from distributed import Client

    client = Client.__new__(Client)
    try:
        client.__init__(target, timeout=CONNECT_SECONDS, security=security)  # type: ignore[misc]
    except BaseException:
        with contextlib.suppress(AttributeError):  # of what failed before anything was begun
            client.close()
        raise
    return client


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
        raise wrong_version(VERSION, others)
