"""The model card: a page of Markdown beside each model that says what it is, how good, from what, and how to use it."""

import re
from collections.abc import Iterable
from typing import Any

from pipeline.config.quantities import number
from pipeline.kinds import kind_of
from pipeline.report import formats
from pipeline.rows.schema import Feature, Schema

__all__ = ["model_card"]

DATA = ("source", "test", "label", "scale", "missing", "categories")
MOST_FEATURES, MOST_CLASSES = 50, 20
WHAT = {"labels": "classes", "values": "values", "novelty": "inside from outside"}


def model_card(record: dict[str, Any], schema: Schema) -> str:
    """Markdown of a run's metrics and of the columns that its model takes."""
    sections = [
        (f"Model card: {record['config']['name']}", _what(record)),
        ("Scores", [*_table(("score", "test rows", "training rows"), _scores(record)), *_gate(record)]),
        ("Certificate", _certificate(record)),
        ("Data", _data(record)),
        ("Columns", _columns(schema)),
        ("How to use it", _use(record)),
        ("Provenance", _table(("", ""), _provenance(record["provenance"]))),
    ]
    title, *rest = sections
    parts = [
        f"# {_text(title[0])}",
        *title[1],
        *(line for name, lines in rest for line in ("", f"## {name}", "", *lines)),
    ]
    return "\n".join(parts) + "\n"


def _section(name: str, lines: Iterable[str]) -> list[str]:
    return ["", f"## {name}", "", *lines]


def _what(record: dict[str, Any]) -> list[str]:
    config = record["config"]
    kernel = dict(record.get("kernel") or config["kernel"])
    name, labels = kernel.pop("name"), [formats.label_text(label) for label in record["classes"] or ()]
    settings = ", ".join(f"{key} {value}" for key, value in kernel.items())
    shown = ", ".join(labels[:MOST_CLASSES]) + (", ..." if len(labels) > MOST_CLASSES else "")
    numbers = [f"{key} {config[key]}" for key in ("C", "nu", "epsilon") if key in config]
    numbers += [f"{config['loss']} loss"] if "loss" in config else []
    learnt = WHAT[kind_of(record["task"]).answers]
    return [
        "",
        f"A support vector machine ({record['task']}, which tells {learnt}) with the kernel "
        f"{_text(f'{name} ({settings})' if settings else name)}, {' and '.join(numbers)}.",
        *([f"Its classes: {_text(shown)}."] if labels else []),
        f"Run: `{record['run']}`",
    ]


def _scores(record: dict[str, Any]) -> Iterable[tuple[Any, ...]]:
    scores = record.get("scores") or {}
    test = {"accuracy": record.get("accuracy"), **(scores.get("test") or {})}
    train = {"accuracy": record.get("train_accuracy"), **(scores.get("train") or {})}
    names = [name for name in {**test, **train} if not test.get(name) is train.get(name) is None]
    return [(name, formats.score(test.get(name)), formats.score(train.get(name))) for name in names]


def _gate(record: dict[str, Any]) -> list[str]:
    gate = record["gate"]
    if gate is None:
        return []
    failed = [f"- {one['rule']}: found {one['found']}, needed {one['needed']}" for one in gate["failed"]]
    return ["", "The gate of its config agreed." if gate["passed"] else "**The gate of its config said no:**", *failed]


def _certificate(record: dict[str, Any]) -> list[str]:
    gaps = f"KKT gap {number(record['kkt_gap'])}, relative gap {number(record['relative_gap'])}"
    return [
        f"Worst of {len(record['per_class'])}: {record['status']}, {gaps}.",
        f"{formats.count(record['n_support'])} support vectors.",
        *([f"Of the kernel itself: relative gap {number(record['exact_gap'])}."] if "exact_gap" in record else []),
        "`marginflow verify` recomputes it from the data.",
    ]


def _data(record: dict[str, Any]) -> list[str]:
    data, sources = record["config"]["data"], record["provenance"]["sources"]
    rows = [("training rows", f"{record['n_train']:,}"), ("test rows", f"{record['n_test']:,}")]
    rows += [(key, data[key]) for key in DATA if key in data]
    rows += [(f"sha256 of {key}", value) for key, value in sources.items()]
    return _table(("", ""), rows)


def _columns(schema: Schema) -> list[str]:
    if schema.names is None:
        return [f"{schema.p:,} numbers, in the order of the training data."]
    shown = [feature for feature, _ in zip(schema.features(), range(MOST_FEATURES), strict=False)]
    rows = [(f.name, f.kind, _values(f), "" if f.fill is None else number(f.fill)) for f in shown]
    more = [f"\nand {schema.p - len(shown):,} more"] if schema.p > len(shown) else []
    return [
        "In any order, by name.",
        "",
        *_table(("column", "kind", "in the training rows", "if missing"), rows),
        *more,
    ]


def _values(feature: Feature) -> str:
    if feature.categories:
        return ", ".join(feature.categories)
    return f"{number(feature.least)} to {number(feature.largest)}"


def _use(record: dict[str, Any]) -> list[str]:
    load = f'model = load_model("{record["model"]}")'
    return ["```python", "from pipeline import load_model", "", load, "labels = model.predict(rows)", "```"]


def _provenance(found: dict[str, Any]) -> list[tuple[str, Any]]:
    git = found["git"]
    commit = "" if git is None else git["commit"] + (" with changes" if git["dirty"] else "")
    libraries = ", ".join(f"{name} {version}" for name, version in found["libraries"].items())
    keys = ("at", "host", "platform", "marginflow", "python", "seed")
    return [*((key, found[key]) for key in keys), ("libraries", libraries), ("git commit", commit)]


# --- Markdown -------------------------------------------------------------------------------------------------------
def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return [f"| {' | '.join(_text(cell) for cell in line)} |" for line in lines]


def _text(value: Any) -> str:
    """Text as it is: nothing in it is markup, and it stays in its line."""
    return re.sub(r"([\\|<>*`\[\]])", r"\\\1", " ".join(str(value).split()))
