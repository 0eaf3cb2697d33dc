"""Figures of regression and novelty: each takes what `evaluation.json` holds and returns an `<svg>`, or ""."""

from collections.abc import Sequence
from typing import Any

from pipeline.config.quantities import number
from pipeline.report.figures.svg import INK, MUTED, SERIES, SURFACE, Marks, draw_svg

__all__ = ["fit", "residuals", "scores", "tube"]

POINT = {"s": 18, "edgecolors": SURFACE, "linewidths": 0.5}
DASHED = (0, (5, 3))


def fit(rows: dict[str, Any] | None, epsilon: float | None) -> str:
    """Draw predicted against true values, and the tube around the line on which both are equal."""
    if not rows:
        return ""
    true, said = rows["true"], rows["predicted"]
    ends = [min([*true, *said]), max([*true, *said])]

    def draw(figure: Any) -> list[Marks]:
        ax = figure.add_subplot(xlabel="true value", ylabel="predicted value")
        _tube(ax, ends, ends, epsilon)
        ax.plot(ends, ends, color=INK, linewidth=1.2, linestyle=DASHED, label="equal")
        ax.scatter(true, said, color=SERIES[0], alpha=0.75, **POINT)
        figure.legend(loc="outside lower center", ncols=2)
        return [Marks("row", ax, true, said)]

    return draw_svg("fit", "Predicted against true values", f"{len(true)} rows", draw, (7.2, 5.0))


def residuals(rows: dict[str, Any] | None, counted: dict[str, Any] | None, epsilon: float | None) -> str:
    """Draw residuals against predicted values, the tube as a band, and their histogram beside it."""
    if not rows or not counted:
        return ""
    said = rows["predicted"]
    left = [t - f for t, f in zip(rows["true"], said, strict=True)]
    ends = [min(said), max(said)]

    def draw(figure: Any) -> list[Marks]:
        ax, side = figure.subplots(1, 2, sharey=True, width_ratios=[3, 1])
        _tube(ax, ends, [0.0, 0.0], epsilon)
        ax.axhline(0.0, color=INK, linewidth=1.2, linestyle=DASHED)
        ax.scatter(said, left, color=SERIES[0], alpha=0.75, **POINT)
        ax.set(xlabel="predicted value", ylabel="true minus predicted")
        side.stairs(
            counted["counts"], counted["edges"], orientation="horizontal", fill=True, color=SERIES[0], alpha=0.5
        )
        if epsilon:
            for edge in (-epsilon, epsilon):
                side.axhline(edge, color=SERIES[1], linewidth=1.2, linestyle=DASHED)
        side.set_xlabel("rows")
        return [Marks("row", ax, said, left)]

    outside = sum(abs(r) > (epsilon or 0.0) for r in left)
    text = f"{outside} of {len(left)} rows outside the tube of half-width {number(epsilon or 0.0)}"
    return draw_svg("residuals", "Residuals", text, draw, (7.2, 4.4))


def tube(line: dict[str, Any] | None, epsilon: float | None) -> str:
    """Draw f along its one feature, the tube around it, and the training rows: those outside support it."""
    if not line:
        return ""

    def draw(figure: Any) -> list[Marks]:
        ax = figure.add_subplot(xlabel="feature", ylabel="value")
        _tube(ax, line["grid"], line["f"], epsilon)
        ax.plot(line["grid"], line["f"], color=INK, linewidth=2, label="f")
        ax.scatter(line["x"], line["y"], color=SERIES[0], alpha=0.75, label="training rows", **POINT)
        figure.legend(loc="outside lower center", ncols=3)
        return [Marks("f", ax, line["grid"], line["f"])]

    text = f"{len(line['x'])} training rows, f between {number(min(line['f']))} and {number(max(line['f']))}"
    return draw_svg("tube", "The function and its tube", text, draw, (7.2, 5.0))


def _tube(ax: Any, x: Sequence[float], f: Sequence[float], epsilon: float | None) -> None:
    if epsilon:
        low, high = [v - epsilon for v in f], [v + epsilon for v in f]
        ax.fill_between(x, low, high, color=SERIES[1], alpha=0.16, linewidth=0, label=f"tube, ± {number(epsilon)}")


def scores(counted: dict[str, Any] | None) -> str:
    """Draw histograms of the decision values, the border between inside and outside at 0."""
    if not counted:
        return ""

    def draw(figure: Any) -> None:
        ax = figure.add_subplot(xlabel="decision value: below 0 is outside", ylabel="rows")
        for k, (side, heights) in enumerate(counted["counts"].items()):
            name = side if side == "rows" else f"labelled {side}"
            ax.stairs(heights, counted["edges"], fill=True, color=SERIES[k], alpha=0.5, label=name)
        ax.axvline(0.0, color=MUTED, linewidth=1.2, linestyle=DASHED)
        if len(counted["counts"]) > 1:
            figure.legend(loc="outside lower center", ncols=2)

    rows = sum(map(sum, counted["counts"].values()))
    return draw_svg("scores", "Decision values", f"{number(rows)} rows", draw, (7.2, 4.4))
