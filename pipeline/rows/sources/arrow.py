"""Parquet files and data frames as row blocks: tables whose columns have names and types."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.rows.schema import Schema, Vocabulary
from pipeline.rows.sources.blocks import (
    BLOCK_BYTES,
    RowBlock,
    Source,
    StoredSource,
    check_finite,
    check_labels,
    rows_in,
)
from pipeline.rows.sources.columns import Wanted, columns_of
from pipeline.rows.sources.streams import open_bytes

__all__ = ["FrameSource", "ParquetSource", "is_frame"]


class _ArrowSource(Source):
    """Batches of Arrow columns as row blocks."""

    def __init__(self, url: str, wanted: Wanted, texts: Mapping[int, Vocabulary] | None, onehot: bool = False) -> None:
        super().__init__(url)
        self._wanted, self._onehot = wanted, onehot
        self._fixed = texts is not None
        self.texts = dict(texts or {})

    @abstractmethod
    def _batches(self, rows_bytes: int) -> Iterator[Any]:
        """Open the table, find its columns with `_open`, and yield record batches."""

    def blocks(self, rows_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
        """Yield dense blocks."""
        for batch in self._batches(rows_bytes):
            if batch.num_rows:
                block = self._block(batch)
                self.done += batch.num_rows
                yield block
        if not self.total:
            raise self.fail("holds no rows")

    def _open(self, schema: Any, n_rows: int) -> None:
        self.total = n_rows
        self.columns, self.schema = columns_of(self, schema.names, self._wanted, named=True)
        for k, j in enumerate(self.columns.features):
            kind = schema.types[j]
            if self._onehot and not self._fixed and _is_text(kind):
                self.texts[k] = Vocabulary()
            elif k not in self.texts and not _is_number(kind):
                hint = "; data.categories: onehot takes columns of text" if _is_text(kind) else ""
                raise self.fail(f"the column '{schema.names[j]}' has type {kind}; features must be numbers{hint}")

    def _block(self, batch: Any) -> RowBlock:
        columns = self.columns
        X = np.empty((batch.num_rows, len(columns.features)))
        for k, j in enumerate(columns.features):
            column = batch.column(j)
            if not self.fills:
                self._no_nulls(column, columns.names[k])
            X[:, k] = self._codes(column, self.texts[k]) if k in self.texts else _numbers(column)
        check_finite(self, X, self.done, columns.names)
        label, fold = self._labels(batch, columns.label), self._labels(batch, columns.fold)
        return RowBlock(X, label, fold, _values(batch, columns.id))

    def _codes(self, column: Any, texts: Vocabulary) -> NDArray[np.float64]:
        import pyarrow as pa

        if not pa.types.is_dictionary(column.type):
            column = column.cast("string").dictionary_encode()
        codes = np.append(texts.codes(column.dictionary.cast("string").to_pylist()), np.nan)
        return codes[column.indices.fill_null(len(codes) - 1).to_numpy(zero_copy_only=False).astype(np.int64)]

    def _labels(self, batch: Any, at: int | None) -> NDArray[Any] | None:
        if at is None:
            return None
        self._no_nulls(batch.column(at), batch.schema.names[at])
        return check_labels(self, _values(batch, at), self.done)

    def _no_nulls(self, column: Any, name: str) -> None:
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise self.fail(
                f"row {self.done + row + 1}, column '{name}': a missing value; remove or fill such rows "
                "(data.missing: mean or median fills features)"
            )


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(is_kind(kind) for is_kind in known)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _numbers(column: Any) -> NDArray[np.float64]:
    return column.cast("float64", safe=False).to_numpy(zero_copy_only=False)


def _values(batch: Any, at: int | None) -> Any:
    """A column as it is, (n,); None if there is none."""
    import pyarrow as pa

    if at is None:
        return None
    column = batch.column(at)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.to_numpy(zero_copy_only=False)


class ParquetSource(_ArrowSource, StoredSource):
    """Rows of a Parquet file."""

    def _batches(self, rows_bytes: int) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import parquet

        with open_bytes(self.url) as raw:
            try:
                file = parquet.ParquetFile(raw)
                self._open(file.schema_arrow, file.metadata.num_rows)
                yield from file.iter_batches(rows_in(rows_bytes, len(self.columns.features)), use_threads=False)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last at a changed column name
                reason = str(error).splitlines()[0][:200]
                raise self.fail(f"not a whole Parquet file ({reason}); fetch or write it again") from None


def is_frame(X: Any) -> bool:
    """Whether X is a table of pandas, polars, pyarrow or another library that gives Arrow columns."""
    return hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns")


class FrameSource(_ArrowSource):
    """Rows of a data frame, for the model whose schema is given; its index is no column."""

    def __init__(self, frame: Any, schema: Schema) -> None:
        super().__init__("the data frame", Wanted(n_features=schema.p, schema=schema), schema.vocabularies())
        self.frame, self.fills = frame, schema.fill is not None

    def _batches(self, rows_bytes: int) -> Iterator[Any]:
        import pyarrow as pa

        try:
            table = pa.table(self.frame)
        except (pa.ArrowException, TypeError) as error:  # a column of several types
            raise self.fail(f"cannot be read ({str(error).splitlines()[0][:200]})") from None
        index = (table.schema.pandas_metadata or {}).get("index_columns", [])
        table = table.drop_columns([name for name in index if isinstance(name, str)])
        self._open(table.schema, table.num_rows)
        yield from table.to_batches()

    def rows(self) -> NDArray[np.float64]:
        """All rows (n, p), as the schema encodes them next."""
        return np.concatenate([block.X for block in self.blocks()])
