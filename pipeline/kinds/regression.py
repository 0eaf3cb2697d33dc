"""Values: targets are float64 as they were written, and never classes."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline.kinds.base import Kind, Outputs, Tally, repeated
from svmcore.errors import InputError
from svmcore.model import Model, Target
from svmcore.tasks.base import Answers

__all__ = ["Regression", "Values"]

MOST_POINTS = 2000  # of the rows that a report shows
MOST_ERRORS = 25  # listed in a report, the worst first
BINS = 41
GRID = 240
NAMES = {
    "r2": "r2",
    "mae": "neg_mean_absolute_error",
    "rmse": "neg_root_mean_squared_error",
    "max_error": "neg_max_error",
}


class Values:
    """Targets of a source as float64."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._parts: list[NDArray[np.float64]] = []
        self._n = 0

    def append(self, y: NDArray[Any]) -> None:
        """Take the next targets (n,): numbers, or text that is one."""
        values = np.array([self._number(*each) for each in enumerate(y)]) if y.dtype.kind in "OUT" else None
        values = y.astype(np.float64) if values is None else values
        self._check(values)
        self._parts.append(values + 0.0)  # no negative zeros: equal targets are equal bytes
        self._n += len(values)

    def resolve(self) -> tuple[list[Any], NDArray[np.float64]]:
        """No classes, and the values (n,)."""
        return [], np.concatenate(self._parts) if self._parts else np.empty(0)

    def resolve_as(self, classes: Sequence[Any], url: str) -> NDArray[np.float64]:
        """The values (n,)."""
        return self.resolve()[1]

    def _number(self, at: int, value: Any) -> float:
        try:
            if isinstance(value, str) and "_" in value:
                raise ValueError
            return float(value)
        except (TypeError, ValueError):
            raise self._error(at, repr(value)) from None

    def _check(self, values: NDArray[np.float64]) -> None:
        if not np.isfinite(values).all():
            at = int(np.flatnonzero(~np.isfinite(values))[0])
            raise self._error(at, str(values[at]))

    def _error(self, at: int, value: str) -> InputError:
        return InputError(
            f"{self.url}: row {self._n + at + 1}: the target is {value}; regression needs finite numbers: "
            "fill or remove such rows, or name another column in data.label"
        )


class Regression(Kind):
    """Regression of one target."""

    answers: ClassVar[Answers] = "values"
    scores: ClassVar[tuple[str, ...]] = tuple(NAMES.values())
    examples: ClassVar[tuple[str, ...]] = (*NAMES.values(), "neg_mean_squared_error", "neg_median_absolute_error")
    column: ClassVar[str] = "value"

    def reader(self, url: str, text: bool, labelled: bool = True) -> Values:
        """Numbers, or text that is one."""
        return Values(url)

    def goals(self, targets: NDArray[Any], n_classes: int, scheme: str) -> Sequence[Target]:
        """The targets themselves."""
        return [Target(0, -1, np.asarray(targets, np.float64))]

    def label(self, goal: Target, classes: Sequence[Any]) -> str:
        """One program, of the values."""
        return "value"

    def losses(self, y: NDArray[Any], decision: NDArray[Any], epsilon: float) -> NDArray[Any]:
        """max(0, |y - f| - epsilon)."""
        return np.maximum(0.0, np.abs(y - decision) - epsilon)

    def predicted(self, model: Model, decision: NDArray[Any]) -> NDArray[Any]:
        """The decision values."""
        return decision[:, 0]

    def scored(self, names: Sequence[str], outputs: Outputs) -> dict[str, float | None]:
        """scikit-learn's, of values."""
        targets, decision, counts = outputs.targets, outputs.decision, outputs.counts
        from pipeline.kinds.scorers import Regressor, scores_of

        rows = repeated(counts, len(targets))
        return scores_of(names, Regressor(), decision[rows], targets[rows]) if len(rows) else dict.fromkeys(names)

    def trial(self, n_classes: int, scheme: str, probability: bool = False) -> tuple[Any, NDArray[Any], NDArray[Any]]:
        """Three values that are nearly right."""
        from pipeline.kinds.scorers import VALUES, Regressor

        return Regressor(), VALUES + 0.125, VALUES[:, 0]

    def evaluation(self, dataset: Any, model: Model, shown: tuple[Any, Any, Any]) -> dict[str, Any]:
        """Some of the rows with what is said of them, all residuals as a histogram, and f along a single feature."""
        y, decision, counts = shown
        f = decision[:, 0]
        keep = np.linspace(0, len(y) - 1, min(len(y), MOST_POINTS)).round().astype(int)
        first = np.argsort(-np.abs(y - f), kind="stable")[:MOST_ERRORS]
        worst = zip(dataset.named(first), y[first].tolist(), f[first].tolist(), strict=True)
        heights, edges = np.histogram(y - f, bins=BINS, weights=counts)
        return {
            "fit": {"true": y[keep].tolist(), "predicted": f[keep].tolist()},
            "errors": [name | {"label": t, "said": s, "by": abs(t - s)} for name, t, s in worst],
            "residuals": {"counts": heights.tolist(), "edges": edges.tolist()},
            "line": _line(dataset, model) if dataset.n_features == 1 and not dataset.sparse else None,
        }

    def score_slack(
        self, targets: NDArray[Any], decision: NDArray[Any], doubts: NDArray[Any], counts: NDArray[Any]
    ) -> dict[str, float]:
        """By the triangle inequality of each norm of the residuals; of r2 through the sum of their squares."""
        off, share = doubts[:, 0], counts / counts.sum()
        residual = np.abs(targets - decision[:, 0])
        spread = float(share @ (targets - share @ targets) ** 2)
        squares = float(share @ (2.0 * residual * off + off**2))
        return {
            NAMES["r2"]: squares / spread if spread > 0 else 0.0,
            NAMES["mae"]: float(share @ off),
            NAMES["rmse"]: float(np.sqrt(share @ off**2)),
            NAMES["max_error"]: float(off.max(initial=0.0)),
        }

    def tally(self, url: str, text: bool, classes: Sequence[Any], scheme: str) -> Tally:
        """The scores of regression."""
        return _Sums(url)


def _line(dataset: Any, model: Model) -> dict[str, Any]:
    """Training rows and f over their range, in raw units."""
    x = dataset.scaling.undo(np.asarray(dataset.X(), np.float64))[:, 0]
    keep = np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).round().astype(int)
    pad = 0.04 * (float(np.ptp(x)) or 1.0)
    grid = np.linspace(x.min() - pad, x.max() + pad, GRID)
    f = model.decision_function(dataset.scaling.apply(grid[:, None]))[:, 0]
    y = np.asarray(dataset.targets())
    return {"x": x[keep].tolist(), "y": y[keep].tolist(), "grid": grid.tolist(), "f": f.tolist()}


class _Sums:
    """Targets and values of all rows: a few bytes each."""

    def __init__(self, url: str) -> None:
        self.y = Values(url)
        self.f: list[NDArray[Any]] = []

    def add(self, y: NDArray[Any] | None, decision: NDArray[Any]) -> None:
        """Take a block; without targets it is not scored."""
        if y is not None:
            self.y.append(y)
            self.f.append(decision)

    def record(self) -> dict[str, Any]:
        """r2, mean absolute, root mean squared and largest error; None without targets."""
        if not self.f:
            return dict.fromkeys(NAMES)
        _, y = self.y.resolve()
        found = Regression().scored(tuple(NAMES.values()), Outputs(y, np.concatenate(self.f)))
        return {short: _plain(name, found[name]) for short, name in NAMES.items()}


def _plain(name: str, value: float | None) -> float | None:
    """An error as it is: scikit-learn's scores of errors are negative, so that larger is better."""
    return -value if value is not None and name.startswith("neg_") else value
