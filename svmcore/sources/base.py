"""What a source of kernel columns can do: the columns of one symmetric K (n, n), without labels.

K is served, never LIBSVM's y_i y_j K_ij, so that every class, fold and C shares one source. A solver asks for
`lookup(idx)`, rows of some matrix that hold the columns, and copies nothing. What not every source can do is declared
here and asked for by name, never guessed.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from svmcore.errors import Unsupported
from svmcore.passes.matrix.columns import (
    add_columns,
    add_columns_and_sizes,
    add_columns_by_sign,
    add_columns_compensated,
)
from svmcore.points import Floats, Rows

if TYPE_CHECKING:
    from svmcore.kernels.exact import ExactKernel

__all__ = [
    "CHUNK",
    "ROUNDED",
    "Factor",
    "Lookup",
    "Served",
    "Source",
    "add_weighted",
    "lookups",
    "matvec",
    "matvec_and_sizes",
    "matvec_compensated",
    "served",
]

CHUNK = 256  # columns fetched together where nobody else says how many
ROUNDED = 2.0**-50  # of its summands, what adding to a sum costs at most


class Lookup(NamedTuple):
    """Columns where they are: column idx[r] is row `rows[r]` of `matrix`, valid until the next lookup."""

    matrix: Floats
    rows: Floats


class Factor(NamedTuple):
    """G (n, r) with K = GG': the `rows` number `at` (n,), or all, as they came, dense or CSR, less `centre` (r,)."""

    rows: Rows
    centre: Floats
    at: Floats | None = None


class Served(NamedTuple):
    """K coef of the values that a source serves, in one sum or in several that were added up.

    Attributes
    ----------
    coef, values
        (n,) each.
    sizes
        (n,) no less than abs(K) abs(coef): the sum over all that was added.
    length
        The same of ||coef||_1.
    terms
        The longest chain of additions.
    error, before
        Where the sums go on from values that were known: a bound of the errors of these, and no less than
        abs(K) abs(coef) of theirs, which `sizes` and `length` leave out.
    """

    coef: Floats
    values: Floats
    sizes: Floats
    length: float
    terms: float
    error: float = 0.0
    before: float = 0.0


class Source(ABC):
    """Columns of one symmetric K (n, n).

    Attributes
    ----------
    n, dtype
        Number of rows and columns; float32 or float64.
    psd
        Whether K is known to be positive semi-definite: only then primal and dual bound the optimum.
    is_positive
        Whether no value of K is below 0.
    exact
        Values of K in float64 from the rows, for proofs; None where the served values are the K that is meant.
    keeps
        Whether `lookup` finds columns again without computing them.
    can_take
        Whether `take` gives the source of some rows alone.
    repeats
        Whether a program that is solved again gives the same bits.
    concurrent
        Whether columns may be asked for on several threads at the same time.
    at_once
        How many programs are best solved at a time, on threads: 1 where lookups are not for several threads.
    shares
        How many programs that leave rows out may be solved at a time, each with a share of the memory for columns; 0
        where all ask this source.
    shares_passes
        Whether passes over all rows are made for several programs at once, so that they cost less than columns.
    computes_anew
        Whether a value is computed as fast as memory gives it back: then sums of columns store none of them, and the
        values of a square are computed by themselves.
    """

    n: int
    dtype: np.dtype
    psd: bool = True
    is_positive: bool = False
    exact: "ExactKernel | None" = None
    keeps: ClassVar[bool] = False
    can_take: ClassVar[bool] = False
    repeats: ClassVar[bool] = True
    concurrent: ClassVar[bool] = False
    at_once: int = 1
    shares: int = 0
    shares_passes: ClassVar[bool] = False
    computes_anew: bool = False

    @abstractmethod
    def diagonal(self) -> Floats:
        """K_ii (n,), float64."""

    @abstractmethod
    def columns(self, idx: Floats) -> Floats:
        """(len(idx), n), C-contiguous; row r is column idx[r]."""

    def fill(self, idx: Floats, out: Floats, rows: Floats | None = None) -> Floats:
        """Write columns `idx` to the rows of `out`, or to those `rows` (len(idx),) of it, and return it."""
        out[... if rows is None else rows] = self.columns(np.asarray(idx))
        return out

    def lookup(self, idx: Floats) -> Lookup:
        """Columns `idx`, at most `capacity` of them, without copying where the source keeps them."""
        return Lookup(self.columns(np.asarray(idx)), np.arange(len(idx)))

    @property
    def capacity(self) -> int:
        """How many columns may be looked up at once."""
        return self.n

    def leave(self, idx: Floats) -> None:  # noqa: B027  -- most sources keep nothing
        """The columns `idx` are of no coefficient any more: they will hardly be asked for again."""

    def missing(self, idx: Floats) -> int:
        """How many of the columns `idx` a lookup would compute; 0 where nobody counts them."""
        return 0

    @property
    def n_columns(self) -> int:
        """How many columns there are: n, but for a source of some rows of K alone."""
        return self.n

    def state(self, qp: Any, beta: Floats, score: Floats | None) -> Any:
        """The state of a program at `beta` (m,), where its vectors are not in this process; else None."""
        return None

    def outputs(self, coef: Floats) -> tuple[Floats, Floats]:
        """K @ coef and abs(K) @ abs(coef), both (n,) float64, of the values that are served."""
        return matvec_and_sizes(self, coef)

    def outputs_at(self, coef: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """`outputs` at some rows alone, both (len(rows),)."""
        values, sizes = self.outputs(coef)
        return values[rows], sizes[rows]

    def by_sign(self, idx: Floats, weights: Floats, most: int = CHUNK) -> tuple[Floats, Floats]:
        """Columns `idx` (q,) of K >= 0 times the positive `weights` (q,), and times the sizes of the others: (n,) each.

        At most so many columns are looked up at a time.
        """
        up, down = np.zeros((2, self.n))
        for part, matrix, rows in lookups(self, idx, most):
            add_columns_by_sign(matrix, rows, weights[part], up, down)
        return up, down

    def square(
        self, idx: Floats, others: Floats, out: Floats, at: Floats, shift: float = 0.0, unit: float | None = None
    ) -> None:
        """out[at[r], c] = K[others[c], idx[r]] + shift, or in whole numbers of a unit, where it `computes_anew`.

        Raises
        ------
        Unsupported
            Elsewhere.
        """
        raise Unsupported(f"{type(self).__name__} has whole columns, and no values by themselves")

    def terms(self, count: int) -> float:
        """The longest chain of additions in `outputs` of so many columns."""
        parts = -(-count // min(CHUNK, self.capacity))
        together = 8.0 if self.is_positive else 4.0  # columns; those that a part has over are added one by one
        return min(count, count / together + (together - 1.0) * parts) + 8.0

    @property
    def scratch_bytes(self) -> int | None:
        """What the square of a working set may take beside the columns; None for no limit."""
        return None

    @property
    def whole(self) -> Floats | None:
        """K itself (n, n), where it is in memory."""
        return None

    @property
    def rounding(self) -> Any:
        """Bound of what served values are off from the exact ones: |K' - K| <= relative |K| + absolute."""
        return None

    def take(self, rows: Floats) -> "Source":
        """The same K on the rows `rows` alone.

        Raises
        ------
        Unsupported
            Unless `can_take`.
        """
        raise Unsupported(f"{type(self).__name__} cannot serve a part of its rows")

    def finer(self) -> "Source | None":
        """The same K in float64, or None if there is none."""
        return None

    @property
    def rank(self) -> int | None:
        """Number of columns r of `factor`, without making it; None without one."""
        return None

    def factor(self) -> Factor | None:
        """G (n, r) with K = GG' where that is known, nothing of it copied: the rows of a linear kernel."""
        return None

    def direct_outputs(self, coef: Floats) -> tuple[Floats, Floats] | None:
        """K coef (n,) in float64 and a bound (n,) of its errors, where that needs no columns."""
        return None

    def close(self) -> None:  # noqa: B027  -- most sources hold nothing elsewhere
        """Give back what is held elsewhere: no program is solved on it any more."""

    def offset(self, coef: Floats) -> float:
        """What the bias of the K that is meant is below that of the K that is served, at coefficients `coef` (n,)."""
        return 0.0


def lookups(source: Source, idx: Floats, most: int) -> Iterator[tuple[slice, Floats, Floats]]:
    """Look the columns `idx` up, at most so many of them and as many as the source can at a time: (which, `Lookup`)."""
    step = min(most, source.capacity)
    for start in range(0, len(idx), step):
        part = slice(start, start + step)
        yield part, *source.lookup(idx[part])


def matvec(source: Source, coef: Floats) -> Floats:
    """K @ coef (n,), accumulated in float64 over the columns where coef is not zero."""
    out, support = np.zeros(source.n), np.flatnonzero(coef)
    add_weighted(source, support, coef[support], out)
    return out


def add_weighted(
    source: Source,
    idx: Floats,
    weights: Floats,
    out: Floats,
    most: int = CHUNK,
    spans: Sequence[tuple[int, int] | None] = (None,),
) -> None:
    """Add the columns `idx` (q,) times `weights` (q,) to `out` (n,), at most so many of them at a time.

    Of an `out` of which some `spans` alone are asked for, the others may be left as they are.
    """
    if source.computes_anew:
        up, down = source.by_sign(idx, weights)
        out += up - down
        return
    for part, matrix, rows in lookups(source, idx, most):
        for span in spans:
            add_columns(matrix, rows, weights[part], out, span)


def matvec_and_sizes(source: Source, coef: Floats) -> tuple[Floats, Floats]:
    """K @ coef and abs(K) @ abs(coef), both (n,) float64: the second bounds what rounding can do to the first."""
    if source.is_positive:  # two sums of values of one sign cost half of a sum and its sizes
        support = np.flatnonzero(coef)
        up, down = source.by_sign(support, coef[support])
        return up - down, up + down
    out, sizes = np.zeros(source.n), np.zeros(source.n)
    for matrix, rows, weights in _used_columns(source, coef):
        add_columns_and_sizes(matrix, rows, weights, out, sizes)
    return out, sizes


def served(source: Source, coef: Floats, before: Served | None = None) -> Served:
    """K coef (n,) as served: from what was served `before`, where fewer coefficients have changed than are not 0."""
    change = coef if before is None else coef - before.coef
    if before is not None and not change.any():
        return before
    if before is None or np.count_nonzero(change) >= np.count_nonzero(coef):
        return _served(source, coef, coef)
    added = _served(source, coef, change)
    return added._replace(
        values=before.values + added.values,
        sizes=before.sizes + added.sizes,
        length=before.length + added.length,
        terms=before.terms + added.terms,
        error=before.error,
        before=before.before,
    )


def _served(source: Source, coef: Floats, added: Floats) -> Served:
    terms = source.terms(int(np.count_nonzero(added)))
    return Served(coef.copy(), *source.outputs(added), float(np.abs(added).sum()), terms)


def matvec_compensated(source: Source, coef: Floats) -> Floats:
    """K @ coef (n,) as if summed in twice the digits: products are rounded once, their sum hardly."""
    out, rest = np.zeros(source.n), np.zeros(source.n)
    for matrix, rows, weights in _used_columns(source, coef):
        add_columns_compensated(matrix, rows, weights, out, rest)
    return out + rest


def _used_columns(source: Source, coef: Floats):  # type: ignore[no-untyped-def]
    support = np.flatnonzero(coef)
    for part, matrix, rows in lookups(source, support, CHUNK):
        yield matrix, rows, coef[support[part]]
