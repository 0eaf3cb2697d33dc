"""Fits of SVR, NuSVC and OneClassSVM against scikit-learn, and scikit-learn-intelex where it has them.

The solvers alternate, each trial in a fresh process: a small fit that compiles, the first fit of the whole, whose
memory is cold, and a second one. What they say of rows that none was trained on is compared.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cases
from benchmarks.cases import CACHE_MB, TOL
from benchmarks.contest.peers import OURS
from benchmarks.contest.remote import apart
from benchmarks.page import tables
from benchmarks.results import Record

MODULES = {OURS: "svmcore.estimator", "scikit-learn-intelex": "sklearnex.svm", "scikit-learn": "sklearn.svm"}
WARM_ROWS, TEST_ROWS = 5000, 2000  # small fits take other paths


@dataclass(frozen=True)
class Contest:
    """One machine on one table: rows, targets and rows to predict."""

    name: str
    machine: str
    read: Callable[[Path], tuple[np.ndarray, np.ndarray]]
    rows: int
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def peers(self) -> tuple[str, ...]:
        """Who has this machine."""
        return tuple(MODULES) if self.machine != "OneClassSVM" else (OURS, "scikit-learn")


def _first_from_the_others(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return cod-rna, standardised: its first feature from the other seven."""
    X = _cod_rna(data)[0]
    return X[:, 1:], X[:, 0]


def _cod_rna(data: Path) -> tuple[np.ndarray, np.ndarray]:
    table = cases.SINGLE["cod-rna"].read(data)
    return table.X.astype(np.float64), table.y


def _friedman(data: Path) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import make_friedman1

    return make_friedman1(20_000 + TEST_ROWS, noise=1.0, random_state=0)


def _ijcnn1(data: Path) -> tuple[np.ndarray, np.ndarray]:
    table = cases.SINGLE["ijcnn1"].read(data)
    return table.X.astype(np.float64), table.y


CONTESTS = (
    Contest("svr-cod-rna", "SVR", _first_from_the_others, 50_000, {"C": 1.0, "epsilon": 0.1, "gamma": 0.125}),
    Contest("svr-friedman1", "SVR", _friedman, 20_000, {"C": 10.0, "epsilon": 0.1, "gamma": "scale"}),
    Contest("one-class-cod-rna", "OneClassSVM", _cod_rna, 20_000, {"nu": 0.1, "gamma": "scale"}),
    Contest("nu-svc-ijcnn1", "NuSVC", _ijcnn1, 20_000, {"nu": 0.1, "gamma": "scale"}),
)


def timed(contest: Contest, solver: str, path: Path) -> Record:
    """Seconds of the first and of the second fit in a process, and what it predicts."""
    with np.load(path) as arrays:
        X, y, X_test = arrays["X"], arrays["y"], arrays["X_test"]
    make = getattr(importlib.import_module(MODULES[solver]), contest.machine)
    machine = make(**contest.parameters, tol=TOL, cache_size=CACHE_MB)
    machine.fit(X[:WARM_ROWS], y[:WARM_ROWS])
    cold, warm = (_seconds(machine, X, y) for _ in range(2))
    said = machine.predict(X_test) if contest.machine == "SVR" else machine.decision_function(X_test)
    told = {"said": np.ravel(said).tolist(), "n_support": len(machine.support_)}
    return {"cold_seconds": [cold], "seconds": [warm], **told}


def _seconds(machine: Any, X: np.ndarray, y: np.ndarray) -> float:
    start = time.perf_counter()
    machine.fit(X, y)
    return time.perf_counter() - start


def run(data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> dict[str, list[Record]]:
    """All contests."""
    return {contest.name: _run(contest, data, only, rows, repeats) for contest in CONTESTS}


def _run(contest: Contest, data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> list[Record]:
    X, y = contest.read(data)
    n = min(contest.rows, rows or contest.rows)
    found: dict[str, Record] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npz"
        np.savez(path, X=X[:n], y=y[:n], X_test=X[n : n + TEST_ROWS])
        for _ in range(repeats):
            for solver in contest.peers:
                if only and solver not in only:
                    continue
                print(f"  {contest.name}: {solver}", flush=True)
                record = apart(timed, contest, solver, path)
                kept = found.setdefault(solver, {**record, "cold_seconds": [], "seconds": []})
                for times in ("cold_seconds", "seconds"):
                    kept[times] += record[times]
    return [_completed(solver, record, n, found.get(OURS)) for solver, record in found.items()]


def _completed(solver: str, record: Record, n: int, ours: Record | None) -> Record:
    """Add the median, and how far our predictions are from a peer's, relative to their spread."""
    said = np.array(record["said"])
    told = {"solver": solver, "task": "", "n": n, "median_seconds": float(np.median(record["seconds"]))}
    told["median_cold_seconds"] = float(np.median(record["cold_seconds"]))
    told |= {key: value for key, value in record.items() if key != "said"}
    if ours and ours is not record:
        told["differs"] = float(np.abs(np.array(ours["said"]) - said).max() / said.std())
    return told


HEADER = (
    "solver",
    "first fit",
    "ours faster by",
    "second fit",
    "ours faster by",
    "vectors",
    "worst prediction differs",
)


def show(name: str, records: list[Record]) -> None:
    """Print one contest to the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADER, title=f"{name}, {records[0]['n']:,} rows", title_justify="left")
    for record in records:
        first, second = (tables.speedup(record, records, of) for of in ("median_cold_seconds", "median_seconds"))
        table.add_row(
            record["solver"],
            tables.seconds(record["median_cold_seconds"]),
            "" if first is None else f"{first:.1f}×",
            tables.seconds(record["median_seconds"]),
            "" if second is None else f"{second:.1f}×",
            tables.number(record.get("n_support"), ","),
            tables.number(record.get("differs"), ".2%"),
        )
    Console(width=150).print(table)
