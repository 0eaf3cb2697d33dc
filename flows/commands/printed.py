"""What commands print: records as JSON or as text on stdout, remarks on stderr."""

import json
import sys
from collections.abc import Callable
from typing import Any

from flows.commands.words import RUN_COLUMNS, number, plan_rows, run_cells, run_scores

__all__ = [
    "aliases_text",
    "comparison",
    "plan_text",
    "pruned",
    "put",
    "runs_table",
    "summary",
    "tell",
    "verdict",
]


RUN_LINE = "{:<16} {:>8}  {:<10} {:<6} {:>8} {:>8}  {}"


def put(record: dict[str, Any], as_json: bool, text: Callable[[dict[str, Any]], str], drawn: str = "") -> None:
    """Print a record on stdout: as one JSON object, or as what `text` makes of it.

    `drawn` names a table of `flows.commands.drawn` that a person at a terminal sees in place of the text.
    """
    if drawn and not as_json and sys.stdout.isatty():
        _draw(record, drawn)
        return
    line = json.dumps(record, allow_nan=False) if as_json else text(record)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _draw(record: dict[str, Any], name: str) -> None:
    from rich.console import Console

    from flows.commands import drawn

    Console().print(getattr(drawn, name)(record))


def tell(line: str) -> None:
    """Print a line on stderr."""
    sys.stderr.write(line + "\n")


def summary(record: dict[str, Any]) -> str:
    """How a run or a batch ended."""
    from flows.commands.leaderboard import batch_lines

    return "\n".join(
        [
            *(batch_lines(record) if record.get("points") else _run_lines(record)),
            f"{record['seconds']['total']:.1f} s in all, {record['seconds']['solve']:.2f} s solving",
            f"report: {record['run']}/report.html",
            f"run: {record['run']}",
        ]
    )


def _run_lines(record: dict[str, Any]) -> list[str]:
    scored = run_scores(record)
    support = f"{record['n_support']:,} support vectors of {record['n_train']:,}"
    gaps = f"relative gap {number(record['relative_gap'], '.1e')}, KKT gap {number(record['kkt_gap'], '.1e')}"
    return [
        f"{record['status']}: {', '.join(scored)}",
        f"{gaps} (worst of {len(record['per_class'])}); {support}",
        *_exact_lines(record),
    ]


def _exact_lines(record: dict[str, Any]) -> list[str]:
    if "exact_gap" not in record:
        return []
    return [f"of the kernel itself, whose optimum is bounded too: relative gap {number(record['exact_gap'], '.1e')}"]


def verdict(report: dict[str, Any]) -> str:
    """What a verification found."""
    if not report["agrees"]:
        return f"{report['model']}: DIFFERS"
    lines = [f"{'class':>12} {'dual':>14} {'relative gap':>13} {'KKT gap':>10}"]
    for entry in report["per_class"]:
        shown = (number(entry["dual"], ".6f"), number(entry["relative_gap"], ".1e"), number(entry["kkt_gap"], ".1e"))
        lines.append(f"{entry['label']!s:>12} {shown[0]:>14} {shown[1]:>13} {shown[2]:>10}")
    return "\n".join([*lines, f"{report['model']}: every certificate and score agrees, recomputed in float64"])


def runs_table(listing: dict[str, Any]) -> str:
    """Runs, one a line."""
    found = listing["runs"]
    if not found:
        return "no runs"
    lines = [RUN_LINE.format(*RUN_COLUMNS, "run")]
    for entry in found:
        lines.append(RUN_LINE.format(*run_cells(entry), entry["run"]))
        by = [f"by {entry['scored_by']}"] if entry.get("scored_by", "accuracy") != "accuracy" else []
        if told := [*by, *(f"{key} {value}" for key, value in entry["params"].items())]:
            lines.append(" " * 17 + ", ".join(told))
    return "\n".join(lines)


def comparison(found: dict[str, Any]) -> str:
    """Two runs side by side, a value a line; of configs and data what differs."""
    lines = [f"{'':<28} {'a':>16} {'b':>16}", f"a: {found['a']}", f"b: {found['b']}"]
    for part in ("config", "data", "scores", "certificate", "seconds"):
        lines += [part, *(_pair(key, values) for key, values in found[part].items())]
    for entry in found["per_class"]:
        lines += [f"class {entry['label']}", *(_pair(key, entry[key]) for key in entry if key != "label")]
    return "\n".join([*lines, _paired(found["paired"])])


def _paired(test: dict[str, Any] | None) -> str:
    if test is None:
        return "not tested on the same rows: no paired test"
    name, what = _TESTS[test["test"]]
    a, b = (value for key, value in test.items() if key not in ("test", "p_value"))
    return f"{name}: p = {test['p_value']:.3g} ({what}: a {a:,}, b {b:,})"


_TESTS = {
    "mcnemar": ("McNemar's exact test", "rows that one alone has right"),
    "wilcoxon": ("Wilcoxon's signed-rank test of the errors", "rows on which one is closer"),
}


def _pair(key: str, values: list[Any]) -> str:
    shown = (f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
    return f"  {key:<26} " + " ".join(f"{text:>16}" for text in shown)


def pruned(found: dict[str, Any]) -> str:
    """What was removed, or would be."""
    if not found["removed"]:
        return "nothing to remove"
    return "\n".join([*found["removed"], f"{len(found['removed'])} runs {'would be ' * found['dry_run']}removed"])


def aliases_text(listing: dict[str, Any]) -> str:
    """Aliases with their logs."""
    lines = []
    for entry in listing["aliases"]:
        lines.append(f"{entry['alias']}: {entry['run']}")
        lines += [f"    {m['at']}  {m['run']}  {m['who']}  {m['why']}".rstrip() for m in entry["log"]]
    return "\n".join(lines) or "no aliases"


def plan_text(record: dict[str, Any]) -> str:
    """A forecast, one number a line."""
    return "\n".join(f"{name:<24} {text}" for name, text in plan_rows(record))
