"""Conjugate gradients on all variables inside their box, with w kept: for K_FF on which single steps crawl.

Once the steps on one variable have found who is at which bound, little is left but a linear system in the others. Who
meets a bound on the way stays there, and the directions go on without it. What all of it together would lose by that is
held back at the end, so that the objective falls whatever happens.

References
----------
Moré, Toraldo (1991), On the solution of large quadratic programming problems with bound constraints, SIAM J. Optim. 1;
Dostál (1997), Box constrained quadratic programming with proportioning and projections, SIAM J. Optim. 7.
"""

import numpy as np

from svmcore.points import Floats
from svmcore.solvers.linear.weights import HeldWeights

__all__ = ["relax"]


def relax(held: HeldWeights, most: int, enough: float) -> None:
    """Move the variables inside their box together: at most `most` steps, until no score there is above `enough`."""
    face = _Face(held)
    score, before = face.score.copy(), face.beta.copy()
    face.descend(most, enough)
    change = face.beta - before
    gain, curvature = float(score @ change), float((score - face.score) @ change)
    if gain > 0.0 and curvature > 0.0:
        length = min(1.0, gain / curvature)
        held.move(face.free, np.clip(before + length * change, face.lo, face.hi))


class _Face:
    """K + diag(ridge) of the variables inside their box, where they are now, and their scores (f,)."""

    def __init__(self, held: HeldWeights) -> None:
        qp, beta = held.qp, held.beta
        self.held, self.free = held, np.flatnonzero((beta > qp.lo) & (beta < qp.hi))
        self.rows, self.along = held.map.taken(self.free), held.along[self.free]
        self.beta, self.lo, self.hi, self.ridge = (a[self.free] for a in (beta, qp.lo, qp.hi, qp.ridge))
        self.diagonal = np.maximum(held.diagonal[self.free] + self.ridge, np.finfo(float).tiny)
        self.inside = np.ones(len(self.free), dtype=bool)
        output = held.about(self.rows.times(held.w), self.along, *held.sums[:2]) + held.sums[2]
        self.score = qp.p[self.free] - output - self.ridge * self.beta

    def descend(self, most: int, enough: float) -> None:
        """Steps along conjugate directions, scaled by the diagonal."""
        d = steep = self.score / self.diagonal
        size = float(self.score @ steep)
        for _ in range(most):
            w = self.rows.weights(d)
            slope, curvature = float(self.score @ d), self.held.square(w, float(d.sum())) + float(d @ (self.ridge * d))
            if not (slope > 0.0 and curvature > 0.0):
                return
            self._step(slope / curvature * d, slope / curvature * w)
            pulls = np.where(self.inside, self.score, 0.0)
            if np.abs(pulls).max() <= enough:
                return
            steep = pulls / self.diagonal
            before, size = size, float(pulls @ steep)
            d = steep + size / before * np.where(self.inside, d, 0.0)

    def _step(self, change: Floats, w: Floats) -> None:
        """Beta += change, whose weights are `w`, and what leaves the box stays at its bound."""
        ahead = self.beta + change
        new = np.clip(ahead, self.lo, self.hi)
        out = np.flatnonzero(new != ahead)
        if len(out):
            w = w - self.rows.take(out).weights((ahead - new)[out])
            change = new - self.beta
            self.inside[out] = False
        total, along = float(change.sum()), float(change @ self.along)
        self.score -= self.held.about(self.rows.times(w), self.along, total, along) + self.ridge * change
        self.beta = new
