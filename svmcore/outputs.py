r"""Outputs u = (K + shift) beta (n,) with a bound of the error of each, computed again where they could decide.

Values of K that a solver was served may be float32, so that an output is off by up to

.. math::  |u'_i - u_i| \le e_i = relative (|K| |\beta|)_i + absolute \|\beta\|_1

The gap and the objectives of a certificate hang on few rows: the support vectors, those whose score could be an
extreme, and those that could cost a loss. Theirs are computed from the rows in float64, then in twice its digits.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from svmcore.passes.proof.exact_sums import ROUNDED_SUM, exact_sum
from svmcore.passes.proof.multipliers import group_ends
from svmcore.passes.proof.objectives import dual_sums, weighted
from svmcore.points import Floats
from svmcore.primal import Objectives, at_groups, best_multiplier, primal_at, slope
from svmcore.qp import SignedQP
from svmcore.sources.base import Served, matvec_compensated, served

__all__ = ["BoundedOutputs", "KnownOutputs", "free_multipliers", "multipliers_of"]

EPS = float(np.finfo(np.float64).eps)
OBJECTIVE = 5e-7  # relative error of the objectives that calls for finer values
MUCH = 2.0  # times the dual: a primal beyond that is looked at again
LOOSE = 4.0  # times ||beta||_1: where more was added up than that, bounds of its errors are too wide
EXACT = 2.0  # what a value of K in float64 costs over one that is served


class BoundedOutputs:
    """Those of one beta, as a source serves them."""

    def __init__(self, qp: SignedQP, beta: Floats, at_hand: Served | None = None) -> None:
        self._begin(qp, beta)
        self.support = np.flatnonzero(self.coef)
        self.exact: Any = qp.source.exact
        is_tight = at_hand is not None and at_hand.length <= LOOSE * self.length  # nor has anything overflowed
        self.served = served(qp.source, self.coef, at_hand) if is_tight else None
        self.exact_rows = np.full(qp.source.n, self._direct or self._served_in_vain)
        self.values, self.sizes = self._first()
        if qp.shift:
            self.values = self.values + qp.shift * self.coef.sum()
            self.sizes = self.sizes + qp.shift * self.length
        self.errors = self._first_errors()
        if self.served is not None:
            self.errors, self.sizes = self.errors + self.served.error, self.sizes + self.served.before
        self.sizes = np.where(np.isfinite(self.errors), self.sizes + self.errors, self.sizes)  # of the exact values

    def _begin(self, qp: SignedQP, beta: Floats) -> None:
        """What does not depend on the outputs."""
        self.qp, self.beta, self.coef = qp, beta, qp.at_rows(beta)
        self.length = float(np.abs(self.coef).sum())
        self.sum_errors = [_sum_error(qp, beta, g) for g in range(len(qp.groups.sums))]  # by how much sums are off
        self._sums = dual_sums(qp.p, qp.ridge, beta)  # p'beta, sum_v ridge_v beta_v^2, abs(p)'abs(beta)

    @property
    def _direct(self) -> bool:
        """Whether exact outputs cost less than served ones: a linear kernel's, through its weights."""
        return self.exact is not None and self.exact.is_direct

    @functools.cached_property
    def _served_in_vain(self) -> bool:
        """Whether more values of K would be computed to be served than to be exact for all rows, not the support alone.

        |K_ij| is known to be at most the root of K_ii K_jj then, so that nothing served is needed for a bound.
        """
        source, m = self.qp.source, len(self.support)
        if self.exact is None or self._direct or not source.psd or self.served is not None:
            return False
        in_vain = source.missing(self.support) * source.n > EXACT * (source.n - m) * m
        return bool(in_vain and self.exact.unit.relative < 1.0)

    def _first(self) -> tuple[Floats, Floats]:
        """Outputs of K (n,), and a bound (n,) of (|K| |coef|)."""
        source, coef = self.qp.source, self.coef[self.support]
        if self._served_in_vain:
            unit = self.exact.unit
            lengths = np.sqrt(np.maximum(self.exact.diagonal(), 0.0) / (1.0 - unit.relative) + unit.absolute)
            return self._from_rows(coef), lengths * float(np.abs(self.coef) @ lengths)
        if self._direct:
            return self.exact.product(np.arange(source.n), self.support, coef), self.exact.sizes(self.coef)
        if self.served is None:
            self.served = served(source, self.coef)
        return self.served.values.copy(), self.served.sizes

    def _from_rows(self, coef: Floats) -> Floats:
        """All outputs in float64; those of the support from each of its pairs once."""
        rest = np.flatnonzero(self.coef == 0.0)
        columns, values = self.exact.columns(self.support), np.empty(self.qp.source.n)
        values[self.support] = self.exact.symmetric_product(self.support, coef, columns)
        values[rest] = self.exact.product(rest, columns, coef)
        return values

    def _first_errors(self) -> Floats:
        if self._direct:
            return self._finest_errors(self.values)
        if self._served_in_vain:
            return self._errors(self.exact.unit, self.length, self.exact.summands(len(self.support)))
        assert self.served is not None
        rounding = None if self.exact is None else self.qp.source.rounding
        return self._errors(rounding, self.served.length, self.served.terms)

    def _errors(self, rounding: Any, length: float, terms: float) -> Floats:
        """Bound (n,): rounding of the values that met coefficients of this total size, and of sums of `terms`."""
        if rounding is None:
            return EPS * terms * self.sizes
        if not rounding.relative < 1.0:  # a kernel that does not say, or as good as nothing
            return np.full_like(self.sizes, np.inf)
        known = 1.0 - rounding.relative  # the bound is a part of the exact values, the sizes are of those served
        return EPS * terms * self.sizes + (rounding.relative * self.sizes + rounding.absolute * length) / known

    def _finest_errors(self, values: Floats, rows: Any = slice(None)) -> Floats:
        """Bound (len(rows),) of what twice the digits leave: the last rounding, and that of the values."""
        m = len(self.support)
        if self.exact is None or self._direct:
            relative, absolute = (float(m + 100) * EPS) ** 2, 0.0
        else:
            relative, absolute = self.exact.finest_rounding(m)
        return EPS * np.abs(values) + relative * self.sizes[rows] + absolute * self.length

    @property
    def scores(self) -> Floats:
        """S (m,) of the variables."""
        qp = self.qp
        score = qp.p - qp.at_variables(self.values)
        if qp.is_soft:
            score -= qp.ridge * self.beta
        return score

    @property
    def norm2(self) -> float:
        """The squared norm of w, beta'u."""
        return float(self.coef @ self.values)

    def dual(self, norm2: float) -> float:
        """Value of the dual at a beta with beta'u = `norm2`."""
        linear, square, _ = self._sums
        return float(linear - 0.5 * (norm2 + square))

    def sharpen(self, resolution: float) -> None:
        """Compute again from the rows what could decide and is too uncertain; then in twice the digits."""
        if self._direct or self._is_fine(resolution):
            return
        needed = self._resolution(resolution)
        if not self._is_coarse(needed):
            return
        if self.exact is None:
            values = self._shifted(matvec_compensated(self.qp.source, self.coef))
            self._replace(np.arange(len(values)), values, self._finest_errors(values))
            return
        self._sharpen_by_products(needed)
        if self.exact.can_refine(len(self.support)) and self._is_coarse(needed := self._resolution(resolution)):
            for rows in self._wanted(needed):
                values = self._shifted(self.exact.finest(rows, self.support, self.coef[self.support]))
                self._replace(rows, values, self._finest_errors(values, rows))

    def _sharpen_by_products(self, needed: float) -> None:
        """From values in float64, whose bound is that of the very rows that are met."""
        exact, coef, terms = self.exact, self.coef[self.support], self.exact.summands(len(self.support))
        columns = exact.columns(self.support)
        short = exact.shorter(columns)
        enough = self._errors(exact.rounding(short), self.length, terms)[self.support].max(initial=0.0) <= needed
        columns = short if enough else columns
        for rows in self._wanted(needed):
            if rows is self.support:
                P, values = columns, exact.symmetric_product(rows, coef, columns)
            else:
                P = exact.shorter(exact.prepared(rows)) if enough else exact.prepared(rows)
                values = exact.product(P, columns, coef)
            errors = self._errors(exact.rounding(P, columns), self.length, terms)
            self._replace(rows, self._shifted(values), errors[rows])

    def doubt_sums(self) -> None:
        """Add to all errors what rounding has left of the sums: outputs of K and of K centred differ by them."""
        missed = min(sum(self.sum_errors), ROUNDED_SUM * self.length)  # more is no rounding: it is the infeasibility
        if missed:
            self.errors = self.errors + missed * float(np.abs(self.qp.diagonal).max())

    def _is_fine(self, of_gap: float) -> bool:
        """Whether no output is less certain than `_resolution` asks for, by a bound of that which costs little."""
        value = abs(self.dual(self.norm2))
        total = max(self.qp.steepest, 0.5 * self.length)  # no slope is larger; infinite: nobody knows
        return bool(total > 0.0 and self.errors.max(initial=0.0) <= min(of_gap, OBJECTIVE * value / total))

    def _resolution(self, of_gap: float) -> float:
        """How uncertain outputs may be: `of_gap` for the gap, and so little that the objectives are known as well."""
        qp = self.qp
        multipliers, value = self._multipliers_and_value()
        residual = qp.p - qp.at_variables(self.values) - at_groups(qp, multipliers)
        slopes = np.abs(_steepest(qp, residual, np.full(qp.m, of_gap)))
        total = float(np.where(np.isfinite(slopes), slopes, np.abs(self.beta)).sum())
        total = max(total, 0.5 * self.length)  # the norm is in both objectives, losses in one
        return min(of_gap, OBJECTIVE * value / total) if total > 0.0 and np.isfinite(value) else of_gap

    def _multipliers_and_value(self) -> tuple[Floats, float]:
        """Multipliers (k,) and the larger objective: those of the free scores, or the best where these tell too much.

        Scores within tol of each other may cost C each in the primal, where all of beta is far smaller than C.
        """
        qp, norm2 = self.qp, self.norm2
        dual, told = abs(self.dual(norm2)), free_multipliers(qp, self.beta, self.scores)
        primal = abs(primal_at(qp, self.values, norm2, told))
        if primal > MUCH * dual:
            told = np.array([best_multiplier(qp, self.values, g) for g in range(len(told))])
            primal = abs(primal_at(qp, self.values, norm2, told))
        return told, max(dual, primal)

    def _is_coarse(self, resolution: float) -> bool:
        """Whether a row of the support, or one that could decide, is less certain than it should be."""
        if self.errors.max(initial=0.0) <= resolution:
            return False
        rows = np.concatenate([self.support, self._deciding()])
        return bool((self.errors[rows] > resolution).any())

    def _wanted(self, resolution: float) -> Iterator[Floats]:
        """The support first, which decides the objectives too; then what could still be an extreme."""
        if self.errors[self.support].max(initial=0.0) > resolution:
            yield self.support
        rows = self._deciding()
        rows = rows[self.errors[rows] > resolution]
        if len(rows):
            yield rows

    def _shifted(self, values: Floats) -> Floats:
        """Outputs of K + shift, from those of K."""
        return values + self.qp.shift * self.coef.sum()

    def _replace(self, rows: Floats, values: Floats, errors: Floats) -> None:
        """Take the values at `rows` that are more certain than those before."""
        better = errors < self.errors[rows]
        rows = rows[better]
        self.values[rows], self.errors[rows] = values[better], errors[better]
        self.exact_rows[rows] = True

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

    def bar(self, found: Objectives) -> float:
        """Bound of the error of primal and dual: of the outputs, and of sums of eight terms at a time."""
        norm2 = 0.5 * float(weighted(self.coef, self.errors))
        return norm2 + found.doubt + EPS * (self.qp.m / 8.0 + 8.0) * (found.sizes + self._sums[2])


class KnownOutputs(BoundedOutputs):
    """Outputs (n,) that somebody has computed, with bounds (n,) of their errors."""

    def __init__(self, qp: SignedQP, beta: Floats, values: Floats, errors: Floats) -> None:
        self._begin(qp, beta)
        self.exact_rows = np.ones(qp.source.n, dtype=bool)
        self.values = values + qp.shift * self.coef.sum() if qp.shift else values
        self.errors = errors + EPS * abs(qp.shift) * self.length

    def sharpen(self, resolution: float) -> None:
        """They are what they are."""


def _steepest(qp: SignedQP, residual: Floats, error: Floats) -> Floats:
    """The slope (m,) of h_v of largest size where the residual is uncertain by `error`."""
    up, down = slope(qp, residual + error), slope(qp, residual - error)
    return np.where(np.abs(up) > np.abs(down), up, down)


def _parts(qp: SignedQP):  # type: ignore[no-untyped-def]
    """(index of variables, whether extremes are taken together with 0): each group, and those in none."""
    for g in range(len(qp.groups.sums)):
        yield qp.groups.members(g, qp.m), False
    if not qp.groups.sums:
        yield slice(0, qp.m), True
    elif qp.groups.codes is not None and (qp.groups.codes < 0).any():
        yield np.flatnonzero(qp.groups.codes < 0), True


def free_multipliers(qp: SignedQP, beta: Floats, score: Floats) -> Floats:
    """Multipliers (k,) of the groups that the scores (m,) of the free variables tell; see `multipliers_of`."""
    ends = np.empty((len(qp.groups.sums) + 1, 6))
    group_ends(score, np.zeros(qp.m), beta, qp.lo, qp.hi, qp.codes, ends)
    return multipliers_of(ends, [np.nan] * len(qp.groups.sums))


def multipliers_of(ends: Floats, best: Sequence[float]) -> Floats:
    """Multipliers (k,) of the groups whose `ends` are given: the average of the scores of the free variables.

    Without any, the middle of [min, max], as LIBSVM; the `best` one where one of these is missing.
    """
    return np.array([_multiplier(*each) for each in zip(ends[:-1].tolist(), best, strict=True)])


def _multiplier(ends: list[float], best: float) -> float:
    m, low, _, _, total, count = ends
    if count:
        return total / count
    return 0.5 * (m + low) if m > -np.inf and low < np.inf else best


def _sum_error(qp: SignedQP, beta: Floats, g: int) -> float:
    """By how much the sum of group g is off: scores of K and of K centred differ by as much of a kernel value."""
    return abs(float(exact_sum(beta[qp.groups.members(g, qp.m)], -float(qp.groups.sums[g]))))
