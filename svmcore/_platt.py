r"""Probabilities from decision values: Platt's sigmoid per problem, pairwise coupling over classes.

.. math::  P(y = 1 | f) = \frac{1}{1 + \exp(A f + B)}

References
----------
Platt (1999), Probabilistic outputs for support vector machines; Lin, Lin, Weng (2007), A note on Platt's probabilistic
outputs, algorithm 1; Wu, Lin, Weng (2004), Probability estimates by pairwise coupling, JMLR 5, eq. 16-21.
"""

import dataclasses

import numpy as np

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solvers import Solver

__all__ = ["couple", "fit_sigmoid", "held_out_decisions", "sigmoid"]

FOLDS = 5
STEPS = 100
FLOOR = 1e-7  # LIBSVM keeps pairwise probabilities this far from 0 and 1


def sigmoid(decision: Floats, A: Floats | float, B: Floats | float) -> Floats:
    """1 / (1 + exp(A f + B)) without overflow, the shape of `decision`.

    >>> sigmoid(np.array([0.0, 1e4]), -1.0, 0.0)
    array([0.5, 1. ])
    """
    z = np.asarray(decision) * A + B
    e = np.exp(-np.abs(z))
    return np.where(z >= 0, e / (1.0 + e), 1.0 / (1.0 + e))


def _loss(z: Floats, target: Floats) -> float:
    """Negative log likelihood of `target` (n,) at A f + B = z (n,)."""
    return float((np.where(z >= 0, target, target - 1.0) * z + np.log1p(np.exp(-np.abs(z)))).sum())


def fit_sigmoid(decision: Floats, positive: Floats) -> tuple[float, float]:
    """(A, B) of decision values (n,) and the truth of y = 1 (n,), with Platt's smoothed targets, by Newton's method.

    >>> A, B = fit_sigmoid(np.array([-2.0, -1.0, 1.0, 2.0]), np.array([False, False, True, True]))
    >>> A < 0, abs(B) < 1e-9
    (True, True)
    """
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    target = np.where(positive, (n_positive + 1.0) / (n_positive + 2.0), 1.0 / (n_negative + 2.0))
    A, B = 0.0, float(np.log((n_negative + 1.0) / (n_positive + 1.0)))
    value = _loss(decision * A + B, target)
    for _ in range(STEPS):
        p = sigmoid(decision, A, B)
        slope, weight = target - p, p * (1.0 - p)
        g = np.array([decision @ slope, slope.sum()])
        if np.abs(g).max() < 1e-5:
            break
        cross = decision @ weight
        H = np.array([[(decision**2) @ weight + 1e-12, cross], [cross, weight.sum() + 1e-12]])
        step = -np.linalg.solve(H, g)
        size = 1.0
        while size >= 1e-10:  # backtracking line search
            a, b = A + size * step[0], B + size * step[1]
            new = _loss(decision * a + b, target)
            if new < value + 1e-4 * size * float(g @ step):
                A, B, value = float(a), float(b), new
                break
            size /= 2.0
        else:
            break
    return A, B


def held_out_decisions(
    qp: SignedQP, inverse: Floats, weights: Floats, solver: Solver, rng: np.random.Generator
) -> Floats:
    """Decision values (n,) of the original rows of a classifier's program, each by a model that has not seen it.

    Original row t is variable `inverse[t]`, with the share `weights[t]` of its box and ridge: a fold is a box. A
    training part of one class alone gives its sign, an empty one 0, as in LIBSVM.
    """
    n = len(inverse)
    order = rng.permutation(n)
    decision = np.empty(n)
    for fold in range(FOLDS):
        held = order[fold * n // FOLDS : (fold + 1) * n // FOLDS]
        if not len(held):
            continue
        left = np.ones(n, dtype=bool)
        left[held] = False
        whole = np.bincount(inverse, weights=weights, minlength=qp.m)
        part = np.bincount(inverse[left], weights=weights[left], minlength=qp.m)
        signs = np.sign(qp.p[part > 0])
        if len(set(signs.tolist())) < 2:
            decision[held] = signs[0] if len(signs) else 0.0
            continue
        solution = solver.solve(_scaled(qp, part / whole), monitor=Monitor(warn=False))
        decision[held] = solution.decision[inverse[held]]
    return decision


def _scaled(qp: SignedQP, share: Floats) -> SignedQP:
    """The program with C_i times share_i (m,): hinge boxes shrink, the ridge of the squared hinge grows."""
    with np.errstate(invalid="ignore", divide="ignore"):
        lo, hi = (np.where(share > 0, np.where(np.isinf(end), end, end * share), 0.0) for end in (qp.lo, qp.hi))
        ridge = np.where(share > 0, qp.ridge / share, 0.0)
    return dataclasses.replace(qp, lo=lo, hi=hi, ridge=ridge)


def couple(pairwise: Floats, n_classes: int) -> Floats:
    """Class probabilities (n, c) from P(i | i or j) (n, pairs), pairs i < j in lexical order.

    Minimises sum_ij (r_ji p_i - r_ij p_j)^2 over the simplex: one linear system per row.

    >>> couple(np.array([[0.5, 0.5, 0.5]]), 3).round(6)
    array([[0.333333, 0.333333, 0.333333]])
    """
    n = len(pairwise)
    r = np.zeros((n, n_classes, n_classes))
    first, second = np.triu_indices(n_classes, 1)
    r[:, first, second] = np.clip(pairwise, FLOOR, 1.0 - FLOOR)
    r[:, second, first] = 1.0 - r[:, first, second]
    system = np.ones((n, n_classes + 1, n_classes + 1))
    system[:, :n_classes, :n_classes] = -r.transpose(0, 2, 1) * r
    diagonal = np.arange(n_classes)
    system[:, diagonal, diagonal] = (r.transpose(0, 2, 1) ** 2).sum(axis=2)
    system[:, n_classes, n_classes] = 0.0
    right = np.zeros((n, n_classes + 1, 1))
    right[:, n_classes] = 1.0
    p = np.maximum(np.linalg.solve(system, right)[:, :n_classes, 0], 0.0)
    return np.asarray(p / p.sum(axis=1, keepdims=True))
