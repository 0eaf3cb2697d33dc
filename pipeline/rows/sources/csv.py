"""CSV (plain, .gz, .bz2) as dense row blocks: pyarrow parses whole lines, and Python finds the cell that is wrong.

Header and delimiter are detected from the first lines unless they are given. A quoted cell may hold the delimiter but
not a line break.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.kinds.labels import MARKERS
from pipeline.rows.schema import Vocabulary
from pipeline.rows.sources.blocks import BLOCK_BYTES, RowBlock, StoredSource, check_finite
from pipeline.rows.sources.columns import Columns, Wanted, columns_of
from pipeline.rows.sources.streams import LineBlocks
from svmcore.errors import InputError

__all__ = ["CsvSource"]

DELIMITERS = ",;\t| "
SAMPLE_LINES = 100
SAMPLE_BYTES = 8 << 20
MAX_COLUMNS = 1 << 18


class CsvSource(StoredSource):
    """Rows of a CSV file.

    Parameters
    ----------
    wanted
        Which columns are what.
    header, delimiter
        Whether line 1 names the columns, and what is between two cells; None: detected.
    texts
        Vocabularies of the features that are categories; None: there are none, or with `onehot` as the cells tell.
    """

    def __init__(
        self,
        url: str,
        wanted: Wanted,
        header: bool | None = None,
        delimiter: str | None = None,
        texts: Mapping[int, Vocabulary] | None = None,
        onehot: bool = False,
    ) -> None:
        super().__init__(url)
        self._given = (wanted, header)
        self._looks = onehot and texts is None
        self.texts = dict(texts or {})
        self.delimiter = delimiter or ("\t" if url.removesuffix(".gz").removesuffix(".bz2").endswith(".tsv") else "")
        self.header = False
        self.columns: Columns | None = None
        self.width = 0

    def blocks(self, rows_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
        """Yield dense blocks."""
        lines = LineBlocks(self.url, max(1, rows_bytes // 2))
        rows = 0
        columns = self._detect()
        if self._looks:
            self.texts = {k: Vocabulary() for k in sorted(self._text_columns(columns, rows_bytes))}
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
        self.digest_read = lines.digest

    # ---- what the first lines tell ----
    def _detect(self) -> Columns:
        wanted, header = self._given
        label = wanted.label
        sample = self._sample()
        self._check_columns(sample[0])
        self.delimiter = self.delimiter or _detect_delimiter(sample)
        try:
            table = [row for row in csv.reader(sample, delimiter=self.delimiter, skipinitialspace=True) if row]
        except csv.Error as error:
            raise self.fail(f"not a table of numbers and labels ({error})") from None
        self.width = len(table[0])
        first = [cell.strip() for cell in table[0]]
        if header is not None:
            self.header = header
        elif wanted.names is not None:  # rows for a model that knows its columns: any of them by name
            self.header = not set(first).isdisjoint(wanted.names)
        else:
            self.header = isinstance(label, str) or _detect_header(table, -1 if label is None else label)
        if isinstance(label, str) and not self.header and wanted.names is None:
            raise self.fail(f"label {label!r} is a name, but data.header is false; give the label's position")
        names = first if self.header else [str(j) for j in range(self.width)]
        self.columns, self.schema = columns_of(self, names, wanted, self.header)
        return self.columns

    def _text_columns(self, columns: Columns, rows_bytes: int) -> set[int]:
        """Positions among the features of those with a cell that is neither a number nor missing, in any line."""
        found: set[int] = set()
        for text, first_line in LineBlocks(self.url, max(1, rows_bytes // 2)):
            body, _ = self._without_header(text, first_line)
            rest = [k for k in range(len(columns.features)) if k not in found]
            cells = self._cells(body, [columns.features[k] for k in rest])
            found |= {k for k, texts in zip(rest, cells, strict=True) if _has_text(texts)}
        return found

    def _cells(self, body: bytes, at: Sequence[int]) -> Iterator[set[str]]:
        """Distinct cells of some columns; of lines that are no table nothing, because `_parse` will say so."""
        rows = csv.reader(body.decode("utf-8", "replace").splitlines(), delimiter=self.delimiter, skipinitialspace=True)
        try:
            columns = [*zip(*(row for row in rows if len(row) == self.width), strict=True)]
        except csv.Error:
            columns = []
        yield from (set(columns[j]) if columns else set() for j in at)

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
        columns, keys = self.columns, [str(j) for j in range(self.width)]
        numbers = {j for k, j in enumerate(columns.features) if k not in self.texts}
        missing = _spellings(MARKERS) if self.fills else []
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(text),
                arrow_csv.ReadOptions(column_names=keys),
                arrow_csv.ParseOptions(delimiter=self.delimiter),
                arrow_csv.ConvertOptions(
                    column_types={k: pa.float64() if int(k) in numbers else pa.string() for k in keys},
                    null_values=missing,
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return self._parse_slowly(text, first_line)
        X = np.empty((len(table), len(columns.features)))
        for k, j in enumerate(columns.features):
            cells = table.column(j)
            X[:, k] = self._codes(cells, k, first_line) if k in self.texts else cells.to_numpy()
        others = (columns.label, columns.fold, columns.id)
        return self._block(X, [None if j is None else table.column(j).to_numpy() for j in others], first_line)

    def _block(self, X: Any, texts: Iterable[Any], first_line: int) -> RowBlock:
        """Rows with label and fold stripped and checked; the third text is the id, which stays as it is."""
        label, fold, name = texts
        return RowBlock(X, self._texts(label, first_line), self._texts(fold, first_line), name)

    def _codes(self, cells: Any, k: int, first_line: int) -> NDArray[np.float64]:
        """Codes (n,) of a category's texts; an empty one is missing."""
        coded = cells.combine_chunks().dictionary_encode()
        codes = self.texts[k].codes(coded.dictionary.to_pylist())[coded.indices.to_numpy()]
        if np.isnan(codes).any() and not self.fills:
            assert self.columns is not None
            line = first_line + int(np.argmax(np.isnan(codes)))
            raise self._cell_error("", line, self.columns.features[k])
        return codes

    def _parse_slowly(self, text: bytes, first_line: int) -> RowBlock:
        """Parse cell by cell, which also reads what pyarrow does not (`+1`), or say which cell is wrong."""
        assert self.columns is not None
        try:
            lines = text.decode("utf-8").splitlines()
        except UnicodeDecodeError as error:
            line = first_line + text.count(b"\n", 0, error.start)
            raise self.fail(f"line {line}: not text in UTF-8") from None
        columns = self.columns
        X, others = [], []
        reader = csv.reader(lines, delimiter=self.delimiter, skipinitialspace=True)
        for row in self._whole_rows(reader):
            line = first_line + reader.line_num - 1
            if len(row) != self.width:
                raise self.fail(
                    f"line {line}: {len(row)} cells, but line 1 has {self.width}; rows must be equally long"
                )
            X.append([self._value(row[j], k, line, j) for k, j in enumerate(columns.features)])
            others.append(["" if j is None else row[j] for j in (columns.label, columns.fold, columns.id)])
        table = np.array(others, dtype=object).reshape(len(X), 3).T
        there = (columns.label, columns.fold, columns.id)
        texts = (None if j is None else column for column, j in zip(table, there, strict=True))
        return self._block(np.array(X, dtype=np.float64).reshape(len(X), len(columns.features)), texts, first_line)

    def _whole_rows(self, reader: Any) -> Iterator[list[str]]:
        """Rows with cells; what the reader cannot cut is an InputError."""
        try:
            yield from (row for row in reader if row)
        except csv.Error as error:
            raise self.fail(f"near line {reader.line_num}: {error}; features must be numbers") from None

    def _value(self, cell: str, k: int, line: int, column: int) -> float:
        """Number or code of a cell of feature `k`; NaN where it is missing and filled."""
        text = cell.strip()
        if self.fills and (not text or (k not in self.texts and text.lower() in MARKERS)):
            return float("nan")
        if k in self.texts and text:
            return float(self.texts[k].codes([text])[0])
        try:
            if "_" in text:
                raise ValueError
            return float(text)
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
        hint = "; set data.header: true if line 1 names the columns" if line == 1 else self._remedy(cell.strip())
        what = f"{cell.strip()!r} is not a number" if cell.strip() else "an empty cell"
        return self.fail(f"row {row} (line {line}), column {name}: {what}; features must be numbers{hint}")

    def _remedy(self, text: str) -> str:
        if self._given[0].n_features is not None:
            return ""
        if not text or text.lower() in MARKERS:
            return "; data.missing: mean or median fills what is missing"
        return "; data.categories: onehot takes columns of text"

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


def _spellings(markers: Sequence[str]) -> list[str]:
    return ["", *(spell(marker) for marker in markers for spell in (str.lower, str.upper, str.title))]


def _has_text(cells: set[str]) -> bool:
    """Whether one of them is neither a number nor a sign that a number is missing."""
    texts = {cell.strip().lower() for cell in cells}
    return any(text and text not in MARKERS and not _is_number(text) for text in texts)


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
