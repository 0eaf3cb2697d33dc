"""Each phase of our single fits on one thread and on two, what it would take on 16 and 64, and values of K computed.

More cores than this machine has are emulated: one thread does the ranges that others could do, and what it takes for
them is divided by the threads that there would be, or by the ranges, if these are fewer. So nothing waits for memory,
and a real machine is slower; but what is left in one piece shows.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks import cases
from benchmarks.cases import Case, Table
from benchmarks.contest.peers import Marginflow, Spec
from benchmarks.contest.phases import watching
from benchmarks.contest.remote import Remote
from benchmarks.contest.worker import few_of_each_class, n_distinct
from benchmarks.page import tables
from benchmarks.results import Record

CASES = cases.SINGLE | cases.LARGE
REAL, EMULATED = (1, 2), (16, 64)
TOTAL = "all"


class Fits:
    """Fits of one table on so many threads, in a process of its own."""

    def __init__(self, path: Path, threads: int, spec: Spec) -> None:
        os.environ["SVMCORE_THREADS"] = str(threads)  # before svmcore asks how many there are
        self.table, self.spec, self.peer = Table.load(path), spec, Marginflow()
        self.data = self.peer.given(self.table.X, self.table.y, "dense")
        few = few_of_each_class(self.table.y)
        self.peer.fit(self.peer.given(self.table.X[few], self.table.y[few], "dense"), spec)

    def phases(self) -> Record:
        """Seconds of each phase."""
        with watching() as found:
            self.peer.fit(self.data, self.spec)
        return dict(found.seconds)

    def emulated(self) -> Record:
        """Seconds of each phase by number of threads; values of K that were computed, and that are needed."""
        with watching(alone=True) as found:
            model = self.peer.fit(self.data, self.spec)
        X, y = self.table.X, self.table.y
        needed = n_distinct(X[model.support_], y[model.support_]) * n_distinct(X, y)
        return {"on": {str(n): found.on(n) for n in EMULATED}, "values": found.values, "needed": needed}


def run(data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> dict[str, list[Record]]:
    """Each case: a record of each phase, the total last."""
    return {name: _run(case, data, rows, repeats) for name, case in CASES.items() if not only or name in only}


def _run(case: Case, data: Path, rows: int | None, repeats: int) -> list[Record]:
    table, spec = cases.table_of(case, data, rows), Spec(case.C, case.gamma, 1e-3, case.cache_mb)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npz"
        table.save(path)
        found = {n: _median([_call("phases", path, n, spec) for _ in range(repeats)]) for n in REAL}
        told = _call("emulated", path, 1, spec)
    found |= {n: told["on"][str(n)] for n in EMULATED}
    about = {"title": case.title, "n": len(table.y), "values": told["values"], "needed": told["needed"]}
    phases = sorted(found[1], key=found[1].__getitem__, reverse=True)
    return [about | {"phase": phase, "seconds": _of(phase, found)} for phase in (*phases, TOTAL)]


def _call(method: str, path: Path, threads: int, spec: Spec) -> Record:
    """One fit in a fresh process, after one of a few rows."""
    fits = Remote(Fits, path, threads, spec)
    try:
        fits.call("phases")  # its memory is cold
        return fits.call(method)
    finally:
        fits.close()


def _median(runs: list[Record]) -> Record:
    """The run of median total."""
    return sorted(runs, key=lambda seconds: sum(seconds.values()))[len(runs) // 2]


def _of(phase: str, found: dict[int, Record]) -> dict[str, float]:
    """Seconds by number of threads."""
    return {str(n): sum(s.values()) if phase == TOTAL else s.get(phase, 0.0) for n, s in found.items()}


HEADER = ("phase", "1 thread", "2 threads", "faster by", "16, emulated", "64, emulated", "share of 16")


def row(record: Record, records: list[Record]) -> tuple[str, ...]:
    """One phase's cells under HEADER."""
    one, two, some, many = (record["seconds"][str(n)] for n in (*REAL, *EMULATED))
    faster, share = (f"{one / two:.1f}×" if two else "–"), some / records[-1]["seconds"][str(EMULATED[0])]
    seconds = [tables.seconds(value) for value in (one, two, some, many)]
    return (record["phase"], *seconds[:2], faster, *seconds[2:], f"{share:.0%}")


def waste(records: list[Record]) -> float:
    """Values of K computed over those of the support vectors' columns."""
    return float(records[0]["values"] / records[0]["needed"])


def note(records: list[Record]) -> str:
    """One sentence on the values of K."""
    return f"Values of K computed, proof included, over those of the support vectors' columns: {waste(records):.2f}."


def show(name: str, records: list[Record]) -> None:
    """Print one case to the terminal."""
    from rich.console import Console
    from rich.table import Table as Printed

    printed = Printed(*HEADER, title=f"{name}, {records[0]['n']:,} rows", title_justify="left")
    for record in records:
        printed.add_row(*row(record, records))
    Console().print(printed)
    print(note(records))
