"""Rows in shards on two workers against the estimator in one process, and the kernel stage on two workers against one.

The kernel stage is timed of pixels, whose products of bytes take less time than the file of K, which one process writes
at a time; and of the same rows standardised, whose products are of float32.

Both train the same rows with the same kernel, C and tol, each in processes of its own, after a small one that loads and
compiles. Both have the same bytes for columns, those of the shards divided. Peak memory is that of each process: for
shards the driver and both workers.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cases
from benchmarks.cases import CACHE_MB, TOL
from benchmarks.contest.peers import OURS
from benchmarks.contest.remote import apart
from benchmarks.page import tables
from benchmarks.results import Record

WARM_ROWS, WORKERS = 3000, 2
KERNEL_ROWS = 16_000
ESTIMATOR, SHARDS = f"{OURS}, one process", f"{OURS}, shards"


@dataclass(frozen=True)
class Case:
    """Rows, integers where `scale` divides them, and their labels; `digits` are MNIST's, else rows of the generator."""

    name: str
    rows: int
    digits: bool
    C: float
    gamma: float
    standard: bool = False

    @property
    def scale(self) -> Any:
        """What the stored rows are divided by."""
        return "standard" if self.standard else 255.0 if self.digits else None

    def table(self, data: Path) -> tuple[np.ndarray, np.ndarray]:
        """X as it is stored, and y."""
        if not self.digits:
            return cases.generated(self.rows)
        table = cases.MULTICLASS["mnist-60000"].read(data)
        return np.rint(table.X[: self.rows] * 255).astype(np.uint8), table.y[: self.rows]


CASES = (
    Case("mnist-60000-shards", 60_000, True, 10.0, 0.02),
    Case("generated-200000-shards", 200_000, False, 10.0, 0.1),
    Case("generated-500000-shards", 500_000, False, 10.0, 0.1),
)
LONG = ("generated-500000-shards",)  # only by name


def in_one_process(path: Path, case: Case) -> Record:
    """A fit of the estimator."""
    from benchmarks.contest import memory
    from svmcore.estimator import SVC

    with np.load(path) as arrays:
        X, y = arrays["X"], arrays["y"]
    X = X.astype(np.float32) / np.float32(case.scale) if case.scale else X
    machine = SVC(C=case.C, gamma=case.gamma, tol=TOL, cache_size=CACHE_MB, multi_class="ovr")
    machine.fit(X[:WARM_ROWS], y[:WARM_ROWS])
    start = time.perf_counter()
    machine.fit(X, y)
    seconds = time.perf_counter() - start
    gap = max(found.kkt_gap + found.uncertainty for found in machine.certificate_)
    about = {"status": str(machine.status_[0]), "kkt_gap": gap, "n_support": len(machine.support_)}
    return {"seconds": [seconds], "peaks_gb": [memory.peak_bytes() / 1e9], **about}


def config(source: Path, store: str, case: Case, **more: Any) -> dict[str, Any]:
    """Declare the run as a user would."""
    data = {"source": str(source)} | ({"scale": case.scale} if case.scale else {})
    machine = {"kernel": {"name": "rbf", "gamma": case.gamma}, "C": case.C, "solver": {"name": "smo", "tol": TOL}}
    limit = {"limit": f"{CACHE_MB // WORKERS}MB"}
    return {"name": "bench-scale", "data": data, "store": store, "cache": limit, **machine, **more}


@contextlib.contextmanager
def _client(workers: int) -> Iterator[Any]:
    from pipeline.compute.cluster import open_workers

    with open_workers({"kind": "local", "workers": workers}) as opened:
        yield opened.client


def in_shards(path: Path, warm: Path, case: Case) -> Record:
    """A run with `plan: shards`: its seconds from the dataset to the proof."""
    from benchmarks.contest import memory
    from pipeline import run

    with _client(WORKERS) as client, tempfile.TemporaryDirectory() as store:
        run(config(warm, f"{store}/warm", case, plan="shards"), client=client)
        metrics = run(config(path, f"{store}/run", case, plan="shards"), client=client)
        peaks = [memory.peak_bytes(), *client.run(memory.peak_bytes).values()]
    stages = metrics["seconds"]
    about = {key: metrics.get(key) for key in ("status", "kkt_gap", "n_support")}
    seconds = stages["kernel"] + stages["solve"]
    return {"seconds": [seconds], "stages": stages, "peaks_gb": [peak / 1e9 for peak in peaks], **about}


def kernel_stage(path: Path, case: Case, workers: int) -> float:
    """Seconds of K on so many workers."""
    from pipeline import run

    with _client(workers) as client, tempfile.TemporaryDirectory() as store:
        for name in ("first", "second"):  # another dataset is another K
            found = run(config(path, f"{store}/{name}", case, plan="resident"), client=client)
    return float(found["seconds"]["kernel"])


def run(data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> dict[str, list[Record]]:
    """Each case in both ways; of the repeats the median counts."""
    chosen = [case for case in CASES if case.name in only or (not only and case.name not in LONG)]
    chosen = [case if rows is None else Case(**vars(case) | {"rows": rows}) for case in chosen]
    found = {case.name: _case(case, data, repeats) for case in chosen}
    stages = {"kernel-stage": True, "kernel-stage-pixels": False}
    timed = {name: standard for name, standard in stages.items() if not only or name in only}
    return found | {name: [_stage(data, rows, repeats, standard)] for name, standard in timed.items()}


@contextlib.contextmanager
def _stored(case: Case, data: Path) -> Iterator[tuple[Path, Path]]:
    """The rows of a case, and some of them, where other processes find them."""
    X, y = case.table(data)
    with tempfile.TemporaryDirectory() as folder:
        path, warm = Path(folder) / "rows.npz", Path(folder) / "warm.npz"
        np.savez(path, X=X, y=y)
        np.savez(warm, X=X[:WARM_ROWS], y=y[:WARM_ROWS])
        yield path, warm


def _case(case: Case, data: Path, repeats: int) -> list[Record]:
    ways = {ESTIMATOR: [], SHARDS: []}  # type: dict[str, list[Record]]
    with _stored(case, data) as (path, warm):
        for _ in range(repeats):
            ways[ESTIMATOR].append(apart(in_one_process, path, case))
            ways[SHARDS].append(apart(in_shards, path, warm, case))
    return [_median(solver, case, records) for solver, records in ways.items()]


def _median(solver: str, case: Case, records: list[Record]) -> Record:
    seconds = [second for record in records for second in record["seconds"]]
    median = {"seconds": seconds, "median_seconds": float(np.median(seconds))}
    return {"solver": solver, "task": "", "n": case.rows, **records[-1], **median}


def _stage(data: Path, rows: int | None, repeats: int, standard: bool) -> Record:
    case = Case("kernel", rows or KERNEL_ROWS, True, 10.0, 0.001 if standard else 0.02, standard)
    with _stored(case, data) as (path, _):
        times = [[apart(_timed_stage, path, case, workers)["seconds"] for workers in (1, 2)] for _ in range(repeats)]
    one, two = np.median(times, axis=0).tolist()
    return {"solver": OURS, "n": case.rows, "one": one, "two": two, "ratio": one / two}


def _timed_stage(path: Path, case: Case, workers: int) -> Record:
    return {"seconds": kernel_stage(path, case, workers)}


HEADER = ("", "seconds", "over one process", "gap over tol", "status", "peak GB of each process")


def row(record: Record, records: list[Record]) -> tuple[str, ...]:
    """One way's cells under HEADER."""
    over = record["median_seconds"] / records[0]["median_seconds"]
    peaks = ", ".join(f"{peak:.2f}" for peak in record["peaks_gb"])
    gap = tables.number(record["kkt_gap"] / TOL, ".2f")
    return record["solver"], tables.seconds(record["median_seconds"]), f"{over:.2f}×", gap, str(record["status"]), peaks


def show(name: str, records: list[Record]) -> None:
    """Print one case to the terminal."""
    from rich.console import Console
    from rich.table import Table

    if "ratio" in records[0]:
        print(
            "{name}, {n:,} rows: {one:.2f} s on one worker, {two:.2f} on two, {ratio:.2f}×".format(
                name=name, **records[0]
            )
        )
        return
    table = Table(*HEADER, title=f"{name}, {records[0]['n']:,} rows", title_justify="left")
    for record in records:
        table.add_row(*row(record, records))
    Console(width=150).print(table)
