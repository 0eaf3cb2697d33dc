"""A contest: several solvers on one table, cold first, then alternating, every answer judged."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.cases import Case, Table
from benchmarks.contest import memory
from benchmarks.contest.machine import Floor, Measure, Rates, floor, typical
from benchmarks.contest.peers import OURS, Spec
from benchmarks.contest.worker import Worker, WorkerEnded, n_distinct
from benchmarks.results import Record

OBJECTIVE_RTOL = 1e-6
LONG_SECONDS = 10.0  # a first fit this long is a measurement: set-up is under a per cent of it
TOL_STEPS = 7
TRIAL_SECONDS = 60.0  # for a few rows, which take a second or two
FAR = 100.0  # times tol is the KKT gap of an answer that is none
OFTEN = 3  # times the repeats of fits that add up to
BRIEF_SECONDS = 6.0  # at most: the median of three would be what the machine did in one of these seconds
TOUCHED = 1.5  # times what the first fit took: memory that is touched before each later one


@dataclass(frozen=True)
class Side:
    """A solver in a contest: `limit_seconds` ends a single fit, `budget_seconds` ends its repeats."""

    peer: str
    task: str = "binary"
    cache_mb: int | None = None
    limit_seconds: float = 600.0
    budget_seconds: float = 200.0


@dataclass(frozen=True)
class Terms:
    """What is equal for all sides."""

    tol: float = 1e-3
    repeats: int = 3
    say: Callable[[str], None] = print


@dataclass
class Entry:
    """A side while the contest runs."""

    side: Side
    spec: Spec
    worker: Worker
    status: str = "ok"
    cold: Record = field(default_factory=dict)
    prepared: Record = field(default_factory=dict)
    verdict: Record = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    no_answer: dict[str, str] = field(default_factory=dict)  # why, by the form of the data

    @property
    def runs(self) -> bool:
        """Whether the solver still answers."""
        return self.status == "ok"

    @property
    def title(self) -> str:
        """Name in tables."""
        return self.side.peer + {"binary": "", "ovr": " one-vs-rest", "ovo": " one-vs-one"}[self.side.task]

    def call(self, method: str, *arguments: Any, timeout: float | None = None) -> Record:
        """Call the worker; its failure ends this side, not the contest."""
        if not self.runs:
            return {}
        try:
            return self.worker.call(method, *arguments, timeout=timeout)
        except WorkerEnded as ended:
            self.status = str(ended)
            return {}

    @property
    def touch_bytes(self) -> int:
        """What the first fit took at its peak, and half as much again: gigabytes more would disturb a solver of few."""
        return int(TOUCHED * max(self.cold.get("peak_bytes", 0) - self.cold.get("before_bytes", 0), 0))

    def fit(self) -> Record:
        """Time a fit, in memory that has been touched."""
        memory.touch(self.touch_bytes)
        return self.call("fit", self.spec, timeout=self.side.limit_seconds)

    def first(self, form: str) -> None:
        """Make the cold call: the first fit of a fresh process in memory that nobody has touched, judged."""
        self.prepared = self.call("take", form, self.spec)
        self.cold = self.call("fit", self.spec, timeout=self.side.limit_seconds)
        self.verdict = self.call("verdict", self.spec)
        self._restart()

    def _restart(self) -> None:
        """Count a long first fit as the first measurement."""
        first = self.cold.get("seconds", 0.0)
        self.seconds = [first] if first > LONG_SECONDS else []

    def retry(self, tol: float) -> None:
        """Start again with a smaller tolerance; the cold call stays the first one's."""
        self.spec = replace(self.spec, tol=tol)
        seconds = self.fit().get("seconds", 0.0)
        self.verdict = self.call("verdict", self.spec)
        self.seconds = [seconds] if seconds > LONG_SECONDS else []

    def wants_more(self, repeats: int) -> bool:
        """Whether there is to be one more measurement: while repeats and budget last."""
        spent, count = sum(self.seconds), len(self.seconds)
        after = spent + (spent / count if count else 0.0)
        most = OFTEN * repeats if after <= BRIEF_SECONDS else repeats
        return self.runs and count < most and (not count or after <= self.side.budget_seconds)

    def again(self) -> None:
        """One more measurement."""
        seconds = self.fit().get("seconds")
        if seconds is not None:
            self.seconds.append(seconds)


def contest(case: Case, table: Table, sides: Sequence[Side], terms: Terms, rates: Measure) -> list[Record]:
    """Run every side on the table and return a record for each.

    What the machine can do is measured before each round of fits: the clock of a virtual one moves within minutes.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npz"
        table.save(path)
        load = os.getloadavg()[0]
        with _entries(case, table, sides, terms, path) as entries:
            for entry in entries:
                entry.first(_form(entry, path))
                terms.say(f"  {entry.title}: first {_seconds(entry.cold)}, {entry.status}")
            _settle_tolerance(entries, terms)
            measured = [rates()]
            for turn in range(OFTEN * terms.repeats):
                wanting = [entry for entry in entries if entry.wants_more(terms.repeats)]
                for entry in wanting[turn % max(1, len(wanting)) :] + wanting[: turn % max(1, len(wanting))]:
                    entry.again()
                measured += [rates()] if wanting else []
            _judge_ours_again(entries)
            least = typical(measured)
            return [_record(entry, entries, case, table, least) | {"load": load} for entry in entries]


@contextmanager
def _entries(case: Case, table: Table, sides: Sequence[Side], terms: Terms, path: Path) -> Iterator[list[Entry]]:
    """Start the sides with their processes, ended on the way out."""
    entries = []
    for side in sides:
        spec = Spec(case.C, case.gamma, terms.tol, side.cache_mb or case.cache_mb)
        entries.append(Entry(side, spec, Worker(side.peer, side.task, path)))
    try:
        yield entries
    finally:
        for entry in entries:
            entry.worker.close()


def _form(entry: Entry, path: Path) -> str:
    """The form of the data in which the solver is fastest on a few rows, of those in which it has an answer."""
    forms = _tried(entry, path, "forms").get("forms", ("dense",))
    if len(forms) == 1:
        return str(forms[0])
    tried = {form: _tried(entry, path, "trial", form, entry.spec) for form in forms}
    entry.no_answer = {form: why for form, found in tried.items() if (why := _fails(found, entry.spec.tol))}
    seconds = {form: found["seconds"] for form, found in tried.items() if form not in entry.no_answer}
    if not seconds:
        entry.status = entry.no_answer[forms[0]]
    return min(seconds, key=seconds.__getitem__, default="dense")


def _tried(entry: Entry, path: Path, method: str, *arguments: Any) -> Record:
    """What a process of its own says, so that the contest has a cold first call; `failed`: why it says nothing."""
    worker = Worker(entry.side.peer, entry.side.task, path)
    try:
        return worker.call(method, *arguments, timeout=min(TRIAL_SECONDS, entry.side.limit_seconds))
    except WorkerEnded as ended:
        return {"failed": str(ended)}
    finally:
        worker.close()


def _fails(found: Record, tol: float) -> str:
    """Why a trial has no answer, or an empty string: one far from the optimum is none."""
    gap = found.get("kkt_gap", 0.0)
    return str(found.get("failed", f"m − M = {gap:.2g}" if gap > FAR * tol else ""))


def shortfall(ours: list[float], theirs: list[float]) -> float:
    """Largest (theirs - ours) / abs(theirs) over the machines: positive when ours is the worse maximum.

    Examples
    --------
    >>> shortfall([9.0, 5.0], [10.0, 4.0])
    0.1
    """
    return max((t - o) / max(abs(t), 1e-300) for o, t in zip(ours, theirs, strict=True))


def _worst(ours: Entry, entries: list[Entry]) -> float | None:
    """Return our largest shortfall against the sides that solved the same program, None without any."""
    mine = ours.verdict.get("dual")
    others = [entry.verdict.get("dual") for entry in entries if entry is not ours and entry.side.task == ours.side.task]
    gaps = [shortfall(mine, dual) for dual in others if mine and dual]
    return max(gaps, default=None)


def _settle_tolerance(entries: list[Entry], terms: Terms) -> None:
    """Halve our tolerance until our objective is nowhere worse than theirs by more than 1e-6 relative."""
    for ours in (entry for entry in entries if entry.side.peer == OURS):
        for _ in range(TOL_STEPS):
            worst = _worst(ours, entries)
            if not ours.runs or worst is None or worst <= OBJECTIVE_RTOL:
                break
            terms.say(f"  objective short by {worst:.1e}: tol {ours.spec.tol:g} -> {ours.spec.tol / 2:g}")
            ours.retry(ours.spec.tol / 2)


def _judge_ours_again(entries: list[Entry]) -> None:
    """Judge the answer of a measured fit, which is the one that counts."""
    for ours in (entry for entry in entries if entry.side.peer == OURS):
        ours.verdict = ours.call("verdict", ours.spec) or ours.verdict
        ours.verdict |= ours.call("product_seconds", ours.spec)


def _seconds(fit: Record) -> str:
    return f"{fit['seconds']:.2f} s" if "seconds" in fit else "no answer"


def _record(entry: Entry, entries: list[Entry], case: Case, table: Table, rates: Rates) -> Record:
    """Everything a table or plot needs of one side."""
    n, p = table.X.shape
    record: Record = {
        "title": case.title,
        "solver": entry.side.peer,
        "task": entry.side.task,
        "n": n,
        "p": p,
        "n_classes": table.n_classes,
        "C": case.C,
        "gamma": case.gamma,
        "tol": entry.spec.tol,
        "cache_mb": entry.spec.cache_mb,
        "status": entry.status,
        "no_answer": entry.no_answer,
        "seconds": entry.seconds,
        "median_seconds": statistics.median(entry.seconds) if entry.seconds else None,
        "cold_seconds": entry.cold.get("seconds"),
        "cold_memory": True,  # earlier runs had touched it
        **{key: value for key, value in entry.cold.items() if key != "seconds"},
        **entry.prepared,
        **entry.verdict,
    }
    if entry.side.peer == OURS:
        record |= {"shortfall": _worst(entry, entries), **_floor(record, table, rates)}
    return record


def _floor(record: Record, table: Table, rates: Rates) -> Record:
    """Return the floors of the plan taken, over distinct rows; bytes decide when the estimator is silent.

    `floor` is of float32 products, as the aims are; `floor_used` of those that are used: of bytes, where rows are.
    """
    if "n_support_distinct" not in record:
        return {}
    n = n_distinct(table.X, table.y)
    fits = 4 * n * n <= record["cache_mb"] * 10**6
    resident = "resident" in record["plan"] if "plan" in record else fits
    about = rates, n, table.X.shape[1], record["n_support_distinct"], resident
    floors = {"floor": floor(*about), "floor_used": floor(*about, record.get("product_seconds"))}
    return {"n_distinct": n, **{name: _parts(least) for name, least in floors.items()}}


def _parts(least: Floor) -> Record:
    parts = {"gemm": least.product_seconds, "exp": least.exp_seconds, "memory": least.memory_seconds}
    return {"plan": least.plan, "seconds": least.seconds, **parts}
