"""What `marginflow plan` foretells of each way to hold K, against what the run then takes.

Each run is in processes of its own, after a small one that loads and compiles, on an idle machine. Seconds are those of
kernel, solve and score together: what one plan does in one stage another does in the next.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cases
from benchmarks.contest.remote import apart
from benchmarks.page import tables
from benchmarks.results import Record

PLANS = ("resident", "columns", "shards", "factor")
STAGES = ("kernel", "solve", "score")
RANK, WARM_ROWS, LIMIT = 500, 3000, "6GB"
TEST = 0.1


@dataclass(frozen=True)
class Case:
    """A case of the other suites, all its rows; of the generator without one. `plans` are those that may hold its K."""

    name: str
    case: cases.Case | None
    C: float
    gamma: float
    plans: tuple[str, ...] = PLANS
    scale: float | None = None

    def table(self, data: Path, rows: int | None) -> tuple[np.ndarray, np.ndarray]:
        """X as it is stored, and y."""
        if self.case is None:
            return cases.generated(rows or 200_000)
        table = cases.table_of(self.case, data, rows)
        return (np.rint(table.X * self.scale).astype(np.uint8) if self.scale else table.X), table.y


def _of(case: cases.Case, **more: Any) -> Case:
    return Case(case.name, case, case.C, case.gamma, **more)


LARGE = PLANS[1:]  # K is more than the memory of most machines
CASES = (
    _of(cases.MULTICLASS["letter"]),
    _of(cases.MULTICLASS["mnist-10000"], scale=255.0),
    _of(cases.SINGLE["a9a"]),
    _of(cases.MULTICLASS["mnist-60000"], scale=255.0, plans=LARGE),
    Case("generated-200000", None, 10.0, 0.1, LARGE),
)


def config(case: Case, plan: str) -> dict[str, Any]:
    """Declare the run as a user would, but for source and store."""
    data = {"test": TEST} | ({"scale": case.scale} if case.scale else {})
    machine = {"kernel": {"name": "rbf", "gamma": case.gamma}, "C": case.C}
    way = {"approximation": {"name": "nystroem", "rank": RANK}} if plan == "factor" else {"plan": plan}
    return {"name": "bench-plans", "data": data, "cache": {"limit": LIMIT, "disk": LIMIT}, **machine, **way}


def foretold_and_taken(declared: dict[str, Any], path: Path, warm: Path) -> Record:
    """Seconds by stage, as they were foretold and as they were."""
    from pipeline import run
    from pipeline.config.load import load_experiment
    from pipeline.running.plan import plan_of

    def of(source: Path, name: str) -> dict[str, Any]:
        return declared | {"data": declared["data"] | {"source": str(source)}, "store": f"{store}/{name}"}

    with tempfile.TemporaryDirectory() as store:
        run(of(warm, "warm"))
        foretold, metrics = plan_of(load_experiment(of(path, "plan")))["seconds"], run(of(path, "run"))
    taken = metrics["seconds"]
    about = {"plan": metrics["plan"]["plan"], "status": metrics["status"]}
    return {**about, "foretold": {s: foretold[s] for s in STAGES}, "taken": {s: taken.get(s, 0.0) for s in STAGES}}


def run(data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> dict[str, list[Record]]:
    """Each case with each plan; of the repeats the median by what was taken counts."""
    chosen = [case for case in CASES if not only or case.name in only]
    return {case.name: _run(case, data, rows, repeats) for case in chosen}


def _run(case: Case, data: Path, rows: int | None, repeats: int) -> list[Record]:
    X, y = case.table(data, rows)
    with tempfile.TemporaryDirectory() as folder:
        path, warm = Path(folder) / "rows.npz", Path(folder) / "warm.npz"
        np.savez(path, X=X, y=y)
        np.savez(warm, X=X[:WARM_ROWS], y=y[:WARM_ROWS])
        return [_median(config(case, plan), path, warm, repeats) | {"solver": plan, "n": len(y)} for plan in case.plans]


def _median(declared: dict[str, Any], path: Path, warm: Path, repeats: int) -> Record:
    records = [apart(foretold_and_taken, declared, path, warm) for _ in range(repeats)]
    return sorted(records, key=lambda record: sum(record["taken"].values()))[len(records) // 2]


HEADER = ("plan", "foretold", "taken", "foretold over taken", "by stage: foretold, taken")


def row(record: Record, _: list[Record]) -> tuple[str, ...]:
    """One plan's cells under HEADER."""
    foretold, taken = (sum(record[name].values()) for name in ("foretold", "taken"))
    stages = "; ".join(f"{s} {record['foretold'][s]:.2f}, {record['taken'][s]:.2f}" for s in STAGES)
    return record["solver"], tables.seconds(foretold), tables.seconds(taken), f"{foretold / taken:.2f}", stages


def show(name: str, records: list[Record]) -> None:
    """Print one case to the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADER, title=f"{name}, {records[0]['n']:,} rows", title_justify="left")
    for record in records:
        table.add_row(*row(record, records))
    Console(width=150).print(table)
