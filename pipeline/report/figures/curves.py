"""Curves over every threshold of the decision value, and of probabilities: ROC, precision and recall, calibration.

Each takes what `evaluation.json` holds and returns an `<svg>` fragment, or "" when there is nothing to draw.
"""

from collections.abc import Sequence
from typing import Any

from pipeline.config.quantities import number
from pipeline.report.figures.svg import MUTED, Marks, draw_svg, lines
from pipeline.report.formats import label_text

__all__ = ["calibration", "precision_recall", "roc"]

CHANCE = {"color": MUTED, "linewidth": 1, "linestyle": (0, (4, 3))}
SIZE = (7.2, 4.9)


def roc(curves: Sequence[dict[str, Any]]) -> str:
    """Draw true against false positive rate, a line for each class."""
    found = [(curve["fpr"], curve["tpr"]) for curve in curves]
    axes = ("false positive rate", "true positive rate")
    return _drawn("roc", "ROC curve", axes, found, curves, "auc", diagonal=True)


def precision_recall(curves: Sequence[dict[str, Any]]) -> str:
    """Draw precision against recall, a line for each class."""
    found = [_precision(curve) for curve in curves]
    return _drawn("pr", "Precision and recall", ("recall", "precision"), found, curves, "average_precision")


def _precision(curve: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Recall and precision of each threshold that takes any row."""
    taken = [
        (t, t * curve["positives"], f * curve["negatives"]) for t, f in zip(curve["tpr"], curve["fpr"], strict=True)
    ]
    pairs = [(t, hits / (hits + false)) for t, hits, false in taken if hits + false > 0]
    return [t for t, _ in pairs], [precision for _, precision in pairs]


def _drawn(
    name: str,
    title: str,
    axes: tuple[str, str],
    found: Sequence[tuple[Sequence[float], Sequence[float]]],
    curves: Sequence[dict[str, Any]],
    area: str,
    diagonal: bool = False,
) -> str:
    if not curves:
        return ""
    names = [f"{label_text(curve['label'])}, {number(curve[area], 3)}" for curve in curves]
    worst = sorted(range(len(curves)), key=lambda k: curves[k][area])

    def draw(figure: Any) -> list[Marks]:
        ax = figure.add_subplot(xlabel=axes[0], ylabel=axes[1])
        if diagonal:
            ax.plot([0, 1], [0, 1], label="chance", **CHANCE)
        marks = [Marks(label, ax, x, y) for label, (x, y) in zip(names, found, strict=True)]
        for mark, style in zip(marks, lines(names, worst, "low"), strict=True):
            ax.plot(mark.x, mark.y, clip_on=False, **style)
        ax.set(xlim=(0, 1), ylim=(0, 1))
        figure.legend(loc="outside lower center", ncols=min(4, len(ax.get_legend_handles_labels()[0])))
        return marks

    text = f"{len(curves)} curves; the least area is {number(min(curve[area] for curve in curves), 3)}"
    return draw_svg(name, title, text, draw, SIZE)


def calibration(curves: Sequence[dict[str, Any]]) -> str:
    """Draw how often rows are of a class against how probable it was said to be.

    `curves` are [{"label", "bins": [{"said", "seen", "rows"}]}], see `pipeline.kinds.evaluation.calibration`.
    """
    if not curves:
        return ""
    names = [label_text(curve["label"]) for curve in curves]
    off = [max(abs(one["said"] - one["seen"]) for one in curve["bins"]) for curve in curves]
    worst = sorted(range(len(curves)), key=lambda k: -off[k])

    def draw(figure: Any) -> list[Marks]:
        ax = figure.add_subplot(xlabel="probability as said", ylabel="share as seen")
        ax.plot([0, 1], [0, 1], label="calibrated", **CHANCE)
        marks = [
            Marks(label, ax, [one["said"] for one in curve["bins"]], [one["seen"] for one in curve["bins"]])
            for label, curve in zip(names, curves, strict=True)
        ]
        for mark, style in zip(marks, lines(names, worst, "off"), strict=True):
            ax.plot(mark.x, mark.y, marker="o", markersize=4, clip_on=False, **style)
        ax.set(xlim=(0, 1), ylim=(0, 1))
        figure.legend(loc="outside lower center", ncols=min(4, len(ax.get_legend_handles_labels()[0])))
        return marks

    text = f"{len(curves)} curves; the furthest is off by {number(max(off), 2)}"
    return draw_svg("calibration", "Calibration", text, draw, SIZE)
