"""Pair steps over all rows of a K in memory: how a solve that starts from nothing begins.

A step over m rows takes m / q times as long as one on the square of q members. But that square is gathered, a third
of its members are in vain, and each round adds the columns of all that moved in it. From nothing most steps move a
variable for the first time: then a solve takes about as many steps as it has support vectors, and no square is worth
its making. Once steps come back to the same variables it is.
"""

import numpy as np

from svmcore.passes.steps.pairs import solve_pairs
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.state import MemoryState, Part, WorkingSetState

__all__ = ["begins_on_rows", "row_steps"]

MOST = 16384  # rows: two of a longer K take steps out of the second-level cache
SOME = 512  # steps after which it is asked how many variables they have moved
AGAIN = 2.0  # steps for each of these, after which a square is worth it where few of all variables have moved,
WIDE = 6.0  # and more where so many did that it is nearly K: this times their share


def begins_on_rows(qp: SignedQP, state: WorkingSetState) -> bool:
    """Whether a solve from this state begins on K itself: it is in memory and not too large, and nothing is known."""
    source = qp.source
    if source.whole is None or source.dtype != np.float32 or qp.shift != 0.0 or not 0 < qp.m <= MOST:
        return False
    in_pairs = qp.rows is None and len(qp.groups.sums) > 0 and bool((qp.codes >= 0).all())
    return in_pairs and qp.likely is None and isinstance(state, MemoryState) and not state.beta.any()


def row_steps(qp: SignedQP, part: Part, score: Floats, target: float, most: int) -> tuple[int, bool, bool]:
    """Steps on all variables to a KKT gap of `target`, at most `most`; changes `part.beta`.

    Parameters
    ----------
    part, score
        Of all variables, and their scores (m,) without the groups' centres.

    Returns
    -------
    (n_iter, fresh, unbounded)
        `fresh` says whether more such steps pay; `unbounded` that one had no end.
    """
    K, s, before, groups = qp.source.whole, score.astype(np.float32), part.beta.copy(), len(qp.groups.sums)
    _, beta, lo, hi, ridge, codes = part
    n_iter, steps, fresh, unbounded = 0, SOME, True, False
    while fresh and not unbounded and steps == SOME and n_iter < most:
        limit = min(SOME, most - n_iter)
        steps, _, unbounded = solve_pairs(K, ridge, s, beta, lo, hi, codes, groups, target, limit, 1.0, qp.diagonal)
        n_iter += steps
        fresh = _pays(n_iter, int(np.count_nonzero(beta != before)), qp.m)
    return n_iter, fresh, unbounded


def _pays(steps: int, moved: int, m: int) -> bool:
    """Whether steps that moved so many of m variables did better than a square of these would have."""
    return 0 < steps <= moved * (AGAIN + WIDE * moved / m)
