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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pipeline.compute.progress import Progress, silent
from pipeline.config.sections import Data
from pipeline.model.stored import StoredModel, load_model
from pipeline.rows.drift import Sample, drift_of
from pipeline.rows.row_files import as_dense
from pipeline.rows.sources.open import format_of, open_source
from pipeline.storage.files import check_writable, writing
from svmcore.errors import InputError

__all__ = ["FORMATS", "Predictions", "predict", "predict_to_file"]


@dataclasses.dataclass(frozen=True)
class Predictions:
    """One block: what is said (n,): labels, values or sides; decision values (n, k); targets and ids (n,) or None.

    `probability` is (n, n_classes), or None.
    """

    said: Any
    decision: Any
    y: Any
    id: Any = None
    probability: Any = None

    @property
    def numbers(self) -> Any:
        """(n, ...) what stands beside what is said: decision values, then probabilities."""
        return self.decision if self.probability is None else np.hstack([self.decision, self.probability])


def predict(
    stored: StoredModel, url: str, ignore_extra: bool = False, sample: Sample | None = None
) -> Iterator[Predictions]:
    """Yield predictions of the rows at `url`, block by block.

    Columns are found by name where both sides have names; `ignore_extra` leaves out those that the training data did
    not have. A `sample` takes the rows as the kernel sees them.

    Raises
    ------
    InputError
        A source that cannot be read, a column that is missing or too many, or another number of features.
    """
    config = Data(**stored.metadata["config"]["data"]).model_copy(update={"source": url})
    schema = stored.schema.ignoring_extra() if ignore_extra else stored.schema
    counted_from, texts = stored.metadata.get("base"), schema.vocabularies()
    base = 1 if counted_from is None else counted_from  # LIBSVM's own, where the training data had another format
    source = open_source(url, config, base=base, n_features=schema.p, schema=schema, texts=texts)
    for block in source.blocks():
        rows = stored.prepared(block.X if schema.is_plain else as_dense(block.X))
        if sample is not None:
            sample.add(rows)
        decision = stored.model.decision_function(rows)
        said, chances = stored.kind.predicted(stored.model, decision), stored.model.probabilities(decision)
        yield Predictions(said, decision, block.y, block.id, chances)


def predict_to_file(
    path: str | Path,
    url: str,
    output: str | Path | None = None,
    progress: Progress | None = None,
    ignore_extra: bool = False,
    drift: bool = False,
) -> dict[str, Any]:
    """Predict the rows at `url` with the model at `path` into `output` (.csv, .parquet or .json; None: collected).

    Returns
    -------
    dict
        `model`, `source`, `output`, `task`, `n`, the scores of its kind; without an output also `labels` (or `values`)
        and `decision`, `probability` where the model has it, and `ids` where the rows have the column of data.id. Of
        classes: `accuracy` (of the rows with a label of the training data; None without any), `n_unknown` rows with
        another label, which `unknown_labels` lists, `classes`. Of values: `r2`, `mae`, `rmse`, `max_error`. Of novelty:
        `rejected`, `roc_auc`. With `drift` how far the rows are from those of training, see
        `pipeline.rows.drift.drift_of`.
    """
    writer = _writer(output)
    stored = load_model(path)
    n, tell = 0, progress or silent
    text = format_of(url) in ("csv", "libsvm")
    tally = stored.kind.tally(url, text, stored.classes, stored.model.scheme)
    sample, said = Sample() if drift else None, Counter[Any]()
    if drift and stored.summary is None:
        raise InputError(f"--drift: the model {stored.path} does not know its training rows; train it again")
    with writer(stored, output) as sink:
        for part in predict(stored, url, ignore_extra, sample):
            sink.write(part)
            said.update(part.said.tolist() if drift else ())
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
        **({} if sample is None else {"drift": drift_of(stored, sample.rows(), _shares(stored, said))}),
    }


def _shares(stored: StoredModel, said: Counter[Any]) -> list[float]:
    """Of the classes among the predictions."""
    return [said[label] / max(1, said.total()) for label in stored.classes]


# --- where they go --------------------------------------------------------------------------------------------------
class _Sink(Protocol):
    collected: dict[str, Any]

    def write(self, part: Predictions) -> None: ...


def _columns(stored: StoredModel) -> list[str]:
    """Names of the columns of numbers: none of values; decision values, then probabilities where the model has them.

    Two classes have one decision value, else there is one for each class or pair.
    """
    if stored.kind.answers == "values":  # they are what is said
        return []
    entries, chances = stored.metadata["per_class"], [f"probability_{label}" for label in stored.classes]
    chances = [] if stored.model.sigmoids is None else chances
    if len(entries) == 1:
        return ["decision", *chances]
    return ["decision_" + "_".join(map(str, _listed(entry["label"]))) for entry in entries] + chances


def _id_name(stored: StoredModel) -> str:
    """What the column of ids is called."""
    return str(stored.schema.roles.get("id", "id"))


def _listed(label: Any) -> Sequence[Any]:
    return label if isinstance(label, list) else [label]


class _Collected:
    """Everything in memory."""

    def __init__(self, stored: StoredModel) -> None:
        self.name = f"{stored.kind.column}s"
        self.collected: dict[str, Any] = {self.name: []} | ({"decision": []} if _columns(stored) else {})

    def write(self, part: Predictions) -> None:
        if part.id is not None:
            self.collected.setdefault("ids", []).extend(part.id.tolist())
        self.collected[self.name] += part.said.tolist()
        if "decision" in self.collected:
            self.collected["decision"] += part.decision.tolist()
        if part.probability is not None:
            self.collected.setdefault("probability", []).extend(part.probability.tolist())


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
        self.rows, self.columns = csv.writer(file, lineterminator="\n"), _columns(stored)
        self.header = [stored.kind.column, *self.columns]
        self.id_name = _id_name(stored)

    def write(self, part: Predictions) -> None:
        if self.header:
            self.rows.writerow(self.header if part.id is None else [self.id_name, *self.header])
            self.header = []
        names = ([] for _ in part.said) if part.id is None else ([name] for name in part.id.tolist())
        rows = zip(names, part.said.tolist(), part.numbers[:, : len(self.columns)].tolist(), strict=True)
        self.rows.writerows([*name, said, *values] for name, said, values in rows)


@contextlib.contextmanager
def _parquet(stored: StoredModel, output: str | Path) -> Iterator[_Sink]:
    from pyarrow import parquet

    with writing(Path(output)) as partial, contextlib.ExitStack() as stack:
        yield _ParquetSink(lambda schema: stack.enter_context(parquet.ParquetWriter(partial, schema)), stored)


class _ParquetSink:
    """A file that begins with the first block, which tells the type of the ids."""

    collected: dict[str, Any] = {}

    def __init__(self, begin: Callable[[Any], Any], stored: StoredModel) -> None:
        self.begin, self.stored = begin, stored
        self.file: Any = None

    def write(self, part: Predictions) -> None:
        import pyarrow as pa

        columns = {} if part.id is None else {_id_name(self.stored): pa.array(part.id)}
        columns[self.stored.kind.column] = pa.array(part.said.tolist())
        columns |= dict(zip(_columns(self.stored), map(pa.array, part.numbers.T), strict=False))
        table = pa.table(columns)
        self.file = self.file or self.begin(table.schema)
        self.file.write_table(table.cast(self.file.schema))


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
