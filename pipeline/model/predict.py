"""What a model says of a source, in blocks, to CSV, Parquet or JSON; scores where targets are there.

All on this host, however large the source: a model names no cluster, and rows that one reader streams could reach
workers only through the scheduler. Memory is that of a block, and threads keep every core busy: local worker processes
would add their start and a copy of the support vectors each, and no speed.
"""

import contextlib
import csv
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pipeline.compute.progress import Progress, silent
from pipeline.config.schema import Data
from pipeline.model.stored import StoredModel, load_model
from pipeline.rows.sources.open import format_of, open_source
from pipeline.storage.files import check_writable, writing
from svmcore.errors import InputError

__all__ = ["FORMATS", "Predictions", "predict", "predict_to_file"]


@dataclasses.dataclass(frozen=True)
class Predictions:
    """One block: what is said (n,): labels, values or sides; decision values (n, k); targets (n,) as read, or None."""

    said: Any
    decision: Any
    y: Any


def predict(stored: StoredModel, url: str) -> Iterator[Predictions]:
    """Yield predictions of the rows at `url`, block by block.

    Raises
    ------
    InputError
        A source that cannot be read, or another number of features.
    """
    config = Data(**stored.metadata["config"]["data"]).model_copy(update={"source": url})
    source = open_source(url, config, base=stored.metadata.get("base"), n_features=stored.metadata["n_features"])
    for block in source.blocks():
        decision = stored.decision_function(block.X)
        yield Predictions(stored.kind.predicted(stored.model, decision), decision, block.y)


def predict_to_file(
    path: str | Path, url: str, output: str | Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Predict the rows at `url` with the model at `path` into `output` (.csv, .parquet or .json; None: collected).

    Returns
    -------
    dict
        `model`, `source`, `output`, `task`, `n`, the scores of its kind; without an output also `labels` (or `values`)
        and `decision`. Of classes: `accuracy` (of the rows with a label of the training data; None without any),
        `n_unknown` rows with another label, which `unknown_labels` lists, `classes`. Of values: `r2`, `mae`, `rmse`,
        `max_error`. Of novelty: `rejected`, `roc_auc`.
    """
    writer = _writer(output)
    stored = load_model(path)
    n, tell = 0, progress or silent
    text = format_of(url) in ("csv", "libsvm")
    tally = stored.kind.tally(url, text, stored.classes, stored.model.scheme)
    with writer(stored, output) as sink:
        for part in predict(stored, url):
            sink.write(part)
            tally.add(part.y, part.decision)
            n += len(part.said)
            tell("predict", n, 0)
    return {
        "model": stored.path,
        "source": url,
        "output": None if output is None else str(Path(output).absolute()),
        "task": stored.model.machine,
        "n": n,
        **tally.record(),
        **sink.collected,
    }


# --- where they go --------------------------------------------------------------------------------------------------
class _Sink(Protocol):
    collected: dict[str, Any]

    def write(self, part: Predictions) -> None: ...


def _columns(stored: StoredModel) -> list[str]:
    """Names of the decision columns: none of values, one for two classes, else one for each class or pair."""
    if stored.kind.answers == "values":  # they are what is said
        return []
    entries = stored.metadata["per_class"]
    if len(entries) == 1:
        return ["decision"]
    return ["decision_" + "_".join(map(str, _listed(entry["label"]))) for entry in entries]


def _listed(label: Any) -> Sequence[Any]:
    return label if isinstance(label, list) else [label]


class _Collected:
    """Everything in memory."""

    def __init__(self, stored: StoredModel) -> None:
        self.name = f"{stored.kind.column}s"
        self.collected: dict[str, Any] = {self.name: []} | ({"decision": []} if _columns(stored) else {})

    def write(self, part: Predictions) -> None:
        self.collected[self.name] += part.said.tolist()
        if "decision" in self.collected:
            self.collected["decision"] += part.decision.tolist()


@contextlib.contextmanager
def _collect(stored: StoredModel, output: Any) -> Iterator[_Sink]:
    yield _Collected(stored)


@contextlib.contextmanager
def _json(stored: StoredModel, output: str | Path) -> Iterator[_Sink]:
    with writing(Path(output)) as partial, _collect(stored, None) as sink:
        yield sink
        partial.write_text(json.dumps({"classes": stored.classes} | sink.collected), encoding="utf-8")
        sink.collected = {}


@contextlib.contextmanager
def _csv(stored: StoredModel, output: str | Path) -> Iterator[_Sink]:
    with writing(Path(output)) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        yield _CsvSink(file, stored)


class _CsvSink:
    """A header, then a row for each prediction."""

    collected: dict[str, Any] = {}

    def __init__(self, file: Any, stored: StoredModel) -> None:
        self.rows = csv.writer(file, lineterminator="\n")
        self.columns = _columns(stored)
        self.header = [stored.kind.column, *self.columns]

    def write(self, part: Predictions) -> None:
        if self.header:
            self.rows.writerow(self.header)
            self.header = []
        values = part.decision[:, : len(self.columns)].tolist()
        self.rows.writerows([said, *rest] for said, rest in zip(part.said.tolist(), values, strict=True))


@contextlib.contextmanager
def _parquet(stored: StoredModel, output: str | Path) -> Iterator[_Sink]:
    import pyarrow as pa
    from pyarrow import parquet

    names = _columns(stored)
    kind = pa.array(stored.kind.predicted(stored.model, np.zeros((1, len(stored.model.bias)))).tolist()).type
    schema = pa.schema([(stored.kind.column, kind), *((name, pa.float64()) for name in names)])

    class ParquetSink:
        collected: dict[str, Any] = {}

        def write(self, part: Predictions) -> None:
            columns = [pa.array(part.said.tolist(), kind), *map(pa.array, part.decision.T[: len(names)])]
            file.write_table(pa.table(columns, schema=schema))

    with writing(Path(output)) as partial, parquet.ParquetWriter(partial, schema) as file:
        yield ParquetSink()


@contextlib.contextmanager
def _stdout(stored: StoredModel, output: Any) -> Iterator[_Sink]:
    yield _CsvSink(sys.stdout, stored)


FORMATS = {".csv": _csv, ".parquet": _parquet, ".json": _json, "-": _stdout}


def _writer(output: str | Path | None) -> Any:
    """Context manager for an output's ending, checked before any work."""
    if output is None:
        return _collect
    ending = "-" if str(output) == "-" else Path(output).suffix.lower()
    if ending not in FORMATS:
        raise InputError(f"--output {output}: the ending must be .csv, .parquet or .json")
    if ending != "-":
        check_writable(Path(output).absolute().parent, f"--output {output}")
    return FORMATS[ending]
