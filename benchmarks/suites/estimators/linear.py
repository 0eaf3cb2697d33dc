"""Linear machines of many rows against LIBLINEAR (scikit-learn's LinearSVC), to the same objective.

The program is the same: the bias is penalised, as LIBLINEAR's is. LIBLINEAR promises no gap, so its time is that of
the first rung of a ladder of `max_iter` whose primal value is within 1e-4 of ours. Its primal solver knows the squared
hinge alone. Each fit is in a process of its own, which tells its peak memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.page import tables
from benchmarks.results import Record

LADDER = (3, 10, 30, 100, 300, 1000, 3000, 10_000)
LADDER_SECONDS = 280.0  # no rung is begun that would end later
SAME = 1e-4
TOL = 1e-3
BLOCK = 1 << 16  # rows that are made float64 at a time


@dataclass(frozen=True)
class Case:
    """Rows of a generator, dense or (`entries` a row) sparse, a loss and a C."""

    name: str
    rows: int
    features: int
    loss: str = "hinge"
    C: float = 1.0
    entries: int = 0
    peers: tuple[str, ...] = ("liblinear-dual",)


PRIMAL = ("liblinear-primal",)
CASES = (
    *(Case(f"dense-1m-C{C:g}", 1_000_000, 50, C=C) for C in (1.0, 100.0)),
    *(Case(f"dense-1m-squared-C{C:g}", 1_000_000, 50, "squared_hinge", C, 0, PRIMAL) for C in (1.0, 100.0)),
    Case("dense-5m", 5_000_000, 50, peers=()),
    *(Case(f"dense-40k-400-C{C:g}", 40_000, 400, C=C) for C in (1.0, 100.0)),
    Case("sparse-1m", 1_000_000, 50_000, entries=50),
)


def data(case: Case) -> tuple[Any, Any]:
    """Rows, float32 where they are dense, and labels of a noisy hyperplane."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=case.features)
    if case.entries:
        columns = rng.integers(0, case.features, (case.rows, case.entries), dtype=np.int32)
        columns.sort(axis=1)
        indptr = np.arange(0, case.rows * case.entries + 1, case.entries)
        values = rng.standard_normal(columns.size)
        X = sparse.csr_matrix((values, columns.ravel(), indptr), shape=(case.rows, case.features))
        X.sum_duplicates()
        noise = np.sqrt(case.entries)
    else:
        X, noise = rng.standard_normal((case.rows, case.features), dtype=np.float32), np.sqrt(case.features)
    outputs = np.concatenate([X[start : start + BLOCK] @ w for start in range(0, case.rows, BLOCK)])
    return X, np.where(outputs + 0.3 * noise * rng.standard_normal(case.rows) > 0, 1.0, -1.0)


def objective(case: Case, X: Any, y: Any, w: Any, b: float) -> float:
    """Primal value of the program, the bias penalised."""
    short = np.maximum(0.0, 1.0 - y * (X @ w + b))
    return float(0.5 * (w @ w + b * b) + case.C * (short.sum() if case.loss == "hinge" else short @ short))


def ours(case: Case, X: Any, y: Any) -> Record:
    """The solver that `auto` chooses, certified."""
    from svmcore import Solver, classification
    from svmcore.sources import LinearRows

    small = slice(0, 5000)
    for rows, labels in ((X[small], y[small]), (X, y)):  # the first compiles
        before, started = peak(), time.perf_counter()
        qp = classification(LinearRows(rows), labels, case.C, case.loss, "penalised")
        solution = Solver.create({"name": "auto", "tol": TOL}).solve(qp)
        seconds = time.perf_counter() - started
    found = solution.certificate
    about = {"status": str(solution.status), "steps": solution.n_iter, "kkt_gap": found.kkt_gap, "dual": found.dual}
    return {"seconds": seconds, "primal": found.primal, "peak_gb": peak() - before, **about}


def liblinear(case: Case, X: Any, y: Any, dual: bool, goal: float) -> Record:
    """The first rung that reaches `goal`, or the last one that there is time for."""
    from sklearn.svm import LinearSVC

    spent, record = 0.0, {}
    for max_iter, following in zip(LADDER, (*LADDER[1:], np.inf), strict=True):
        model = LinearSVC(C=case.C, loss=case.loss, dual=dual, tol=1e-8, max_iter=max_iter, random_state=0)
        before, started = peak(), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
        seconds = time.perf_counter() - started
        spent += seconds
        value = objective(case, X, y, model.coef_[0], float(model.intercept_[0]))
        record = {"seconds": seconds, "primal": value, "max_iter": max_iter, "peak_gb": peak() - before}
        if value <= goal * (1.0 + SAME):
            return record | {"reached": True}
        if spent + seconds * following / max_iter > LADDER_SECONDS:
            break
    return record | {"reached": False}


def peak() -> float:
    """Peak resident memory of this process, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def run(only: tuple[str, ...], rows: int | None) -> dict[str, list[Record]]:
    """Records of each case: ours, then the peers."""
    found: dict[str, list[Record]] = {}
    for case in CASES:
        if only and case.name not in only:
            continue
        case = case if rows is None else Case(**{**asdict(case), "rows": rows})
        records = [_apart(case, "marginflow", 0.0)]
        records += [_apart(case, peer, records[0]["primal"]) for peer in case.peers]
        found[case.name] = records
        show(case.name, records)
    return found


def _apart(case: Case, solver: str, goal: float) -> Record:
    told = json.dumps([asdict(case), solver, goal])
    done = subprocess.run([sys.executable, "-m", __spec__.name, told], capture_output=True, text=True, check=True)
    return {"solver": solver, **json.loads(done.stdout.splitlines()[-1])}


HEADER = ("", "seconds", "ours faster by", "primal value", "how it ended", "GB beside the rows")


def row(record: Record, records: list[Record]) -> tuple[str, ...]:
    """One solver's cells under HEADER."""
    ours = record["solver"] == "marginflow"
    ended = f"KKT gap {record['kkt_gap']:.1e}, {record['status']}" if ours else f"max_iter {record['max_iter']:,}"
    ended += "" if ours or record["reached"] else ", objective not reached"
    faster = "" if ours else f"{record['seconds'] / records[0]['seconds']:.1f}×"
    seconds, primal = tables.seconds(record["seconds"]), f"{record['primal']:.8g}"
    return record["solver"], seconds, faster, primal, ended, f"{record['peak_gb']:.2f}"


def show(name: str, records: list[Record]) -> None:
    """Print a case."""
    for record in records:
        print(f"{name}: {', '.join(row(record, records))}", flush=True)


def _main(told: str) -> None:
    about, solver, goal = json.loads(told)
    case = Case(**about | {"peers": tuple(about["peers"])})
    X, y = data(case)
    record = ours(case, X, y) if solver == "marginflow" else liblinear(case, X, y, solver.endswith("dual"), goal)
    print(json.dumps(record))


if __name__ == "__main__":
    _main(sys.argv[1])
