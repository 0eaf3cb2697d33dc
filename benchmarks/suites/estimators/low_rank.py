"""Machines of low rank against the exact one, and scikit-learn's Nystroem with LinearSVC beside them.

All classes one against the rest, at the same rank. Each fit is in a process of its own, after a small one that loads
and compiles; seconds are those of the fit, proofs included.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cases
from benchmarks.cases import TOL, generated
from benchmarks.contest.peers import OURS
from benchmarks.contest.remote import apart
from benchmarks.page import tables
from benchmarks.results import Record

EXACT, LOW_RANK, PEER = f"{OURS}, exact", f"{OURS}, low rank", "scikit-learn, Nystroem and LinearSVC"
WARM_ROWS, TEST_ROWS, CACHE_MB = 3000, 10_000, 6000


@dataclass(frozen=True)
class Case:
    """Rows of MNIST (`features` 0) or of the generator, and a rank; `exact`: whether that machine is trained too."""

    name: str
    rows: int
    features: int
    rank: int
    gamma: float
    exact: bool = True

    def table(self, data: Path) -> cases.Table:
        """Rows to train on and to test."""
        if self.features:
            X, y = generated(self.rows + TEST_ROWS, self.features)
            return cases.Table(X[TEST_ROWS:], y[TEST_ROWS:], X[:TEST_ROWS], y[:TEST_ROWS])
        table = cases.MULTICLASS["mnist-60000"].read(data)
        return cases.Table(table.X[: self.rows], table.y[: self.rows], table.X_test, table.y_test)


CASES = (
    Case("mnist-60000-rank-2000", 60_000, 0, 2000, 0.02),
    Case("generated-1m-rank-500", 1_000_000, 20, 500, 0.05, exact=False),
)
C = 10.0


def _made(solver: str, case: Case) -> Any:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    from svmcore.estimator import SVC

    if solver == PEER:
        return make_pipeline(
            Nystroem(gamma=case.gamma, n_components=case.rank, random_state=0), LinearSVC(C=C, tol=TOL)
        )
    low = {"approximation": {"rank": case.rank, "landmarks": "kmeans"}} if solver == LOW_RANK else {}
    return SVC(C=C, gamma=case.gamma, tol=TOL, cache_size=CACHE_MB, multi_class="ovr", **low)


def timed(solver: str, case: Case, path: Path) -> Record:
    """Seconds of a fit, its accuracy, and what it proves."""
    from benchmarks.contest import memory

    table, machine = cases.Table.load(path), _made(solver, case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        machine.fit(table.X[:WARM_ROWS], table.y[:WARM_ROWS])
        start, processor = time.perf_counter(), time.process_time()
        machine.fit(table.X, table.y)
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
    accuracy = float(np.mean(machine.predict(table.X_test) == table.y_test))
    peak = memory.peak_bytes() / 1e9
    record: Record = {"seconds": seconds, "processor": processor, "accuracy": accuracy, "peak_gb": peak}
    if solver != PEER:
        record["kkt_gap"] = max(found.kkt_gap + found.uncertainty for found in machine.certificate_)
    if solver == LOW_RANK:
        record["exact_gap"] = max(bound.relative_gap for bound in machine.exact_bound_)
    return record


def run(data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> dict[str, list[Record]]:
    """All cases, or those of `only`."""
    chosen = [case for case in CASES if not only or case.name in only]
    return {case.name: _run(Case(**vars(case) | ({"rows": rows} if rows else {})), data, repeats) for case in chosen}


def _run(case: Case, data: Path, repeats: int) -> list[Record]:
    found: dict[str, list[Record]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npz"
        case.table(data).save(path)
        for _ in range(repeats):
            for solver in (EXACT, LOW_RANK, PEER)[not case.exact :]:
                found.setdefault(solver, []).append(apart(timed, solver, case, path))
    return [_median(solver, case, records) for solver, records in found.items()]


def _median(solver: str, case: Case, records: list[Record]) -> Record:
    seconds = [record["seconds"] for record in records]
    about = {"solver": solver, "task": "", "n": case.rows, "rank": case.rank}
    return {**about, **records[-1], "seconds": seconds, "median_seconds": float(np.median(seconds))}


HEADER = ("", "seconds", "of the processor", "accuracy", "KKT gap over tol", "gap of the exact machine", "peak GB")


def row(record: Record, records: list[Record]) -> tuple[str, ...]:
    """One machine's cells under HEADER."""
    gap = record["kkt_gap"] / TOL if "kkt_gap" in record else None
    return (
        record["solver"],
        tables.seconds(record["median_seconds"]),
        tables.seconds(record["processor"]),
        f"{record['accuracy']:.4f}",
        tables.number(gap, ".2f"),
        tables.number(record.get("exact_gap"), ".2%"),
        f"{record['peak_gb']:.2f}",
    )


def show(name: str, records: list[Record]) -> None:
    """Print one case to the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADER, title=f"{name}, {records[0]['n']:,} rows", title_justify="left")
    for record in records:
        table.add_row(*row(record, records))
    Console(width=150).print(table)
