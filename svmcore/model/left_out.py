r"""Decision values of rows by models that have not seen them, told by one solution: the span rule.

Leave variable p out, and let the free variables F, those between their bounds, take over what it held, so that they
stay on their margins and the sums stay as they are. If no other variable reaches or leaves a bound, that is the
solution without p (Vapnik and Chapelle, "Bounds on error expectation for support vector machines", 2000), and

.. math::  f^{-p}(x_p) = f(x_p) - \beta_p S_p^2, \qquad
    S_p^2 = k_{pp} - u_p' M^{-1} u_p \;\text{ at a bound}, \quad 1 / (M^{-1})_{pp} - ridge_p \;\text{ if free}

.. math::
    M = \begin{pmatrix} K_{FF} + ridge & E \\ E' & 0 \end{pmatrix}, \qquad
    u_p = \begin{pmatrix} K_{Fp} \\ e_p \end{pmatrix}

with a column of E for each group. Rows that are no support vectors are told what they are told anyhow. So all rows cost
one factorisation of the size of F, where folds cost as many solves as there are folds. Where few variables are free
they cannot take over what others held, and where many are the factor costs more than folds: folds are solved then.
A part of F would not do. It makes S larger, by as much as no row is seen to lose, and sigmoids are far too flat.
"""

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.linalg.lapack import get_lapack_funcs

from svmcore.passes.matrix.gather import gather_square
from svmcore.points import Floats
from svmcore.qp import SignedQP

__all__ = ["Told", "left_out_change", "rule_holds", "told_without"]

Told = tuple[Floats, Floats]  # some of the original rows, and the decision value of each

FEWEST_FREE = 20  # of which the rule holds: with fewer, sigmoids were found that fall with the decision value
MOST_FREE = 1024  # with more, folds cost less
JITTER = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-7}  # of the mean of K_ii, for eigenvalues near 0
ALONE = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-9}  # what rounding leaves of a difference that is 0
COLUMNS = 256  # that are looked up at once


def told_without(
    qp: SignedQP, beta: Floats, decision: Floats, scale: float, inverse: Floats, folds: Callable[[], Told]
) -> Told:
    """Original rows and their decision values, each by a model that has not seen it.

    Parameters
    ----------
    beta, decision, scale
        Of the solution: its variables (m,), and the values (m,) of its model, which divides by `scale`.
    inverse
        (n,) row of the program of each original row.
    folds
        Gives these where the rule does not hold, or costs more.
    """
    if not rule_holds(qp, beta):
        return folds()
    share = 1.0 / np.maximum(1, np.bincount(inverse, minlength=qp.m))
    return np.arange(len(inverse)), (decision + left_out_change(qp, beta, share) / scale)[inverse]


def rule_holds(qp: SignedQP, beta: Floats) -> bool:
    """Whether so many of the variables `beta` (m,) are free that the rule is right, and so few that it is cheap."""
    free = int(np.count_nonzero((beta > qp.lo) & (beta < qp.hi) & (beta != 0)))
    return FEWEST_FREE <= free <= MOST_FREE


def left_out_change(qp: SignedQP, beta: Floats, share: Floats) -> Floats:
    """What the decision value of each row changes by without it, (m,), at the solution `beta` (m,).

    The program has one variable a row; the answer's scale is not in it. `share` (m,) is what one copy of a row has of
    its C_i: what is left out. A free variable that does not need it loses nothing.
    """
    support = np.flatnonzero(beta)
    bound = np.where(beta > 0, qp.hi, -qp.lo)[support]
    size = np.abs(beta[support])
    free = (size < bound) & (size > 0)
    with np.errstate(invalid="ignore"):  # an infinite bound times 0
        lost = np.where(np.isinf(bound), share[support] * size, size - (1.0 - share[support]) * bound)
    found = np.zeros(qp.m)
    found[support] = -np.sign(beta[support]) * np.clip(lost, 0.0, size) * _spans(qp, support, free)
    return found


def _spans(qp: SignedQP, support: Floats, free: Floats) -> Floats:
    """S_p^2 (len(support),)."""
    inner, spans = np.flatnonzero(free), qp.diagonal[support].copy()
    if not len(inner):
        return spans
    K = _values(qp, support[inner], support)
    ridge = qp.ridge[support[inner]].astype(K.dtype)
    L = _factor(K[:, inner], ridge, K.dtype.type(JITTER[K.dtype] * qp.diagonal.mean()))
    members = (qp.codes[support][:, None] == np.arange(len(qp.groups.sums))).astype(K.dtype)
    members = members[:, members[inner].any(axis=0)]  # a group with no free variable has no say
    outer = np.setdiff1d(np.arange(len(support)), inner)
    E = solve_triangular(L, members[inner], lower=True)
    D = E.T @ E
    W = solve_triangular(L, K[:, outer], lower=True)
    missed = E.T @ W - members[outer].T
    spans[outer] -= (W**2).sum(axis=0) - (missed * np.linalg.solve(D, missed)).sum(axis=0)
    inverse, _ = get_lapack_funcs("trtri", (L,))(L, lower=1)
    across, whole = E.T @ inverse, np.einsum("ij,ij->j", inverse, inverse)
    diagonal = whole - (across * np.linalg.solve(D, across)).sum(axis=0)
    alone = diagonal <= ALONE[K.dtype] * whole  # nobody of its group can take over what it holds
    spans[inner] = np.where(alone, spans[inner], 1.0 / np.where(alone, 1.0, diagonal) - ridge)
    return np.maximum(spans, 0.0)


def _values(qp: SignedQP, rows: Floats, columns: Floats) -> Floats:
    """K + shift (len(rows), len(columns)) as it is served."""
    out, step = np.empty((len(rows), len(columns)), qp.source.dtype), min(COLUMNS, qp.source.capacity)
    for start in range(0, len(rows), step):
        matrix, at = qp.source.lookup(rows[start : start + step])
        gather_square(matrix, at, columns, out[start : start + step])
    return out + out.dtype.type(qp.shift)


def _factor(A: Floats, ridge: Floats, jitter: float) -> Floats:
    """L (n, n) with A + diag(ridge) + jitter I = LL', of a larger jitter where there is none."""
    shifted = A.copy()
    shifted.flat[:: len(A) + 1] += ridge + jitter
    try:
        return np.asarray(cholesky(shifted, lower=True, overwrite_a=True, check_finite=False))
    except LinAlgError:
        return _factor(A, ridge, 100.0 * jitter)
