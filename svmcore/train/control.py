"""How a training of several programs is limited, watched and stopped."""

import dataclasses
import time
from collections.abc import Callable

from svmcore.monitor import Monitor, Progress
from svmcore.solution import Solution

__all__ = ["Control"]


@dataclasses.dataclass
class Control:
    """Time limit over all problems (seconds), stop flag, `report(k, Progress)` and, at its end, `done(k, Solution)`."""

    time_limit: float | None = None
    stop: Callable[[], bool] | None = None
    report: Callable[[int, Progress], None] | None = None
    done: Callable[[int, Solution], None] | None = None
    _started: float = dataclasses.field(default_factory=time.perf_counter)

    def monitor(self, k: int) -> Monitor:
        """Monitor of problem `k`, with what is left of the time; it leaves warnings to whoever trains all problems."""
        left = None if self.time_limit is None else self.time_limit - (time.perf_counter() - self._started)
        report = None if self.report is None else lambda progress: self.report(k, progress)  # type: ignore[misc]
        return Monitor(time_limit=left, stop=self.stop, report=report, warn=False)

    def stops(self) -> bool:
        """Whether work that precedes the solver should end."""
        late = self.time_limit is not None and time.perf_counter() - self._started > self.time_limit
        return late or (self.stop is not None and self.stop())
