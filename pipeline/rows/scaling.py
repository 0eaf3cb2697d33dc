"""Column statistics in one pass over row blocks, and the scaling x' = (x - shift) * factor fitted on them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from svmcore.errors import InputError
from svmcore.points.lattice import LEVELS

__all__ = ["ColumnStats", "Scaling", "fit_scaling"]

Vector = NDArray[np.float64]
FLOAT32_LOSS = 1e-6  # of a column's range: what float32 may lose before a dataset is kept in float64


@dataclass(frozen=True, eq=False)
class Scaling:
    """x' = (x - shift) * factor, column by column.

    Attributes
    ----------
    kind
        none, standard, minmax, maxabs or number, by which `shift` and `factor` were fitted.
    shift, factor
        (p,) float64; the shift of sparse data is zero.
    """

    kind: str
    shift: Vector
    factor: Vector

    def apply(self, X: Any) -> Any:
        """Return scaled rows (n, p) in float64; CSR stays CSR, unless a shift makes its zeros other numbers.

        >>> Scaling("minmax", np.array([1.0]), np.array([0.5])).apply(np.array([[1.0], [3.0]])).tolist()
        [[0.0], [1.0]]
        """
        self._check_width(X)
        if sparse.issparse(X) and self.shift.any():
            X = X.toarray()
        if sparse.issparse(X):
            X = sparse.csr_array(X).astype(np.float64, copy=True)
            if self.kind != "none":
                X.data *= self.factor[X.indices]
            return X
        X = np.array(X, dtype=np.float64)
        if self.kind == "none":
            return X
        if self.shift.any():
            X -= self.shift
        X *= self.factor
        return X

    def undo(self, X: Any) -> Any:
        """Return rows (n, p) in their raw units, the inverse of `apply`."""
        self._check_width(X)
        if sparse.issparse(X):
            X = sparse.csr_array(X).astype(np.float64, copy=True)
            X.data /= self.factor[X.indices]
            return X
        return np.asarray(X, np.float64) / self.factor + self.shift

    def _check_width(self, X: Any) -> None:
        if X.shape[1] != len(self.factor):
            raise InputError(f"rows with {X.shape[1]} features were given, the training data has {len(self.factor)}")


class ColumnStats:
    """Count, mean, sum of squared deviations, minimum and maximum of each of p columns, over blocks of rows.

    Dense blocks are merged by Chan's formula; CSR columns take their zeros into account without holding them. `whole`
    is whether every value is a whole number.
    """

    def __init__(self, n_features: int) -> None:
        self.n, self.whole = 0, True
        self.mean = np.zeros(n_features)
        self.squares = np.zeros(n_features)
        self.least = np.full(n_features, np.inf)
        self.largest = np.full(n_features, -np.inf)

    def add(self, X: Any) -> None:
        """Take rows (m, p)."""
        m = X.shape[0]
        if not m:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # `fit_scaling` refuses what overflows
            mean, squares, least, largest = _csr_moments(X) if sparse.issparse(X) else _dense_moments(X)
            total = self.n + m
            difference = mean - self.mean
            self.squares += squares + difference**2 * (self.n * m / total)
            self.mean += difference * (m / total)
        self.least = np.minimum(self.least, least)
        self.largest = np.maximum(self.largest, largest)
        self.n, self.whole = total, self.whole and _are_whole(X)

    @property
    def variance(self) -> Vector:
        """Population variance of each column (p,)."""
        return self.squares / self.n

    @property
    def largest_magnitude(self) -> Vector:
        """Largest absolute value of each column (p,)."""
        return np.maximum(np.abs(self.least), np.abs(self.largest))

    def total_variance(self, scaling: Scaling) -> float:
        """Variance over all n p entries of the scaled rows, scikit-learn's X.var()."""
        means = (self.mean - scaling.shift) * scaling.factor
        return float((self.variance * scaling.factor**2).mean() + means.var())

    def may_lose(self, scaling: Scaling) -> NDArray[np.bool_]:
        """Columns (p,) of which float32 could lose more than FLOAT32_LOSS of the range, by their bounds alone."""
        ends = np.stack(
            [(self.least - scaling.shift) * scaling.factor, (self.largest - scaling.shift) * scaling.factor]
        )
        worst = np.abs(ends).max(axis=0) * 2.0**-24
        return (self.largest > self.least) & ((worst > FLOAT32_LOSS * (ends[1] - ends[0])) | (worst > 2.0**103))

    def is_rounded(self, scaling: Scaling) -> bool:
        """Whether float32 would take rows of bytes off their lattice: whole numbers times one factor, as pixels / 255.

        In float64 they stay on it, and proofs have exact products (`svmcore.points.lattice`).
        """
        varies = self.largest > self.least
        if not (self.whole and varies.any() and np.ptp(scaling.factor[varies]) == 0.0):
            return False
        least, largest = self.least[varies].min(), self.largest[varies].max()
        if largest - least > LEVELS:
            return False
        raw, shifts = np.arange(least, largest + 1.0), np.unique(scaling.shift[varies])
        scaled = (raw[:, None] - shifts) * scaling.factor[varies][0]
        return bool((scaled != scaled.astype(np.float32)).any())

    def step_of_bytes(self, scaling: Scaling) -> float | None:
        """The number that bytes are multiplied by, where all rows are such and one number scales them; else None."""
        few = self.least.min() >= 0.0 and self.largest.max() <= LEVELS
        return float(scaling.factor[0]) if self.whole and few and scaling.kind == "number" else None


def _are_whole(X: Any) -> bool:
    values = X.data if sparse.issparse(X) else X
    return bool((values == np.rint(values)).all())


def _dense_moments(X: NDArray[Any]) -> tuple[Vector, Vector, Vector, Vector]:
    mean = X.mean(axis=0, dtype=np.float64)
    centred = X - mean
    return mean, np.einsum("ij,ij->j", centred, centred), X.min(axis=0), X.max(axis=0)


def _csr_moments(X: Any) -> tuple[Vector, Vector, Vector, Vector]:
    m, p = X.shape
    stored = np.bincount(X.indices, minlength=p)
    mean = np.bincount(X.indices, X.data, minlength=p) / m
    deviations = X.data - mean[X.indices]
    squares = np.bincount(X.indices, deviations**2, minlength=p) + (m - stored) * mean**2
    least, largest = np.where(stored < m, 0.0, np.inf), np.where(stored < m, 0.0, -np.inf)
    np.minimum.at(least, X.indices, X.data)
    np.maximum.at(largest, X.indices, X.data)
    return mean, squares, least, largest


def fit_scaling(kind: str | float, stats: ColumnStats, is_sparse: bool) -> Scaling:
    """Fit a scaling to the statistics of the training rows; a constant column is never divided by zero.

    Raises
    ------
    InputError
        For a scaling that would fill in the zeros of sparse data, or columns too wide for float64.
    """
    p = len(stats.mean)
    zero, one = np.zeros(p), np.ones(p)
    if is_sparse and kind in ("standard", "minmax"):
        raise InputError(
            f"data.scale {kind} would fill in the zeros of sparse data; accepted: none, maxabs or a number"
        )
    if not np.isfinite(stats.squares).all():
        column = int(np.flatnonzero(~np.isfinite(stats.squares))[0])
        raise InputError(f"column {column} (counted from 0) has values too large to square; rescale it in the source")
    varies = stats.largest > stats.least
    if kind == "standard":
        return Scaling("standard", stats.mean.copy(), _inverse(np.sqrt(stats.variance), varies))
    if kind == "minmax":
        return Scaling("minmax", stats.least.copy(), _inverse(stats.largest - stats.least, varies))
    if kind == "maxabs":
        return Scaling("maxabs", zero, _inverse(stats.largest_magnitude, stats.largest_magnitude > 0))
    return Scaling("none", zero, one) if isinstance(kind, str) else Scaling("number", zero, one / kind)


def _inverse(spread: Vector, usable: NDArray[np.bool_]) -> Vector:
    """1 / spread, and 1 where a column does not vary."""
    inverse = np.divide(1.0, spread, out=np.ones_like(spread), where=usable & (spread > 0))
    return np.where(np.isfinite(inverse), inverse, 1.0)
