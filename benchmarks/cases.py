"""The tables and parameters of the benchmark, read from the folder given by DATA or made from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SEED, TOL, CACHE_MB = 0, 1e-3, 4000  # where a suite has none of its own


@dataclass(frozen=True)
class Table:
    """X (n, p) float32 and y (n,) class codes, for training and for test; float32 IS the data, for every solver."""

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.int64]

    @property
    def density(self) -> float:
        """Share of non-zero entries of X."""
        return float(np.count_nonzero(self.X) / self.X.size)

    @property
    def n_classes(self) -> int:
        """Classes that occur in training."""
        return int(self.y.max()) + 1

    def save(self, path: Path) -> None:
        """Write the table where worker processes can load it."""
        np.savez(path, X=self.X, y=self.y, X_test=self.X_test, y_test=self.y_test)

    @classmethod
    def load(cls, path: Path) -> Table:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(*(arrays[name] for name in ("X", "y", "X_test", "y_test")))


@dataclass(frozen=True)
class Case:
    """One problem of the benchmark: a table, C, gamma and the cache that every solver is given."""

    name: str
    title: str
    C: float
    gamma: float
    read: Callable[[Path], Table]
    cache_mb: int = 6000


def table_of(case: Case, data: Path, rows: int | None) -> Table:
    """Read the case's table, cut to a stratified sample of `rows` for a quick trial."""
    table = case.read(data)
    if rows is None or rows >= len(table.y):
        return table
    kept, _ = _split(table.y, len(table.y) - rows)
    return replace(table, X=table.X[kept], y=table.y[kept])


def _split(y: NDArray, held_out: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Stratified, seeded (train, test) row numbers in ascending order."""
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(np.arange(len(y)), test_size=held_out, random_state=SEED, stratify=y)
    return np.sort(train), np.sort(test)


def _libsvm(path: Path, p: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(path), n_features=p, dtype=np.float32)
    return X.toarray(), np.unique(y, return_inverse=True)[1]


def with_test_file(name: str, p: int, suffix: str = ".bz2") -> Callable[[Path], Table]:
    """Read a table and its test table, two LIBSVM files of `p` features."""

    def read(data: Path) -> Table:
        return Table(*_libsvm(data / f"{name}{suffix}", p), *_libsvm(data / f"{name}.t.bz2", p))

    return read


def _held_out(X: NDArray[np.float32], y: NDArray[np.int64]) -> Table:
    """Keep a tenth of the rows as the test table."""
    train, test = _split(y, len(y) // 10)
    return Table(X[train], y[train], X[test], y[test])


def _w8a(data: Path) -> Table:
    return _held_out(*_libsvm(data / "w8a.bz2", 300))


def _cod_rna(data: Path) -> Table:
    rows = np.loadtxt(data / "cod-rna.csv.bz2", delimiter=",")
    X, y = rows[:, 1:], (rows[:, 0] > 0).astype(np.int64)
    return _held_out(((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32), y)


def _connect_4(data: Path) -> Table:
    X, y = _libsvm(data / "connect-4.bz2", 126)
    y = (y == 2).astype(np.int64)
    order = np.random.default_rng(SEED).permutation(len(y))
    train, test = order[:30_000], order[30_000:40_000]
    return Table(X[train], y[train], X[test], y[test])


def _connect_4_whole(data: Path) -> Table:
    """All rows; the first 10,000 of them are looked at again as a test."""
    X, y = _libsvm(data / "connect-4.bz2", 126)
    y = (y == 2).astype(np.int64)
    return Table(X, y, X[:10_000], y[:10_000])


def generated(rows: int, features: int = 10) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Two classes with a bent border and few labels across it: 3 to 5 % of the rows are support vectors.

    x is standard normal, and the label tells whether x_0 + x_1 x_2 / 2 + sin x_3 + 0.02 e is above 0, e as x.
    """
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((rows, features), dtype=np.float32)
    height = X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + np.sin(X[:, 3]) + 0.02 * rng.standard_normal(rows)
    return X, (height > 0).astype(np.int64)


def _generated(rows: int) -> Callable[[Path], Table]:
    """So many rows, of which a tenth is looked at again as a test."""

    def read(_: Path) -> Table:
        X, y = generated(rows)
        return Table(X, y, X[: rows // 10], y[: rows // 10])

    return read


def _mnist(n: int, parity: bool = False) -> Callable[[Path], Table]:
    """Read the first n official training images, pixels / 255, and the official test images."""

    def read(data: Path) -> Table:
        parts = []
        for name, rows in (("mnist.npz", n), ("mnist.t.npz", None)):
            with np.load(data / name, allow_pickle=False) as arrays:
                X, y = arrays["X"][:rows], arrays["y"][:rows].astype(np.int64)
            parts += [X.astype(np.float32) / np.float32(255), 1 - y % 2 if parity else y]
        return Table(*parts)

    return read


def _letter(data: Path) -> Table:
    X, y = _libsvm(data / "letter.scale.bz2", 16)
    X_test, y_test = _libsvm(data / "letter.scale.t.bz2", 16)
    return Table(X, y, X_test, y_test)


def parity(n: int, cache_mb: int = 6000) -> Case:
    """MNIST, even against odd digits, the first n images."""
    return Case(f"mnist-parity-{n}", f"MNIST even/odd {n:,}", 10, 0.02, _mnist(n, parity=True), cache_mb)


SINGLE = {
    case.name: case
    for case in (
        Case("a9a", "a9a", 32, 2**-7, with_test_file("a9a", 123)),
        Case("w8a", "w8a", 16, 2**-5, _w8a),
        Case("ijcnn1", "ijcnn1", 32, 2, with_test_file("ijcnn1", 22)),
        Case("cod-rna", "cod-rna, standardised", 32, 0.5, _cod_rna),
        parity(20_000),
        Case("connect-4", "connect-4, class 2, 30,000", 10, 0.05, _connect_4),
    )
}

LARGE = {
    case.name: case
    for case in (
        Case("generated-200000", "200,000 x 10, generated", 10, 0.1, _generated(200_000)),
        parity(60_000),
        Case("connect-4-whole", "connect-4, class 2, all rows", 10, 0.05, _connect_4_whole),
    )
}

SCALING = {case.name: case for case in (parity(n, 8000) for n in (5_000, 10_000, 20_000, 40_000))}

DOUBLING = {
    f"doubling-{n}": Case(f"doubling-{n}", f"{n:,} x 10, generated", 10, 0.1, _generated(n))
    for n in (12_500, 25_000, 50_000, 100_000, 200_000)
}

MULTICLASS = {
    case.name: case
    for case in (
        Case("mnist-10000", "MNIST 10,000", 10, 0.02, _mnist(10_000)),
        Case("letter", "letter 15,000", 16, 4, _letter),
        Case("mnist-60000", "MNIST 60,000", 10, 0.02, _mnist(60_000), 12_000),
    )
}
