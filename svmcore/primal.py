r"""The primal of a program, and the multipliers at which it is least: see `svmcore.qp` for the formulas."""

from typing import NamedTuple

import numpy as np

from svmcore.passes.proof.multipliers import bends, bent_multiplier, jump_multiplier
from svmcore.passes.proof.objectives import losses
from svmcore.points import Floats
from svmcore.qp import SignedQP

__all__ = ["Objectives", "at_groups", "best_multiplier", "objectives", "primal_at", "slope"]


def slope(qp: SignedQP, residual: Floats) -> Floats:
    """h'_v (m,): the t of the box at which r t - ridge t^2 / 2 is largest."""
    t = np.where(residual > 0, qp.hi, np.where(residual < 0, qp.lo, 0.0))
    if qp.is_soft:
        np.divide(residual, qp.ridge, out=t, where=qp.ridge > 0)
    return np.minimum(np.maximum(t, qp.lo), qp.hi)


def at_groups(qp: SignedQP, multipliers: Floats) -> Floats:
    """b_g(v) (m,): 0 for a variable in no group."""
    return _and_none(multipliers)[qp.codes]


def _and_none(multipliers: Floats) -> Floats:
    """Multipliers (k + 1,) of the groups (k,) and, last, of the variables in none."""
    found = np.zeros(len(multipliers) + 1)
    found[:-1] = multipliers
    return found


class Objectives(NamedTuple):
    """Primal at given multipliers, and what bounds its error: see `objectives`."""

    primal: float
    sizes: float  # of the losses: what rounding of their sum is relative to
    doubt: float  # by how much losses change where outputs do by their errors


def objectives(qp: SignedQP, outputs: Floats, errors: Floats, norm2: float, multipliers: Floats) -> Objectives:
    """The primal, and sizes and doubt of its losses, at outputs and their `errors` (m,) at the variables."""
    b = _and_none(multipliers)
    scale = _hard_scale(qp, outputs + b[qp.codes]) if qp.is_hard else 1.0
    if not np.isfinite(scale):
        return Objectives(np.inf, *losses(qp.p, outputs, errors, qp.lo, qp.hi, qp.ridge, qp.codes, b, 1.0)[1:])
    loss, *about = losses(qp.p, outputs, errors, qp.lo, qp.hi, qp.ridge, qp.codes, b, scale)
    sums = sum(m * d for m, d in zip(multipliers.tolist(), qp.groups.sums, strict=True))
    return Objectives(0.5 * scale**2 * norm2 + loss + scale * sums, *about)


def primal_at(qp: SignedQP, outputs: Floats, norm2: float, multipliers: Floats) -> float:
    """Primal value at the w with outputs (n,) and squared norm `norm2`, and the multipliers (k,).

    Variables without bound and ridge forbid a loss: w and b are then scaled until none of them has one; inf where no
    scale does.
    """
    return objectives(qp, qp.at_variables(outputs), np.zeros(qp.m), norm2, multipliers).primal


def _hard_scale(qp: SignedQP, f: Floats) -> float:
    """The smallest factor of f with no loss at an unbounded variable; inf where there is none."""
    up, down = qp.unbounded & np.isinf(qp.hi), qp.unbounded & np.isinf(qp.lo)
    margin = np.concatenate([f[up], -f[down]])
    needed = np.concatenate([qp.p[up], -qp.p[down]])
    ahead, behind = margin > 0, margin < 0
    least = float((needed[ahead] / margin[ahead]).max(initial=0.0))
    most = float((needed[behind] / margin[behind]).min(initial=np.inf))
    wrong = bool((needed[margin == 0] > 0).any())
    return np.inf if wrong or least > most else least


def best_multiplier(qp: SignedQP, outputs: Floats, g: int) -> float:
    """The b at which sum_v h_v(t_v - b) + b d_g is least, t_v = p_v - u_v: its slope in b grows.

    The slope d_g - sum_v h'_v(t_v - b) jumps by hi - lo at t_v where there is no ridge, and grows by 1 / ridge between
    t_v - ridge hi and t_v - ridge lo where there is one.
    """
    if not (qp.is_hard or qp.is_soft):
        total = float(qp.groups.sums[g])
        return float(jump_multiplier(qp.p, qp.at_variables(outputs), qp.lo, qp.hi, qp.codes, g, total))
    t, total = qp.p - qp.at_variables(outputs), float(qp.groups.sums[g])
    hard = qp.unbounded & (qp.codes == g) if qp.is_hard else None
    if hard is not None and hard.any():
        return _middle(t[hard], np.isinf(qp.hi[hard]))
    about = t, qp.lo, qp.hi, qp.ridge, qp.codes, g
    place, jump, bend, value, grade = bends(*about, total)
    return float(bent_multiplier(np.argsort(place), place, jump, bend, value, grade, *about))


def _middle(t: Floats, needs_less: Floats) -> float:
    """Middle of the interval of b in which no unbounded variable has a loss, or of where it would be."""
    least, most = t[needs_less].max(initial=-np.inf), t[~needs_less].min(initial=np.inf)
    ends = [float(end) for end in (least, most) if np.isfinite(end)]
    return float(np.mean(ends))
