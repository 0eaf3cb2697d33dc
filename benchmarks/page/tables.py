"""Cells and rows of the result tables, shared by the terminal and docs/performance.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.contest.peers import OURS
from benchmarks.contest.worker import TRIAL_ROWS
from benchmarks.results import Record

HEADER = (
    "solver",
    "data",
    "tol",
    "seconds",
    "ours faster by",
    "first call",
    "dual objective",
    "m − M",
    "n_support",
    "accuracy",
    "peak MB",
    "floor s",
    "× floor",
)


def seconds(value: float | None) -> str:
    """Format to three significant digits."""
    return "–" if value is None else f"{value:#.3g}".rstrip(".")


def dual(record: Record) -> str:
    """Seven digits and more; the sum over the classes' machines."""
    return f"{sum(record['dual']):.8g}" if record.get("dual") else "–"


def number(value: float | None, form: str) -> str:
    """Format a value, or a dash."""
    return "–" if value is None else format(value, form)


def fit_bytes(record: Record) -> int | None:
    """Return the peak memory of the first fit above the memory before it."""
    return record["peak_bytes"] - record["before_bytes"] if "peak_bytes" in record else None


def floor_of(record: Record) -> Record | None:
    """The floor of the products that were used; of float32 products, as older records have it."""
    return record.get("floor_used") or record.get("floor")


def title(record: Record, records: Sequence[Record] = ()) -> str:
    """Name the solver, how it treats several classes, and its cache where that is what differs."""
    name = record["solver"] + {"ovr": ", one-vs-rest", "ovo": ", one-vs-one"}.get(record["task"], "")
    caches = {other["cache_mb"] for other in records}
    return f"{name}, {record['cache_mb']:,} MB" if len(caches) > 1 else name


def speedup(record: Record, records: Sequence[Record], of: str = "median_seconds") -> float | None:
    """How many times faster ours is than this record."""
    ours = next((r[of] for r in records if r["solver"] == OURS), None)
    if record["solver"] == OURS or not ours or not record[of]:
        return None
    return record[of] / ours


def of_search(record: Record, records: Sequence[Record]) -> tuple[str, ...]:
    """Cells of one solver's search: seconds, how much longer than ours, what was run, how its scores differ."""
    ratio = speedup({"task": "", **record}, records)
    return (
        record["solver"],
        seconds(record["median_seconds"]),
        "" if ratio is None else f"{ratio:.1f}×",
        "all folds" if record["share"] == 1 else f"{record['share']:.0%} of the folds, scaled",
        number(record.get("fold_difference"), ".2%"),
        number(record.get("mean_difference"), ".2%"),
    )


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """Return exp of the mean logarithm.

    Examples
    --------
    >>> geometric_mean([2.0, 8.0])
    4.0
    """
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else None


def _timing(record: Record) -> str:
    if record["median_seconds"] is None:
        return record["status"]
    return f"{seconds(record['median_seconds'])} ({len(record['seconds'])})"


def row(record: Record, records: Sequence[Record]) -> tuple[str, ...]:
    """One solver's cells under HEADER."""
    ratio, extra, least = speedup(record, records), fit_bytes(record), floor_of(record)
    floor_seconds = least["seconds"] if least else None
    over = record["median_seconds"] / floor_seconds if least and record["median_seconds"] else None
    return (
        title(record, records),
        record.get("form", "–"),
        f"{record['tol']:g}",
        _timing(record),
        "" if ratio is None else f"{ratio:.1f}×",
        seconds(record.get("cold_seconds")),
        dual(record),
        number(record.get("kkt_gap"), ".1e"),
        number(record.get("n_support"), ","),
        number(record.get("accuracy"), ".4f"),
        number(None if extra is None else extra / 1e6, ",.0f"),
        "" if least is None else f"{seconds(floor_seconds)} ({least['plan']})",
        "" if over is None else f"{over:.1f}",
    )


def notes(record: Record) -> list[str]:
    """Say in which forms of the data a solver has no answer, though it may have one in another."""
    return [
        f"{record['solver']} has no answer on {TRIAL_ROWS:,} of these rows as {form} ({why}): it is given another form."
        for form, why in record.get("no_answer", {}).items()
        if record["status"] == "ok"
    ]


def heading(records: Sequence[Record]) -> str:
    """Say the case in one line."""
    one = records[0]
    return f"{one['title']}: n = {one['n']:,}, p = {one['p']}, C = {one['C']:g}, gamma = {one['gamma']:g}"


def show(records: list[Record]) -> None:
    """Print a case to the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=heading(records), title_justify="left")
    for name in HEADER:
        table.add_column(name, justify="left" if name in ("solver", "data") else "right")
    for record in records:
        table.add_row(*row(record, records))
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)
