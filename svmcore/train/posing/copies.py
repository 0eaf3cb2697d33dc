"""From distinct rows back to the rows as they came: every copy of a row has its share of what the row has.

A copy's share is in proportion to its weight, and a row at its bound is copies at theirs. Bounds of copies are rounded
one by one, so they may miss the bound of their row by a last digit, which the certificate of the distinct rows does not
know; it is added to that.
"""

import dataclasses
import functools

import numpy as np

from svmcore.certificate import Certificate, evaluate
from svmcore.passes.proof.exact_sums import beyond_bounds
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solution import Solution, Status
from svmcore.sources.base import matvec_and_sizes
from svmcore.train.posing.distinct import Distinct, shared

__all__ = ["Copies"]

EPS = float(np.finfo(np.float64).eps)


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
    def _missed(self) -> Floats:
        """What the bounds of its copies come to beyond that of each distinct row (m,), rounded once."""
        inverse = self.distinct.merged.inverse
        if len(inverse) == len(self.C):
            return np.zeros(len(inverse))
        weights, cost = self.distinct.weights, self.cost[self.distinct.codes]
        return beyond_bounds(cost[inverse] * weights, inverse, self.C)

    @functools.cached_property
    def misses(self) -> bool:
        """Whether bounds of any copies miss that of their row."""
        return bool(self._missed.any())

    def judged(self, qp: SignedQP, rows: Floats, solution: Solution, tol: float) -> Solution:
        """The solution on the distinct rows `rows`, with what its certificate does not know of their copies."""
        if not self.misses:
            return solution
        at_bound = (solution.beta != 0) & ((solution.beta == qp.lo) | (solution.beta == qp.hi))
        missed = np.where(at_bound, np.sign(solution.beta) * qp.at_variables(self._missed[rows]), 0.0)
        if not missed.any():
            return solution
        found = _doubted(qp, solution, missed) if qp.source.psd else None
        if found is None or (solution.status is Status.CONVERGED and not found.proves(tol)):
            found = _moved(qp, solution, missed)
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
        parts = coef.take(of, axis=1)
        parts /= scale[:, None]
        several = np.flatnonzero(self.distinct.merged.counts[of] > 1)
        for k in np.flatnonzero(parts[:, several].any(axis=1)):
            parts[k, several] = self._shares(coef[k], scale[k], copies[several], of[several])
        return self.distinct.kept[copies], parts, place[of]

    def _shares(self, coef: Floats, scale: float, copies: Floats, of: Floats) -> Floats:
        """A row at its bound is copies at theirs, to the last bit; another one is shared by weight."""
        own, at_bound = coef[of], np.abs(coef[of]) == self.C[of]
        parts = np.where(at_bound, np.sign(own) * self.bounds(copies), own) / scale
        free = np.flatnonzero(~at_bound)
        if len(free):
            parts[free] = shared(coef / scale, of[free], self.distinct.weights[copies[free]])
        return np.asarray(parts)


def _doubted(qp: SignedQP, solution: Solution, missed: Floats) -> Certificate:
    """The certificate of beta + `missed` (m,), by what they can change at most where abs(K) <= its diagonal."""
    found, lost = solution.certificate, float(np.abs(missed).sum())
    doubt = lost * float(np.abs(qp.diagonal).max())  # of an output
    box = np.maximum(np.abs(qp.lo), np.abs(qp.hi))
    steepest = float(box[np.isfinite(box)].sum()) + 0.5 * float(np.abs(solution.beta).sum())
    return _wider(found, 2.0 * doubt, doubt * steepest, lost)


def _moved(qp: SignedQP, solution: Solution, missed: Floats) -> Certificate:
    """The same by the outputs K `missed` (n,), less their middle: a multiplier takes up what all outputs share."""
    found, lost, coef = solution.certificate, float(np.abs(missed).sum()), qp.at_rows(missed)
    outputs = solution.decision - (float(solution.multipliers.mean()) if len(solution.multipliers) else 0.0)
    product, sizes = matvec_and_sizes(qp.source, coef)
    change = product + qp.shift * coef.sum()
    about = float(np.median(change[qp.at_rows(solution.beta) != 0])) if qp.groups.sums == (0.0,) else 0.0
    errors = np.abs(change - about) + EPS * (np.abs(solution.decision) + np.abs(outputs)) + _uncertain(qp, lost, sizes)
    doubt = evaluate(qp, solution.beta, known=(outputs, errors)).certificate
    objectives = abs(float(coef @ outputs)) + 0.5 * abs(float(coef @ change)) + abs(float(qp.p @ missed))
    return _wider(found, doubt.uncertainty, doubt.bar + objectives, lost)


def _uncertain(qp: SignedQP, lost: float, sizes: Floats) -> Floats:
    """Bound (n,) of the errors of the outputs of coefficients with sum `lost` and `sizes` (n,): of values and sums."""
    summed, rounding = EPS * qp.source.n * sizes, qp.source.rounding
    return summed if rounding is None else summed + rounding.relative * sizes + rounding.absolute * lost


def _wider(found: Certificate, uncertainty: float, bar: float, lost: float) -> Certificate:
    return dataclasses.replace(
        found,
        uncertainty=found.uncertainty + uncertainty,
        bar=found.bar + bar,
        infeasibility=found.infeasibility + lost,
    )
