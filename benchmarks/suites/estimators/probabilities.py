"""Probabilities: what they cost beside the fit, and their log loss beside scikit-learn's CalibratedClassifierCV.

All ways are timed in one process, alternating, in seconds of processor time; one against the rest where there are
several classes.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cases
from benchmarks.cases import CACHE_MB
from benchmarks.contest.peers import OURS
from benchmarks.contest.remote import apart
from benchmarks.page import tables
from benchmarks.results import Record

PENDIGITS = cases.Case("pendigits", "pendigits", 10, 0.001, cases.with_test_file("pendigits", 16))
A9A = cases.Case("a9a", "a9a", 1, 2**-7, cases.SINGLE["a9a"].read)
CASES = {case.name: case for case in (PENDIGITS, cases.MULTICLASS["letter"], A9A)}
WAYS = (None, "left-out", "folds")
PEER = "CalibratedClassifierCV"


def timed(name: str, data: Path, rows: int | None, repeats: int) -> list[Record]:
    """The fit without probabilities and with each of ours; a first round compiles."""
    from sklearn.metrics import log_loss

    from svmcore.estimator import SVC

    case = CASES[name]
    table = cases.table_of(case, data, rows)
    found: dict[str | None, Record] = {}
    for _ in range(1 + repeats):
        for way in WAYS:
            machine: Any = SVC(C=case.C, gamma=case.gamma, multi_class="ovr", cache_size=CACHE_MB, calibration=way)
            start = time.process_time()
            machine.set_params(random_state=0).fit(table.X, table.y)
            record = found.setdefault(way, {"solver": f"{OURS}, {way or 'no probabilities'}", "seconds": []})
            record["seconds"].append(time.process_time() - start)
            if way:
                record["log_loss"] = float(log_loss(table.y_test, machine.predict_proba(table.X_test)))
    return [{**record, "seconds": record["seconds"][1:]} for record in found.values()]


def peer(name: str, data: Path, rows: int | None) -> Record:
    """CalibratedClassifierCV over scikit-learn's machine."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.metrics import log_loss
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import SVC

    case = CASES[name]
    table = cases.table_of(case, data, rows)
    machine = SVC(C=case.C, gamma=case.gamma, cache_size=CACHE_MB)
    machine = machine if table.n_classes == 2 else OneVsRestClassifier(machine)
    start = time.process_time()
    model = CalibratedClassifierCV(machine, ensemble=False).fit(table.X, table.y)
    seconds = time.process_time() - start
    loss = float(log_loss(table.y_test, model.predict_proba(table.X_test)))
    return {"solver": PEER, "seconds": [seconds], "log_loss": loss}


def run(data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> dict[str, list[Record]]:
    """All tables; `only` may name one side."""
    return {f"{name}-probabilities": _run(name, data, only, rows, repeats) for name in CASES}


def _run(name: str, data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> list[Record]:
    print(f"  {name}", flush=True)
    found = [] if only and OURS not in only else apart(timed, name, data, rows, repeats)
    if not only or PEER in only:
        found.append(apart(peer, name, data, rows))
    return [{"median_seconds": float(np.median(record["seconds"])), **record} for record in found]


def show(name: str, records: list[Record]) -> None:
    """Print one table to the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table("", "processor seconds", "times the fit", "log loss", title=name, title_justify="left")
    for record in records:
        times = record["median_seconds"] / records[0]["median_seconds"]
        table.add_row(
            record["solver"],
            tables.seconds(record["median_seconds"]),
            tables.number(times, ".2f"),
            tables.number(record.get("log_loss"), ".5f"),
        )
    Console(width=150).print(table)
