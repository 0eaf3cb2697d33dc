"""What a fit of ours does: seconds of each phase, how many threads could share them, and values of K computed.

The functions that do a phase are watched from outside, so that the product keeps no clock for this.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

REST = "rest"
PHASES = {
    "rows": ("train.fit:distinct_rows", "train.opening:_computed"),
    "columns of K": ("sources.computed:ComputedColumns.fill", "sources.resident:fill_grams"),
    "sums of K over all rows": ("sources.computed:ComputedColumns.outputs_of",),
    "square of the working set": ("solvers.working_set:WorkingSet.admit",),
    "steps": (
        "solvers.set_steps:SetSteps.on_pairs",
        "solvers.set_steps:SetSteps.finish",
        "solvers.rounds:Rounds._flattens",
    ),
    "scores": ("state:MemoryState.apply",),
    "selection": ("state:MemoryState.candidates", "state:MemoryState.ends"),
    "proof": ("solvers.base:evaluate",),
}
MOST = 64  # threads that are thought of


@dataclass
class Watched:
    """What was seen of a fit.

    Attributes
    ----------
    seconds
        Of each phase, without those of another one inside it.
    shared
        (phase, ranges, seconds) of each range that was split: so many threads could have shared these seconds.
    values
        Of K computed, proofs included.
    """

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    shared: list[tuple[str, int, float]] = field(default_factory=list)
    values: float = 0.0

    def on(self, threads: int) -> dict[str, float]:
        """Seconds of each phase if so many threads shared what can be shared, and none waited for memory.

        >>> Watched({"proof": 3.0}, [("proof", 2, 2.0)]).on(16)
        {'proof': 2.0}
        """
        left = dict(self.seconds)
        for phase, ranges, seconds in self.shared:
            left[phase] -= seconds - seconds / min(threads, ranges)
        return left


class _Clock:
    """Gives the time that passes to the innermost phase, of one thread."""

    def __init__(self, watched: Watched) -> None:
        self.watched, self.phases, self.since = watched, [REST], time.perf_counter()

    @property
    def phase(self) -> str:
        """The innermost one."""
        return self.phases[-1]

    def tick(self) -> None:
        """What has passed since the last tick was of this phase."""
        now = time.perf_counter()
        self.watched.seconds[self.phase] += now - self.since
        self.since = now

    @contextlib.contextmanager
    def inside(self, phase: str) -> Iterator[None]:
        """Meanwhile time is of `phase`."""
        self.tick()
        self.phases.append(phase)
        try:
            yield
        finally:
            self.tick()
            self.phases.pop()


@contextlib.contextmanager
def watching(alone: bool = False) -> Iterator[Watched]:
    """Watch what this thread does of a fit; `alone`: it does the ranges of all threads, one after the other.

    Only then ranges and values are counted.
    """
    found = Watched()
    clock = _Clock(found)
    with contextlib.ExitStack() as stack:
        for phase, places in PHASES.items():
            for place in places:
                stack.enter_context(_replaced(place, functools.partial(_timed, clock, phase)))
        if alone:
            stack.enter_context(_alone(clock))
            for place, count in COUNTS.items():
                stack.enter_context(_replaced(place, functools.partial(_counted, found, count)))
        yield found
        clock.tick()


def _timed(clock: _Clock, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*given: Any, **named: Any) -> Any:
        with clock.inside(phase):
            return function(*given, **named)

    return timed


def _counted(found: Watched, count: Callable[..., float], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def counted(*given: Any, **named: Any) -> Any:
        found.values += count(*given)
        return function(*given, **named)

    return counted


@contextlib.contextmanager
def _replaced(place: str, change: Callable[[Callable[..., Any]], Any]) -> Iterator[None]:
    """Have a function of svmcore, `module:name` or `module:Class.name`, changed."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(f"svmcore.{module}"))
    function = getattr(owner, name)
    setattr(owner, name, change(function))
    try:
        yield
    finally:
        setattr(owner, name, function)


@contextlib.contextmanager
def _alone(clock: _Clock) -> Iterator[None]:
    """Have ranges split for MOST threads and done by this one."""
    from svmcore.runtime import threads

    class Alone(threads._Pool):
        share = MOST  # type: ignore[assignment]

        def run(self, work: Callable[[int, int], None], edges: list[int]) -> None:
            start, self.share = time.perf_counter(), 1  # a range inside a range is not split again
            try:
                for first, stop in itertools.pairwise(edges):
                    work(first, stop)
            finally:
                self.share = MOST
            clock.watched.shared.append((clock.phase, len(edges) - 1, time.perf_counter() - start))

    threads._pools.append(Alone())
    try:
        yield
    finally:
        threads._pools.pop()


def _of_columns(source: Any, idx: Any, *_: Any) -> float:
    return float(len(idx)) * source.n


def _of_sums(source: Any, idx: Any, _: Any, rows: Any = None) -> float:
    return float(len(idx)) * (source.n if rows is None else len(rows))


def _of_square(_: Any, idx: Any, others: Any, *__: Any) -> float:
    return float(len(idx)) * len(others)


def _of_tile(_: Any, rows: slice, columns: slice, *__: Any) -> float:
    return float(rows.stop - rows.start) * (columns.stop - columns.start)


def _of_gram(kernels: Any, points: Any, *_: Any) -> float:
    return len(kernels) * 0.5 * len(points) * (len(points) + 1.0)


COUNTS: dict[str, Callable[..., float]] = {
    "sources.computed:ComputedColumns.fill": _of_columns,
    "sources.computed:ComputedColumns._summed": _of_sums,
    "sources.computed:ComputedColumns.square": _of_square,
    "sources.resident:fill_grams": _of_gram,
    "passes.kernel.kernel_tiles:Tiles.add": _of_tile,
}
