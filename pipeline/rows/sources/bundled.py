"""scikit-learn's bundled sets as row blocks."""

import functools
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.rows.sources.blocks import BLOCK_BYTES, RowBlock, StoredSource, rows_in

__all__ = ["BundledSource"]


class BundledSource(StoredSource):
    """One of scikit-learn's bundled sets, `sklearn:NAME`."""

    def __init__(self, url: str, n_features: int | None = None) -> None:
        super().__init__(url)
        self.n_features = n_features

    def blocks(self, rows_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
        """Yield the set; it is small."""
        X, y = self._load()
        if self.n_features is not None and X.shape[1] != self.n_features:
            raise self.fail(f"X has {X.shape[1]} features, but {self.n_features} are expected")
        self.total = len(y)
        step = rows_in(rows_bytes, X.shape[1])
        for start in range(0, len(y), step):
            self.done = min(start + step, len(y))
            yield RowBlock(X[start : start + step], y[start : start + step])

    def digest(self) -> str:
        """Sha256 of the numbers, whichever version of scikit-learn ships them."""
        X, y = self._load()
        return hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()

    def _load(self) -> tuple[NDArray[np.float64], NDArray[Any]]:
        return _bundled(self.url.removeprefix("sklearn:"))


@functools.cache
def _bundled(name: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """The set, which nobody may write to: a run asks for it three times."""
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    X, y = np.ascontiguousarray(X, dtype=np.float64), y.astype(np.int64 if y.dtype.kind in "iu" else np.float64)
    X.setflags(write=False)
    y.setflags(write=False)
    return X, y
