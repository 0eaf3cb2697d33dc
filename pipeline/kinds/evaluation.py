"""What a report shows beyond the metrics: confusion matrix, ROC, decision regions, convergence curves.

All from decision values that the solver or the model already gave; nothing here trains or stores.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["accuracy_of", "confusion", "plane", "reliability", "roc"]

PLANE_POINTS = 2000
GRID = 120
ROC_POINTS = 400
BINS = 10  # of probabilities in a reliability diagram


def confusion(true: Any, predicted: Any, n_classes: int, weights: Any = None) -> Any:
    """Counts (k, k): row = true code, column = predicted code.

    >>> confusion(np.array([0, 1, 1]), np.array([0, 1, 0]), 2).tolist()
    [[1, 0], [1, 1]]
    """
    cells = np.asarray(true) * n_classes + np.asarray(predicted)
    counts = np.bincount(cells, weights=weights, minlength=n_classes**2)
    return counts.reshape(n_classes, n_classes).round().astype(np.int64)


def accuracy_of(matrix: Any) -> float | None:
    """Share of the diagonal; None without rows."""
    total = int(matrix.sum())
    return float(np.trace(matrix) / total) if total else None


def roc(positive: Any, decision: Any, weights: Any = None) -> dict[str, Any] | None:
    """ROC of decision values (n,) for `positive` (n,) bool: {"fpr", "tpr", "auc"}; None if one class is missing.

    >>> roc(np.array([False, True]), np.array([-1.0, 2.0]))["auc"]
    1.0
    """
    weights = np.ones(len(decision)) if weights is None else np.asarray(weights, np.float64)
    order = np.argsort(-decision, kind="stable")
    hits = np.cumsum(np.where(positive, weights, 0.0)[order])
    false = np.cumsum(np.where(positive, 0.0, weights)[order])
    if not len(hits) or hits[-1] == 0 or false[-1] == 0:
        return None
    last = np.append(np.diff(decision[order]) != 0, True)  # ties are one point
    tpr = np.concatenate([[0.0], hits[last] / hits[-1]])
    fpr = np.concatenate([[0.0], false[last] / false[-1]])
    auc = float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1])) / 2)
    keep = np.unique(np.linspace(0, len(fpr) - 1, ROC_POINTS).round().astype(int))
    return {"fpr": fpr[keep].tolist(), "tpr": tpr[keep].tolist(), "auc": auc}


def reliability(codes: Any, probability: Any, weights: Any = None) -> dict[str, Any] | None:
    """Of the classes that are said, by their probability in ten bins: {"said", "true", "rows"} and the mean log loss.

    >>> found = reliability(np.array([0, 1]), np.array([[0.92, 0.08], [0.96, 0.04]]))
    >>> found["said"], found["true"], found["rows"]
    ([0.94], [0.5], [2.0])
    """
    if probability is None or not len(codes):
        return None
    weights = np.ones(len(codes)) if weights is None else np.asarray(weights, np.float64)
    top = probability.max(axis=1)
    at = np.minimum((top * BINS).astype(int), BINS - 1)
    rows = np.bincount(at, weights=weights, minlength=BINS)
    filled = rows > 0
    said = np.bincount(at, weights=weights * top, minlength=BINS)[filled] / rows[filled]
    hits = weights * (probability.argmax(axis=1) == codes)
    true = np.bincount(at, weights=hits, minlength=BINS)[filled] / rows[filled]
    of_truth = np.maximum(probability[np.arange(len(codes)), codes], np.finfo(float).tiny)
    loss = float(-(weights @ np.log(of_truth)) / weights.sum())
    return {"said": said.tolist(), "true": true.tolist(), "rows": rows[filled].tolist(), "log_loss": loss}


def plane(
    X: Any, codes: Any, decide: Callable[[Any], Any], predict_codes: Callable[[Any], Any], n_classes: int
) -> dict[str, Any]:
    """Points and decision regions of a model of two features, in raw units.

    Parameters
    ----------
    X, codes
        Raw training rows (n, 2) and their codes (n,); at most 2,000 are kept.
    decide, predict_codes
        Decision values and codes of raw rows.
    """
    keep = np.linspace(0, len(X) - 1, min(len(X), PLANE_POINTS)).round().astype(int)
    low, high = X.min(axis=0), X.max(axis=0)
    pad = np.where(high > low, 0.08 * (high - low), 1.0)
    grid_x, grid_y = (np.linspace(low[i] - pad[i], high[i] + pad[i], GRID) for i in (0, 1))
    mesh = np.stack([axis.ravel() for axis in np.meshgrid(grid_x, grid_y)], axis=1)
    decision = np.asarray(decide(mesh)).reshape(GRID, GRID).tolist() if n_classes == 2 else None
    return {
        "points": X[keep].tolist(),
        "codes": codes[keep].tolist(),
        "grid_x": grid_x.tolist(),
        "grid_y": grid_y.tolist(),
        "decision": decision,
        "labels": np.asarray(predict_codes(mesh)).reshape(GRID, GRID).tolist(),
    }


def curves(labels: Sequence[Any], histories: Sequence[Sequence[Sequence[float]]]) -> list[dict[str, Any]]:
    """Convergence curves: {"label", "points": [[seconds, n_iter, kkt_gap], ...]} for each problem."""
    return [
        {"label": label, "points": [list(point) for point in history]}
        for label, history in zip(labels, histories, strict=True)
    ]
