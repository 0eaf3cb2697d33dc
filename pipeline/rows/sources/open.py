"""From a URL to row blocks: which format, and nothing else.

The name decides: .csv .tsv, .parquet .pq, .npz, .zarr and `sklearn:NAME`; anything else is LIBSVM text, because the
field's files are called `a9a`, `a9a.t` or `letter.scale` as often as `a9a.libsvm`. CSV and LIBSVM may be compressed
(.gz, .bz2).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config.schema import Experiment
from pipeline.config.sections import Data
from pipeline.config.values import COMPRESSED
from pipeline.rows.schema import Schema, Vocabulary
from pipeline.rows.sources.arrow import ParquetSource
from pipeline.rows.sources.blocks import BLOCK_BYTES, RowBlock, StoredSource
from pipeline.rows.sources.bundled import BundledSource
from pipeline.rows.sources.columns import Wanted
from pipeline.rows.sources.csv import CsvSource
from pipeline.rows.sources.libsvm import LibsvmSource
from pipeline.rows.sources.npz import NpzSource
from pipeline.rows.sources.streams import folder_of, readable
from pipeline.rows.sources.zarr import ZarrSource
from svmcore.errors import InputError

__all__ = ["BLOCK_BYTES", "RowBlock", "StoredSource", "check_sources", "format_of", "open_source"]

_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".zarr": "zarr",
}
_STRANGE = (
    *(".xlsx", ".xls", ".ods", ".json", ".jsonl", ".feather", ".orc", ".avro"),
    *(".h5", ".hdf5", ".pkl", ".npy", ".arff"),
)
_BY_COLUMN = ("csv", "parquet")


def format_of(url: str) -> str:
    """Return csv, parquet, npz, zarr, sklearn or libsvm.

    >>> [format_of(url) for url in ("x.csv.gz", "a9a.t.bz2", "sklearn:iris", "s3://b/x.parquet")]
    ['csv', 'libsvm', 'sklearn', 'parquet']
    """
    if url.startswith("sklearn:"):
        return "sklearn"
    name = url.rstrip("/")
    packed = next((suffix for suffix in COMPRESSED if name.endswith(suffix)), "")
    ending = Path(name.removesuffix(packed)).suffix.lower()
    if ending in _STRANGE:
        raise InputError(f"{url}: {ending} is not read; save it as .csv, .parquet, .npz (X, y), .zarr or .libsvm")
    kind = _SUFFIXES.get(ending, "libsvm")
    if packed and kind not in ("csv", "libsvm"):
        raise InputError(f"{url}: a compressed {kind} file is not read; decompress it ({kind} has its own compression)")
    return kind


def open_source(
    url: str,
    data: Data | None = None,
    *,
    fold_column: str | int | None = None,
    base: int | None = None,
    n_features: int | None = None,
    schema: Schema | None = None,
    texts: Mapping[int, Vocabulary] | None = None,
) -> StoredSource:
    """Open `url` as a source of row blocks; nothing is read yet.

    Parameters
    ----------
    n_features
        Of rows to predict or to test on: another number is an error, and labels (and the fold column) may be missing,
        in which case a block's `y` is None.
    schema
        Of the training data: columns are found by its names, where both sides have names.
    texts
        Vocabularies of categories, by feature, where they are known from the training data.
    base
        The number of the first feature in LIBSVM text, when it is known from the training data.
    """
    data = data or Data(source=url)
    kind = format_of(url)
    if kind in _BY_COLUMN:
        wanted = Wanted(data.label, fold_column, data.id, data.drop or (), data.features, n_features, schema)
        onehot = data.categories == "onehot"
        if kind == "csv":
            source: StoredSource = CsvSource(url, wanted, data.header, data.delimiter, texts, onehot)
        else:
            source = ParquetSource(url, wanted, texts, onehot)
    else:
        given: dict[str, Any] = {"sweep.folds": fold_column}
        if n_features is None:
            given |= {"data.id": data.id, "data.drop": data.drop, "data.features": data.features}
        _refuse_columns(url, given, bool(texts))
        source = _open_matrix(url, kind, base, n_features, labelled=data.label is not None)
    source.fills = data.missing != "refuse"
    return source


def _open_matrix(url: str, kind: str, base: int | None, n_features: int | None, labelled: bool) -> StoredSource:
    """A source whose columns have no names."""
    if kind == "libsvm":
        return LibsvmSource(url, base, n_features)
    if kind == "zarr" and not folder_of(url).is_dir():
        raise InputError(f"{url}: no such folder")
    if kind == "sklearn":
        return BundledSource(url, n_features)
    return (NpzSource if kind == "npz" else ZarrSource)(url, n_features, labelled)


def _refuse_columns(url: str, given: Mapping[str, Any], has_texts: bool) -> None:
    """Refuse what only tables have."""
    for key, column in given.items():
        if column is not None:
            raise InputError(f"{url}: {key} names the column {column!r}, which only CSV and Parquet can have")
    if has_texts:
        raise InputError(f"{url}: the training data has columns of text, which only CSV and Parquet can have")


def check_sources(exp: Experiment) -> None:
    """Raise InputError unless the sources of an experiment can be opened; cheap, before any work starts."""
    for url in (exp.data.source, exp.data.test):
        if isinstance(url, str) and format_of(url) != "sklearn":
            open_source(url, exp.data)
            if format_of(url) != "zarr":
                readable(url)
