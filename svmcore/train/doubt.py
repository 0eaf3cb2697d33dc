r"""How far decision values may be from those of the exact optimum: what the duality gap of a solution allows.

Let (w*, b*) be optimal, G = primal - dual at beta, and :math:`\rho = \|w - w^*\|`. The primal is 1-strongly convex in w
and so is minus the dual, hence :math:`\rho^2 \le G`. With :math:`r^*_v = p_v - u^*_v - b^*_{g(v)}` and
h_v as in `svmcore.qp`,

.. math::
    primal^* - dual(\beta) = \tfrac12 \rho^2 + \sum_v \big(h_v(r^*_v) - \beta_v r^*_v
    + \tfrac12 ridge_v \beta_v^2\big) \le G

whose terms are all at least 0. In :math:`q = s_v - b^*_{g(v)} - \langle w^* - w, \phi_v \rangle` and the room a that
beta_v has in the direction of q, a term is q^2 / (2 ridge) while abs(q) <= ridge a, and a abs(q) - ridge a^2 / 2
beyond. So abs(q) <= e_v(a), and each variable bounds the multiplier of its group:

.. math::
    \max_v s_v - \sqrt{G k_{vv}} - e_v(hi_v - \beta_v) \le b^*_g \le \min_v s_v + \sqrt{G k_{vv}} + e_v(\beta_v - lo_v)

.. math::
    e_v(a) = \sqrt{2 \, ridge_v G} \;\text{ if }\; 2 G \le ridge_v a^2, \quad G / a + \tfrac12 ridge_v a \;\text{ else}

A hard margin's primal is taken at w scaled until no row has a loss, which tells nothing of w itself; minus the dual
alone gives :math:`\rho^2 \le 2 G` then.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from svmcore.kernels.base import Kernel
from svmcore.points import Floats, Rows
from svmcore.qp import SignedQP
from svmcore.runtime.compiled import njit
from svmcore.solution import Solution
from svmcore.tasks import Task

__all__ = ["Doubt", "Doubts", "doubt", "doubt_each"]

ROUNDING = 1e-12  # of values and norms: what float64 leaves of a decision value


class Doubt(NamedTuple):
    """Of one solution: bounds of ||w - w*||^2, and of how far bias and scale may be from any optimal ones."""

    distance2: float
    bias: float
    scale: float


@dataclasses.dataclass(frozen=True, eq=False)
class Doubts:
    """Of all problems of a model: bounds of how far its decision values are from those of the exact optimum.

    Attributes
    ----------
    kernel, centre
        What K was of, with numbers for its parameters, and the centre of its rows (p,); None if it is not centred.
    each
        (k, 3) the `Doubt` of each problem, in units of its program; `scale` (k,) is what the model divided by.
    """

    kernel: Kernel
    centre: Floats | None
    each: Floats
    scale: Floats

    def bound(self, X: Rows, decision: Floats) -> Floats:
        r"""abs(f - f*) (n, k) at most, at rows `X` (n, p) with decision values (n, k).

        .. math::  |f - f^*| \le \frac{\|w - w^*\| \sqrt{k(x, x)} + |b - b^*| + |f| |s - s^*|}{s - |s - s^*|}

        k is the kernel about the centre, where that was served.
        """
        norm = np.sqrt(np.maximum(self.kernel.diagonal_of(self.kernel.prepare(X, self.centre, np.float64)), 0.0))
        distance2, bias, scale = self.each.T
        with np.errstate(invalid="ignore"):  # infinite times 0
            numerator = norm[:, None] * np.sqrt(distance2) + bias + np.abs(decision) * scale
        numerator += ROUNDING * (np.abs(decision) * self.scale + norm[:, None])
        left = self.scale - scale
        found = np.divide(numerator, left, out=np.full(decision.shape, np.inf), where=left > 0)
        return np.where(np.isnan(found), np.inf, found)


def doubt(task: Task, qp: SignedQP, solution: Solution) -> Doubt:
    """What the gap of a solution leaves open; infinite where there is no gap, as for a K that is not definite.

    >>> from svmcore import SMO, SVC, ResidentGram
    >>> qp = SVC().program(ResidentGram(np.array([[1.0, -1.0], [-1.0, 1.0]])), np.array([1.0, -1.0]), 10.0)
    >>> doubt(SVC(), qp, SMO().solve(qp)).distance2 < 1e-12
    True
    """
    found = solution.certificate
    if found.relative_gap is None or not np.isfinite(found.primal):
        return Doubt(np.inf, np.inf, 0.0)
    gap = max(0.0, found.primal - found.dual) + 2.0 * found.bar
    distance2 = 2.0 * gap if qp.is_hard else gap  # the primal of a hard margin is that of a longer w
    errors = np.array([_multiplier(qp, solution, g, gap, distance2) for g in range(len(qp.groups.sums))])
    return Doubt(distance2, *task.doubt(errors))


def _multiplier(qp: SignedQP, solution: Solution, g: int, gap: float, distance2: float) -> float:
    """How far the multiplier of group `g` may be from any optimal one."""
    found, b = solution.certificate, float(solution.multipliers[g])
    # scores that decide are known to the certificate's uncertainty; the others would bound less
    error, band = found.uncertainty, found.kkt_gap + found.uncertainty
    bounds = qp.lo, qp.hi, qp.ridge, qp.diagonal, qp.codes
    least, most = _multipliers(solution.score, solution.beta, *bounds, g, gap, distance2, error, band)
    return max(most - b, b - least, 0.0)


@njit
def doubt_each(score, beta, lo, hi, ridge, diagonal, codes, ends, found, out):  # type: ignore[no-untyped-def]
    """What `doubt` looks at, of many programs of bounded variables: to `out` (k, 1 + groups) ||w - w*||^2, multipliers.

    Program k has the variables ends[k] ... ends[k + 1] - 1; `found` is of `passes.variables.prove_each`.
    """
    for k in range(len(out)):
        at = slice(ends[k], ends[k + 1])
        primal, dual, gap, _, error, bar = found[k, :6]
        out[k, 0] = max(0.0, primal - dual) + 2.0 * bar
        some = score[at], beta[at], lo[at], hi[at], ridge[at], diagonal[at], codes[at]
        for g in range(out.shape[1] - 1):
            least, most = _multipliers(*some, g, out[k, 0], out[k, 0], error, gap + error)
            b = found[k, 7 + g]
            out[k, 1 + g] = max(most - b, b - least, 0.0)


@njit
def _multipliers(score, beta, lo, hi, ridge, diagonal, codes, g, gap, distance2, error, band):  # type: ignore[no-untyped-def]
    """The bounds of b*_g in the module's formula, of the scores within `band` of the extremes; infinite without any."""
    top, bottom, least, most = -np.inf, np.inf, -np.inf, np.inf
    for v in range(len(score)):
        if codes[v] == g:
            top = max(top, score[v]) if beta[v] < hi[v] else top
            bottom = min(bottom, score[v]) if beta[v] > lo[v] else bottom
    if top == -np.inf or bottom == np.inf:
        return -np.inf, np.inf
    for v in range(len(score)):
        if codes[v] == g:
            near = np.sqrt(distance2 * max(diagonal[v], 0.0)) + error
            if beta[v] < hi[v] and score[v] >= top - band:
                least = max(least, score[v] - near - _excess(ridge[v], hi[v] - beta[v], gap))
            if beta[v] > lo[v] and score[v] <= bottom + band:
                most = min(most, score[v] + near + _excess(ridge[v], beta[v] - lo[v], gap))
    return least, most


@njit
def _excess(ridge, room, gap):  # type: ignore[no-untyped-def]
    """e_v(a) of the module's formula."""
    if np.isinf(room) or 2.0 * gap <= ridge * room * room:
        return np.sqrt(2.0 * ridge * gap)
    return gap / room + 0.5 * ridge * room
