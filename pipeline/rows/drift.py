"""Whether new rows are like those that a model was trained on: a two-sample test on its own kernel, and each feature.

The maximum mean discrepancy (Gretton, Borgwardt, Rasch, Schoelkopf, Smola 2012) of samples x (m rows) and z (n rows) is
the distance of their means in the space of the kernel,

    MMD^2 = w'Kw,  w_i = 1/m for rows of x and -1/n for rows of z,

and its p-value the share of random exchanges of rows between the two that give no less. Features are told apart by
Kolmogorov and Smirnov's test, Bonferroni's bound over all of them, and the population stability index.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline.rows.dataset import Dataset
from svmcore.kernels import Kernel

__all__ = ["Sample", "Summary", "drift_of", "mmd_test", "stability"]

ROWS = 500  # of each side of the test: K of both is 1,000 x 1,000
LARGE = 10_000  # rows that quantiles are taken of
WIDEST = 2000  # features that are looked at one by one
BYTES = 2 << 20  # of the sample in a model
STEP = 1 << 14
EXCHANGES = 999
DOUBT = 0.01  # a feature is called shifted below this p-value, over all features together
MOST_LISTED = 50
DECILES = np.linspace(0, 1, 11)


@dataclasses.dataclass(frozen=True, eq=False)
class Summary:
    """What a model keeps of its training rows.

    Attributes
    ----------
    rows
        (m, p) some of them, as the kernel sees them: encoded and scaled.
    quantiles
        (11, p) deciles of each feature before scaling; None of sparse or very wide rows.
    shares
        Of the classes.
    """

    rows: Any
    quantiles: NDArray[np.float64] | None
    shares: Sequence[float]

    @classmethod
    def of(cls, dataset: Dataset) -> "Summary":
        """Summary of the training rows of a dataset: the same for the same rows."""
        drawn = np.random.default_rng(0).integers(0, dataset.n_train, min(dataset.n_train, LARGE))
        X = _picked(dataset, np.sort(dataset.inverse()[np.unique(drawn)]))
        most = max(50, min(ROWS, BYTES // max(1, X.shape[1] * X.dtype.itemsize)))
        some = np.random.default_rng(1).permutation(X.shape[0])[: ROWS if sparse.issparse(X) else most]
        counted = np.bincount(dataset.targets(), dataset.counts()) if dataset.classes else np.zeros(0)
        return cls(X[np.sort(some)], _deciles(dataset, X), (counted / max(1, dataset.n_train)).tolist())


def _picked(dataset: Dataset, rows: NDArray[np.int64]) -> Any:
    """Merged rows in ascending order, some more than once, without all of them in memory."""
    parts = []
    for low in range(0, dataset.n_merged, STEP):
        high = min(low + STEP, dataset.n_merged)
        inside = rows[np.searchsorted(rows, low) : np.searchsorted(rows, high)]
        if len(inside):
            parts.append(dataset.take(inside - low, low, high))
    return sparse.csr_matrix(sparse.vstack(parts)) if sparse.issparse(parts[0]) else np.concatenate(parts)


def _deciles(dataset: Dataset, X: Any) -> NDArray[np.float64] | None:
    if sparse.issparse(X) or X.shape[1] > WIDEST:
        return None
    return np.quantile(dataset.scaling.undo(X), DECILES, axis=0)


class Sample:
    """At most `most` of the rows that come by, each as likely as any other (Vitter's algorithm R)."""

    def __init__(self, most: int = ROWS) -> None:
        self.most, self.n = most, 0
        self.random = np.random.default_rng(2)
        self.kept: list[Any] = []

    def add(self, X: Any) -> None:
        """Take rows (n, p)."""
        at = np.arange(self.n, self.n + X.shape[0])
        places = np.where(at < self.most, at, self.random.integers(0, at + 1))
        self.n += X.shape[0]
        for row in np.flatnonzero(places < self.most).tolist():
            place = int(places[row])
            self.kept[place : place + 1] = [X[[row]]]

    def rows(self) -> Any:
        """The rows that are kept."""
        return sparse.csr_matrix(sparse.vstack(self.kept)) if sparse.issparse(self.kept[0]) else np.vstack(self.kept)


def mmd_test(kernel: Kernel, x: Any, z: Any, exchanges: int = EXCHANGES) -> tuple[float, float]:
    """MMD^2 of rows x (m, p) and z (n, p), and its p-value by so many exchanges, at least 1 / (exchanges + 1)."""
    m, n = x.shape[0], z.shape[0]
    both = sparse.csr_matrix(sparse.vstack([x, z])) if sparse.issparse(x) else np.concatenate([x, z])
    points = kernel.prepare(both, None, np.float64)
    K = kernel.block(points, points)
    weights = np.repeat([1.0 / m, -1.0 / n], [m, n])
    random = np.random.default_rng(3)
    W = np.stack([weights, *(random.permutation(weights) for _ in range(exchanges))])
    found = np.einsum("ij,ij->i", W @ K, W)
    least = found[0] * (1 - 1e-12)  # an exchange that changes nothing is no less, whatever it rounds to
    return float(found[0]), float((found >= least).mean())


def stability(before: NDArray[np.float64], now: NDArray[np.float64], edges: NDArray[np.float64]) -> float:
    """Population stability index over the bins between edges: sum of (q - p) ln(q / p), p before and q now.

    An empty bin counts as half a row. Below 0.1 is usual, above 0.25 is a shift.
    """
    inner = np.unique(edges[1:-1])
    shares = []
    for values in (before, now):
        counts = np.bincount(np.searchsorted(inner, values, side="right"), minlength=len(inner) + 1)
        shares.append(np.maximum(counts, 0.5) / len(values))
    p, q = shares
    return float(((q - p) * np.log(q / p)).sum())


def drift_of(model: Any, rows: Any, shares: Sequence[float] = ()) -> dict[str, Any] | None:
    """How far rows (n, p), encoded and scaled as the model's, are from its training rows.

    Parameters
    ----------
    model
        A `StoredModel`.
    shares
        Of its classes now: as predicted, or as labelled.

    Returns
    -------
    dict
        `rows`: compared on each side; `mmd`, `p_value`; `n_features`, looked at one by one; `shifted`, of which that
        many differ; `features` [{name, p_value, psi, median: [before, now], shifted}], the most different first;
        `classes` [{label, share: [before, now]}]. None where the model keeps no summary.
    """
    summary = model.summary
    if summary is None or not rows.shape[0]:
        return None
    mmd, p_value = mmd_test(model.model.kernel, summary.rows, rows)
    features = _features(model, rows)
    labels = zip(model.classes, summary.shares, shares, strict=False)
    return {
        "rows": [summary.rows.shape[0], rows.shape[0]],
        "mmd": mmd,
        "p_value": p_value,
        "n_features": len(features),
        "shifted": sum(feature["shifted"] for feature in features),
        "features": features[:MOST_LISTED],
        "classes": [{"label": label, "share": [before, now]} for label, before, now in labels],
    }


def _features(model: Any, rows: Any) -> list[dict[str, Any]]:
    summary = model.summary
    if summary.quantiles is None:
        return []
    from scipy.stats import ks_2samp

    sides = [model.scaling.undo(np.asarray(side, np.float64)) for side in (summary.rows, rows)]
    found = []
    for name, a, b, edges in zip(model.schema.columns(), sides[0].T, sides[1].T, summary.quantiles.T, strict=True):
        p_value = float(ks_2samp(a, b).pvalue)
        medians = [float(edges[5]), float(np.median(b))]
        known: Mapping[str, Any] = {"name": name, "p_value": p_value, "psi": stability(a, b, edges), "median": medians}
        found.append({**known, "shifted": p_value < DOUBT / rows.shape[1]})
    return sorted(found, key=lambda one: (one["p_value"], -one["psi"]))
