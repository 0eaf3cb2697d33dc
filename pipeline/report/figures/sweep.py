"""Figures of a sweep: score along a parameter, scores of the folds, cost of each point. Ranks nothing itself."""

from collections.abc import Callable, Sequence
from typing import Any

from pipeline.config.quantities import finite, number
from pipeline.report.batch import Batch, Curves, Point, value_text
from pipeline.report.figures.svg import INK, MARKERS, SERIES, SURFACE, Marks, draw_svg

__all__ = ["cost_bars", "fold_strip", "score_curves"]

MOST_ROWS = 20


def score_curves(curves: Curves | None) -> str:
    """Draw mean score against a parameter, a band of one standard deviation around each curve."""
    if curves is None:
        return ""
    xs = [_x(p, curves.name) for _, points in curves.series for p in points]

    def draw(figure: Any) -> list[Marks]:
        ax = figure.add_subplot(xlabel=curves.name, ylabel="mean score")
        if min(xs) > 0 and max(xs) > 20 * min(xs):
            ax.set_xscale("log")
            ax.set_xticks(_thinned(sorted(set(xs))))
            ax.xaxis.set_major_formatter(lambda x, _: value_text(x))
            ax.xaxis.set_minor_formatter(lambda x, _: "")
        for k, (label, points) in enumerate(curves.series):
            _band(ax, curves.name, points, k, label)
        if len(curves.series) > 1:
            figure.legend(loc="outside lower center", ncols=min(4, len(curves.series)))
        return [
            Marks(label, ax, [_x(p, curves.name) for p in points], [p.mean_score or 0.0 for p in points])
            for label, points in curves.series
        ]

    text = f"{len(curves.series)} curves of {max(len(points) for _, points in curves.series)} points"
    return draw_svg("curves", f"Mean score against {curves.name}", text, draw, (7.2, 4.4))


def _thinned(ticks: list[float], most: int = 9) -> list[float]:
    return ticks[:: -(-len(ticks) // most)]


def _x(point: Point, name: str) -> float:
    return finite(point.params[name]) or 0.0


def _band(ax: Any, name: str, points: Sequence[Point], k: int, label: str) -> None:
    colour = SERIES[k % len(SERIES)]
    x, y = [_x(p, name) for p in points], [p.mean_score or 0.0 for p in points]
    spread = [p.std_score or 0.0 for p in points]
    low, high = (
        [m - s for m, s in zip(y, spread, strict=True)],
        [m + s for m, s in zip(y, spread, strict=True)],
    )
    ax.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
    marker = MARKERS[k % len(MARKERS)]
    ax.plot(x, y, color=colour, marker=marker, markersize=6, markeredgecolor=SURFACE, label=label)


def fold_strip(batch: Batch) -> str:
    """Draw a dot for the score of every fold, a bar at their mean, points ranked from the top."""
    points = [p for p in batch.points[:MOST_ROWS] if p.fold_scores]
    if not points:
        return ""

    def draw(figure: Any) -> list[Marks]:
        ax = figure.add_subplot(xlabel="score of a fold")
        for row, point in enumerate(points):
            colour = SERIES[1] if point.is_best else SERIES[0]
            n = len(point.fold_scores)
            ax.scatter(point.fold_scores, [row] * n, s=30, color=colour, alpha=0.55, linewidths=0)
            ax.scatter([point.mean_score], [row], marker="|", s=190, color=INK, linewidths=2)
        _name_rows(ax, points)
        return [Marks(p.text, ax, p.fold_scores, [row] * len(p.fold_scores)) for row, p in enumerate(points)]

    folds = max(len(p.fold_scores) for p in points)
    text = f"the best {len(points)} points, {folds} folds each, the bar is the mean"
    return draw_svg("folds", "Scores of the folds", text, draw, (7.2, _height(points)))


def cost_bars(batch: Batch) -> str:
    """Draw support vectors and seconds of each point, side by side, as far as they are known."""
    points = batch.points[:MOST_ROWS]
    panels: list[tuple[str, Callable[[Point], float | None], str]] = []
    if batch.has("n_support"):
        panels.append(("support vectors", lambda p: p.n_support, SERIES[0]))
    if batch.has("seconds"):
        longest = max(p.seconds or 0.0 for p in points)
        factor, unit = (1e3, "ms") if longest < 1 else (1.0, "s")
        panels.append((f"time ({unit})", lambda p: factor * (p.seconds or 0.0), SERIES[2]))
    if not panels:
        return ""

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for ax, (name, value, colour) in zip(axes, panels, strict=True):
            lengths = [value(p) or 0.0 for p in points]
            ax.barh(range(len(points)), lengths, height=0.66, color=colour, alpha=0.75)
            ax.set_xlabel(name)
            ax.margins(x=0.2)
            for row, length in enumerate(lengths):
                ax.annotate(number(length, 3), (length, row), (4, 0), textcoords="offset points", va="center")
        _name_rows(axes[0], points)

    text = " and ".join(name for name, _, _ in panels) + f" of the best {len(points)} points"
    return draw_svg("costs", "Cost of each point", text, draw, (7.2, _height(points)))


def _name_rows(ax: Any, points: Sequence[Point]) -> None:
    ax.set_yticks(range(len(points)), [p.text if len(p.text) <= 36 else p.text[:35] + "…" for p in points])
    ax.set_ylim(len(points) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")


def _height(points: Sequence[Point]) -> float:
    return 1.0 + 0.27 * max(4, len(points))
