"""A run: lanes take problems in the order of the design until the minutes are over; every line is written at once."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.results import Record, Results, read
from benchmarks.truth.judging.verdicts import FALSE_CONVERGED, FALSE_GAP
from benchmarks.truth.problems.design import Problem
from benchmarks.truth.trial import Lane
from benchmarks.truth.workers import Ours

SUITE, PEERS = "truth-problems", "truth-libsvm"
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
SAY_EVERY = 50


@dataclass
class Request:
    """What is asked for; `reuse_peer` takes LIBSVM's answers from earlier runs, `ours` makes the solver on trial."""

    folder: Path
    name: str
    minutes: float
    jobs: int = 1
    reuse_peer: bool = False
    libsvm_only: bool = False
    ours: Callable[[], Any] = Ours
    say: Callable[[str], None] = print


@dataclass
class Progress:
    """What the lanes share: the problems left, the files, and the count of verdicts."""

    left: Iterator[Problem]
    request: Request
    deadline: float
    counts: Counter = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> Problem | None:
        """Take the next problem, None when time or problems are over."""
        with self.lock:
            return next(self.left, None) if time.monotonic() < self.deadline else None

    def take(self, problem: Problem, record: Record) -> None:
        """Write a finished problem, and LIBSVM's part of it for later runs."""
        self.keep(problem, record["peer"])
        del record["case"]
        with self.lock:
            Results(self.request.folder, SUITE, self.request.name).append(problem.key, [record])
            self._tell(problem, record)

    def keep(self, problem: Problem, peer: Record) -> None:
        """Write LIBSVM's answer for later runs, unless it comes from an earlier one."""
        with self.lock:
            if peer.pop("fresh"):
                Results(self.request.folder, PEERS, self.request.name).append(problem.key, [peer])

    def _tell(self, problem: Problem, record: Record) -> None:
        self.counts.update(["problems", *record["verdicts"]])
        if {FALSE_GAP, FALSE_CONVERGED} & set(record["verdicts"]):
            true = record["truth"]["kkt_gap"]
            claimed = record["ours"]["claims"]["kkt_gap"]
            self.request.say(f"  {problem.key}: {', '.join(record['verdicts'])}: says {claimed:.3g}, is {true:.3g}")
        if self.counts["problems"] % SAY_EVERY == 0:
            self.request.say(", ".join(f"{count} {name}" for name, count in self.counts.most_common()))


def run(problems: Sequence[Problem], request: Request) -> int:
    """Run problems that this run has not yet answered; returns how many were."""
    reuse = request.reuse_peer or request.libsvm_only
    peers = {record["case"]: record for record in read(_path(request.folder, PEERS))} if reuse else {}
    done = set(peers) if request.libsvm_only else {one["case"] for one in lines(request.folder, request.name)}
    left = [problem for problem in problems if problem.key not in done]
    progress = Progress(iter(left), request, time.monotonic() + 60 * request.minutes)
    with one_thread(), ThreadPoolExecutor(request.jobs) as pool:
        lanes = [pool.submit(_lane, progress, peers) for _ in range(request.jobs)]
        try:
            for lane in lanes:
                lane.result()
        finally:
            progress.deadline = 0.0  # after Ctrl-C or a fault of the benchmark, lanes end with their problem
    return progress.counts["problems"]


@contextmanager
def one_thread() -> Iterator[None]:
    """What the lanes' processes inherit."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def _lane(progress: Progress, peers: dict[str, Record]) -> None:
    lane = Lane(peers, progress.request.ours)
    try:
        while (problem := progress.next()) is not None:
            if progress.request.libsvm_only:
                progress.keep(problem, lane.libsvm(problem)["peer"])
            else:
                progress.take(problem, lane.run(problem))
    finally:
        lane.close()


def _path(folder: Path, suite: str) -> Path:
    return Results(folder, suite, "").path


def lines(folder: Path, name: str) -> list[Record]:
    """All problems of a run."""
    return [record for record in read(_path(folder, SUITE)) if record["run"] == name]


def last_run(folder: Path) -> str | None:
    """Name the newest run."""
    records = read(_path(folder, SUITE))
    return records[-1]["run"] if records else None
