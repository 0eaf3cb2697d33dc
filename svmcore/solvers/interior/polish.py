"""From an interior iterate to an answer: bounds taken exactly, free variables solved for, sums repaired, gap judged."""

from dataclasses import dataclass

import numpy as np

from svmcore.solvers.interior.program import Newton, Program
from svmcore.solvers.interior.systems import Floats

__all__ = ["Candidate", "Polish"]

ROUNDS = 4  # of the active set, from one iterate
WORTH = 1e4  # multiple of tol: a dual residual or a gap above it is too far for a polish
FLAT = 1e-3  # share of tol that the proximal term may add to a score


@dataclass(frozen=True)
class Candidate:
    """A point (n,) of the box with its sums, its scores (n,) and its gap."""

    beta: Floats
    scores: Floats
    gap: float


class Polish:
    """Keeps the best feasible point seen; each offer is snapped, solved and judged."""

    def __init__(self, program: Program, tol: float) -> None:
        self.program, self.tol = program, tol
        self.best = self._judged(program.clip(np.zeros(program.n)))

    def from_iterate(self, beta: Floats, t: Floats, z: Floats, b: Floats, residual: Floats) -> bool:
        """Whether an interior point leads to a gap of tol."""
        if not np.abs(residual).max() <= WORTH * self.tol:
            return False
        return self._rounds(self._snapped(beta, t, z), b)

    def at_last(self, beta: Floats, t: Floats, z: Floats) -> None:
        """Where no gap was ever small, a run that ends early still gives the lower of two objectives."""
        found = self._judged(self._snapped(beta, t, z))
        if np.isfinite(found.gap) and self._objective(found) < self._objective(self.best):
            self.best = found

    def _objective(self, at: Candidate) -> float:
        return float(-0.5 * at.beta @ (at.scores + self.program.p))

    def _snapped(self, beta: Floats, t: Floats, z: Floats) -> Floats:
        """`beta` (n,) with the variables on the bounds that hold them: curvature of the barrier above that of K."""
        steep = z > t * self.program.curvature
        snapped = np.where(steep[0] & (z[0] >= z[1]), self.program.lo, beta)
        return np.where(steep[1] & (z[1] > z[0]), self.program.hi, snapped)

    def from_point(self, beta: Floats) -> bool:
        """Whether a feasible point leads to a gap of tol, by its own active set."""
        beta = self.program.clip(beta)
        scores = self.program.scores(beta)
        return self._rounds(beta, self.program.kkt_gap(beta, scores)[1])

    def _rounds(self, beta: Floats, b: Floats) -> bool:
        """Active-set rounds: solve on the free variables, clip, let go of what its score pulls inside."""
        for _ in range(ROUNDS):
            found = self._judged(beta)
            if found.gap < self.best.gap:
                self.best = found
            if found.gap <= self.tol:
                return True
            if found.gap > WORTH * self.tol:
                return False
            free = self._free(found, b)
            if not free.any():
                return False
            beta, b = self._solved(found, free, b)
            if not np.isfinite(beta).all():
                return False
        return False

    def _free(self, at: Candidate, b: Floats) -> Floats:
        """Variables inside the box, and those whose score pulls them off their bound (n,) bool."""
        lo, hi = self.program.lo, self.program.hi
        pull = at.scores - self.program.members @ b
        off_low = (at.beta == lo) & (pull > 0.5 * self.tol)
        off_high = (at.beta == hi) & (pull < -0.5 * self.tol)
        return ((at.beta > lo) & (at.beta < hi)) | off_low | off_high

    def _solved(self, at: Candidate, free: Floats, b: Floats) -> tuple[Floats, Floats]:
        """The minimum over the free variables, clipped to the box, and the multipliers there."""
        part = self.program.rows(free)
        D = part.ridge + FLAT * self.tol / _scale(part, at.beta[free])
        sums = self.program.residuals(at.beta)
        dx, solved, _ = Newton(part, D).solve(at.scores[free], sums)
        beta = at.beta.copy()
        beta[free] += dx
        return self.program.clip(beta), np.where(part.members.any(axis=0), solved, b)

    def _judged(self, beta: Floats) -> Candidate:
        """The point with its sums repaired, and what it is worth."""
        scores = self.program.scores(beta)
        whole = self.program.with_sums(beta, scores)
        if not np.array_equal(whole, beta):
            scores = self.program.scores(whole)
        gap = self.program.kkt_gap(whole, scores)[0] if self.program.sums_hold(whole) else np.inf
        return Candidate(whole, scores, gap)


def _scale(part: Program, beta: Floats) -> Floats:
    """A length (n,) that a step of each variable will hardly exceed."""
    room = np.minimum(beta - part.lo, part.hi - beta)
    return np.maximum(room, 1.0 / part.curvature)
