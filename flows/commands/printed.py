"""What commands print: records as JSON or as text on stdout, remarks on stderr."""

import json
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["plan_text", "put", "runs_table", "summary", "tell", "verdict"]


def put(record: dict[str, Any], as_json: bool, text: Callable[[dict[str, Any]], str]) -> None:
    """Print a record on stdout: as one JSON object, or as what `text` makes of it."""
    line = json.dumps(record, allow_nan=False) if as_json else text(record)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def tell(line: str) -> None:
    """Print a line on stderr."""
    sys.stderr.write(line + "\n")


def number(value: Any, style: str) -> str:
    return "none" if value is None else format(value, style)


def summary(record: dict[str, Any]) -> str:
    """How a run or a batch ended."""
    from flows.leaderboard import batch_lines

    return "\n".join(
        [
            *(batch_lines(record) if record.get("points") else _run_lines(record)),
            f"{record['seconds']['total']:.1f} s in all, {record['seconds']['solve']:.2f} s solving",
            f"report: {record['run']}/report.html",
            f"run: {record['run']}",
        ]
    )


def _run_lines(record: dict[str, Any]) -> list[str]:
    scored = [f"{name} {number(record[key], '.4f')}" for name, key in _SCORES if record.get(key) is not None]
    support = f"{record['n_support']:,} support vectors of {record['n_train']:,}"
    gaps = f"relative gap {number(record['relative_gap'], '.1e')}, KKT gap {number(record['kkt_gap'], '.1e')}"
    return [
        f"{record['status']}: {', '.join(scored)}",
        f"{gaps} (worst of {len(record['per_class'])}); {support}",
    ]


_SCORES = (("accuracy", "accuracy"), ("training accuracy", "train_accuracy"))


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
    lines = [f"{'accuracy':>8}  {'status':<10} {'gap':>8} {'seconds':>8}  run"]
    for entry in found:
        accuracy, gap = number(entry.get("accuracy"), ".4f"), number(entry.get("relative_gap"), ".1e")
        total = number(entry.get("seconds", {}).get("total"), ".1f")
        lines.append(f"{accuracy:>8}  {entry.get('status') or '':<10} {gap:>8} {total:>8}  {entry['run']}")
    return "\n".join(lines)


def plan_text(record: dict[str, Any]) -> str:
    """A forecast, one number a line."""
    from pipeline.config.quantities import seconds, size

    lines = []
    for key, value in record.items():
        if isinstance(value, dict):
            text = ", ".join(f"{name} {seconds(part)}" for name, part in value.items())
        elif key.endswith("_bytes"):
            text = size(value)
        else:
            text = f"{value:,}" if isinstance(value, int) else str(value)
        lines.append(f"{key.replace('_', ' '):<24} {text}")
    return "\n".join(lines)
