"""What every reader gives: blocks of rows, checked to be finite, from a source that knows its own name.

Formats are files beside this one; which one reads a URL is decided in `open`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.rows.schema import Schema, Vocabulary
from pipeline.rows.sources.streams import sha256_of
from svmcore.errors import InputError

__all__ = [
    "BLOCK_BYTES",
    "RowBlock",
    "Source",
    "StoredSource",
    "check_finite",
    "check_labels",
    "check_width",
    "finite_rows",
    "rows_in",
]

BLOCK_BYTES = 32 << 20
MAX_FEATURES = 1 << 26  # the widest of the public sets (kdd12) has 55 million; each vector of them is 0.5 GB here


@dataclass(frozen=True)
class RowBlock:
    """Some consecutive rows: `X` (n, p) float64 or CSR; labels `y`, `fold` and `id` (n,) as read, or None."""

    X: Any  # scipy ships no types
    y: NDArray[Any] | None
    fold: NDArray[Any] | None = None
    id: NDArray[Any] | None = None


class Source(ABC):
    """Rows at a URL. `done` of `total` (bytes or rows) tells how far `blocks` has come.

    Attributes
    ----------
    fills
        Whether a missing number is a NaN; otherwise it is refused.
    schema
        Of a table, once its first lines are known; its texts are coded by the vocabularies `texts`, by feature.
    kept
        Once the first rows are known: the smallest type known to hold all of them exactly.
    """

    sparse = False
    fills = False
    schema: Schema | None = None
    kept: np.dtype = np.dtype(np.float64)

    def __init__(self, url: str) -> None:
        self.url = url
        self.texts: dict[int, Vocabulary] = {}
        self.done = 0
        self.total = 0

    @abstractmethod
    def blocks(self, rows_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
        """Yield the rows in order, in blocks of about `rows_bytes` bytes of memory."""

    def fail(self, what: str) -> InputError:
        """Return an error about this source."""
        return InputError(f"{self.url}: {what}")


class StoredSource(Source):
    """Rows that lie somewhere: a dataset that was made of them is found again by their bytes.

    Attributes
    ----------
    digest_read
        Sha256 of the bytes that `blocks` has made rows of, where it reads them in order.
    """

    digest_read: str | None = None

    def digest(self) -> str:
        """Sha256 of the file as it is stored."""
        return sha256_of(self.url)


def check_finite(source: Source, X: NDArray[Any], first_row: int, names: Sequence[str] | None = None) -> None:
    """Raise InputError naming row (from 1) and column of the first infinity in dense rows `X` (n, p), or NaN.

    NaN is for missing values where the source fills them.
    """
    if X.dtype.kind != "f" or np.isfinite(X).all():
        return
    wrong = np.isinf(X) if source.fills else ~np.isfinite(X)
    if not wrong.any():
        return
    row, column = np.argwhere(wrong)[0]
    value, hint = ("NaN", " (data.missing: mean or median)") if np.isnan(X[row, column]) else ("infinity", "")
    name = f"'{names[column]}'" if names is not None else f"{column} (counted from 0)"
    raise source.fail(f"row {first_row + row + 1}, column {name}: {value}; remove or fill such values{hint}")


def check_width(source: Source, n_features: int) -> None:
    """Raise InputError if one index promises more features than a vector in memory may have."""
    if n_features > MAX_FEATURES:
        raise source.fail(f"{n_features:,} features, more than {MAX_FEATURES:,}; number or hash them into fewer")


def rows_in(rows_bytes: int, n_features: int) -> int:
    """Return how many rows of float64 make a block of about `rows_bytes`."""
    return max(1, rows_bytes // (8 * max(1, n_features)))


def finite_rows(source: Source, X: NDArray[Any], first_row: int) -> NDArray[np.float64]:
    """Return rows as C-contiguous float64, refusing what is not a finite number."""
    with np.errstate(over="ignore"):  # a long double beyond float64's range becomes infinity, which is refused
        rows = np.ascontiguousarray(X, dtype=np.float64)
    check_finite(source, rows, first_row)
    if X.dtype.itemsize < rows.itemsize:
        source.kept = X.dtype.newbyteorder("=")
    return rows


def check_labels(source: Source, y: NDArray[Any], first_row: int = 0) -> NDArray[Any]:
    """Return labels `y` (n,) of a kind that classes can be made of, or raise InputError naming the row."""
    if y.ndim == 2 and 1 in y.shape:
        y = y.reshape(-1)
    if y.ndim != 1:
        raise source.fail(f"the labels have shape {y.shape}; one label a row is needed")
    if y.dtype.kind == "S":
        try:
            y = np.char.decode(y, "utf-8")
        except UnicodeDecodeError as error:
            raise source.fail(f"the labels are bytes that are not UTF-8 ({error}); save them as strings") from None
    if y.dtype.kind not in "biufUTO":
        raise source.fail(f"labels of type {y.dtype} cannot name classes; use numbers or strings")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise source.fail(f"row {first_row + row + 1}: the label is {y[row]}; remove or fill such values")
    if y.dtype.kind == "O":
        for row, label in enumerate(y):
            if not isinstance(label, str | int | float | np.generic) or label != label:
                raise source.fail(f"row {first_row + row + 1}: the label is {label!r}; use numbers or strings")
    return y
