"""Figures of one trained model: convergence, decision regions, the confusion of very many classes.

Each takes what `evaluation.json` holds and returns an `<svg>` fragment, or "" when there is nothing to draw.
"""

from collections.abc import Sequence
from typing import Any

from pipeline.config.quantities import finite, number
from pipeline.report.figures.svg import INK, LINE, MARKERS, MOST_NAMED, SERIES, SURFACE, Marks, draw_svg, lines, short
from pipeline.report.formats import label_text, percent

__all__ = ["confusion_map", "convergence", "regions"]

MOST_POINTS = 2000  # of all curves together
MOST_CONFUSED = 200  # pairs of classes that can be pointed at
FEW_POINTS = 30


def convergence(history: Sequence[dict[str, Any]], tol: float | None) -> str:
    """KKT gap on a log scale against seconds, one line per problem, with the tolerance it must reach."""
    floor = (tol or 1e-12) / 100
    most = max(20, MOST_POINTS // max(1, len(history)))
    curves = [(label_text(h.get("label")), _curve(h.get("points") or [], floor, most)) for h in history]
    curves = [(label, curve) for label, curve in curves if len(curve) > 1]
    if not curves:
        return ""
    slowest = max(curve[-1][0] for _, curve in curves)
    factor, unit = (1e3, "ms") if slowest < 1 else (1.0, "s")

    def draw(figure: Any) -> list[Marks]:
        ax = figure.add_subplot(yscale="log", xlabel=f"time in the solver ({unit})", ylabel="KKT gap")
        last = sorted(range(len(curves)), key=lambda k: -curves[k][1][-1][0])
        marks = [Marks(label, ax, [factor * s for s, _ in curve], [gap for _, gap in curve]) for label, curve in curves]
        for mark, style in zip(marks, lines([label for label, _ in curves], last, "slow"), strict=True):
            marker = (
                "o" if len(mark.x) <= FEW_POINTS and len(marks) <= MOST_NAMED else ""
            )  # between few reports a line is only a guess
            ax.plot(mark.x, mark.y, marker=marker, markersize=4, **style)
        if tol:
            ax.axhline(tol, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=f"tol {number(tol)}")
        ax.set_xlim(left=0)
        ax.yaxis.set_major_formatter(lambda gap, _: number(gap))
        ax.yaxis.set_minor_formatter(lambda gap, _: "")
        figure.legend(loc="outside lower center", ncols=min(6, len(ax.get_legend_handles_labels()[0])))
        return marks

    text = f"{len(curves)} curves; the slowest ends after {number(slowest)} s"
    return draw_svg("convergence", "KKT gap against time for each class", text, draw, (7.2, 4.4))


def _curve(points: Sequence[Sequence[Any]], floor: float, most: int) -> list[tuple[float, float]]:
    pairs = [(finite(p[0]), finite(p[2])) for p in points]
    curve = [(s, max(gap, floor)) for s, gap in pairs if s is not None and gap is not None]
    stride = max(1, len(curve) // most)
    return curve[:-1:stride] + curve[-1:]


def regions(plane: dict[str, Any] | None, classes: Sequence[Any]) -> str:
    """Predicted class over the plane of two features, the rows on it, and for two classes f = -1, 0, 1.

    `decision` and `labels` are (len(grid_y), len(grid_x)); `support_vectors` (k, 2) is optional.
    """
    if not plane or not (plane.get("decision") or plane.get("labels")):
        return ""
    names = plane.get("features") or ["feature 1", "feature 2"]

    def draw(figure: Any) -> None:
        ax = figure.add_subplot(xlabel=str(names[0]), ylabel=str(names[1]))
        ax.grid(visible=False)
        (_fill_margins if plane.get("decision") else _fill_labels)(ax, plane)
        _scatter_rows(ax, plane, classes)
        ax.set(xlim=_ends(plane["grid_x"]), ylim=_ends(plane["grid_y"]))
        entries = len(ax.get_legend_handles_labels()[0])
        if entries <= MOST_NAMED + 2:
            figure.legend(loc="outside lower center", ncols=min(5, entries))

    text = f"{len(plane.get('points') or [])} rows over the regions of {len(classes)} classes"
    return draw_svg("regions", "Decision regions", text, draw, (7.2, 5.2))


def _ends(grid: Sequence[float]) -> tuple[float, float]:
    return min(grid), max(grid)


def _fill_margins(ax: Any, plane: dict[str, Any]) -> None:
    from matplotlib.lines import Line2D

    x, y, f = plane["grid_x"], plane["grid_y"], plane["decision"]
    low, high = min(map(min, f)), max(map(max, f))
    for bounds, colour, alpha in (
        ((low, -1), SERIES[0], 0.26),
        ((-1, 0), SERIES[0], 0.12),
        ((0, 1), SERIES[1], 0.12),
        ((1, high), SERIES[1], 0.26),
    ):
        if bounds[0] < bounds[1]:
            ax.contourf(x, y, f, levels=bounds, colors=[colour], alpha=alpha)
    for level, style, width in ((-1, (0, (5, 3)), 1.2), (0, "solid", 2), (1, (0, (5, 3)), 1.2)):
        if low < level < high:
            ax.contour(x, y, f, levels=[level], colors=[INK], linestyles=[style], linewidths=width)
    ax.add_line(Line2D([], [], color=INK, linewidth=2, label="f = 0"))
    ax.add_line(Line2D([], [], color=INK, linewidth=1.2, linestyle=(0, (5, 3)), label="f = ±1"))


def _fill_labels(ax: Any, plane: dict[str, Any]) -> None:
    labels = plane["labels"]
    for code in sorted({int(c) for row in labels for c in row}):
        inside = [[float(c == code) for c in row] for row in labels]
        colour = SERIES[code % len(SERIES)]
        ax.contourf(plane["grid_x"], plane["grid_y"], inside, levels=[0.5, 2], colors=[colour], alpha=0.22)


def _scatter_rows(ax: Any, plane: dict[str, Any], classes: Sequence[Any]) -> None:
    points, codes = plane.get("points") or [], plane.get("codes") or []
    for code, label in enumerate(classes):
        chosen = [p for p, c in zip(points, codes, strict=True) if c == code]
        if not chosen:
            continue
        style = {"marker": MARKERS[code % len(MARKERS)], "color": SERIES[code % len(SERIES)]}
        x, y = zip(*chosen, strict=True)
        ax.scatter(x, y, s=24, edgecolors=SURFACE, linewidths=0.6, label=short(label_text(label)), **style)
    if plane.get("support_vectors"):
        x, y = zip(*plane["support_vectors"], strict=True)
        ax.scatter(x, y, s=52, facecolors="none", edgecolors=INK, linewidths=0.9, label="support vectors")


def confusion_map(confusion: Sequence[Sequence[int]], classes: Sequence[Any]) -> str:
    """Confusion of more classes than a table can show: rows true, columns predicted, share of the row."""
    from matplotlib.colors import LinearSegmentedColormap

    shares = [[c / max(1, sum(row)) for c in row] for row in confusion]
    wrong = [(n, i, j) for i, row in enumerate(confusion) for j, n in enumerate(row) if n and i != j]
    most = sorted(wrong, reverse=True)[:MOST_CONFUSED]
    # a picture cannot use CSS variables: one blue that reads on both schemes, from clear to solid
    blues = LinearSegmentedColormap.from_list("share", [(0.35, 0.55, 0.95, 0.0), (0.35, 0.55, 0.95, 1.0)])

    def draw(figure: Any) -> list[Marks]:
        ax = figure.add_subplot(xlabel="predicted class", ylabel="true class")
        ax.grid(visible=False)
        picture = ax.imshow(shares, cmap=blues, vmin=0, vmax=1, interpolation="nearest")
        bar = figure.colorbar(picture, ax=ax, shrink=0.8, format=lambda share, _: percent(share, 0))
        bar.outline.set_edgecolor(LINE)
        names = [*map(label_text, classes)]
        return [Marks(f"{names[i]} taken for {names[j]}: {n:,} rows", ax, [j], [i]) for n, i, j in most]

    right = sum(row[k] for k, row in enumerate(confusion)) / max(1, sum(map(sum, confusion)))
    text = f"{len(confusion)} classes, {percent(right)} on the diagonal"
    return draw_svg("confusion", "Confusion matrix", text, draw, (7.2, 6.2))
