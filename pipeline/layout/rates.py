"""How fast this machine is at what a run spends its time on: measured in a fifth of a second, kept for a day.

Nothing here depends on the data; what does (a block of the kernel, a few small problems) is `pipeline.layout.probe`.
"""

import contextlib
import dataclasses
import functools
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.answers.warm import warm_up
from pipeline.kernel import strips
from pipeline.kernel.checksums import of_strip
from pipeline.kernel.folder import allocate
from pipeline.storage.files import write_json
from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.solvers import Solver
from svmcore.sources import Lookup, ResidentGram, Source, matvec
from svmcore.tasks import classification

__all__ = ["Rates", "rates"]

FORMAT = 7
VALID_SECONDS = 24 * 3600.0
COLUMNS, ROWS = 512, 12_000  # 25 MB: more than a second-level cache; too few rows for a second thread
STRIP, SIDE = 512, 2048
SIZES = (300, 900)  # working sets of the two iteration rates


@dataclasses.dataclass(frozen=True)
class Rates:
    """Seconds of one thread.

    Attributes
    ----------
    entry
        Adding one entry of a column of K to the scores.
    step, step_entry
        One SMO step: fixed, and for each row of the working set.
    strip
        One entry of a strip of K, beyond computing it: written twice, with checksums.
    fault
        One entry of K, mapped, when it is first read by a process.
    """

    entry: float
    step: float
    step_entry: float
    strip: float
    fault: float


def rates() -> Rates:
    """Rates of this machine, from its cache if they are of today."""
    path = _path()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text())
        if kept["format"] == FORMAT and 0 <= time.time() - kept["measured"] < VALID_SECONDS:
            return Rates(**kept["rates"])
    found = measure()
    with contextlib.suppress(OSError):  # a machine without a home is measured each time
        write_json(path, {"format": FORMAT, "measured": time.time(), "rates": dataclasses.asdict(found)})
    return found


def _path() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "marginflow" / f"rates-{platform.node()}.json"


def measure() -> Rates:
    """Measure now, compiled code loaded before."""
    warm_up()
    step, step_entry = _steps()
    return Rates(_entry(), step, step_entry, *_strip())


def _entry() -> float:
    block = np.ones((COLUMNS, ROWS), np.float32)
    coef = np.ones(COLUMNS)
    source = _Block(block)
    return _least(lambda: matvec(source, coef), 3) / block.size


class _Block(Source):
    """Columns that are no square: all that a product needs."""

    def __init__(self, matrix: Floats) -> None:
        self.matrix, self.n, self.dtype = matrix, matrix.shape[1], matrix.dtype

    def diagonal(self) -> Floats:
        return np.ones(self.n)

    def columns(self, idx: Floats) -> Floats:
        return self.matrix[idx]

    def lookup(self, idx: Floats) -> Lookup:
        return Lookup(self.matrix, idx)


def _steps() -> tuple[float, float]:
    """A line through the seconds of a step at two sizes of problem, random labels: all rows are support vectors."""
    each = []
    for size in SIZES:
        rng = np.random.default_rng(size)
        K = np.exp(-0.5 * rng.random((size, size)))
        K = ((K + K.T) / 2 + np.eye(size)).astype(np.float32)
        qp = classification(ResidentGram(K), np.where(rng.random(size) < 0.5, 1.0, -1.0), 100.0)
        solver = Solver.create({"name": "smo", "tol": 1e-3, "max_iter": 4000})
        steps = solver.solve(qp, monitor=Monitor(warn=False)).n_iter  # compiles, or loads what was
        again = functools.partial(solver.solve, qp, monitor=Monitor(warn=False))
        each.append(_least(again, 2) / max(steps, 1))
    slope = max(0.0, (each[1] - each[0]) / (SIZES[1] - SIZES[0]))
    return max(each[0] - slope * SIZES[0], 1e-7), slope


def _strip() -> tuple[float, float]:
    """Each entry of a small K: written to a new file as workers do, and read through a mapping, less a second time."""
    block = np.ones((STRIP, SIDE), np.float32)
    with tempfile.TemporaryDirectory(prefix="marginflow-rates-") as folder:
        values = Path(folder) / "c" / "0" / "0"
        values.parent.mkdir(parents=True)
        allocate(values, 4 * SIDE**2)
        each = []
        for start in range(0, SIDE, STRIP):
            part = np.ascontiguousarray(block[:, start:])
            each.append(_least(functools.partial(_write, folder, start, part), 1) / part.size)
        K = np.memmap(values, np.float32, "r", shape=(SIDE, SIDE))
        first, again = (_least(functools.partial(np.sum, K), 1) for _ in range(2))
    return min(each), max(0.0, first - again) / K.size


def _write(folder: str, start: int, part: Any) -> None:
    strips._finish(part, np.ones(STRIP, np.float32))
    strips._write_strip(folder, SIDE, part)
    of_strip(part, 0, start, start + STRIP)


def _least(work: Callable[[], object], times: int) -> float:
    """Seconds of this thread: what else runs must not be kept for a day."""
    seconds = []
    for _ in range(times):
        started = time.thread_time()
        work()
        seconds.append(time.thread_time() - started)
    return min(seconds)
