"""What the stages of one run share: the experiment, its store and draft, workers that start when needed, a clock."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.answers.warm import warm_up
from pipeline.compute.cluster import open_workers
from pipeline.compute.dashboard import dashboard_of, reported
from pipeline.compute.driver import exit_on_sigterm
from pipeline.compute.progress import Progress, silent
from pipeline.compute.workers import LOST_SECONDS, ClusterLost, Sign, Workers, never
from pipeline.config.schema import Experiment
from pipeline.rows.sources.open import check_sources
from pipeline.running.clock import Clock
from pipeline.running.steps import silently
from pipeline.storage.base import Store
from pipeline.storage.files import told_when_full
from pipeline.storage.runs import open_store
from svmcore.errors import InputError

__all__ = ["NO_DASK", "Dask", "Session", "check_inputs", "open_session"]

PAUSE_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Dask:
    """What a user brings to Dask: a client of their own, and whether they want its performance report."""

    client: Any = None
    report: bool = False


NO_DASK = Dask()


def check_inputs(exp: Experiment, store: str | None = None) -> Store:
    """Find what is wrong before any work: the store and the sources; returns the store."""
    opened = open_store(store or exp.store)
    check_sources(exp)
    return opened


class _LazyWorkers(Workers):
    """Workers that start when the first task is there, and again after they were lost.

    `opened(again)` opens them. A second thread that loses the same workers does not close those that came after.
    """

    def __init__(self, opened: Callable[[bool], Workers]) -> None:
        self._open, self._lock = opened, threading.Lock()
        self._now: Workers | None = None
        self._again = False

    def _opened(self) -> Workers:
        with self._lock:
            if self._now is None:
                self._now, self._again = self._open(self._again), True
            return self._now

    @property
    def n(self) -> int:  # type: ignore[override]
        return self._opened().n

    @property
    def client(self) -> Any:  # type: ignore[override]
        return self._opened().client

    def addresses(self) -> list[str]:
        """As `Workers.addresses`."""
        return self._opened().addresses()

    def ask(self, fn: Any, item: Any, where: str) -> Any:
        """As `Workers.ask`."""
        return self._opened().ask(fn, item, where)

    def map(
        self, fn: Any, items: Sequence[Any], retries: int = 2, sign: Sign = never, near: str | None = None
    ) -> Iterator[tuple[int, Any]]:
        """As `Workers.map`; no items, no workers."""
        if items:
            yield from self.steady().map(fn, items, retries, sign, near)

    def steady(self) -> Workers:
        """As `Workers.steady`."""
        return _Steady(self._opened(), self._forget)

    def _forget(self, lost: Workers) -> None:
        with self._lock:
            self._now = None if self._now is lost else self._now


class _Steady(Workers):
    """The workers of one opening; `forget` hears of their loss, so that whoever begins again opens others."""

    def __init__(self, workers: Workers, forget: Callable[[Workers], None]) -> None:
        self.workers, self.forget = workers, forget
        self.n, self.client = workers.n, workers.client
        self.ask, self.addresses = workers.ask, workers.addresses  # type: ignore[method-assign]

    def map(
        self, fn: Any, items: Sequence[Any], retries: int = 2, sign: Sign = never, near: str | None = None
    ) -> Iterator[tuple[int, Any]]:
        """As `Workers.map`."""
        try:
            yield from self.workers.map(fn, items, retries, sign, near)
        except ClusterLost:
            self.forget(self.workers)
            raise


def _nothing() -> None:
    """Keep the workers to the end."""


@dataclasses.dataclass
class Session:
    """What the stages of one run share and no scheduler may serialise."""

    exp: Experiment
    store: Store
    folder: Path  # the draft
    workers: Workers
    clock: Clock
    progress: Progress = silent
    strict: bool = False  # whether only a run that is certified whole may be promoted
    release: Callable[[], None] = _nothing  # ends the workers where their report is to be published
    tell: Callable[..., None] = silently  # hears of every part of a batch, as of every step
    elsewhere: bool = False  # whether workers have cores that this process has not
    forecast: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def root(self) -> Path:
        """Cache of reusable blocks."""
        return self.store.cache


@contextlib.contextmanager
def open_session(
    exp: Experiment,
    store: Store,
    progress: Progress | None = None,
    clock: Clock | None = None,
    strict: bool = False,
    dask: Dask = NO_DASK,
    tell: Callable[..., None] = silently,
) -> Iterator[Session]:
    """A draft folder and workers, both gone at the end; somebody else's cluster must answer at once."""
    clock, progress = clock or Clock(), progress or silent
    with (
        exit_on_sigterm(),  # here, because workers may be opened again, and closed, on another thread
        told_when_full(store.cache),
        store.draft() as folder,
        contextlib.ExitStack() as cluster,
    ):

        def opened(again: bool) -> Workers:
            found = _opened(exp, cluster, clock, again, dask.client)
            if found.client is not None and (address := dashboard_of(found.client)):
                progress("workers", found.n, found.n, dashboard=address)
            if found.client is not None and dask.report:
                cluster.enter_context(reported(found.client, folder))
            return found

        workers = _LazyWorkers(opened)
        if exp.cluster.remote:
            _ = workers.n
        release = cluster.close if dask.report else _nothing
        elsewhere = exp.cluster.remote or dask.client is not None
        yield Session(exp, store, folder, workers, clock, progress, strict, release, tell, elsewhere)


def _opened(exp: Experiment, cluster: contextlib.ExitStack, clock: Clock, again: bool, client: Any) -> Workers:
    """Workers, in place of those that were lost; `again` waits for a scheduler that is started anew."""
    until = time.monotonic() + (LOST_SECONDS if again else 0.0)
    with clock("start"):
        with contextlib.suppress(OSError, RuntimeError):  # nobody answers
            cluster.close()
        while True:
            try:
                workers = cluster.enter_context(open_workers(exp.cluster, client))
                if workers.client is not None:
                    workers.client.run(warm_up)
                return workers
            except (InputError, OSError) as error:
                if not again:
                    raise
                if time.monotonic() > until:
                    raise ClusterLost(f"the cluster did not come back ({error})") from error
            time.sleep(PAUSE_SECONDS)
