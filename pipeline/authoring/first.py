"""A first config for somebody's data: what its columns are, and keys that fit them, with the reason of each."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import yaml12
from pipeline.config.schema import Experiment
from pipeline.config.sections import Data
from pipeline.config.values import source_stem
from pipeline.kinds.labels import LabelCodes, missing_marker
from pipeline.rows.sources.open import format_of, open_source
from svmcore.errors import InputError

__all__ = ["Column", "Seen", "first_config", "look_at"]

MOST_ROWS = 100_000  # looked at
MOST_CLASSES = 100
FEW_ROWS = 20
TABLES = ("csv", "parquet")


@dataclasses.dataclass(frozen=True)
class Column:
    """A feature as it was found: how many values are missing, whether it is text, whether each row has its own."""

    name: str
    missing: int
    is_text: bool
    is_unique: bool


@dataclasses.dataclass(frozen=True)
class Seen:
    """What the first rows of a source say; `label` is None where it has no names."""

    n: int
    columns: tuple[Column, ...]
    label: str | None
    classes: tuple[Any, ...]
    is_sparse: bool
    unlabelled: bool = False

    @property
    def ids(self) -> list[str]:
        """Columns that name the rows rather than describe them."""
        return [column.name for column in self.columns if column.is_unique]


def look_at(url: str, label: int | str | None = -1) -> Seen:
    """Look at the first rows of a source, whose label is in the column `label` of a table; None: there is none.

    Raises
    ------
    InputError
        A source that cannot be read, or labels that are no classes.
    """
    is_table = format_of(url) in TABLES
    data = Data(source=url, label=label, **({"missing": "mean", "categories": "onehot"} if is_table else {}))  # type: ignore[arg-type]
    source = open_source(url, data)
    labels, blocks, n = LabelCodes(format_of(url) == "csv"), [], 0
    for block in source.blocks():
        if block.y is None and label is not None:
            raise source.fail("has no labels; give --label none, and a model learns what all rows have in common")
        labels.append(np.empty(0) if block.y is None or label is None else block.y)
        blocks.append(block.X)
        n += block.X.shape[0]
        if n >= MOST_ROWS:
            break
    classes = () if label is None else tuple(labels.resolve()[0])
    if not source.schema or source.schema.names is None:
        return Seen(n, (), None, classes, source.sparse, label is None)
    X = np.concatenate(blocks)
    columns = (_column(name, X[:, j], j in source.texts) for j, name in enumerate(source.schema.names))
    return Seen(n, tuple(columns), source.schema.roles.get("label"), classes, source.sparse, label is None)


def _column(name: str, values: NDArray[np.float64], is_text: bool) -> Column:
    there = values[~np.isnan(values)]
    distinct = len(np.unique(there)) == len(values) > FEW_ROWS
    whole = bool((there == np.floor(there)).all())
    return Column(
        name, int(len(values) - len(there)), is_text, distinct and (is_text or (whole and "id" in name.lower()))
    )


def first_config(url: str, label: int | str | None = -1) -> tuple[str, str]:
    """Return (name, text) of a commented config that runs as it is.

    Labels of which few differ are classes, numbers of which many do are values; one label alone, or none, is one class.
    """
    seen = look_at(url, label)
    task = "one-class" if len(seen.classes) < 2 else "svr" if _are_values(seen) else "svc"
    if task == "svc" and missing_marker(seen.classes):
        raise InputError(f"{url}: the label column {seen.label!r} has rows without a label; fill or remove them")
    if task == "svc" and len(seen.classes) > _most_classes(seen):
        raise InputError(
            f"{url}: the label column {seen.label!r} has {len(seen.classes)} different values, too many for classes; "
            "name another with --label"
        )
    name = source_stem(url)
    text = "\n".join([*_data_lines(url, seen, task), *_task_lines(seen, task), *_last_lines(task)]) + "\n"
    Experiment.checked({"name": name} | yaml12.parse(text), "the config")
    return name, text


def _most_classes(seen: Seen) -> int:
    return min(MOST_CLASSES, max(2, seen.n // 2))


def _are_values(seen: Seen) -> bool:
    """Whether the labels are numbers, and too many for classes, or not whole."""
    if not all(isinstance(one, int | float) for one in seen.classes) or missing_marker(seen.classes):
        return False
    whole = all(float(one).is_integer() for one in seen.classes)
    return len(seen.classes) > (min(20, _most_classes(seen)) if whole else 2)


def _data_lines(url: str, seen: Seen, task: str) -> list[str]:
    lines = ["data:", _line("source", url, f"{seen.n:,} rows{' or more' * (seen.n >= MOST_ROWS)}")]
    lines.append(_line("test", 0.2, "a fifth of the rows, never trained on, tells how good the model is"))
    if seen.unlabelled:
        lines.append(_line("label", None, "the rows have none"))
    elif seen.label is not None:
        lines.append(_line("label", seen.label, _of_labels(seen, task)))
    if seen.ids:
        lines.append(_line("id", seen.ids[0], "names the rows; predictions repeat it"))
    if seen.ids[1:]:
        lines.append(_line("drop", seen.ids[1:], "every row has its own"))
    used = [column for column in seen.columns if not column.is_unique]
    if gaps := [column for column in used if column.missing]:
        found = ", ".join(f"{column.name} {column.missing}" for column in gaps[:5])
        lines.append(_line("missing", "median", f"missing values: {found}{', ...' * (len(gaps) > 5)}"))
    if texts := [column.name for column in used if column.is_text]:
        lines.append(_line("categories", "onehot", f"text: {', '.join(texts[:5])}{', ...' * (len(texts) > 5)}"))
    scale, why = ("maxabs", "sparse data stays sparse") if seen.is_sparse else ("standard", "each column counts alike")
    return [*lines, _line("scale", scale, why)]


def _of_labels(seen: Seen, task: str) -> str:
    if task == "svr":
        return f"values from {min(seen.classes):g} to {max(seen.classes):g}"
    shown = ", ".join(map(str, seen.classes[:5])) + (", ..." if len(seen.classes) > 5 else "")
    return f"{len(seen.classes)} classes: {shown}" if task == "svc" else f"all are {shown}: that is what is inside"


def _task_lines(seen: Seen, task: str) -> list[str]:
    folds = f"  folds: {5 if seen.n >= 50 else 2}"
    kernel = "kernel: {name: rbf, gamma: scale}   # or linear, polynomial, tanh"
    sweep = "sweep:                              # tries every combination with cross-validation, keeps the best"
    if task == "one-class":
        return [
            "task: one-class                     # tells rows like these from others",
            kernel,
            "nu: 0.05                            # at most this share of the training rows is left outside",
        ]
    if task == "svr":
        unit = float(f"{np.std(np.array(seen.classes, float)):.1g}")
        return [
            "task: svr                           # values, not classes",
            kernel,
            f"epsilon: {0.1 * unit:<26g} # errors below it count as none, in units of the target",
            sweep,
            f"  grid: {{C: [{', '.join(f'{unit * by:g}' for by in (0.1, 1, 10))}], kernel.gamma: [0.01, 0.1, scale]}}",
            folds,
        ]
    return [
        kernel,
        "C: 1                                # larger: fits the training rows more closely",
        "# class_weight: balanced            # if some classes are rare",
        sweep,
        "  grid: {C: [0.1, 1, 10, 100], kernel.gamma: [0.01, 0.1, scale]}",
        folds,
    ]


def _last_lines(task: str) -> list[str]:
    gate = {"svc": "accuracy: 0.01", "svr": "r2: 0.02"}.get(task)
    asked = [f"# gate: {{drop: {{{gate}}}}}     # not promoted if worse than the champion by more"] if gate else []
    return ["store: runs                         # a folder, or s3://bucket/prefix", *asked, "# promote: champion"]


def _line(key: str, value: Any, why: str) -> str:
    text = yaml12.dump({key: value} if not isinstance(value, list) else {key: "?"}).strip()
    if isinstance(value, list):
        text = f"{key}: [{', '.join(yaml12.dump([one]).strip().removeprefix('- ') for one in value)}]"
    return f"  {text:<34} # {why}"
