"""Pair steps over all rows of a K in memory: how a solve on it begins.

A step over m rows takes m / q times as long as one on the square of q members. But that square is gathered, a third
of its members are in vain, and each round adds the columns of all that moved in it. At first most steps move a
variable that has not moved before, and all rows say which one. After some of them few variables are left that want to
and have not: then who will be in the solution is known, and a square of these ends the solve.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from svmcore.passes.steps.pairs import solve_pairs
from svmcore.passes.steps.working_set import count_wanting
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.state import Part, behind, ends_of, middles

__all__ = ["Begun", "begins_on_rows", "row_steps"]

MOST = 16384  # rows: two of a longer K take steps out of the second-level cache
SOME = 256  # steps after which it is asked whether a square is worth its making
MARGIN = 1.5  # times the variables that want to move and have not are its members, with all that have:
WORTH = 0.3  # if these are q of m, they are where q^2 entries of K are not over this times the m - q less of each step


def begins_on_rows(qp: SignedQP) -> bool:
    """Whether a solve begins on K itself: it is in memory and not too large, and nobody knows who will be needed."""
    source = qp.source
    if source.whole is None or source.dtype != np.float32 or qp.shift != 0.0 or not 0 < qp.m <= MOST:
        return False
    return qp.rows is None and len(qp.groups.sums) > 0 and bool((qp.codes >= 0).all()) and qp.likely is None


class Begun(NamedTuple):
    """What steps on all rows came to.

    Attributes
    ----------
    n_iter, gap, unbounded
        As `solve_pairs` tells them.
    members
        Of a working set on which it is better to go on; None where that is to end here.
    """

    n_iter: int
    gap: float
    unbounded: bool
    members: Floats | None


def row_steps(qp: SignedQP, part: Part, s: Floats, target: float, most: int, largest: int) -> Begun:
    """Steps on all variables to a KKT gap of `target`, at most `most`; changes `part.beta` and `s`.

    Parameters
    ----------
    part, s
        Of all variables, and their scores (m,) in float32 without the groups' centres.
    largest
        Members that a working set may have.
    """
    K, groups = qp.source.whole, len(qp.groups.sums)
    _, beta, lo, hi, ridge, codes = part
    n_iter, steps, gaps, unbounded, members = 0, SOME, [np.inf], False, None
    while members is None and not unbounded and steps == SOME and n_iter < most:
        limit = min(SOME, most - n_iter)
        steps, gap, unbounded = solve_pairs(K, ridge, s, beta, lo, hi, codes, groups, target, limit, 1.0, qp.diagonal)
        n_iter, gaps = n_iter + steps, [*gaps, gap]
        if steps == SOME and not unbounded:
            part = part._replace(score=s.astype(np.float64))
            members = _members(qp, part, _left(gaps, target), largest)
    return Begun(n_iter, gaps[-1], unbounded, members)


def _left(gaps: Sequence[float], target: float) -> float:
    """Steps to the target, if the gap goes on to fall as in the last half, and at most as many as there have been.

    `gaps` are inf and one after each SOME steps.
    """
    done = len(gaps) - 1
    gap, before = max(gaps[-1], target), gaps[done // 2]
    fall = math.log(before / gap) / (done - done // 2)
    return SOME * (min(done, math.log(gap / target) / fall) if fall > 0.0 else done)


def _members(qp: SignedQP, part: Part, left: float, largest: int) -> Floats | None:
    """Those who have moved and who are next to, where their square costs no more than it saves in the steps `left`."""
    whole = part._replace(codes=qp.groups.codes)  # type: ignore[arg-type]
    centres = middles(ends_of(whole, len(qp.groups.sums)))
    moved, wanted = count_wanting(*part[:4], part.codes, centres)
    q = moved + int(MARGIN * wanted)
    if q > largest or q * q > WORTH * left * (qp.m - q):
        return None
    far = behind(part, centres)
    far[part.beta != 0.0] = -np.inf
    return np.sort(np.argpartition(far, q - 1)[:q])
