"""The dataset of a run: merged, scaled training rows and test rows in zarr, ready to be mapped by many workers.

`ingest` finds a dataset by what it is made from, or makes it (`rows.ingest`); `open_dataset` opens one by path, as
workers do. Identical (x, label) training rows are one row with a count, in the canonical order of `svmcore.points`.
"""

import contextlib
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline.config.schema import Experiment
from pipeline.kinds import KINDS, Kind
from pipeline.kinds.labels import Label
from pipeline.rows.ingest import KIND, VERSION, Progress, build, made_from
from pipeline.rows.names import named_rows
from pipeline.rows.scaling import Scaling
from pipeline.rows.schema import Schema
from pipeline.storage.cache import claim, finished
from pipeline.storage.files import sha256_of_json
from pipeline.storage.leases import again_if_lost
from pipeline.storage.manifest import MANIFEST, Damaged
from pipeline.storage.sealed import Sealed

__all__ = ["Dataset", "Scaling", "dataset_at", "ingest", "open_dataset"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test rows in a folder; opening reads only the manifest.

    Attributes
    ----------
    fingerprint
        Of all content: training rows, codes, counts, test rows, classes and scaling.
    rows_fingerprint
        Of the merged training rows' values alone: what a kernel matrix depends on.
    step
        Where the training rows are bytes times a number, that number; else None.
    n_train, n_merged, n_test, n_features
        Original training rows, distinct (x, label) rows among them, test rows, columns.
    kind
        What its targets are.
    classes
        The labels as they were, sorted, of novelty those inside first; codes are positions in it. Of values none.
    folds_of
        The values of the fold column, sorted; None without one.
    variance
        X.var() over all entries of the scaled original training rows.
    scaling
        What was done to the columns; `scaling.apply(raw)` does it to new rows.
    schema
        What the columns of the sources were before they were encoded and scaled.
    sources
        Sha256 of the training source and of the test source, if it is another; `test_rows` is equal where two datasets
        have the same test rows.
    index_base
        The number of the first feature in LIBSVM text (0 or 1); None for other formats.
    """

    path: Path
    fingerprint: str
    rows_fingerprint: str
    n_train: int
    n_merged: int
    n_test: int
    n_features: int
    kind: Kind
    classes: list[Label]
    folds_of: list[Label] | None
    sparse: bool
    dtype: np.dtype[Any]
    step: float | None
    variance: float
    scaling: Scaling
    schema: Schema
    sources: dict[str, Any]
    index_base: int | None
    sealed: Sealed = field(repr=False)

    def X(self, lo: int = 0, hi: int | None = None) -> Any:
        """Merged training rows lo ... hi - 1, scaled, (m, n_features) array or CSR in `dtype`."""
        return self._scaled(self._rows("train/X", lo, self.n_merged if hi is None else hi))

    def take(self, rows: NDArray[np.int64], lo: int = 0, hi: int | None = None) -> Any:
        """As `X(lo, hi)[rows]`: where rows are stored as bytes, no other is made floats."""
        return self._scaled(self._rows("train/X", lo, self.n_merged if hi is None else hi)[rows])

    def _scaled(self, rows: Any) -> Any:
        return rows if self.step is None else np.multiply(rows, self.step, dtype=self.dtype)

    def bytes(self) -> NDArray[np.uint8] | None:
        """What `step` multiplies to the merged training rows (n_merged, n_features); None without a step."""
        return None if self.step is None else self._rows("train/X", 0, self.n_merged)

    def targets(self) -> NDArray[Any]:
        """Class code (int64) or value (float64) of each merged row, (n_merged,)."""
        return _wide(self.sealed.read("train/codes"))

    def counts(self) -> NDArray[np.int64]:
        """How many original rows each merged row stands for, (n_merged,)."""
        return self.sealed.read("train/counts")

    def inverse(self) -> NDArray[np.int64]:
        """Merged row of each original training row, (n_train,), in the order of the source."""
        return self.sealed.read("train/inverse")

    def folds(self) -> NDArray[np.int64] | None:
        """Fold code of each original training row (n_train,), positions in `folds_of`; None without a fold column."""
        return None if self.folds_of is None else self.sealed.read("train/folds").astype(np.int64)

    def test_blocks(self, rows: int | None = None) -> Iterator[tuple[Any, NDArray[Any]]]:
        """Yield the test rows in order, scaled, as (X, targets), `rows` at a time (default: a chunk)."""
        targets, step = self.test_targets(), rows or self.test_step
        for lo in range(0, self.n_test, step):
            hi = min(lo + step, self.n_test)
            yield self.test_rows(lo, hi), targets[lo:hi]

    def test_rows(self, lo: int, hi: int) -> Any:
        """Test rows lo ... hi - 1, scaled, (hi - lo, n_features) array or CSR."""
        return self._rows("test/X", lo, hi)

    def test_targets(self) -> NDArray[Any]:
        """Class code or value of each test row, (n_test,)."""
        return _wide(self.sealed.read("test/codes")) if self.n_test else np.zeros(0, np.int64)

    @property
    def test_step(self) -> int:
        """How many test rows are best read at a time: a chunk."""
        return self.sealed.chunk_rows("test/X") if self.n_test and not self.sparse else 4096

    def named(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """`row` in the source, `id` and `copies` of test rows; without any of merged training rows."""
        if self.n_test:
            return [name | {"copies": 1} for name in named_rows(self.sealed, rows)]
        inverse, first = self.inverse(), np.empty(self.n_merged, np.int64)
        first[inverse[::-1]] = np.arange(len(inverse))[::-1]
        copies = self.counts()[rows].tolist()
        found = zip(named_rows(self.sealed, first[rows]), copies, strict=True)
        return [name | {"copies": n} for name, n in found]

    def verify(self) -> None:
        """Compare every file with its sha256; a difference is an InputError naming the file."""
        self.sealed.verify()

    def _rows(self, name: str, lo: int, hi: int) -> Any:
        if not self.sparse:
            return self.sealed.read(name, lo, hi)
        indptr = self.sealed.read(f"{name}/indptr", lo, hi + 1)
        a, b = int(indptr[0]), int(indptr[-1])
        parts = (self.sealed.read(f"{name}/data", a, b), self.sealed.read(f"{name}/indices", a, b), indptr - a)
        return sparse.csr_array(parts, shape=(hi - lo, self.n_features))


def _wide(targets: NDArray[Any]) -> NDArray[Any]:
    """Codes as they are counted with; values as they are."""
    return targets.astype(np.int64) if targets.dtype.kind == "i" else targets


def open_dataset(path: str | os.PathLike[str]) -> Dataset:
    """Open the dataset in a folder, or at a URL; anything missing, changed or newer is an InputError."""
    sealed = Sealed(path, KIND, VERSION)
    facts = sealed.manifest
    return Dataset(
        path=sealed.path,
        **{key: facts[key] for key in ("fingerprint", "rows_fingerprint", "n_train", "n_merged", "n_test")},
        **{key: facts[key] for key in ("n_features", "classes", "folds_of", "sparse", "variance", "index_base")},
        dtype=np.dtype(facts["dtype"]),
        step=facts.get("step"),
        kind=KINDS[facts.get("answers", "labels")],
        scaling=Scaling(facts["scaling"], sealed.read("scaling/shift"), sealed.read("scaling/factor")),
        schema=_schema(sealed),
        sources=facts["sources"],
        sealed=sealed,
    )


@functools.lru_cache(maxsize=4)
def dataset_at(path: str) -> Dataset:
    """The dataset in a folder that does not change any more, opened once: that reads and checks its small arrays."""
    return open_dataset(path)


def _schema(sealed: Sealed) -> Schema:
    there = [name for name in ("fill", "least", "largest") if sealed.has(f"schema/{name}")]
    return Schema.of(sealed.manifest["schema"], {name: sealed.read(f"schema/{name}") for name in there})


def ingest(exp: Experiment, root: str | os.PathLike[str], progress: Progress | None = None) -> Dataset:
    """Return the dataset that `exp` declares, from `root`/data if it is there, else read from its source.

    It is found by the sha256 of the source's bytes, the data keys and the seed, so none is made twice, and it is the
    same whatever machine, worker count or clock. One that is damaged is made again.

    Raises
    ------
    InputError
        In one sentence, for every way in which the data cannot be used; nothing is left behind then.
    """
    facts = made_from(exp)
    folder = Path(root) / "data" / sha256_of_json(facts)[:32]
    name = f"data/{folder.name}"
    claim(Path(root), [name])
    if not _is_whole(folder):
        again_if_lost(lambda: build(exp, folder, facts, progress))
        finished(Path(root), name)
    with contextlib.suppress(OSError):  # a store may be read-only by now
        os.utime(folder)  # the oldest datasets are the first to be evicted
    return open_dataset(folder)


def _is_whole(folder: Path) -> bool:
    """Whether a dataset is there whose every byte is what was written; what was not is made again in its place."""
    if not (folder / MANIFEST).exists():
        return False
    try:
        open_dataset(folder).verify()
    except Damaged:
        return False
    return True
