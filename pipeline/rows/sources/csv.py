"""CSV (plain, .gz, .bz2) as dense row blocks: pyarrow parses whole lines, and Python finds the cell that is wrong.

Header and delimiter are detected from the first lines unless they are given. A quoted cell may hold the delimiter but
not a line break.
"""

import csv
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.rows.sources.blocks import BLOCK_BYTES, RowBlock, Source, check_finite
from pipeline.rows.sources.streams import LineBlocks, sha256_of
from svmcore.errors import InputError, did_you_mean

__all__ = ["Columns", "CsvSource", "locate_column"]

DELIMITERS = ",;\t| "
SAMPLE_LINES = 100
SAMPLE_BYTES = 8 << 20
MAX_COLUMNS = 1 << 18


def locate_column(source: Source, given: int | str, names: Sequence[str], what: str) -> int:
    """Return the position of a column given by name or position (negative from the end), or raise InputError."""
    if isinstance(given, str):
        if given in names:
            return list(names).index(given)
        shown = ", ".join(list(names)[:20]) + (", ..." if len(names) > 20 else "")
        raise source.fail(f"no {what} column {given!r}; columns: {shown}{did_you_mean(given, names)}")
    if not -len(names) <= given < len(names):
        raise source.fail(f"no {what} column {given}: the file has {len(names)} columns, counted from 0")
    return given % len(names)


class Columns:
    """Which columns hold what: `features` and their `names`, `label` and `fold` (None when there is none)."""

    def __init__(
        self,
        source: Source,
        names: Sequence[str],
        label: int | str | None,
        fold: int | str | None = None,
        n_features: int | None = None,
    ) -> None:
        fold_at = None if fold is None else self._optional_fold(source, names, fold, n_features)
        rest = len(names) - (fold_at is not None)
        bare = n_features is not None and rest == n_features  # rows to predict, without labels
        self.label = None if bare or label is None else locate_column(source, label, names, "label")
        self.fold = fold_at
        if self.label is not None and self.label == self.fold:
            raise source.fail(f"the column {names[self.label]!r} cannot be both label and fold")
        self.features = [j for j in range(len(names)) if j not in (self.label, self.fold)]
        self.names = [names[j] for j in self.features]
        if not self.features:
            raise source.fail("one column only; a table needs a label column and at least one feature column")
        if n_features is not None and len(self.features) != n_features:
            raise source.fail(
                f"{len(names)} columns, but {n_features} features are expected; "
                f"give {n_features} columns, or {n_features + 1} with the label"
            )

    @staticmethod
    def _optional_fold(source: Source, names: Sequence[str], fold: int | str, n_features: int | None) -> int | None:
        """Find the fold column; a test set may lack it, training data may not."""
        if n_features is not None and isinstance(fold, str) and fold not in names:
            return None
        return locate_column(source, fold, names, "fold")


class CsvSource(Source):
    """Rows of a CSV file; `label` and `fold` by name or position."""

    def __init__(
        self,
        url: str,
        label: int | str | None = -1,
        header: bool | None = None,
        delimiter: str | None = None,
        fold: int | str | None = None,
        n_features: int | None = None,
    ) -> None:
        super().__init__(url)
        self._given = (label, header, delimiter, fold, n_features)
        self.delimiter = delimiter or ("\t" if url.removesuffix(".gz").removesuffix(".bz2").endswith(".tsv") else "")
        self.header = False
        self.columns: Columns | None = None
        self.width = 0

    def blocks(self, rows_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
        """Yield dense blocks."""
        lines = LineBlocks(self.url, max(1, rows_bytes // 2))
        rows = 0
        columns = self._detect()
        for text, first_line in lines:
            body, body_line = self._without_header(text, first_line)
            block = self._parse(body, body_line) if body.strip() else None
            self.done, self.total = lines.done, lines.total
            if block is not None and len(block.X):
                check_finite(self, block.X, rows, columns.names)
                rows += len(block.X)
                yield block
        if not rows:
            raise self.fail("holds no rows; give a table with at least one line of numbers and a label")

    def digest(self) -> str:
        """Sha256 of the file as it is stored."""
        return sha256_of(self.url)

    # ---- what the first lines tell ----
    def _detect(self) -> Columns:
        label, header, _, fold, n_features = self._given
        sample = self._sample()
        self._check_columns(sample[0])
        self.delimiter = self.delimiter or _detect_delimiter(sample)
        try:
            table = [row for row in csv.reader(sample, delimiter=self.delimiter, skipinitialspace=True) if row]
        except csv.Error as error:
            raise self.fail(f"not a table of numbers and labels ({error})") from None
        self.width = len(table[0])
        named = isinstance(label, str)
        first = [cell.strip() for cell in table[0]]
        self.header = (
            header if header is not None else named or _detect_header(table, label if isinstance(label, int) else -1)
        )
        if named and not self.header:
            raise self.fail(f"label {label!r} is a name, but data.header is false; give the label's position")
        names = first if self.header else [str(j) for j in range(self.width)]
        self.columns = Columns(self, names, label, fold, n_features)
        return self.columns

    def _check_columns(self, line: str) -> None:
        """Refuse a first line of very many cells before it is cut into them."""
        cells = 1 + max(line.count(delimiter) for delimiter in self.delimiter or DELIMITERS)
        if cells > MAX_COLUMNS:
            raise self.fail(f"{cells:,} columns, more than {MAX_COLUMNS:,}; so many are read from npz, zarr or LIBSVM")

    def _sample(self) -> list[str]:
        """Return the first lines that are not blank."""
        lines: list[bytes] = []
        for text, _ in LineBlocks(self.url, 1 << 20):
            lines += [line for line in text.splitlines() if line.strip()]
            if len(lines) >= SAMPLE_LINES or (len(lines) > 1 and sum(map(len, lines)) > SAMPLE_BYTES):
                break
        if not lines:
            raise self.fail("holds no rows; give a table with at least one line of numbers and a label")
        try:
            return [line.decode("utf-8") for line in lines[:SAMPLE_LINES]]
        except UnicodeDecodeError:
            raise self.fail("not a text file in UTF-8; a CSV of numbers and labels is expected") from None

    def _without_header(self, text: bytes, first_line: int) -> tuple[bytes, int]:
        """Cut off the header, the first line of the file that is not blank."""
        if not self.header or first_line != 1:
            return text, first_line
        start = len(text) - len(text.lstrip(b"\r\n"))
        end = text.find(b"\n", start)
        if end < 0:
            return b"", first_line
        return text[end + 1 :], first_line + text.count(b"\n", 0, end + 1)

    # ---- parsing ----
    def _parse(self, text: bytes, first_line: int) -> RowBlock:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        assert self.columns is not None
        keys = [str(j) for j in range(self.width)]
        text_columns = {j for j in (self.columns.label, self.columns.fold) if j is not None}
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(text),
                arrow_csv.ReadOptions(column_names=keys),
                arrow_csv.ParseOptions(delimiter=self.delimiter),
                arrow_csv.ConvertOptions(
                    column_types={k: pa.string() if int(k) in text_columns else pa.float64() for k in keys},
                    null_values=[],
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return self._parse_slowly(text, first_line)
        labels = None if self.columns.label is None else table.column(self.columns.label).to_numpy()
        fold = None if self.columns.fold is None else table.column(self.columns.fold).to_numpy()
        X = _matrix([table.column(j) for j in self.columns.features])
        return RowBlock(X, self._texts(labels, first_line), self._texts(fold, first_line))

    def _parse_slowly(self, text: bytes, first_line: int) -> RowBlock:
        """Parse cell by cell, which also reads what pyarrow does not (`+1`), or say which cell is wrong."""
        assert self.columns is not None
        try:
            lines = text.decode("utf-8").splitlines()
        except UnicodeDecodeError as error:
            line = first_line + text.count(b"\n", 0, error.start)
            raise self.fail(f"line {line}: not text in UTF-8") from None
        X, labels, folds = [], [], []
        reader = csv.reader(lines, delimiter=self.delimiter, skipinitialspace=True)
        for row in self._whole_rows(reader):
            line = first_line + reader.line_num - 1
            if len(row) != self.width:
                raise self.fail(
                    f"line {line}: {len(row)} cells, but line 1 has {self.width}; rows must be equally long"
                )
            X.append([self._number(row[j], line, j) for j in self.columns.features])
            labels.append(row[self.columns.label] if self.columns.label is not None else "")
            folds.append(row[self.columns.fold] if self.columns.fold is not None else "")
        y = self._texts(np.array(labels, dtype=object), first_line) if self.columns.label is not None else None
        fold = self._texts(np.array(folds, dtype=object), first_line) if self.columns.fold is not None else None
        return RowBlock(np.array(X, dtype=np.float64).reshape(len(X), len(self.columns.features)), y, fold)

    def _whole_rows(self, reader: Any) -> Iterator[list[str]]:
        """Rows with cells; what the reader cannot cut is an InputError."""
        try:
            yield from (row for row in reader if row)
        except csv.Error as error:
            raise self.fail(f"near line {reader.line_num}: {error}; features must be numbers") from None

    def _number(self, cell: str, line: int, column: int) -> float:
        try:
            if "_" in cell:
                raise ValueError
            return float(cell)
        except ValueError:
            raise self._cell_error(cell, line, column) from None

    def _cell_error(self, cell: str, line: int, column: int) -> InputError:
        assert self.columns is not None
        row = line - 1 if self.header else line
        name = (
            f"'{self.columns.names[self.columns.features.index(column)]}'"
            if self.header
            else f"{column} (counted from 0)"
        )
        hint = "; set data.header: true if line 1 names the columns" if line == 1 else ""
        what = f"{cell.strip()!r} is not a number" if cell.strip() else "an empty cell"
        return self.fail(f"row {row} (line {line}), column {name}: {what}; features must be numbers{hint}")

    def _texts(self, values: NDArray[Any] | None, first_line: int) -> NDArray[Any] | None:
        """Strip labels or folds (n,), refusing an empty one."""
        if values is None:
            return None
        stripped = np.array([str(value).strip() for value in values], dtype=object)
        empty = np.flatnonzero(stripped == "")
        if empty.size:
            raise self.fail(f"line {first_line + int(empty[0])}: the label (or fold) is empty; every row needs one")
        missing = np.flatnonzero([value.lower() == "nan" for value in stripped])
        if missing.size:
            at = int(missing[0])
            raise self.fail(f"line {first_line + at}: the label (or fold) is {stripped[at]!r}; every row needs one")
        return stripped


def _matrix(columns: Sequence[Any]) -> NDArray[np.float64]:
    """Stack columns as rows of C-contiguous (n, p)."""
    X = np.empty((len(columns[0]), len(columns)))
    for j, column in enumerate(columns):
        X[:, j] = column.to_numpy()
    return X


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _detect_delimiter(sample: Sequence[str]) -> str:
    """Return the candidate that splits the most lines into as many cells as the first line, two or more."""

    def agreement(delimiter: str) -> tuple[int, int]:
        try:
            widths = [len(row) for row in csv.reader(sample, delimiter=delimiter)]
        except csv.Error:  # a quote that never ends
            return (-1, 0)
        return (sum(w == widths[0] for w in widths), -DELIMITERS.index(delimiter)) if widths[0] > 1 else (0, -9)

    return max(DELIMITERS, key=agreement)


def _detect_header(table: Sequence[Sequence[str]], label: int) -> bool:
    """Tell whether the first row names columns: no feature in it is a number, or its label alone is not one."""
    first, rest = table[0], table[1:]
    at = label % len(first) if -len(first) <= label < len(first) else len(first) - 1
    features = [_is_number(cell) for j, cell in enumerate(first) if j != at]
    if not any(features):
        return bool(features)
    numeric_labels = bool(rest) and all(len(row) > at and _is_number(row[at]) for row in rest)
    return all(features) and numeric_labels and not _is_number(first[at])
