"""What the stages of one run share: the experiment, its store and draft, workers that start when needed, a clock."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.answers.warm import warm_up
from pipeline.compute.cluster import open_workers
from pipeline.compute.progress import Progress, silent
from pipeline.compute.workers import ClusterLost, Workers
from pipeline.config.schema import Experiment
from pipeline.rows.sources.open import check_sources
from pipeline.running.clock import Clock
from pipeline.storage.base import Store
from pipeline.storage.files import told_when_full
from pipeline.storage.runs import open_store

__all__ = ["Session", "check_inputs", "open_session"]


def check_inputs(exp: Experiment, store: str | None = None) -> Store:
    """Find what is wrong before any work: the store and the sources; returns the store."""
    opened = open_store(store or exp.store)
    check_sources(exp)
    return opened


class _LazyWorkers(Workers):
    """Workers that start when the first task is there, and again after they were lost."""

    def __init__(self, opened: Callable[[], Workers]) -> None:
        self._opened = functools.cache(opened)

    @property
    def n(self) -> int:  # type: ignore[override]
        return self._opened().n

    @property
    def client(self) -> Any:  # type: ignore[override]
        return self._opened().client

    def map(self, fn: Any, items: Sequence[Any], retries: int = 2) -> Iterator[tuple[int, Any]]:
        """As `Workers.map`; no items, no workers."""
        try:
            if items:
                yield from self._opened().map(fn, items, retries)
        except ClusterLost:
            self._opened.cache_clear()
            raise


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
) -> Iterator[Session]:
    """A draft folder and workers, both gone at the end; somebody else's cluster must answer at once."""
    clock = clock or Clock()
    with told_when_full(store.cache), contextlib.ExitStack() as stack:

        def opened() -> Workers:
            with clock("start"):
                workers = stack.enter_context(open_workers(exp.cluster))
                if workers.client is not None:
                    workers.client.run(warm_up)
                return workers

        workers: Workers = _LazyWorkers(opened)
        if exp.cluster.remote:
            workers = opened()
        folder = stack.enter_context(store.draft())
        yield Session(exp, store, folder, workers, clock, progress or silent, strict)
