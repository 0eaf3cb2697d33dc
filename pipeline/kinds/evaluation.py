"""What a report shows beyond the metrics: confusion matrix, ROC, decision regions, convergence curves.

All from decision values that the solver or the model already gave; nothing here trains or stores.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["accuracy_of", "calibration", "confusion", "curve", "curves", "plane"]

PLANE_POINTS = 2000
GRID = 120
ROC_POINTS = 400


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


def curve(positive: Any, decision: Any, weights: Any = None, most: int = ROC_POINTS) -> dict[str, Any] | None:
    """What each threshold of decision values (n,) finds of the rows that are `positive` (n,) bool.

    Parameters
    ----------
    most
        About how many thresholds are kept, evenly along the ROC curve, and that at 0.

    Returns
    -------
    dict
        `threshold`: a row is taken for positive from here on, null for none; `tpr` and `fpr`, the shares of the
        positive and of the other rows that it takes; `auc`, the area under the ROC curve; `average_precision`, the sum
        of precision times the step of recall; `positives`, `negatives`: rows. None if one of the two has no row.

    >>> found = curve(np.array([False, True]), np.array([-1.0, 2.0]))
    >>> found["auc"], found["average_precision"], found["threshold"]
    (1.0, 1.0, [None, 2.0, -1.0])
    """
    weights = np.ones(len(decision)) if weights is None else np.asarray(weights, np.float64)
    order = np.argsort(-decision, kind="stable")
    hits = np.cumsum(np.where(positive, weights, 0.0)[order])
    false = np.cumsum(np.where(positive, 0.0, weights)[order])
    if not len(hits) or hits[-1] == 0 or false[-1] == 0:
        return None
    values = decision[order]
    last = np.append(np.diff(values) != 0, True)  # ties are one point
    hits, false, values = (
        np.concatenate([[first], part[last]]) for first, part in ((0, hits), (0, false), (np.inf, values))
    )
    tpr, fpr = hits / hits[-1], false / false[-1]
    keep = np.searchsorted(tpr + fpr, np.linspace(0, 2, min(most, len(tpr))) * (1 - 1e-12))
    keep = np.unique([0, *keep, np.flatnonzero(values >= 0)[-1], len(tpr) - 1])
    return {
        "threshold": [None, *values[keep[1:]].tolist()],
        "tpr": tpr[keep].tolist(),
        "fpr": fpr[keep].tolist(),
        "auc": float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1])) / 2),
        "average_precision": float(np.sum(np.diff(tpr) * hits[1:] / (hits[1:] + false[1:]))),
        "positives": round(hits[-1]),
        "negatives": round(false[-1]),
    }


def calibration(positive: Any, probability: Any, weights: Any = None, bins: int = 10) -> list[dict[str, float]]:
    """How often rows are `positive` (n,) bool where their probability (n,) says so: in bins of equal width.

    Returns
    -------
    list
        Of each bin that is not empty: `said`, its mean probability; `seen`, the share of its rows that are positive;
        `rows`.

    >>> calibration(np.array([False, True, True]), np.array([0.1, 0.9, 0.95]))[1]["seen"]
    1.0
    """
    weights = np.ones(len(probability)) if weights is None else np.asarray(weights, np.float64)
    of = np.minimum((np.asarray(probability) * bins).astype(int), bins - 1)
    rows, said, seen = (
        np.bincount(of, weights * part, bins) for part in (np.ones(len(of)), probability, np.asarray(positive, float))
    )
    return [
        {"said": float(said[k] / rows[k]), "seen": float(seen[k] / rows[k]), "rows": float(rows[k])}
        for k in np.flatnonzero(rows)
    ]


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
