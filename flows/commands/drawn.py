"""Tables for a person at a terminal, by rich; elsewhere the same is printed as plain text (`printed`)."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from flows.commands.words import RUN_COLUMNS, plan_rows, run_cells
from pipeline.config.quantities import seconds

__all__ = ["plan_table", "runs_table"]

NUMBERS = ("score", "gap", "seconds")
MOOD = {"FAILED": "bold red", "passed": "green", "converged": "green"}


def runs_table(listing: dict[str, Any]) -> Table:
    """Runs; below the name of each the parameters that not all of them share, which the caption has."""
    shared = _shared([entry["params"] for entry in listing["runs"]])
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=_words(shared, "in all: ") or "no runs")
    for name in RUN_COLUMNS:
        found.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
    found.add_column("run", overflow="fold")
    for entry in listing["runs"]:
        own = {key: value for key, value in entry["params"].items() if key not in shared}
        run = Text.assemble(entry["key"], (_words(own, "\n"), "dim"))
        found.add_row(*(Text(cell, style=MOOD.get(cell, "")) for cell in run_cells(entry)), run)
    return found


def _shared(params: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = params[0] if params else {}
    return {key: value for key, value in first.items() if all(one.get(key) == value for one in params)}


def _words(params: dict[str, Any], before: str) -> str:
    return before + ", ".join(f"{key} {value}" for key, value in params.items()) if params else ""


def plan_table(record: dict[str, Any]) -> Table:
    """A forecast; what it says of the seconds in rows of their own."""
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    found.add_column("what", no_wrap=True)
    found.add_column("forecast", overflow="fold")
    for key, value in record.items():
        for name, text in _parts(key, value):
            found.add_row(Text(name), Text(text, style="bold" if name == "seconds: total" else ""))
    return found


def _parts(key: str, value: Any) -> list[tuple[str, str]]:
    """Rows of one entry of a forecast; a mapping is of seconds."""
    if not isinstance(value, dict):
        return plan_rows({key: value})
    return [(f"{key}: {name}", seconds(part)) for name, part in value.items()]
