r"""How far an alpha is from optimal, recomputed from alpha alone by code that no solver wrote.

With v = (K + shift) coef and coef = alpha * y:

.. math::
    g_i = y_i v_i + ridge_i \alpha_i - 1, \qquad
    dual = e'\alpha - \tfrac12 (coef'v + \sum_i ridge_i \alpha_i^2), \qquad
    primal(b) = \tfrac12 coef'v + \sum_i C_i\, \mathrm{loss}(y_i (v_i + b))

so dual <= optimum <= primal for a feasible alpha and any b; the primal is taken at its best b. All sums are float64
over the columns as the source serves them.
"""

import dataclasses

import numpy as np

from svmcore._threads import one_blas_thread
from svmcore.columns import matvec
from svmcore.losses import Hinge
from svmcore.points import Floats
from svmcore.problem import Bias, Problem

__all__ = ["Certificate", "Evaluation", "certify", "evaluate", "primal_of"]


@dataclasses.dataclass(frozen=True)
class Certificate:
    r"""Primal, dual and the violations of one alpha.

    Attributes
    ----------
    primal, dual
        Bounds of the optimal value: dual <= optimum <= primal (for a positive semi-definite K).
    kkt_gap
        m(alpha) - M(alpha) over all rows; without the equality, the largest projected gradient. What `tol` bounds.
    infeasibility
        Worst violation of the box and of y'alpha = 0.
    relative_gap
        (primal - dual) / max(abs(primal), abs(dual)); None where no bound exists.
    """

    primal: float
    dual: float
    kkt_gap: float
    infeasibility: float
    relative_gap: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """One pass over the columns at one alpha: the certificate and what a solver or a model needs from it."""

    certificate: Certificate
    gradient: Floats  # (n,) of the minimised dual, refreshed in float64
    bias: float
    decision: Floats  # (n,) v + bias
    norm2: float  # ||w||^2 = coef'v


def certify(problem: Problem, alpha: Floats) -> Certificate:
    """Certificate of any `alpha` (n,) for `problem`.

    >>> from svmcore.columns import ResidentGram
    >>> problem = Problem(ResidentGram(np.array([[1.0, -1.0], [-1.0, 1.0]])), np.array([1.0, -1.0]), C=10.0)
    >>> certify(problem, np.array([0.5, 0.5]))
    Certificate(primal=0.5, dual=0.5, kkt_gap=0.0, infeasibility=0.0, relative_gap=0.0)
    """
    return evaluate(problem, alpha).certificate


@one_blas_thread()
def evaluate(problem: Problem, alpha: Floats) -> Evaluation:
    """Certificate, gradient, bias and decision values at `alpha` (n,), from one product with K."""
    y, ridge = problem.y, problem.ridge
    coef = alpha * y
    v = matvec(problem.columns, coef)
    if problem.shift:
        v += problem.shift * coef.sum()
    gradient = y * v + ridge * alpha - 1.0
    norm2 = float(coef @ v)
    dual = float(alpha.sum() - 0.5 * (norm2 + (ridge * alpha) @ alpha))
    primal, best = primal_of(problem, v, norm2)
    if problem.bias is Bias.FREE:
        kkt_gap, bias = _gap_and_bias(problem, alpha, gradient, best)
    else:
        kkt_gap, bias = _box_gap(problem, alpha, gradient), 0.0
    certificate = Certificate(
        primal, dual, kkt_gap, _infeasibility(problem, alpha), _relative_gap(problem, primal, dual)
    )
    decision = v + bias if problem.bias is Bias.FREE else v
    return Evaluation(certificate, gradient, bias if problem.shift == 0.0 else float(coef.sum()), decision, norm2)


def primal_of(problem: Problem, v: Floats, norm2: float) -> tuple[float, float]:
    """Primal value at w with outputs `v` (n,) and squared norm `norm2`, at its best bias; returns (primal, bias)."""
    y, C = problem.y, np.asarray(problem.C)
    inside = C > 0
    if not inside.all():
        y, v, C = y[inside], v[inside], C[inside]
    if problem.hard_margin:
        return _hard_margin_primal(problem, y, v, norm2)
    b = _best_bias(problem, y, v, C) if problem.bias is Bias.FREE else 0.0
    return float(0.5 * norm2 + C @ problem.loss(y * (v + b))), b


def _hard_margin_primal(problem: Problem, y: Floats, v: Floats, norm2: float) -> tuple[float, float]:
    """Shrink w until every margin is at least 1: 1/2 ||w||^2 / s^2 with s the smallest margin; inf if s <= 0."""
    b = 0.0
    if problem.bias is Bias.FREE and (y > 0).any() and (y < 0).any():
        b = -0.5 * float(v[y > 0].min() + v[y < 0].max())
    smallest = float((y * (v + b)).min())
    return (0.5 * norm2 / smallest**2 if smallest > 0 else np.inf), b


def _best_bias(problem: Problem, y: Floats, v: Floats, C: Floats) -> float:
    """Minimise sum_i C_i loss(y_i (v_i + b)) over b: its derivative is monotone with breaks at t_i = y_i - v_i."""
    t = y - v
    order = np.argsort(t)
    if isinstance(problem.loss, Hinge):  # slope -sum of C over y = +1, plus C_i past each break
        slope = C[order].cumsum() - C[y > 0].sum()
        return float(t[order[min(int(slope.searchsorted(0.0)), len(t) - 1)]])
    t, y, C = t[order], y[order], C[order]
    return _zero_of_pieces(t, np.where(y > 0, C, 0.0), np.where(y < 0, C, 0.0))


def _zero_of_pieces(t: Floats, right: Floats, left: Floats) -> float:
    """Zero of d(b) = sum_i left_i max(0, b - t_i) - sum_i right_i max(0, t_i - b), sorted t: d is increasing."""
    below, below_t = np.cumsum(left), np.cumsum(left * t)
    above, above_t = right.sum() - np.cumsum(right), (right * t).sum() - np.cumsum(right * t)
    at_breaks = (below * t - below_t) - (above_t - above * t)
    k = int(np.searchsorted(at_breaks, 0.0))
    if k == 0 or k == len(t):  # one class: any b beyond the last break loses nothing
        return float(t[0] if k == 0 else t[-1])
    weight = below[k - 1] + above[k - 1]
    return float((below_t[k - 1] + above_t[k - 1]) / weight) if weight > 0 else float(t[k])


def _gap_and_bias(problem: Problem, alpha: Floats, gradient: Floats, best: float) -> tuple[float, float]:
    """m(alpha) - M(alpha), at least 0, and the bias.

    That is the average of -y_i g_i over the free support vectors; without any, the middle of [M, m], as LIBSVM; with
    one class alone, `best`.
    """
    positive, can_grow, can_shrink = problem.y > 0, alpha < problem.upper, alpha > 0
    score = -problem.y * gradient
    m = float(score[np.where(positive, can_grow, can_shrink)].max(initial=-np.inf))
    low = float(score[np.where(positive, can_shrink, can_grow)].min(initial=np.inf))
    free = score[can_grow & can_shrink]
    if len(free):
        return max(0.0, m - low), float(free.mean())
    return max(0.0, m - low), 0.5 * (m + low) if m > -np.inf and low < np.inf else best


def _box_gap(problem: Problem, alpha: Floats, gradient: Floats) -> float:
    """The largest projected gradient: the KKT gap where there is no equality."""
    projected = np.where(alpha < problem.upper, np.minimum(gradient, 0.0), 0.0) * -1.0
    projected = np.maximum(projected, np.where(alpha > 0, np.maximum(gradient, 0.0), 0.0))
    return float(projected.max(initial=0.0))


def _infeasibility(problem: Problem, alpha: Floats) -> float:
    box = max(0.0, -float(alpha.min()), float((alpha - problem.upper).max()))
    return max(box, abs(float(problem.y @ alpha))) if problem.bias is Bias.FREE else box


def _relative_gap(problem: Problem, primal: float, dual: float) -> float | None:
    if not problem.psd or not np.isfinite(primal):
        return None
    scale = max(abs(primal), abs(dual))
    return (primal - dual) / scale if scale > 0 else 0.0
