"""Two runs side by side as one page without network: what differs, scores with a paired test, classes, proofs, time."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.config.quantities import number, seconds
from pipeline.config.values import is_url
from pipeline.registry.aliases import run_at
from pipeline.registry.compare import read_run, sides
from pipeline.registry.listing import date_of
from pipeline.report import changes
from pipeline.report.figures import curves
from pipeline.report.formats import count, label_text, percent
from pipeline.report.tables import Cell, Column, Table, table
from pipeline.report.templates import template
from pipeline.storage.files import check_writable, write_atomic
from pipeline.storage.manifest import believing
from svmcore.errors import InputError

__all__ = ["write_comparison"]


def write_comparison(first: str | Path, second: str | Path, output: str | Path) -> dict[str, Any]:
    """Write the page of the runs at two addresses or aliases to a file; returns what `compare` does.

    Raises
    ------
    InputError
        If there is no such run, or the file does not end in .html or cannot be written.
    """
    from jinja2 import TemplateError

    target = Path(output).absolute()
    if target.suffix != ".html":
        raise InputError(f"--output {output}: give a file that ends in .html")
    check_writable(target.parent, str(output))
    what, remedy = f"{first} and {second} do not both read as runs", "restore their files, or run them again"
    with believing(what, remedy, TemplateError):
        runs = [read_run(*run_at(str(place))) for place in (first, second)]
        found = sides(*runs)
        page = template("comparison.html").render(_context(runs, found, target.parent))
    write_atomic(target, page.encode())
    return found


def _context(runs: list[dict[str, Any]], found: dict[str, Any], folder: Path) -> dict[str, Any]:
    ranked_by = str(runs[1]["metrics"].get("scored_by") or "accuracy")
    verdict = changes.verdict_text(found, ranked_by, "A")
    shown = [_side(name, run, folder) for name, run in zip("AB", runs, strict=True)]
    return {
        "sides": shown,
        "title": " against ".join(dict.fromkeys(side["name"] for side in shown)),
        "verdict": f"B is {verdict}" if verdict else "",
        "tested": changes.tested_text(found["paired"]),
        "differs": _differs(found),
        "scores": changes.score_table(found, "A", "B"),
        "classes": _classes(runs),
        "roc": curves.roc(_both_curves(runs)),
        "certificates": _certificates(found),
        "seconds": _seconds(found["seconds"]),
    }


def _side(name: str, run: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What the head of the page says of a run."""
    metrics, address = run["metrics"], run["address"]
    run_id = address.rpartition("/")[2]
    report = f"{address}/report.html"
    return {
        "letter": name,
        "run": run_id,
        "name": str(metrics["config"]["name"]),
        "date": date_of({"key": run_id})[:16].replace("T", " "),
        "status": str(metrics.get("status") or ""),
        "link": report if is_url(address) else os.path.relpath(report, folder),
        "refused": changes.gate_text(metrics),
    }


def _differs(found: Mapping[str, Any]) -> Table | None:
    rows = [[Cell(text) for text in row] for row in changes.differing(found)]
    return table([Column("key"), Column("A", word=True), Column("B", word=True)], rows) if rows else None


# --- classes ----------------------------------------------------------------------------------------------------------
def _classes(runs: Iterable[Mapping[str, Any]]) -> Table | None:
    """Recall and precision of each class in both; None where there are no classes, or others."""
    a, b = (run["evaluation"] for run in runs)
    if not a.get("confusion") or a.get("classes") != b.get("classes"):
        return None
    columns = ["class", "recall A", "recall B", "change", "precision A", "precision B", "change"]
    shares = [_shares(side["confusion"]) for side in (a, b)]
    rows = [
        [
            Cell(label_text(label)),
            *_change(*(side[k][0] for side in shares)),
            *_change(*(side[k][1] for side in shares)),
        ]
        for k, label in enumerate(a["classes"])
    ]
    return table([*map(Column, columns)], rows)


def _shares(confusion: list[list[int]]) -> list[tuple[float | None, float | None]]:
    """(recall, precision) of each class, rows of the matrix being the true ones."""
    taken = [sum(column) for column in zip(*confusion, strict=True)]
    return [
        (row[k] / sum(row) if sum(row) else None, row[k] / taken[k] if taken[k] else None)
        for k, row in enumerate(confusion)
    ]


def _change(a: float | None, b: float | None) -> list[Cell]:
    by = None if a is None or b is None else b - a
    better = None if not by else by > 0
    sign = "+" if by and by > 0 else ""
    return [Cell(percent(a), a), Cell(percent(b), b), Cell(f"{sign}{percent(by)}", by, better)]


def _both_curves(runs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The curve of two classes in both runs; nothing where there are more, which one drawing could not hold."""
    found = [run["evaluation"].get("curves") or [] for run in runs]
    if any(len(one) != 1 for one in found):
        return []
    return [one[0] | {"label": name} for name, one in zip("AB", found, strict=True)]


# --- proofs and time --------------------------------------------------------------------------------------------------
def _certificates(found: Mapping[str, Any]) -> Table:
    """KKT gap, steps and support vectors of each program in both."""
    columns = [
        "class",
        "status A",
        "status B",
        "KKT gap A",
        "KKT gap B",
        "support A",
        "support B",
        "steps A",
        "steps B",
    ]
    rows = [
        [
            Cell(label_text(entry["label"])),
            *(Cell(str(value or "–")) for value in entry["status"]),
            *(Cell(number(value), value) for value in entry["kkt_gap"]),
            *(Cell(count(value), value) for key in ("n_support", "n_iter") for value in entry[key]),
        ]
        for entry in found["per_class"]
    ]
    return table([Column(name, word=name.startswith("status")) for name in columns], rows)


def _seconds(pairs: Mapping[str, Any]) -> Table:
    rows = [[Cell(stage), *(Cell(seconds(value), value) for value in both)] for stage, both in pairs.items()]
    return table([Column("stage"), Column("A"), Column("B")], rows)
