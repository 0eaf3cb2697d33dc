"""The arrays of a dataset as they are written, and the fingerprints of what they hold."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pipeline.storage.files import sha256_of_json
from pipeline.storage.sealed import ArrayWriter

__all__ = ["Output"]


class Output:
    """The arrays of a dataset as they are written, each with a digest of its content."""

    def __init__(self, folder: Path, is_sparse: bool, n_features: int, dtype: DTypeLike) -> None:
        self.folder = folder
        self.is_sparse = is_sparse
        self.n_features = n_features
        self.dtype = np.dtype(dtype)
        self.digests: dict[str, Any] = {}

    def write(self, name: str, values: NDArray[Any]) -> None:
        """Write a whole vector (n,)."""
        self._write_parts(name, (), values.dtype, [values])

    def write_beside(self, name: str, values: NDArray[Any]) -> None:
        """Write a vector that no fingerprint covers: it changes no answer."""
        writer = ArrayWriter(self.folder / name, (), values.dtype)
        writer.append(values)
        writer.close()

    def write_rows(self, name: str, blocks: Iterable[Any], stored: DTypeLike | None = None) -> int:
        """Write row blocks: one array, as `stored`, or CSR's data, indices and indptr; returns how many rows."""
        if not self.is_sparse:
            return self._write_parts(name, (self.n_features,), stored or self.dtype, blocks)
        n = end = 0
        kinds = {"data": self.dtype, "indices": np.dtype(np.int32), "indptr": np.dtype(np.int64)}
        writers = {part: ArrayWriter(self.folder / name / part, (), kind) for part, kind in kinds.items()}
        self._append(writers["indptr"], f"{name}/indptr", np.zeros(1, np.int64))
        for X in blocks:
            self._append(writers["data"], f"{name}/data", X.data)
            self._append(writers["indices"], f"{name}/indices", X.indices)
            self._append(writers["indptr"], f"{name}/indptr", end + X.indptr[1:].astype(np.int64))
            n, end = n + X.shape[0], end + int(X.indptr[-1])
        for writer in writers.values():
            writer.close()
        return n

    def fingerprints(self, facts: Mapping[str, Any]) -> dict[str, str]:
        """Return the fingerprint of the merged training rows, and of everything: arrays and facts."""
        found = {name: digest.hexdigest() for name, digest in self.digests.items()}
        rows = {name: value for name, value in found.items() if name.startswith("train/X")}
        step = [] if facts.get("step") is None else [facts["step"]]
        return {
            "rows_fingerprint": sha256_of_json([rows, self.n_features, self.dtype.name, *step]),
            "fingerprint": sha256_of_json([found, dict(facts)]),
        }

    def _write_parts(self, name: str, row: tuple[int, ...], dtype: DTypeLike, parts: Iterable[NDArray[Any]]) -> int:
        writer = ArrayWriter(self.folder / name, row, dtype)
        for part in parts:
            self._append(writer, name, part)
        writer.close()
        return writer.n

    def _append(self, writer: ArrayWriter, name: str, part: NDArray[Any]) -> None:
        values = np.ascontiguousarray(part, writer.dtype)
        self.digests.setdefault(name, hashlib.sha256()).update(values)
        writer.append(values)
