"""What a person sees while a run is under way, on stderr: bars on a terminal, a few plain lines elsewhere."""

import contextlib
import math
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from pipeline.compute.progress import Progress

__all__ = ["fraction_of_gap", "progress_display"]

LINE_SECONDS = 5.0
BARS = 12  # classes drawn at once
UNITS = {"workers": "workers", "kernel": "blocks", "solve": "problems", "score": "rows", "verify": "problems"}


@contextlib.contextmanager
def progress_display(tol: float = 1e-3) -> Iterator[Progress]:
    """Yield a progress callable that draws on stderr for the time of the block."""
    if sys.stderr.isatty():
        with _bars(tol) as progress:
            yield progress
    else:
        lines = _Lines()
        yield lines
        lines.flush()


def fraction_of_gap(kkt_gap: float | None, first: float, tol: float) -> float:
    """Share of the decades from the first gap down to tol that is done, in 0 ... 1.

    >>> fraction_of_gap(1e-2, 1.0, 1e-4)
    0.5
    >>> fraction_of_gap(1e-5, 1.0, 1e-4), fraction_of_gap(None, 1.0, 1e-4)
    (1.0, 0.0)
    """
    if kkt_gap is None or not math.isfinite(kkt_gap) or first <= tol:
        return 0.0
    if kkt_gap <= tol:
        return 1.0
    return max(0.0, math.log(first / kkt_gap) / math.log(first / tol))


class _Lines:
    """A line when a stage has ended, and every five seconds while it lasts.

    The line of an ended stage is held until the next stage begins, so that an error of the input stands alone.
    """

    def __init__(self) -> None:
        self.told = time.monotonic()
        self.held = ("", "")
        self.lock = threading.Lock()

    def __call__(self, stage: str, done: int, total: int, **info: Any) -> None:
        """Print if it is time to."""
        line = f"{stage}: {_amount(stage, done, total)}{_remark(info)}\n"
        with self.lock:
            if self.held[0] not in ("", stage):
                self._write(self.held[1])
                self.held = ("", "")
            if done == total and info.get("status") != "running":
                self.held = (stage, line)
            elif time.monotonic() - self.told >= LINE_SECONDS:
                self._write(line)

    def flush(self) -> None:
        """Print the line of the last stage."""
        self._write(self.held[1])

    def _write(self, line: str) -> None:
        self.told = time.monotonic()
        sys.stderr.write(line)
        sys.stderr.flush()


def _amount(stage: str, done: int, total: int) -> str:
    """How far a stage is, in its own unit; a share where the unit is bytes of some file."""
    if stage in UNITS:
        return f"{done:,} of {total:,} {UNITS[stage]}"
    return f"{100 * done / total:.0f} %" if total else f"{done:,} rows"


def _remark(info: dict[str, Any]) -> str:
    remarks = [f"dashboard at {info['dashboard']}"] if info.get("dashboard") else []
    if info.get("reused"):
        remarks.append(f"{info['reused']} found finished")
    if info.get("status") == "running" and info.get("kkt_gap") is not None:
        remarks.append(f"class {info.get('label')} at KKT gap {info['kkt_gap']:.1e}")
    return f" ({', '.join(remarks)})" if remarks else ""


@contextlib.contextmanager
def _bars(tol: float) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), refresh_per_second=8) as bars:
        yield _Drawing(bars, tol)


class _Drawing:
    """One bar a stage; below `solve` one bar a running class, its length the decades of the KKT gap that are done."""

    def __init__(self, bars: Any, tol: float) -> None:
        self.bars, self.tol = bars, tol
        self.stages: dict[str, Any] = {}
        self.classes: dict[str, tuple[Any, float]] = {}
        self.lock = threading.Lock()

    def __call__(self, stage: str, done: int, total: int, **info: Any) -> None:
        """Draw."""
        with self.lock:
            if stage not in self.stages:
                self.stages[stage] = self.bars.add_task(stage, total=total, note="")
            note = f"{_amount(stage, done, total)}{_remark({key: info.get(key) for key in ('reused', 'dashboard')})}"
            self.bars.update(self.stages[stage], completed=done, total=total, note=note)
            if stage == "solve":
                self._draw_class(str(info.get("label")), info.get("kkt_gap"), info.get("status"))

    def _draw_class(self, label: str, kkt_gap: float | None, status: str | None) -> None:
        if status != "running":
            bar, _ = self.classes.pop(label, (None, 0.0))
            if bar is not None:
                self.bars.remove_task(bar)
            return
        if label not in self.classes:
            if len(self.classes) >= BARS:
                return
            self.classes[label] = (self.bars.add_task(f"  {label}", total=1.0, note=""), kkt_gap or 2.0)
        bar, first = self.classes[label]
        note = "" if kkt_gap is None else f"KKT gap {kkt_gap:.1e} -> {self.tol:.0e}"
        self.bars.update(bar, completed=fraction_of_gap(kkt_gap, first, self.tol), note=note)
