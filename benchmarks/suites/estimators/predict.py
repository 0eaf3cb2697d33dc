"""Prediction: labels of many rows by models that were trained on the same table, against intelex and scikit-learn.

Each solver trains and predicts in a fresh process, all rows at once and one by one. Ours also says how many labels
differ from those of a float64 judge that shares no code with it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks import cases
from benchmarks.cases import CACHE_MB, TOL
from benchmarks.contest import memory
from benchmarks.contest.peers import BINARY, OURS, Spec, _SklearnLike
from benchmarks.contest.remote import apart
from benchmarks.page import tables
from benchmarks.results import Record

BLOCK = 500  # rows that the judge takes at once
SINGLE_ROWS = 200  # whose median time is that of one row


@dataclass(frozen=True)
class Contest:
    """One model and the rows it is asked about; scikit-learn is asked about a `share` of them."""

    name: str
    read: Callable[[Path], tuple[Any, np.ndarray, Any]]
    C: float
    gamma: float
    rows: int
    share: float = 0.1


def _mnist(data: Path) -> tuple[Any, np.ndarray, Any]:
    table = cases.MULTICLASS["mnist-60000"].read(data)
    return table.X, table.y, table.X_test


def _ijcnn1(data: Path) -> tuple[Any, np.ndarray, Any]:
    table = cases.SINGLE["ijcnn1"].read(data)
    return table.X, table.y, table.X_test[:50_000]


def _reuters(data: Path) -> tuple[Any, np.ndarray, Any]:
    from sklearn.datasets import load_svmlight_files

    X, y, X_test, _ = load_svmlight_files([str(data / f"reuters.{part}.bz2") for part in ("trn", "tst")])
    return X.astype(np.float32), np.unique(y, return_inverse=True)[1], X_test.astype(np.float32)


def _digits(_: Path) -> tuple[Any, np.ndarray, Any]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32) / 16.0
    return X, y, X


CONTESTS = (
    Contest("digits-predict", _digits, 10, 0.1, 1_797, 1.0),
    Contest("mnist-predict", _mnist, 10, 0.02, 60_000),
    Contest("ijcnn1-predict", _ijcnn1, 32, 2, 49_990),
    Contest("reuters-predict", _reuters, 10, 1, 60_000, 1.0),
)


def _save(path: Path, **tables_: Any) -> None:
    arrays: dict[str, Any] = {}
    for name, values in tables_.items():
        if sparse.issparse(values):
            parts = {"data": values.data, "indices": values.indices, "indptr": values.indptr, "shape": values.shape}
            arrays |= {f"{name}_{key}": part for key, part in parts.items()}
        else:
            arrays[name] = values
    np.savez(path, **arrays)


def _load(arrays: Any, name: str) -> Any:
    if name in arrays:
        return arrays[name]
    parts = tuple(arrays[f"{name}_{key}"] for key in ("data", "indices", "indptr"))
    return sparse.csr_matrix(parts, shape=tuple(arrays[f"{name}_shape"]))


def _machine(contest: Contest, solver: str, n_classes: int) -> Any:
    """One-vs-rest of many classes: ours with one kernel, the others in a loop."""
    from sklearn.multiclass import OneVsRestClassifier

    peer = BINARY[solver]()
    assert isinstance(peer, _SklearnLike)
    machine = peer.estimator(Spec(contest.C, contest.gamma, TOL, CACHE_MB))
    return machine if solver == OURS or n_classes == 2 else OneVsRestClassifier(machine)


def timed(contest: Contest, solver: str, path: Path, repeats: int) -> Record:
    """Seconds of `repeats` predictions by a model that has predicted once before, scaled to all rows."""
    with np.load(path) as arrays:
        X, y, X_test = (_load(arrays, name) for name in ("X", "y", "X_test"))
    share = contest.share if solver == "scikit-learn" else 1.0
    asked = X_test[: max(1, round(share * X_test.shape[0]))].astype(BINARY[solver].dtype)
    model = _machine(contest, solver, int(y.max()) + 1).fit(X.astype(BINARY[solver].dtype), y)
    model.predict(asked[:2000])
    before = memory.resident_bytes()
    memory.reset_peak()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        labels = model.predict(asked)
        seconds.append((time.perf_counter() - start) / share)
    told = {"seconds": seconds, "share": share, "n_test": X_test.shape[0], "more_bytes": memory.peak_bytes() - before}
    told["row_ms"] = 1e3 * _one_by_one(model, asked)
    return told | (_judged(contest, model, asked, labels) if solver == OURS else {})


def _one_by_one(model: Any, asked: Any) -> float:
    """Median seconds of a prediction of one row."""
    singles = []
    for i in range(min(SINGLE_ROWS, asked.shape[0])):
        start = time.perf_counter()
        model.predict(asked[i : i + 1])
        singles.append(time.perf_counter() - start)
    return float(np.median(singles))


def _judged(contest: Contest, model: Any, asked: Any, labels: np.ndarray) -> Record:
    """How many labels differ from the judge's; how many support vectors."""
    differ = int((_labels(contest, model.model_, asked) != labels).sum())
    return {"differ": differ, "n_support": len(model.support_)}


def _labels(contest: Contest, model: Any, asked: Any) -> np.ndarray:
    """Labels by NumPy in float64."""
    Z = _plain(model.support_vectors)
    squares, found = (Z**2).sum(axis=1), []
    for start in range(0, asked.shape[0], BLOCK):
        X = _plain(asked[start : start + BLOCK])
        distance2 = (X**2).sum(axis=1)[:, None] + squares - 2.0 * (X @ Z.T)
        decision = np.exp(-contest.gamma * np.maximum(distance2, 0.0)) @ model.coef.T + model.bias
        codes = (decision[:, 0] >= 0).astype(int) if decision.shape[1] == 1 else decision.argmax(axis=1)
        found.append(model.classes[codes])
    return np.concatenate(found)


def _plain(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def run(data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> dict[str, list[Record]]:
    """All contests, solver after solver."""
    return {contest.name: _run(contest, data, only, rows, repeats) for contest in CONTESTS}


def _run(contest: Contest, data: Path, only: tuple[str, ...], rows: int | None, repeats: int) -> list[Record]:
    X, y, X_test = contest.read(data)
    n = min(contest.rows, rows or contest.rows)
    found: list[Record] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npz"
        _save(path, X=X[:n], y=y[:n], X_test=X_test)
        for solver in (OURS, "scikit-learn-intelex", "scikit-learn"):
            if only and solver not in only:
                continue
            print(f"  {contest.name}: {solver}", flush=True)
            try:
                record = apart(timed, contest, solver, path, repeats)
            except (TypeError, ValueError) as error:  # intelex may not take sparse rows
                record = {"seconds": [], "error": str(error)[:200]}
            median = float(np.median(record["seconds"])) if record["seconds"] else None
            found.append({"solver": solver, "task": "", "n": X[:n].shape[0], "median_seconds": median, **record})
    return found


HEADER = ("solver", "seconds", "ours faster by", "asked", "memory MB", "labels that differ", "one row ms", "vectors")


def show(name: str, records: list[Record]) -> None:
    """Print one contest to the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADER, title=f"{name}, model of {records[0]['n']:,} rows", title_justify="left")
    for record in records:
        ratio = tables.speedup(record, records)
        more = record.get("more_bytes")
        table.add_row(
            record["solver"],
            tables.seconds(record["median_seconds"]),
            "" if ratio is None else f"{ratio:.1f}×",
            "–" if record.get("share", 1.0) == 1.0 else f"{record['share']:.0%} of the rows, scaled",
            tables.number(None if more is None else more / 1e6, ",.0f"),
            tables.number(record.get("differ"), ","),
            tables.number(record.get("row_ms"), ".2f"),
            tables.number(record.get("n_support"), ","),
        )
    Console(width=150).print(table)
