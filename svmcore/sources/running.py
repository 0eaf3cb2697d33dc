"""K coef of coefficients that change: a solver's sums, which are its proof's too."""

import numpy as np

from svmcore.points import Floats
from svmcore.sources.base import CHUNK, ROUNDED, Served, Source

__all__ = ["COLUMNS", "RunningProduct", "served_after"]

COLUMNS = 16 * CHUNK  # that are looked up at a time


class RunningProduct:
    """K times what has changed of coefficients `coef` (n,), on a source whose values are never negative.

    What has a plus is in one sum, what has a minus in another: that costs no more than one sum of both, and bounds what
    rounding did to it.
    """

    def __init__(self, source: Source, coef: Floats) -> None:
        self.source, self.since, self.coef = source, coef.copy(), coef.copy()
        self.up, self.down = np.zeros((2, source.n))
        self.length, self.terms = 0.0, 0.0

    def set(self, idx: Floats, coef: Floats) -> Floats:
        """Set the coefficients `idx` (q,) to `coef` (q,); what that adds to the product (n,).

        It is formed of this change alone, so that rounding is of its size: that of all changes may be far larger than
        scores that a solver wants to tell apart.
        """
        change = coef - self.coef[idx]
        self.coef[idx] = coef
        up, down = self._by_sign(idx, change)
        self.up += up
        self.down += down
        self.length += float(np.abs(change).sum())
        self.terms += self.source.terms(len(idx)) + 4.0
        return up - down

    def _by_sign(self, idx: Floats, change: Floats) -> tuple[Floats, Floats]:
        """Columns `idx` times the positive of `change`, and times what is negative, without its sign: (n,) each."""
        if len(idx) <= self.source.capacity:
            return self.source.by_sign(idx, change, COLUMNS)
        # a cache would hold none of them until the next round: nothing but their sum is formed
        values, sizes = self.source.outputs(np.bincount(idx, weights=change, minlength=self.source.n))
        return 0.5 * (sizes + values), 0.5 * (sizes - values)

    @property
    def values(self) -> Floats:
        """The product (n,)."""
        return self.up - self.down

    @property
    def sizes(self) -> Floats:
        """No less than the sizes of all that was added, (n,)."""
        return self.up + self.down

    def served(self, begun: Served) -> Served | None:
        """K coef of the coefficients as they are now, on top of where it had `begun`; None if it began elsewhere."""
        if not np.array_equal(begun.coef, self.since):
            return None
        error = begun.error + ROUNDED * begun.before
        return Served(self.coef, begun.values + self.values, self.sizes, self.length, self.terms, error, begun.before)


def served_after(source: Source, before: Served, rows: Floats, product: RunningProduct) -> Served:
    """K coef (n,) after the coefficients at `rows` have moved: there by the sums of who moved them, else computed.

    The `product` is of K[rows, rows] and began where K coef was served `before`.
    """
    coef, others = before.coef.copy(), np.ones(source.n, dtype=bool)
    coef[rows], others[rows] = product.coef, False
    change, elsewhere = coef - before.coef, np.flatnonzero(others)
    anew = np.count_nonzero(change) >= np.count_nonzero(coef)
    added = coef if anew else change
    values, sizes = before.values.copy(), before.sizes.copy()
    if anew:
        values[elsewhere] = sizes[elsewhere] = 0.0
    for sums, more in zip((values, sizes), source.outputs_at(added, elsewhere), strict=True):
        sums[elsewhere] += more
    values[rows] += product.values
    sizes[rows] += product.sizes
    length = before.length + max(product.length, float(np.abs(added).sum()))
    terms = before.terms + max(product.terms, source.terms(int(np.count_nonzero(added))))
    return Served(coef, values, sizes, length, terms, before.error, before.before)
