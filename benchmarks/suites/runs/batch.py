"""A cross-validated batch: 10 classes x 5 folds x 5 C on one kernel, against GridSearchCV(OneVsRestClassifier(SVC))."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cases
from benchmarks.cases import CACHE_MB, TOL
from benchmarks.contest.peers import BINARY, OURS, Spec, _SklearnLike
from benchmarks.contest.remote import apart
from benchmarks.page import tables
from benchmarks.results import Record

ROWS = 10_000
FOLDS, SEED, GAMMA = 5, 0, 0.02
CS = (0.1, 1.0, 10.0, 100.0, 1000.0)
GAMMAS = (0.01, 0.02, 0.04)
SHARES = {"scikit-learn-intelex": 1.0, "scikit-learn": 0.2}  # of the folds that are run, the time being scaled


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    data: Path
    only: tuple[str, ...] = ()
    rows: int = ROWS
    repeats: int = 3

    def wants(self, solver: str) -> bool:
        """Whether a solver takes part."""
        return not self.only or solver in self.only


def folds(y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split as marginflow's `folds: 5` does: stratified, shuffled, seeded."""
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(np.zeros(len(y)), y))


def search(solver: str, path: Path, share: float) -> Record:
    """Time GridSearchCV over C with a peer, on a share of the folds, without refit; scores (folds, C)."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.multiclass import OneVsRestClassifier

    table, peer = cases.Table.load(path), BINARY[solver]()
    assert isinstance(peer, _SklearnLike)
    splits = folds(table.y)[: max(1, round(share * FOLDS))]
    X, y = peer.given(table.X, table.y, "dense")
    machine = OneVsRestClassifier(peer.estimator(Spec(1.0, GAMMA, TOL, CACHE_MB)))
    machine.fit(X[:1000], y[:1000])
    found = GridSearchCV(machine, {"estimator__C": list(CS)}, cv=splits, refit=False)
    start = time.perf_counter()
    found.fit(X, y)
    seconds = time.perf_counter() - start
    results = found.cv_results_
    return {
        "seconds": [seconds * FOLDS / len(splits)],
        "fit_seconds": float(results["mean_fit_time"].sum() * FOLDS),
        "share": len(splits) / FOLDS,
        "scores": [results[f"split{k}_test_score"].tolist() for k in range(len(splits))],
        "version": peer.version(),
    }


def config(source: Path, store: Path, sweep: dict[str, Any]) -> dict[str, Any]:
    """Declare the batch as a user would, two local workers."""
    return {
        "name": "bench-batch",
        "seed": SEED,
        "data": {"source": str(source), "scale": 255.0},
        "kernel": {"name": "rbf", "gamma": GAMMA},
        "C": 10.0,
        "solver": {"name": "smo", "tol": TOL},
        "cluster": {"kind": "local", "workers": 2},
        "store": str(store),
        "sweep": {**sweep, "refit": False},
    }


def marginflow_run(source: Path, sweep: dict[str, Any]) -> Record:
    """Run one batch in a store of its own, so that nothing is found ready; the record is the run's metrics."""
    from pipeline import run

    with tempfile.TemporaryDirectory() as store:
        return run(config(source, Path(store), sweep))


def _worked(metrics: Record) -> float:
    """Kernel and solve seconds: what the peers' search is compared with."""
    return metrics["seconds"]["kernel"] + metrics["seconds"]["solve"]


def run(request: Request) -> list[Record]:
    """Time our batch between the peers' searches, and the kernel stage of three gammas against one."""
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder) / "digits.npz", Path(folder) / "table.npz"
        table = cases.MULTICLASS["mnist-10000"].read(request.data)
        X, y = table.X[: request.rows], table.y[: request.rows]
        np.savez(source, X=np.rint(X * 255).astype(np.uint8), y=y)
        cases.Table(X, y, X[:1], y[:1]).save(path)
        ours: list[Record] = []
        records: list[Record] = []
        for solver, share in SHARES.items():
            _again(ours, source, request)
            if request.wants(solver):
                print(f"  {solver}, {share:.0%} of the folds")
                records.append({"solver": solver, **apart(search, solver, path, share)})
        while request.wants(OURS) and len(ours) < request.repeats + 1:
            _again(ours, source, request)
        records = ([_ours(ours, len(y))] if ours else []) + records
        stage = [_kernel_stage(source, request.repeats)] if request.wants(OURS) else []
    return [_completed(record, len(y), records) for record in records] + stage


def _again(ours: list[Record], source: Path, request: Request) -> None:
    """Add one run of ours; the first is the cold one."""
    if request.wants(OURS):
        print(f"  {OURS}, run {len(ours)}")
        metrics = marginflow_run(source, {"grid": {"C": list(CS)}, "folds": FOLDS})
        if len(metrics.get("points", ())) != len(CS):
            raise SystemExit(f"pipeline.run gave no scores for the {len(CS)} points of the sweep")
        ours.append(metrics)


def _ours(runs: list[Record], n: int) -> Record:
    """Put several runs' metrics into one record; C in the order of the peers, scores (folds, C)."""
    timed, last = runs[1:] or runs, runs[-1]
    points = sorted(last["points"], key=lambda point: float(point["params"]["C"]))
    return {
        "solver": OURS,
        "seconds": [_worked(metrics) for metrics in timed],
        "cold_seconds": _worked(runs[0]),
        "foretold_seconds": _worked(runs[0]["plan"]),
        "total_seconds": statistics.median(metrics["seconds"]["total"] for metrics in timed),
        "stages": {key: statistics.median(m["seconds"][key] for m in timed) for key in last["seconds"]},
        "share": 1.0,
        "scores": np.array([point["fold_scores"] for point in points]).T.tolist(),
        "kkt_gap": last["kkt_gap"],
        "status": last["status"],
        "problems": last.get("problems"),
        "peak_bytes": max(metrics["peak_memory_bytes"] for metrics in timed),
    }


def _completed(record: Record, n: int, records: list[Record]) -> Record:
    """Add what all records share, and how far our scores are from a peer's: per fold, and per mean over its folds."""
    scores, ours = np.array(record["scores"]), next((r for r in records if r["solver"] == OURS), None)
    compared: Record = {}
    if ours and record is not ours:
        difference = np.array(ours["scores"])[: len(scores)] - scores
        compared = {
            "fold_difference": float(np.abs(difference).max()),
            "mean_difference": float(np.abs(difference.mean(axis=0)).max()),
        }
    median = statistics.median(record["seconds"])
    return {"title": f"MNIST {n:,}", "n": n, **record, "median_seconds": median, **compared}


def _kernel_stage(source: Path, repeats: int) -> Record:
    """Kernel seconds of a sweep over one gamma and over three, alternating, after a first of each."""
    seconds: dict[int, list[float]] = {1: [], len(GAMMAS): []}
    for _ in range(repeats):
        for gammas in ((GAMMA,), GAMMAS):
            metrics = marginflow_run(source, {"grid": {"kernel.gamma": list(gammas)}})
            seconds[len(gammas)].append(metrics["seconds"]["kernel"])
    one, three = (statistics.median(values) for values in seconds.values())
    return {"solver": OURS, "kind": "kernel stage", "one_gamma": one, "three_gammas": three, "ratio": three / one}


HEADER = ("solver", "seconds", "ours faster by", "run", "worst fold differs", "worst mean differs", "mean score per C")


def row(record: Record, records: list[Record]) -> tuple[str, ...]:
    """One solver's cells under HEADER."""
    means = np.array(record["scores"]).mean(axis=0)
    return (*tables.of_search(record, records), " ".join(f"{mean:.4f}" for mean in means))


def show(records: list[Record]) -> None:
    """Print the comparison to the terminal."""
    from rich.console import Console
    from rich.table import Table

    searches = [record for record in records if "scores" in record]
    table = Table(*HEADER, title=f"{FOLDS} folds, {len(CS)} C, all classes one-vs-rest", title_justify="left")
    for record in searches:
        table.add_row(*row(record, searches))
    console = Console()
    (console if console.is_terminal else Console(width=180)).print(table)
    for record in records:
        if "ratio" in record:
            print(f"kernel stage: three gammas take {record['ratio']:.2f}x one ({record['one_gamma']:.2f} s)")
