"""GridSearchCV over C and gamma: svmcore.estimator's against scikit-learn's over scikit-learn-intelex and scikit-learn.

Each search runs in a fresh process, after a small one that compiles. A peer that would take hours runs a part of the
fits, and its time is scaled. Scores are compared candidate by candidate and fold by fold.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib.externals.loky import get_reusable_executor

from benchmarks import cases
from benchmarks.cases import CACHE_MB, TOL
from benchmarks.contest.peers import BINARY, OURS, Spec
from benchmarks.contest.remote import apart
from benchmarks.page import tables
from benchmarks.results import Record
from benchmarks.suites.runs.batch import CS, FOLDS, folds

WARM_ROWS = 500


@dataclass(frozen=True)
class Contest:
    """One grid on one table; `parts` are the peers and the (folds, gammas) that they run."""

    name: str
    rows: int
    multi_class: str
    gammas: tuple[float, ...]
    parts: tuple[tuple[str, int, int], ...]
    n_jobs: int | None = None


MNIST = Contest(
    "mnist-10000-search",
    10_000,
    "ovr",
    (0.01, 0.02, 0.04),
    (("scikit-learn-intelex", 1, 3), ("scikit-learn", 1, 1)),
)
DIGITS = Contest("digits-search", 1797, "ovo", (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), (("scikit-learn", FOLDS, 5),), n_jobs=2)


def table_of(contest: Contest, data: Path, rows: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels, cut for a quick trial."""
    if contest is DIGITS:
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
    else:
        table = cases.MULTICLASS["mnist-10000"].read(data)
        X, y = table.X, table.y
    n = min(contest.rows, rows or contest.rows)
    return X[:n], y[:n]


def _machine(contest: Contest, solver: str) -> tuple[Any, Any, str]:
    """(search class, estimator, prefix of its parameters)."""
    from sklearn import model_selection
    from sklearn.multiclass import OneVsRestClassifier

    if solver == OURS:
        from svmcore.estimator import SVC, GridSearchCV

        return GridSearchCV, SVC(tol=TOL, cache_size=CACHE_MB, multi_class=contest.multi_class), ""
    machine = BINARY[solver]().estimator(Spec(1.0, 1.0, TOL, CACHE_MB))
    if contest.multi_class == "ovo":
        return model_selection.GridSearchCV, machine, ""
    return model_selection.GridSearchCV, OneVsRestClassifier(machine), "estimator__"


def timed(contest: Contest, solver: str, path: Path, n_folds: int, n_gammas: int) -> Record:
    """Seconds of a part of the search, scaled to all of it, and its scores (folds, gammas, C)."""
    with np.load(path) as arrays:
        X, y = arrays["X"], arrays["y"]
    kind, machine, prefix = _machine(contest, solver)
    grid = {f"{prefix}gamma": list(contest.gammas[:n_gammas]), f"{prefix}C": list(CS)}
    n_jobs = contest.n_jobs
    kind(machine, grid, cv=2, refit=False, n_jobs=n_jobs).fit(X[:WARM_ROWS], y[:WARM_ROWS])
    search = kind(machine, grid, cv=folds(y)[:n_folds], refit=False, n_jobs=n_jobs)
    start = time.perf_counter()
    search.fit(X, y)
    seconds, part = time.perf_counter() - start, n_folds * n_gammas / (FOLDS * len(contest.gammas))
    get_reusable_executor().shutdown(wait=True)  # this process would wait five minutes for idle workers at its end
    found = [search.cv_results_[f"split{k}_test_score"] for k in range(n_folds)]  # gamma goes last, whatever its name
    scores = np.array(found).reshape(n_folds, len(CS), n_gammas).transpose(0, 2, 1)
    plan = str(getattr(search, "search_plan_", ""))
    return {"seconds": [seconds / part], "share": part, "scores": scores.tolist(), "plan": plan}


def run(data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> dict[str, list[Record]]:
    """Both contests, ours and the peers alternating."""
    return {contest.name: _run(contest, data, only, rows, repeats) for contest in (MNIST, DIGITS)}


def _run(contest: Contest, data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> list[Record]:
    X, y = table_of(contest, data, rows)
    sides = [(OURS, FOLDS, len(contest.gammas)), *contest.parts]
    sides = [side for side in sides if not only or side[0] in only]
    found: dict[str, Record] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npz"
        np.savez(path, X=X, y=y)
        for _ in range(repeats if contest is DIGITS else 1):
            for solver, *part in sides:
                print(f"  {contest.name}: {solver}", flush=True)
                record = apart(timed, contest, solver, path, *part)
                before = found.setdefault(solver, {**record, "seconds": []})
                before["seconds"] += record["seconds"]
    return [_completed(solver, record, len(y), found.get(OURS)) for solver, record in found.items()]


def _completed(solver: str, record: Record, n: int, ours: Record | None) -> Record:
    """Add the median, and how far our scores are from a peer's."""
    told = {"solver": solver, "n": n, "median_seconds": float(np.median(record["seconds"])), **record}
    if ours and ours is not record:
        scores = np.array(record["scores"])
        difference = np.array(ours["scores"])[: scores.shape[0], : scores.shape[1]] - scores
        told["fold_difference"] = float(np.abs(difference).max())
        told["mean_difference"] = float(np.abs(difference.mean(axis=0)).max())
    return told


HEADER = ("solver", "seconds", "ours faster by", "run", "worst fold differs", "worst mean differs")


def show(name: str, records: list[Record]) -> None:
    """Print one contest to the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADER, title=name, title_justify="left")
    for record in records:
        table.add_row(*tables.of_search(record, records))
    Console(width=150).print(table)
