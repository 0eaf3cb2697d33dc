r"""How far a beta is from optimal: what float64 says, from beta and the kernel alone, by code that no solver wrote.

With the outputs u = (K + shift) beta and the scores s = p - u - ridge beta (`svmcore.qp`),

.. math::
    dual = p'\beta - \tfrac12 \beta'u - \tfrac12 \sum_v ridge_v \beta_v^2, \qquad
    primal(b) = \tfrac12 \beta'u + \sum_v h_v(p_v - u_v - b_{g(v)}) + \sum_g b_g d_g

so dual <= optimum <= primal for a feasible beta and any b; the primal is taken at its best b.

The values of K that a solver was served may be float32. Each has a bound of its error, so each output has one,

.. math::  |u'_i - u_i| \le e_i = relative (|K| |\beta|)_i + absolute \|\beta\|_1

and only outputs that could decide the gap or the objectives within that bound are computed again from the rows, in
float64: those of the support vectors, and of rows whose score could be an extreme or cost a loss.
"""

import dataclasses
from typing import Any

import numpy as np

from svmcore._threads import one_blas_thread
from svmcore.points import Floats
from svmcore.qp import SignedQP, exact_sum
from svmcore.sources.base import matvec_and_sizes, matvec_compensated

__all__ = ["Certificate", "Evaluation", "certify", "evaluate", "primal_at"]

EPS = float(np.finfo(np.float64).eps)
OBJECTIVE = 1e-7  # relative error of the objectives that calls for exact values


@dataclasses.dataclass(frozen=True)
class Certificate:
    r"""Primal, dual and the violations of one beta.

    Attributes
    ----------
    primal, dual
        Bounds of the optimal value: dual <= optimum <= primal (for a positive semi-definite K).
    kkt_gap
        max - min of the scores that may grow and shrink, over all variables; see `svmcore.qp`. What `tol` bounds.
    infeasibility
        Worst violation of the box and of the sums.
    relative_gap
        (primal - dual) / max(abs(primal), abs(dual)); None where no bound exists.
    uncertainty
        Bound of the error of `kkt_gap`: rounding of the values it was computed from.
    bar
        The same for primal and dual.
    exact
        Rows whose outputs were computed from exact values, after all were from those served.
    """

    primal: float
    dual: float
    kkt_gap: float
    infeasibility: float
    relative_gap: float | None
    uncertainty: float = 0.0
    bar: float = 0.0
    exact: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """One pass over the columns at one beta: the certificate and what a solver or a model needs from it."""

    certificate: Certificate
    outputs: Floats  # (n,) u at the rows of K
    score: Floats  # (m,) s of the variables
    multipliers: Floats  # (k,) b_g of the groups
    norm2: float  # ||w||^2 = beta'u


def certify(qp: SignedQP, beta: Floats) -> Certificate:
    """Certificate of any `beta` (m,) for `qp`.

    >>> from svmcore.sources import ResidentGram
    >>> from svmcore.tasks import classification
    >>> qp = classification(ResidentGram(np.array([[1.0, -1.0], [-1.0, 1.0]])), np.array([1.0, -1.0]), C=10.0)
    >>> found = certify(qp, np.array([0.5, -0.5]))
    >>> found.primal, found.dual, found.kkt_gap, found.relative_gap
    (0.5, 0.5, 0.0, 0.0)
    """
    return evaluate(qp, beta).certificate


@one_blas_thread()
def evaluate(qp: SignedQP, beta: Floats, resolution: float = 0.0) -> Evaluation:
    """Certificate, outputs, scores and multipliers at `beta` (m,).

    `resolution` is how large the error of a score may be that decides the gap; above it values are exact.
    """
    beta = np.asarray(beta, dtype=np.float64)
    outputs = _Outputs(qp, beta)
    outputs.sharpen(resolution)
    score = outputs.scores
    found = [_group(qp, beta, outputs, score, g) for g in range(len(qp.groups.sums))]
    gap, uncertainty = _gap(qp, beta, outputs, score)
    norm2 = float(outputs.coef @ outputs.values)
    dual = _dual(qp, beta, norm2)
    best = np.array([multiplier for _, multiplier in found])
    primal = primal_at(qp, outputs.values, norm2, best)
    certificate = Certificate(
        primal, dual, gap, _infeasibility(qp, beta), _relative_gap(qp, primal, dual), uncertainty, *outputs.bars(best)
    )
    multipliers = np.array([multiplier for multiplier, _ in found])
    return Evaluation(certificate, outputs.values, score, multipliers, norm2)


class _Outputs:
    """u = (K + shift) coef (n,) with a bound of the error of each, sharpened where it matters."""

    def __init__(self, qp: SignedQP, beta: Floats) -> None:
        self.qp, self.beta, self.coef = qp, beta, qp.at_rows(beta)
        self.support = np.flatnonzero(self.coef)
        self.length = float(np.abs(self.coef).sum())
        self.exact: Any = qp.source.exact
        self.n_exact = 0
        self.values, self.sizes = self._served()
        if qp.shift:
            self.values = self.values + qp.shift * self.coef.sum()
            self.sizes = self.sizes + qp.shift * self.length
        rounding = None if self.exact is None else self.exact.unit if self._direct else qp.source.rounding
        self.errors = self._errors(rounding)

    @property
    def _direct(self) -> bool:
        """Whether exact outputs cost less than served ones: a linear kernel's, through its weights."""
        return self.exact is not None and self.exact.is_direct

    def _served(self) -> tuple[Floats, Floats]:
        if not self._direct:
            return matvec_and_sizes(self.qp.source, self.coef)
        rows = np.arange(self.qp.source.n)
        self.n_exact = len(rows)
        return self.exact.product(rows, self.support, self.coef[self.support]), self.exact.sizes(self.coef)

    def _errors(self, rounding: Any, terms: float | None = None) -> Floats:
        """Bound (n,): rounding of the values, and of a sum of as many products, eight at a time."""
        terms = terms or len(self.support) / 8.0 + 8.0
        errors = EPS * (np.abs(self.values) if self._direct else terms * self.sizes)
        if rounding is None:
            return errors
        if not np.isfinite(rounding.relative):  # a kernel that does not say
            return np.full_like(errors, np.inf)
        return errors + rounding.relative * self.sizes + rounding.absolute * self.length

    @property
    def scores(self) -> Floats:
        """S (m,) of the variables."""
        qp = self.qp
        return qp.p - qp.at_variables(self.values) - qp.ridge * self.beta

    def sharpen(self, resolution: float) -> None:
        """Compute again from the rows what could decide, if its error is above the resolution."""
        if self.exact is None and self.errors.max(initial=0.0) > resolution:
            values = matvec_compensated(self.qp.source, self.coef)
            self.values, self.errors = values + self.qp.shift * self.coef.sum(), self._errors(None, 2.0)
        if self.exact is None or self._direct:
            return
        self._sharpen_support(resolution)
        rows = self._deciding()
        rows = rows[self.errors[rows] > resolution]
        if len(rows):
            self._replace(rows, self.exact.product(rows, self.support, self.coef[self.support]))

    def _sharpen_support(self, resolution: float) -> None:
        norm2_error = float(np.abs(self.coef) @ self.errors)
        value = _dual(self.qp, self.beta, float(self.coef @ self.values))
        if norm2_error > OBJECTIVE * abs(value) or self.errors[self.support].max(initial=0.0) > resolution:
            self._replace(self.support, self.exact.symmetric_product(self.support, self.coef[self.support]))

    def _replace(self, rows: Floats, values: Floats) -> None:
        better = self._errors(self.exact.unit, self.exact.summands(len(self.support)))
        rows_better = better[rows] < self.errors[rows]
        rows, values = rows[rows_better], values[rows_better]
        self.values[rows] = values + self.qp.shift * self.coef.sum()
        self.errors[rows] = better[rows]
        self.n_exact += len(rows)

    def _deciding(self) -> Floats:
        """Rows of K with a variable whose score could be an extreme, or whose loss could be above 0."""
        qp, score, error = self.qp, self.scores, self.qp.at_variables(self.errors)
        grows, shrinks = self.beta < qp.hi, self.beta > qp.lo
        decides = np.zeros(qp.m, dtype=bool)
        for at, anchored in _parts(qp):
            least = float((score - error)[at][grows[at]].max(initial=0.0 if anchored else -np.inf))
            most = float((score + error)[at][shrinks[at]].min(initial=0.0 if anchored else np.inf))
            inner, outer = min(least, most), max(least, most)
            decides[at] = (grows[at] & ((score + error)[at] >= inner)) | (shrinks[at] & ((score - error)[at] <= outer))
        found = np.flatnonzero(decides)
        return found if qp.rows is None else np.unique(qp.rows[found])

    def bars(self, multipliers: Floats) -> tuple[float, int]:
        """(bound of the error of primal and dual, rows with exact outputs)."""
        qp = self.qp
        norm2 = 0.5 * float(np.abs(self.coef) @ self.errors)
        residual = qp.p - qp.at_variables(self.values) - _at_groups(qp, multipliers)
        error = qp.at_variables(self.errors)
        slope = np.abs(_steepest(qp, residual, error))
        finite = np.isfinite(slope)
        return norm2 + float(slope[finite] @ error[finite]), self.n_exact


def _steepest(qp: SignedQP, residual: Floats, error: Floats) -> Floats:
    """The slope (m,) of h_v of largest size where the residual is uncertain by `error`."""
    up, down = _slope(qp, residual + error), _slope(qp, residual - error)
    return np.where(np.abs(up) > np.abs(down), up, down)


def _slope(qp: SignedQP, residual: Floats) -> Floats:
    """h'_v (m,): the t of the box at which r t - ridge t^2 / 2 is largest."""
    soft = qp.ridge > 0
    t = np.where(residual > 0, qp.hi, np.where(residual < 0, qp.lo, 0.0))
    t[soft] = residual[soft] / qp.ridge[soft]
    return np.clip(t, qp.lo, qp.hi)


def _parts(qp: SignedQP):  # type: ignore[no-untyped-def]
    """(index of variables, whether extremes are taken together with 0): each group, and those in none."""
    for g in range(len(qp.groups.sums)):
        yield qp.groups.members(g, qp.m), False
    if not qp.groups.sums:
        yield slice(0, qp.m), True
    elif qp.groups.codes is not None and (qp.groups.codes < 0).any():
        yield np.flatnonzero(qp.groups.codes < 0), True


def _gap(qp: SignedQP, beta: Floats, outputs: _Outputs, score: Floats) -> tuple[float, float]:
    """KKT gap and the bound of its error."""
    error = qp.at_variables(outputs.errors)
    grows, shrinks = beta < qp.hi, beta > qp.lo
    gap, high, low = 0.0, 0.0, 0.0
    for at, anchored in _parts(qp):
        ends = []
        for sign in (0.0, 1.0, -1.0):
            m = (score + sign * error)[at][grows[at]].max(initial=-np.inf)
            least = (score - sign * error)[at][shrinks[at]].min(initial=np.inf)
            ends.append(max(m, -least) if anchored else m - least)
        gap, high, low = (max(old, float(new)) for old, new in zip((gap, high, low), ends, strict=True))
    return gap, max(high - gap, gap - low)


def _group(qp: SignedQP, beta: Floats, outputs: _Outputs, score: Floats, g: int) -> tuple[float, float]:
    """Multiplier of group g, and the one at which the primal is least.

    That is the average of the scores of the free variables; without any, the middle of [min, max], as LIBSVM; where
    one of these is missing, the best.
    """
    at = qp.groups.members(g, qp.m)
    best = best_multiplier(qp, outputs.values, g)
    part, grows, shrinks = score[at], beta[at] < qp.hi[at], beta[at] > qp.lo[at]
    free = part[grows & shrinks]
    if len(free):
        return float(free.mean()), best
    m, low = float(part[grows].max(initial=-np.inf)), float(part[shrinks].min(initial=np.inf))
    return (0.5 * (m + low) if m > -np.inf and low < np.inf else best), best


def _dual(qp: SignedQP, beta: Floats, norm2: float) -> float:
    return float(qp.p @ beta - 0.5 * (norm2 + (qp.ridge * beta) @ beta))


def _at_groups(qp: SignedQP, multipliers: Floats) -> Floats:
    """b_g(v) (m,): 0 for a variable in no group."""
    return np.append(multipliers, 0.0)[qp.codes]


def primal_at(qp: SignedQP, outputs: Floats, norm2: float, multipliers: Floats) -> float:
    """Primal value at the w with outputs (n,) and squared norm `norm2`, and the multipliers (k,).

    Variables without bound and ridge forbid a loss: w and b are then scaled until none of them has one; inf where no
    scale does.
    """
    f = qp.at_variables(outputs) + _at_groups(qp, multipliers)
    scale = _hard_scale(qp, f)
    if not np.isfinite(scale):
        return np.inf
    residual = qp.p - scale * f
    residual[qp.unbounded] = 0.0
    t = _slope(qp, residual)
    loss = residual @ t - 0.5 * (qp.ridge * t) @ t
    return float(0.5 * scale**2 * norm2 + loss + scale * (multipliers @ np.array(qp.groups.sums)))


def _hard_scale(qp: SignedQP, f: Floats) -> float:
    """The smallest factor of f with no loss at an unbounded variable; 1 without any, inf where there is none."""
    hard = qp.unbounded
    if not hard.any():
        return 1.0
    sign = np.where(np.isinf(qp.hi[hard]), 1.0, -1.0)
    margin, needed = sign * f[hard], sign * qp.p[hard]
    wrong = (margin <= 0) & (needed > 0)
    return np.inf if wrong.any() else float((needed / np.maximum(margin, 1e-300)).max())


def best_multiplier(qp: SignedQP, outputs: Floats, g: int) -> float:
    """The b at which sum_v h_v(t_v - b) + b d_g is least, t_v = p_v - u_v: its slope in b grows.

    The slope d_g - sum_v h'_v(t_v - b) jumps by hi - lo at t_v where there is no ridge, and grows by 1 / ridge between
    t_v - ridge hi and t_v - ridge lo where there is one.
    """
    at = qp.groups.members(g, qp.m)
    t, lo, hi, ridge = (values[at] for values in (qp.p - qp.at_variables(outputs), qp.lo, qp.hi, qp.ridge))
    hard = (ridge == 0) & (np.isinf(lo) | np.isinf(hi))
    if hard.any():
        return _middle(t[hard], np.isinf(hi[hard]))
    used = hi > lo
    t, lo, hi, ridge = t[used], lo[used], hi[used], ridge[used]
    if not len(t):
        return 0.0
    fixed = float(qp.groups.sums[g] - qp.lo[at][~used].sum())
    place = np.concatenate([t - ridge * hi, (t - ridge * lo)[ridge > 0]])
    soft = np.divide(1.0, ridge, out=np.zeros_like(ridge), where=ridge > 0)
    jump = np.concatenate([np.where(ridge > 0, 0.0, hi - lo), np.zeros(int((ridge > 0).sum()))])
    bend = np.concatenate([soft, -soft[ridge > 0]])
    return _zero(place, jump, bend, lambda b: fixed - float(_slope_before(t - b, lo, hi, ridge).sum()))


def _slope_before(residual: Floats, lo: Floats, hi: Floats, ridge: Floats) -> Floats:
    """h'_v of a residual, hi where it is 0 without a ridge."""
    t = np.where(residual >= 0, hi, lo)
    soft = ridge > 0
    t[soft] = residual[soft] / ridge[soft]
    return np.clip(t, lo, hi)


def _middle(t: Floats, needs_less: Floats) -> float:
    """Middle of the interval of b in which no unbounded variable has a loss, or of where it would be."""
    least, most = t[needs_less].max(initial=-np.inf), t[~needs_less].min(initial=np.inf)
    ends = [float(end) for end in (least, most) if np.isfinite(end)]
    return float(np.mean(ends)) if ends else 0.0


def _zero(place: Floats, jump: Floats, bend: Floats, value_at) -> float:  # type: ignore[no-untyped-def]
    """Where a growing function, made of jumps and linear pieces, passes 0."""
    always = place == -np.inf
    slope, inside = float(bend[always].sum()), np.isfinite(place)
    order = np.argsort(place[inside], kind="stable")
    place, jump, bend = place[inside][order], jump[inside][order], bend[inside][order]
    if not len(place):
        return float(-value_at(0.0) / slope) if slope > 0 else 0.0
    first = value_at(float(place[0]))
    if first >= 0:
        return float(place[0] - first / slope) if slope > 0 else float(place[0])
    slopes = slope + np.cumsum(bend)
    after = first + np.cumsum(jump) + np.append(0.0, np.cumsum(slopes[:-1] * np.diff(place)))
    k = int(np.searchsorted(after >= 0, True))
    if k < len(place) and after[k] - jump[k] <= 0:  # it passes 0 in the jump at this place
        return float(place[k])
    k -= 1
    return float(place[k] - after[k] / slopes[k]) if slopes[k] > 0 else float(place[min(k + 1, len(place) - 1)])


def _infeasibility(qp: SignedQP, beta: Floats) -> float:
    worst = max(0.0, float((qp.lo - beta).max(initial=0.0)), float((beta - qp.hi).max(initial=0.0)))
    for g, total in enumerate(qp.groups.sums):
        part = beta[qp.groups.members(g, qp.m)]
        worst = max(worst, abs(exact_sum(np.append(part, -total))))
    return worst


def _relative_gap(qp: SignedQP, primal: float, dual: float) -> float | None:
    if not qp.source.psd or not np.isfinite(primal):
        return None
    scale = max(abs(primal), abs(dual))
    return (primal - dual) / scale if scale > 0 else 0.0
