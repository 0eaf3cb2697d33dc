"""Inside or outside: targets are not trained on. Where a source has labels, the most frequent one is what is inside."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline.kinds.base import Kind, Outputs, Tally, repeated
from pipeline.kinds.labels import Label, LabelCodes
from svmcore.model import Model, Target
from svmcore.tasks.base import Answers

__all__ = ["Novelty"]

BINS = 41
MOST_ROWS = 25  # listed in a report, the most outside first


class Sides:
    """Labels of a source: the most frequent one becomes code 0, which is inside; without labels all are inside."""

    def __init__(self, text: bool, labelled: bool) -> None:
        self.labels, self.labelled = LabelCodes(text), labelled
        self.n = 0

    def append(self, y: NDArray[Any]) -> None:
        """Take the next labels (n,); without labels their number counts."""
        self.n += len(y)
        if self.labelled:
            self.labels.append(y)

    def resolve(self) -> tuple[list[Label], NDArray[np.int32]]:
        """The classes, that inside first (of equals the later: 1, not -1), and codes (n,)."""
        if not self.labelled:
            return [], np.zeros(self.n, np.int32)
        classes, codes = self.labels.resolve()
        sizes = np.bincount(codes, minlength=len(classes))
        inside = len(classes) - 1 - int(np.argmax(sizes[::-1]))
        order = [inside, *(code for code in range(len(classes)) if code != inside)]
        return [classes[code] for code in order], np.argsort(order).astype(np.int32)[codes]

    def resolve_as(self, classes: Sequence[Any], url: str) -> NDArray[np.int32]:
        """Codes (n,) into the classes of the training data; -1 for another label, which is outside."""
        return self.labels.resolve_known(classes)[0] if self.labelled else np.zeros(self.n, np.int32)


class Novelty(Kind):
    """One class."""

    answers: ClassVar[Answers] = "novelty"
    scores: ClassVar[tuple[str, ...]] = ("rejected", "roc_auc")
    examples: ClassVar[tuple[str, ...]] = ("rejected", "roc_auc", "average_precision", "balanced_accuracy")
    optional: ClassVar[bool] = True

    def reader(self, url: str, text: bool, labelled: bool = True) -> Sides:
        """Labels of any kind, or none."""
        return Sides(text, labelled)

    def goals(self, targets: NDArray[Any], n_classes: int, scheme: str) -> Sequence[Target]:
        """Every row alike."""
        return [Target(0, -1, np.ones(len(targets)))]

    def label(self, goal: Target, classes: Sequence[Any]) -> str:
        """One program, of what is inside."""
        return "inside"

    def losses(self, y: NDArray[Any], decision: NDArray[Any], epsilon: float) -> NDArray[Any]:
        """max(0, -f): how far a row is outside."""
        return np.maximum(0.0, -decision)

    def predicted(self, model: Model, decision: NDArray[Any]) -> NDArray[Any]:
        """1 inside, -1 outside."""
        return np.where(decision[:, 0] >= 0, 1, -1)

    def scored(self, names: Sequence[str], outputs: Outputs) -> dict[str, float | None]:
        """The share outside; where there are labels, scikit-learn's of 1 inside and -1 outside."""
        targets, decision, classes, _, counts, _ = outputs
        weights = np.ones(len(targets)) if counts is None else np.asarray(counts, np.float64)
        outside = float(weights[decision[:, 0] < 0].sum() / weights.sum()) if len(targets) else None
        found: dict[str, float | None] = {"rejected": outside}
        others = [name for name in names if name != "rejected"]
        truth = np.where(np.asarray(targets) == 0, 1, -1)
        if others and classes and (truth != truth[:1]).any():
            from pipeline.kinds.scorers import Detector, scores_of

            rows = repeated(counts, len(targets))
            found |= scores_of(others, Detector(), decision[rows], truth[rows])
        return {name: found.get(name) for name in names}

    def trial(self, n_classes: int, scheme: str, probability: bool = False) -> tuple[Any, NDArray[Any], NDArray[Any]]:
        """Four rows, two of them outside."""
        from pipeline.kinds.scorers import Detector

        return Detector(), np.array([[0.5], [-0.5], [0.25], [-1.0]]), np.array([1, 1, -1, -1])

    def evaluation(self, dataset: Any, model: Model, shown: tuple[Any, Any, Any]) -> dict[str, Any]:
        """Histograms of the decision values by side, and the rows that are the furthest outside."""
        codes, decision, counts = shown
        f = decision[:, 0]
        edges = np.histogram_bin_edges(f, BINS)
        weights = np.ones(len(f)) if counts is None else np.asarray(counts, np.float64)
        sides = {"inside": np.asarray(codes) == 0, "outside": np.asarray(codes) != 0} if dataset.classes else {}
        sides = {side: rows for side, rows in sides.items() if rows.any()} or {"rows": np.ones(len(f), bool)}
        counted = {side: np.histogram(f[rows], edges, weights=weights[rows])[0] for side, rows in sides.items()}
        first = np.argsort(f, kind="stable")[:MOST_ROWS]
        return {
            "histogram": {
                "edges": edges.tolist(),
                "counts": {side: heights.tolist() for side, heights in counted.items()},
            },
            "furthest": _ranking(dataset, first, codes, f),
        }

    def score_slack(
        self, targets: NDArray[Any], decision: NDArray[Any], doubts: NDArray[Any], counts: NDArray[Any]
    ) -> dict[str, float]:
        """The share of rows that hang on less than their doubt."""
        near = np.abs(decision[:, 0]) <= doubts[:, 0]
        return {"rejected": float(counts[near].sum()) / float(counts.sum())}

    def tally(self, url: str, text: bool, classes: Sequence[Any], scheme: str) -> Tally:
        """The share outside, and the area under the curve where labels are there."""
        return _Outside(text, classes)


def _ranking(dataset: Any, rows: Any, codes: Any, f: Any) -> list[dict[str, Any]]:
    """Place, id, copies, decision value and label of rows."""
    labels = [dataset.classes[code] if dataset.classes and code >= 0 else None for code in codes[rows].tolist()]
    found = zip(dataset.named(rows), f[rows].tolist(), labels, strict=True)
    return [name | {"score": score, "label": label} for name, score, label in found]


class _Outside:
    """Decision values of all rows, and their codes where labels are there."""

    def __init__(self, text: bool, classes: Sequence[Any]) -> None:
        self.text, self.classes = text, classes
        self.codes: list[NDArray[Any]] = []
        self.f: list[NDArray[Any]] = []

    def add(self, y: NDArray[Any] | None, decision: NDArray[Any]) -> None:
        """Take a block."""
        sides = Sides(self.text, y is not None and bool(self.classes))
        sides.append(decision if y is None else y)
        self.codes.append(sides.resolve_as(self.classes, ""))
        self.f.append(decision)

    def record(self) -> dict[str, Any]:
        """`rejected`, the share of rows outside, and `roc_auc`; None where it is not known."""
        if not self.f:
            return dict.fromkeys(Novelty.scores)
        codes, f = np.concatenate(self.codes), np.concatenate(self.f)
        return Novelty().scored(Novelty.scores, Outputs(codes, f, self.classes))
