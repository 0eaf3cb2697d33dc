"""The distinct rows of a training set: identical (x, label or targets) rows are one, whose weight is the sum of theirs.

They come in an order that depends on content alone, so a weight of two gives the same bits as the row twice, in any
order of the rows. Rows with a weight of 0 or less are left out, as LIBSVM does.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from svmcore.errors import InvalidProblem
from svmcore.kernels import Precomputed
from svmcore.kernels.base import Kernel
from svmcore.passes.matrix.gather import part_of
from svmcore.points import Floats, Rows
from svmcore.points.identical import ENTRIES, Merged, entries_hash, merge_rows
from svmcore.points.taken import taken
from svmcore.runtime.memory import empty

__all__ = ["Distinct", "by_code", "distinct_rows", "merge_precomputed", "shared"]

TELLING = 8  # columns of a precomputed K that are looked at before all of it: hardly ever alike in two rows


@dataclasses.dataclass(frozen=True, eq=False)
class Distinct:
    """The distinct rows of positive weight, in canonical order."""

    kept: Floats  # (n_kept,) original rows of positive weight
    merged: Merged  # of the kept rows
    weights: Floats  # (n_kept,)
    total: Floats  # (m,) weight of each distinct row
    codes: Floats  # (m,)
    given: Rows  # (n_kept, p) as they came, or the (m, m) part of a precomputed K
    at: Floats | None = None  # (m,) which of the given rows the distinct ones are; None if they are all
    as_given: bool = False  # whether they come in the order of the given rows, to be read in sequence

    @functools.cached_property
    def goals(self) -> dict[Any, Any]:
        """Targets of programs that were made of the codes, by how."""
        return {}

    @functools.cached_property
    def rows(self) -> Rows:
        """The distinct rows (m, p): a copy, which a linear machine of many rows does without."""
        return self.given if self.at is None else self.given[self.at]

    def parts(self) -> Iterator[Rows]:
        """The distinct rows in order, about four megabytes at a time: nobody holds a copy of them all."""
        step = max(1, (1 << 19) // max(1, self.given.shape[1]))
        at = np.arange(self.given.shape[0]) if self.at is None else self.at
        return (taken(self.given, at[start : start + step]) for start in range(0, len(at), step))

    def take(self, rows: Floats) -> Rows:
        """Some of the distinct rows, a copy in memory that was touched before, if there is any."""
        rows = rows if self.at is None else self.at[rows]
        if not isinstance(self.given, np.ndarray):
            return self.given[rows]
        out = empty((len(rows), *self.given.shape[1:]), self.given.dtype)
        return np.take(self.given, rows, axis=0, out=out, mode="clip")  # any other mode copies twice

    def variance(self, kernel: Kernel) -> float:
        """Variance of all entries of the rows, each row counted with its weight: what `gamma: scale` divides by."""
        return _variance(kernel, self)

    def at_distinct(self, values: Floats) -> Floats:
        """Sums (k, m) over the copies of each distinct row of values (k, n) at the original rows."""
        m = len(self.total)
        return np.array([np.bincount(self.merged.inverse, weights=row[self.kept], minlength=m) for row in values])


def distinct_rows(
    kernel: Kernel, X: Rows, codes: Floats, weights: Floats | None, grouped: bool, as_given: bool = False
) -> Distinct:
    """Merge identical rows of positive weight.

    `grouped` puts each class together, so that a pair is two slices. `as_given` leaves them in the order of `X`: a
    linear machine of many rows reads them in sequence then, and copies none.
    """
    weights = np.ones(len(codes)) if weights is None else np.asarray(weights, dtype=np.float64)
    kept = np.flatnonzero(weights > 0)
    whole = len(kept) == len(codes)
    if not len(kept):
        raise InvalidProblem("Invalid input - all samples have zero or negative weights.")
    precomputed = isinstance(kernel, Precomputed)
    if not whole:
        codes, weights = codes[kept], weights[kept]
        X = part_of(X, kept, kept) if precomputed else X[kept]
    merged = merge_precomputed(X, codes) if precomputed else merge_rows(X, codes)
    if grouped:
        merged = by_code(merged, codes)
    if as_given:
        merged = _reordered(merged, np.argsort(merged.first))
    given, at = (part_of(X, merged.first, merged.first), None) if precomputed else (X, merged.first)
    total = np.bincount(merged.inverse, weights=weights, minlength=len(merged.first))
    return Distinct(kept, merged, weights, total, codes[merged.first], given, at, as_given)


def by_code(merged: Merged, codes: Floats) -> Merged:
    """The distinct rows with those of each code (n,) together: a pair of classes is two slices, a fold is one."""
    return _reordered(merged, np.argsort(codes[merged.first], kind="stable"))


def _reordered(merged: Merged, order: Floats) -> Merged:
    """The distinct rows in another order (m,)."""
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return Merged(merged.first[order], merged.counts[order], position[merged.inverse])


def merge_precomputed(K: Floats, codes: Floats) -> Merged:
    """Merge identical rows of a precomputed K (n, n); their order depends on the values of K alone.

    Copies of a row are copies of a column too, so content is compared on the distinct rows and columns, and a row is
    ranked by the hash of its entries in any order.
    """
    first, inverse, counts = np.unique(_first_alike(K, codes), return_inverse=True, return_counts=True)
    copies = np.flatnonzero(counts[inverse] > 1)
    if not _equal_columns(K, copies, first[inverse[copies]]):
        first = inverse = np.arange(len(K))
        return Merged(first, np.ones(len(K), dtype=np.int64), inverse)
    counted = np.zeros(len(K), np.bool_)
    counted[first] = True
    rank = np.lexsort((codes[first], entries_hash(K, counted)[first]))
    return _reordered(Merged(first, counts, inverse), rank)


def _equal_columns(K: Floats, some: Floats, others: Floats) -> bool:
    """Whether the columns `some` of K are its columns `others` one by one, looked at a few megabytes at a time."""
    step = max(1, ENTRIES // max(1, len(some)))
    parts = (K[start : start + step] for start in range(0, len(K), step))
    return all(np.array_equal(np.take(part, some, axis=1), np.take(part, others, axis=1)) for part in parts)


def _first_alike(K: Floats, codes: Floats) -> Floats:
    """The first row (n,) like each row in entries and code: one that is alone in a few columns is read no further."""
    found = np.arange(len(K))
    few = merge_rows(K[:, :: max(1, len(K) // TELLING)], codes)
    alike = np.flatnonzero(few.counts[few.inverse] > 1)
    merged = merge_rows(K[alike], codes[alike])
    found[alike] = alike[merged.first[merged.inverse]]
    return found


def _variance(kernel: Kernel, distinct: Distinct) -> float:
    """Variance of all entries of the rows, each row counted with its weight: what `gamma: scale` divides by."""
    if isinstance(kernel, Precomputed) or "scale" not in repr(kernel):
        return 1.0
    weight = distinct.total
    n_entries = float(weight.sum()) * distinct.given.shape[1]

    def mean_of(of_rows: Callable[[Rows], Floats]) -> float:
        each = [np.asarray(of_rows(part)).ravel() for part in distinct.parts()]
        return float(weight @ np.concatenate(each)) / n_entries

    if not hasattr(distinct.given, "tocsr"):
        mean = mean_of(lambda X: X.sum(axis=1, dtype=np.float64))
        return mean_of(lambda X: _squares(X - np.float64(mean)))
    mean = mean_of(lambda X: X.astype(np.float64).sum(axis=1))
    return mean_of(lambda X: X.astype(np.float64).power(2).sum(axis=1)) - mean**2


def _squares(X: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", X, X))


def shared(values: Floats, of: Floats, weights: Floats) -> Floats:
    """Parts (n,) of values (m,) for copies of number `of` (n,), in proportion to their weights; they add up exactly.

    Parts are multiples of the last digit of their value, and the heaviest copy gets what is left: a model of the copies
    has the very outputs of the model of the distinct rows.

    >>> shared(np.array([1.0, 0.3]), np.array([0, 0, 0, 1]), np.ones(4))
    array([0.33333333, 0.33333333, 0.33333333, 0.3       ])
    """
    m, sizes = len(values), np.abs(values)
    share = weights / np.bincount(of, weights=weights, minlength=m)[of]
    digit = np.spacing(sizes)[of]
    parts = np.floor(sizes[of] * share / digit) * digit
    order = np.lexsort((weights, of))
    heaviest = order[np.append(np.diff(of[order]) > 0, True)]
    parts[heaviest] += (sizes - np.bincount(of, weights=parts, minlength=m))[of[heaviest]]
    return np.asarray(np.sign(values)[of] * parts)
