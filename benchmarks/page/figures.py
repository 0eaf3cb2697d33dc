"""The plots of docs/performance.md, as SVG files that change only when the figures do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest.peers import OURS
from benchmarks.page import tables
from benchmarks.page.claims import Cases, exponents, of
from benchmarks.results import Record

COLOURS = {
    OURS: "#c2410c",
    "scikit-learn-intelex": "#2563eb",
    "scikit-learn": "#64748b",
    "libsvm": "#0d9488",
    "thundersvm": "#a16207",
}
PARTS = {"gemm": ("#7c2d12", "inner products"), "exp": ("#ea580c", "exponentials"), "memory": ("#fdba74", "memory")}
REST = "#cbd5e1"
TASKS: dict[str, dict[str, Any]] = {"binary": {}, "ovr": {}, "ovo": {"alpha": 0.55, "hatch": "//"}}
WIDTH = 8.0


def _new(height: float) -> tuple[Any, Any]:
    """Make a figure without a display, in a face every viewer has."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.family": "sans-serif", "font.size": 9}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    """Write without a date and with fixed identifiers."""
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


def seconds_by_case(cases: Cases, path: Path) -> None:
    """Draw each case as a group of horizontal bars, seconds on a logarithmic axis; one-vs-one hatched."""
    present = {(r["solver"], r["task"]) for records in cases.values() for r in records if r["median_seconds"]}
    series = [(s, task) for s in COLOURS for task in TASKS if (s, task) in present]
    figure, axes = _new(1.0 + 0.15 * (len(series) + 1.2) * len(cases))
    step = 1.0 / (len(series) + 1.2)
    for place, (solver, task) in enumerate(series):
        found = [(row, r) for row, records in enumerate(cases.values()) if (r := of(records, solver, task))]
        at = [row + (place - (len(series) - 1) / 2) * step for row, _ in found]
        values, style = [r["median_seconds"] for _, r in found], {"color": COLOURS[solver], **TASKS[task]}
        bars = axes.barh(at, values, height=0.9 * step, label=tables.title(found[0][1]), **style)
        axes.bar_label(bars, [f" {value:.2g}" if value < 10 else f" {value:.0f}" for value in values], fontsize=7)
    _log_seconds(axes, [r["median_seconds"] for records in cases.values() for r in records])
    axes.set_xlabel("seconds, median")
    _case_labels(axes, [records[0]["title"] for records in cases.values()])
    _legend(axes)
    _save(figure, path)


def _log_seconds(axes: Any, values: Sequence[float | None]) -> None:
    """Make the axis of seconds logarithmic, in plain numbers, with room for the shortest bar."""
    axes.set_xscale("log")
    axes.set_xlim(left=min(value for value in values if value) / 3)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")


def _legend(axes: Any) -> None:
    """Put the legend above the plot, where no bar is."""
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))


def _case_labels(axes: Any, titles: Sequence[str]) -> None:
    axes.set_yticks(range(len(titles)), titles)
    axes.invert_yaxis()


def floors(cases: Cases, path: Path) -> None:
    """Draw where our time goes: the floor's parts, and what lies above it, with the multiple of the floor."""
    ours = [r for records in cases.values() if (r := of(records, OURS)) and tables.floor_of(r)]
    floors = [tables.floor_of(record) for record in ours]
    figure, axes = _new(1.4 + 0.4 * len(ours))
    rows, left = range(len(ours)), [0.0] * len(ours)
    for part, (colour, label) in PARTS.items():
        values = [least[part] for least in floors]
        axes.barh(rows, values, left=left, color=colour, label=f"floor: {label}")
        left = [a + b for a, b in zip(left, values, strict=True)]
    rest = [max(0.0, r["median_seconds"] - start) for r, start in zip(ours, left, strict=True)]
    bars = axes.barh(rows, rest, left=left, color=REST, label="above the floor: selection, updates, wasted columns")
    over = [r["median_seconds"] / least["seconds"] for r, least in zip(ours, floors, strict=True)]
    multiples = [f" {value:.1f}×, {least['plan']}" for value, least in zip(over, floors, strict=True)]
    axes.bar_label(bars, multiples, fontsize=8)
    axes.margins(x=0.15)
    axes.set_xlabel("seconds, median; the multiple of the floor and the plan taken at the end of each bar")
    _case_labels(axes, [r["title"] for r in ours])
    _legend(axes)
    _save(figure, path)


def scaling(cases: Cases, path: Path) -> None:
    """Draw time against n with both axes logarithmic, a line per solver with its exponent."""
    figure, axes = _new(4.0)
    for solver, (sizes, seconds, exponent) in exponents(cases).items():
        axes.loglog(sizes, seconds, "o-", color=COLOURS[solver], label=f"{solver}: n^{exponent:.2f}")
    sizes = sorted({r["n"] for records in cases.values() for r in records})
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
    axes.minorticks_off()
    axes.set_xlabel("training rows n")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("seconds, median")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    _save(figure, path)


def batch(records: Sequence[Record], path: Path) -> None:
    """Draw the batch: ours by stage, the peers' searches whole, seconds on a logarithmic axis."""
    searches = [r for r in records if "scores" in r]
    figure, axes = _new(0.9 + 0.35 * len(searches))
    values = [r["median_seconds"] for r in searches]
    bars = axes.barh(range(len(searches)), values, color=[COLOURS[r["solver"]] for r in searches])
    axes.bar_label(bars, [f" {value:.3g} s" for value in values], fontsize=8)
    _log_seconds(axes, values)
    axes.set_xlabel("seconds for 10 classes × 5 folds × 5 values of C")
    _case_labels(axes, [r["solver"] for r in searches])
    axes.margins(x=0.15)
    _save(figure, path)


def truth(cases: Cases, path: Path) -> None:
    """Draw the performance profile of the newest run, and ours of the baseline beside it."""
    figure, axes = _new(3.6)
    for case, colour, label, style in (
        ("truth", COLOURS[OURS], OURS, "-"),
        ("baseline", COLOURS[OURS], f"{OURS}, before", ":"),
    ):
        for record in cases.get(case, [])[-1:]:
            axes.step(record["profile"]["factors"], record["profile"]["ours"], style, color=colour, label=label)
    newest = (cases.get("truth") or cases["baseline"])[-1]["profile"]
    axes.step(newest["factors"], newest["libsvm"], color=COLOURS["scikit-learn"], label="LIBSVM (scikit-learn)")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("time over the best solver's")
    axes.set_ylabel("share of the problems")
    axes.set_ylim(0, 1.01)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    _save(figure, path)


def draw(suites: Mapping[str, Cases], folder: Path) -> dict[str, Path]:
    """Draw what has records; returns the file of each plot."""
    drawn = {}
    for name, plot, suite in (
        ("single", seconds_by_case, "single"),
        ("floors", floors, "single"),
        ("multiclass", seconds_by_case, "multiclass"),
        ("scaling", scaling, "scaling"),
        ("doubling", scaling, "doubling"),
        ("truth", truth, "truth"),
    ):
        if suites.get(suite):
            drawn[name] = folder / f"performance-{name}.svg"
            plot(suites[suite], drawn[name])
    for records in suites.get("batch", {}).values():
        drawn["batch"] = folder / "performance-batch.svg"
        batch(records, drawn["batch"])
    return drawn
