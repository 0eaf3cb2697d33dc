r"""w = sum_v beta_v g_v kept in place of the scores, for steps on one variable where K = GG': each costs its row alone.

A free bias is found by the method of multipliers: with S = sum beta and a penalty sigma S^2 / 2 the box is all that is
left, and b grows by sigma S after each epoch. Rows are about their mean then, which changes nothing where S = 0 and
makes steps longer. Variables that their bound holds by more than the worst violation of an epoch sit out until the
others are done (shrinking).

References
----------
Hsieh, Chang, Lin, Keerthi, Sundararajan (2008), A dual coordinate descent method for large-scale linear SVM, ICML;
Bertsekas (1982), Constrained optimization and Lagrange multiplier methods.
"""

import numpy as np

from svmcore.passes.steps.coordinates import csr_pass, dense_pass
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solvers.base import box_gap
from svmcore.sources import Factor, RowMap

__all__ = ["HeldWeights"]

PASS_FLOPS = 2e7  # of one compiled pass: a few milliseconds
ROUNDED = 1e-12  # of the sum of the coefficients' sizes: a sum that is off by less holds


class HeldWeights:
    """beta (m,), changed in place, and the w that it makes.

    Attributes
    ----------
    gap
        KKT gap of all variables at the last `refresh`, of the program as it is.
    """

    def __init__(self, qp: SignedQP, factor: Factor, beta: Floats) -> None:
        self.qp, self.beta, self.map = qp, beta, RowMap(factor.rows, at=factor.at)
        self.free = bool(qp.groups.sums)
        centre = self.map.mean() if self.free else factor.centre
        self.along = self.map.times(centre)
        diagonal = qp.diagonal - qp.shift
        if self.free:  # from about the centre of K to about the mean
            apart = centre - factor.centre
            moved = self.along - self.map.times(factor.centre) - float(factor.centre @ apart)
            diagonal = np.maximum(diagonal - 2.0 * moved + float(apart @ apart), 0.0)
        self.sigma = float(diagonal.mean()) or 1.0 if self.free else 0.0
        self.level = float(centre @ centre) + qp.shift + self.sigma
        self.centre, self.diagonal = centre, diagonal + qp.shift + self.sigma
        self.sums = np.zeros(3)
        self.stays = np.ones(qp.m, dtype=bool)
        self.step = max(1, int(PASS_FLOPS / (4.0 * self.map.entries)))
        self.refresh()

    def refresh(self) -> float:
        """Repair the sum, take w, S and A from beta again, and judge all variables."""
        self.beta[:] = self.qp.feasible(self._balanced())
        self.w = self.map.weights(self.beta)
        self.sums[:2] = float(self.beta.sum()), float(self.beta @ self.along)
        self.gap = self._gap(self.scores())
        return self.gap

    def scores(self) -> Floats:
        """Of all variables (m,), before the multiplier."""
        total, along = self.sums[:2]
        output = self.about(self.map.times(self.w), self.along, total, along) - self.sigma * total
        return self.qp.p - output - self.qp.ridge * self.beta

    def _gap(self, score: Floats) -> float:
        qp = self.qp
        if not self.free:
            return box_gap(score, self.beta, qp.lo, qp.hi)
        up, down = score[self.beta < qp.hi], score[self.beta > qp.lo]
        highest, lowest = float(up.max(initial=-np.inf)), float(down.min(initial=np.inf))
        return max(0.0, highest - lowest)

    def not_held(self, bar: float) -> Floats:
        """Which variables no bound holds by more than `bar`, by their scores now."""
        qp, score = self.qp, self.scores() - self.sums[2] - self.sigma * self.sums[0]
        held = ((self.beta == qp.lo) & (score < -bar)) | ((self.beta == qp.hi) & (score > bar))
        return np.flatnonzero(~held & (qp.lo < qp.hi))

    def about(self, products: Floats, along: Floats, total: float, sum_along: float) -> Floats:
        """K d (f,) of rows about the centre from the `products` of those that are not, sum d and sum d_j along_j."""
        return products - total * along - sum_along + self.level * total

    def move(self, part: Floats, beta: Floats) -> None:
        """Put the variables `part` at `beta` (f,), and w, S and A with them."""
        change = beta - self.beta[part]
        self.beta[part] = beta
        self.w += self.map.take(part).weights(change)
        self.sums[:2] += float(change.sum()), float(change @ self.along[part])

    def _balanced(self) -> Floats:
        """Beta with what its sum is off taken by variables inside their box, which stay there: bounds keep theirs."""
        qp, beta = self.qp, self.beta
        missing = qp.groups.sums[0] - float(beta.sum()) if self.free else 0.0
        room = np.minimum(beta - qp.lo, qp.hi - beta)
        room = np.where(np.isfinite(room), room, np.abs(beta))
        total = float(room.sum())
        off = abs(missing) > ROUNDED * float(np.abs(beta).sum())
        return beta + room * (missing / total) if off and abs(missing) < total else beta

    def square(self, w: Floats, total: float) -> float:
        """D'K d, of the weights of d and its sum."""
        centred = w - total * self.centre
        return float(centred @ centred) + (self.qp.shift + self.sigma) * total**2

    def norm2(self) -> float:
        """||w||^2 about the centre, with the shift."""
        total = float(self.sums[0])
        return self.square(self.w, total) - self.sigma * total**2

    def multiply(self) -> float:
        """Move the multiplier by what the sum is off; returns by how much that changes the scores."""
        if not self.free:
            return 0.0
        change = self.sigma * (self.sums[0] - self.qp.groups.sums[0])
        self.sums[2] += change
        return abs(change)

    def part(self, part: Floats, bar: float) -> tuple[float, int, Floats]:
        """Steps on the variables `part`: (worst violation met, steps taken, who is not held at a bound by `bar`)."""
        qp, rows, stays = self.qp, self.map.rows, np.empty(len(part), dtype=bool)
        about = self.map.at, part, self.along, self.level, self.diagonal, qp.p, qp.ridge, qp.lo, qp.hi
        of_rows = (rows.data, rows.indices, rows.indptr) if self.map.is_sparse else (rows,)
        run = csr_pass if self.map.is_sparse else dense_pass
        return *run(*of_rows, *about, self.beta, self.w, self.sums, bar, stays), stays
