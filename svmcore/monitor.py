"""What a solver tells the outside while it runs, and how the outside stops it."""

import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple

from svmcore.points import Floats
from svmcore.status import Status

__all__ = ["Monitor", "Progress"]

REPORT_SECONDS = 0.1
KEEP_SECONDS = 30.0
HISTORY = 512  # points kept; every second one is dropped when there are more
PACE_SECONDS = 0.02


class Progress(NamedTuple):
    """Where a solver is: seconds since its start, steps taken, KKT gap."""

    seconds: float
    n_iter: int
    kkt_gap: float


@dataclasses.dataclass
class Monitor:
    """Time limit, stop flag and progress of one solve; a solver calls `stops` at least every 200 ms.

    Parameters
    ----------
    time_limit
        Seconds from construction (or the last `start`), None for no limit.
    stop
        Called to ask whether to stop (Ctrl-C, SIGTERM, a cancelled batch).
    report
        Called with a `Progress`, at most every 0.1 s.
    warn
        Whether the solver itself warns when it does not converge; whoever solves many problems says it once for all.
    keep
        Called with a copy of the variables, at most every 30 s, by solvers that can go on from there.

    >>> Monitor(stop=lambda: True).stops(10, 0.5)
    <Status.STOPPED: 'stopped'>
    """

    time_limit: float | None = None
    stop: Callable[[], bool] | None = None
    report: Callable[[Progress], None] | None = None
    warn: bool = True
    keep: Callable[[Floats], None] | None = None
    history: list[Progress] = dataclasses.field(default_factory=list)
    _started: float = dataclasses.field(default_factory=time.perf_counter)
    _reported: float = -REPORT_SECONDS
    _asked: float = -1.0
    _kept: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    @property
    def last_gap(self) -> float:
        """The KKT gap that was recorded last, inf before any."""
        return self.history[-1].kkt_gap if self.history else float("inf")

    def stops(self, n_iter: int, kkt_gap: float) -> Status | None:
        """Record progress; return the Status to end with, or None to go on."""
        now = Progress(self.seconds, int(n_iter), float(kkt_gap))
        self._record(now)
        if self.report is not None and now.seconds - self._reported >= REPORT_SECONDS:
            self._reported = now.seconds
            self.report(now)
        if self.stop is not None and self.stop():
            return Status.STOPPED
        if self.time_limit is not None and now.seconds > self.time_limit:
            return Status.TIME_LIMIT
        return None

    def paced(self, n_iter: int, kkt_gap: float) -> Status | None:
        """As `stops`, at most every 20 ms: cheap enough to call after every step."""
        seconds = self.seconds
        if seconds - self._asked < PACE_SECONDS:
            return None
        self._asked = seconds
        return self.stops(n_iter, kkt_gap)

    def keeps(self, variables: Callable[[], Floats]) -> None:
        """Hand the variables to whoever keeps them, if it is time to."""
        if self.keep is not None and self.seconds - self._kept >= KEEP_SECONDS:
            self._kept = self.seconds
            self.keep(variables())

    def _record(self, now: Progress) -> None:
        """Keep the curve of a long solve as short as that of a short one."""
        self.history.append(now)
        if len(self.history) > HISTORY:
            del self.history[1:-1:2]

    def finish(self, n_iter: int, kkt_gap: float) -> None:
        """Record the last point, whatever the time since the one before."""
        self.history.append(Progress(self.seconds, int(n_iter), float(kkt_gap)))
        if self.report is not None:
            self.report(self.history[-1])
