"""Few rows of many classes, as SVC takes them by default, one against one: against scikit-learn and intelex.

A pair of classes is then so small that what counts is how long a program takes beside its arithmetic.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks import cases
from benchmarks.contest.peers import BINARY, OURS, Spec, _SklearnLike
from benchmarks.contest.remote import apart
from benchmarks.page import tables
from benchmarks.results import Record

SOLVERS = (OURS, "scikit-learn", "scikit-learn-intelex")
ROWS = {"digits": (200, 500, 1_000, 1_797), "letter": (500, 1_000, 2_000, 4_000, 10_000, 15_000)}
TOL, CACHE_MB, SHORT_SECONDS, MOST = 1e-3, 200, 1.0, 30  # scikit-learn's defaults; repeats of a short fit


def _table(name: str, data: Path) -> tuple[np.ndarray, np.ndarray]:
    if name == "letter":
        table = cases.MULTICLASS[name].read(data)
        return table.X, table.y
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X.astype(np.float32), y


def timed(solver: str, X: np.ndarray, y: np.ndarray, repeats: int) -> Record:
    """Seconds of fits after a first one, at least `repeats`, as many as a second holds; share of right labels."""
    peer, seconds = BINARY[solver](), []
    assert isinstance(peer, _SklearnLike)
    machine = peer.estimator(Spec(1.0, "scale", TOL, CACHE_MB))  # type: ignore[arg-type]
    if solver == OURS:
        machine.set_params(multi_class="ovo")
    X = X.astype(peer.dtype)
    right = float((machine.fit(X, y).predict(X) == y).mean())
    while len(seconds) < repeats or (sum(seconds) < SHORT_SECONDS and len(seconds) < MOST):
        start = time.perf_counter()
        machine.fit(X, y)
        seconds.append(time.perf_counter() - start)
    return {"solver": solver, "task": "", "n": len(y), "seconds": seconds, "right": right}


def run(data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> dict[str, list[Record]]:
    """All tables at all numbers of rows, each solver in a fresh process."""
    return {
        f"{name}-{n}-classes": _run(name, n, data, only, repeats)
        for name, sizes in ROWS.items()
        for n in sizes
        if rows is None or n <= rows
    }


def _run(name: str, n: int, data: Path, only: tuple[str, ...], repeats: int) -> list[Record]:
    X, y = _table(name, data)
    print(f"  {name}, {n:,} rows", flush=True)
    found = [apart(timed, solver, X[:n], y[:n], repeats) for solver in SOLVERS if not only or solver in only]
    return [{"median_seconds": float(np.median(record["seconds"])), **record} for record in found]


def show(name: str, records: list[Record]) -> None:
    """Print one table to the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table("", "seconds", "ours faster by", "right", title=name, title_justify="left")
    for record in records:
        ratio = tables.speedup(record, records)
        faster = "" if ratio is None else f"{ratio:.2f}×"
        table.add_row(record["solver"], tables.seconds(record["median_seconds"]), faster, f"{record['right']:.4f}")
    Console(width=150).print(table)
