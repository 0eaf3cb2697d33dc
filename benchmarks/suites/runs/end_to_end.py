"""A run of all classes of MNIST from its files to the scores, against the estimator's fit and predict in one process.

Both have the budgets that they have where nobody asks for others, and a small problem before that loads what is
compiled. The run reads, checks and stores its rows, proves and stores its answers, and scores both sets of rows.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cases
from benchmarks.contest.remote import apart
from benchmarks.page import tables
from benchmarks.results import Record

CASE = cases.MULTICLASS["mnist-60000"]
WARM_ROWS = 3000
STAGES = ("ingest", "kernel", "solve", "score")
ESTIMATOR, RUN = "fit and predict", "run"


class Busy:
    """Hears the progress of a run: how busy its process keeps the cores while it solves."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, float]] = []

    def __call__(self, stage: str, done: int, total: int, **info: Any) -> None:
        """Look at both clocks."""
        if stage == "solve":
            self.heard.append((time.perf_counter(), time.process_time()))

    @property
    def share(self) -> float:
        """Processor seconds over those of all cores, between the first that was heard and the last."""
        from svmcore.runtime.threads import n_cores

        (start, before), (stop, after) = self.heard[0], self.heard[-1]
        return (after - before) / ((stop - start) * n_cores())


def in_one_process(train: Path, test: Path) -> Record:
    """The estimator on rows that are in memory."""
    from svmcore.estimator import SVC

    X, y = _rows(train)
    X_test, y_test = _rows(test)
    machine = SVC(C=CASE.C, gamma=CASE.gamma, multi_class="ovr").fit(X[:WARM_ROWS], y[:WARM_ROWS])
    start = time.perf_counter()
    machine.fit(X, y)
    fitted = time.perf_counter()
    labels = machine.predict(X_test)
    seconds = {"fit": fitted - start, "predict": time.perf_counter() - fitted}
    return {"solver": ESTIMATOR, "stages": seconds, "accuracy": float(np.mean(labels == y_test))}


def _rows(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path) as arrays:
        return arrays["X"].astype(np.float32) / np.float32(255.0), arrays["y"]


def config(source: Path, test: Path, store: str) -> dict[str, Any]:
    """Declare the run as a user would."""
    data = {"source": str(source), "test": str(test), "scale": 255.0}
    return {
        "name": "bench-end-to-end",
        "data": data,
        "kernel": {"name": "rbf", "gamma": CASE.gamma},
        "C": CASE.C,
        "store": store,
    }


def as_run(train: Path, test: Path, warm: Path) -> Record:
    """`pipeline.run`, its report aside."""
    from pipeline import run

    busy = Busy()
    with tempfile.TemporaryDirectory() as store:
        run(config(warm, test, f"{store}/warm"))
        metrics = run(config(train, test, f"{store}/run"), progress=busy)
    stages = {name: metrics["seconds"][name] for name in STAGES}
    return {"solver": RUN, "stages": stages, "accuracy": metrics["accuracy"], "busy": busy.share}


def run(data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> dict[str, list[Record]]:
    """Both, in turns; of the repeats the median of each counts."""
    table = CASE.read(data)
    with tempfile.TemporaryDirectory() as folder:
        train, test, warm = (Path(folder) / f"{name}.npz" for name in ("train", "test", "warm"))
        for path, X, y, most in (
            (train, table.X, table.y, rows),
            (test, table.X_test, table.y_test, rows),
            (warm, table.X, table.y, WARM_ROWS),
        ):
            np.savez(path, X=np.rint(X[:most] * 255.0).astype(np.uint8), y=y[:most])
        found = [(apart(in_one_process, train, test), apart(as_run, train, test, warm)) for _ in range(repeats)]
    return {CASE.name: [_median(each) | {"n": len(table.y[:rows])} for each in zip(*found, strict=True)]}


def _median(records: tuple[Record, ...]) -> Record:
    return sorted(records, key=seconds)[len(records) // 2]


def seconds(record: Record) -> float:
    """All that was timed."""
    return float(sum(record["stages"].values()))


HEADER = ("", "seconds", "of these", "cores busy while it solves", "accuracy")


def row(record: Record, _: list[Record]) -> tuple[str, ...]:
    """One way's cells under HEADER."""
    stages = ", ".join(f"{name} {tables.seconds(value)}" for name, value in record["stages"].items())
    busy = f"{record['busy']:.0%}" if "busy" in record else "–"
    return record["solver"], tables.seconds(seconds(record)), stages, busy, f"{record['accuracy']:.4f}"


def show(name: str, records: list[Record]) -> None:
    """Print both to the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADER, title=f"{name}, {records[0]['n']:,} rows", title_justify="left")
    for record in records:
        table.add_row(*row(record, records))
    Console(width=150).print(table)
