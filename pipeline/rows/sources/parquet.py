"""Parquet files as row blocks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.rows.sources.blocks import BLOCK_BYTES, RowBlock, Source, check_finite, check_labels, rows_in
from pipeline.rows.sources.csv import Columns
from pipeline.rows.sources.streams import open_bytes, sha256_of

__all__ = ["ParquetSource"]


class ParquetSource(Source):
    """Rows of a Parquet file; `label` and `fold` by name or position."""

    def __init__(
        self, url: str, label: int | str | None = -1, fold: int | str | None = None, n_features: int | None = None
    ) -> None:
        super().__init__(url)
        self._given = (label, fold, n_features)

    def blocks(self, rows_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
        """Yield dense blocks."""
        import pyarrow as pa
        from pyarrow import parquet

        with open_bytes(self.url) as raw:
            try:
                file = parquet.ParquetFile(raw)
                columns = self._columns(file.schema_arrow)
                self.total = file.metadata.num_rows
                for batch in file.iter_batches(rows_in(rows_bytes, len(columns.features)), use_threads=False):
                    if batch.num_rows:
                        block = self._block(batch, columns)
                        self.done += batch.num_rows
                        yield block
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last at a changed column name
                reason = str(error).splitlines()[0][:200]
                raise self.fail(f"not a whole Parquet file ({reason}); fetch or write it again") from None
        if not self.total:
            raise self.fail("holds no rows")

    def digest(self) -> str:
        """Sha256 of the file as it is stored."""
        return sha256_of(self.url)

    def _columns(self, schema: Any) -> Columns:
        import pyarrow as pa

        label, fold, n_features = self._given
        columns = Columns(self, schema.names, label, fold, n_features)
        for j in columns.features:
            kind = schema.types[j]
            if not (
                pa.types.is_integer(kind)
                or pa.types.is_floating(kind)
                or pa.types.is_boolean(kind)
                or pa.types.is_decimal(kind)
            ):
                raise self.fail(f"the column '{schema.names[j]}' has type {kind}; features must be numbers")
        return columns

    def _block(self, batch: Any, columns: Columns) -> RowBlock:
        X = np.empty((batch.num_rows, len(columns.features)))
        for k, j in enumerate(columns.features):
            column = batch.column(j)
            self._no_nulls(column, columns.names[k])
            X[:, k] = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
        check_finite(self, X, self.done, columns.names)
        return RowBlock(X, self._labels(batch, columns.label), self._labels(batch, columns.fold))

    def _labels(self, batch: Any, at: int | None) -> NDArray[Any] | None:
        import pyarrow as pa

        if at is None:
            return None
        column = batch.column(at)
        self._no_nulls(column, batch.schema.names[at])
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return check_labels(self, column.to_numpy(zero_copy_only=False), self.done)

    def _no_nulls(self, column: Any, name: str) -> None:
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise self.fail(f"row {self.done + row + 1}, column '{name}': a missing value; remove or fill such rows")
