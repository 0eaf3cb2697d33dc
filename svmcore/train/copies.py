"""From distinct rows back to the rows as they came: every copy of a row has its share of what the row has.

A copy's share is in proportion to its weight, and a row at its bound is copies at theirs. Bounds of copies are rounded
one by one, so they may miss the bound of their row by a last digit, which the certificate of the distinct rows does not
know; it is added to that.
"""

import dataclasses
import functools

import numpy as np

from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solution import Solution, Status
from svmcore.train.distinct import Distinct, shared

__all__ = ["Copies"]


@dataclasses.dataclass(frozen=True, eq=False)
class Copies:
    """The copies of distinct rows, and the C of a row of weight one for each code."""

    distinct: Distinct
    cost: Floats  # (codes,)

    @functools.cached_property
    def C(self) -> Floats:
        """C_i (m,) of the distinct rows."""
        total, cost = self.distinct.total, self.cost[self.distinct.codes]
        return np.multiply(cost, total, out=np.zeros(len(total)), where=total > 0)  # an infinite C of rows left out

    def bounds(self, copies: Floats) -> Floats:
        """C_i of the original rows at the places `copies` among those kept."""
        inverse, weights = self.distinct.merged.inverse, self.distinct.weights
        return self.cost[self.distinct.codes[inverse[copies]]] * weights[copies]

    @functools.cached_property
    def _lost(self) -> Floats:
        """By how much the bounds of its copies miss that of each distinct row (m,), summed in more digits."""
        inverse = self.distinct.merged.inverse
        order = np.argsort(inverse, kind="stable")
        if len(order) == len(self.C):
            return np.zeros(len(self.C))
        bounds = self.bounds(order).astype(np.longdouble)
        firsts = np.flatnonzero(np.append(True, np.diff(inverse[order]) > 0))
        lost, trained = np.zeros(len(self.C)), inverse[order[firsts]]
        with np.errstate(invalid="ignore"):  # of infinite bounds
            lost[trained] = np.abs(np.add.reduceat(bounds, firsts) - self.C[trained])
        return np.nan_to_num(lost, nan=0.0)

    def judged(self, qp: SignedQP, rows: Floats, solution: Solution, tol: float) -> Solution:
        """The solution on the distinct rows `rows`, with what its certificate does not know of their copies."""
        bounded = (solution.beta != 0) & ((solution.beta == qp.lo) | (solution.beta == qp.hi))
        lost = float(qp.at_variables(self._lost[rows])[bounded].sum())
        if lost == 0.0:
            return solution
        found = solution.certificate
        doubt = lost * float(np.abs(qp.diagonal).max())  # of an output
        box = np.maximum(np.abs(qp.lo), np.abs(qp.hi))
        steepest = float(box[np.isfinite(box)].sum()) + 0.5 * float(np.abs(solution.beta).sum())
        found = dataclasses.replace(
            found,
            uncertainty=found.uncertainty + 2.0 * doubt,
            bar=found.bar + doubt * steepest,
            infeasibility=found.infeasibility + lost,
        )
        doubtful = solution.status is Status.CONVERGED and not found.proves(tol)
        return dataclasses.replace(solution, certificate=found, status=Status.STALLED if doubtful else solution.status)

    def split(self, coef: Floats, scale: Floats, used: Floats) -> tuple[Floats, Floats, Floats]:
        """Coefficients (k, m) of distinct rows over their copies, divided by `scale` (k,).

        Returns
        -------
        (support, parts, vector)
            Original rows that are copies of the distinct rows `used`, their coefficients (k, s), and which one of
            `used` each is a copy of.
        """
        inverse = self.distinct.merged.inverse
        place = np.full(len(self.C), -1)
        place[used] = np.arange(len(used))
        copies = np.flatnonzero(place[inverse] >= 0)
        of = inverse[copies]
        parts = (coef / scale[:, None])[:, of]
        if len(copies) > len(used):
            parts = np.array([self._shares(*each, copies, of) for each in zip(coef, scale, strict=True)])
        return self.distinct.kept[copies], parts, place[of]

    def _shares(self, coef: Floats, scale: float, copies: Floats, of: Floats) -> Floats:
        """A row at its bound is copies at theirs, to the last bit; another one is shared by weight."""
        at_bound = np.abs(coef[of]) == self.C[of]
        bounds = np.sign(coef[of]) * self.bounds(copies) / scale
        return np.where(at_bound, bounds, shared(coef / scale, of, self.distinct.weights[copies]))
