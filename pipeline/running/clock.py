"""What a run costs: its wall clock, shared out among the stages, and its memory."""

import contextlib
import sys
import time
from collections.abc import Iterator

import psutil

__all__ = ["STAGES", "Clock", "peak_memory_bytes"]


STAGES = ("start", "ingest", "kernel", "solve", "score")


class Clock:
    """Wall clock shared out among stages: a stage inside another pauses it, so nothing is counted twice.

    Whatever is in no stage (imports, cluster, compilation, Prefect) is `start`.

    >>> clock = Clock()
    >>> with clock("kernel"), clock("start"):
    ...     pass
    >>> seconds = clock.seconds()
    >>> sorted(seconds) == ["ingest", "kernel", "score", "solve", "start", "total"]
    True
    """

    def __init__(self, started: float | None = None) -> None:
        self.started = self.since = time.monotonic() if started is None else started
        self.current = "start"
        self.spent = dict.fromkeys(STAGES, 0.0)

    @contextlib.contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Attribute the time inside to `stage`."""
        outer = self._switch(stage)
        try:
            yield
        finally:
            self._switch(outer)

    def _switch(self, stage: str) -> str:
        now, outer = time.monotonic(), self.current
        self.spent[outer] = self.spent.get(outer, 0.0) + now - self.since
        self.since, self.current = now, stage
        return outer

    def seconds(self) -> dict[str, float]:
        """Seconds of each stage so far, and in all."""
        self._switch(self.current)
        return {stage: self.spent[stage] for stage in STAGES} | {"total": self.since - self.started}


def peak_memory_bytes() -> int:
    """Largest resident set of this process since it began, mapped pages of K included; now, if nobody kept count."""
    try:
        import resource
    except ImportError:
        return int(psutil.Process().memory_info().rss)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
