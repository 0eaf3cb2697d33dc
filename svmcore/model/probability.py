r"""Probabilities from decision values: Platt's sigmoid per problem, pairwise coupling over classes.

.. math::  P(y = 1 | f) = \frac{1}{1 + \exp(A f + B)}

References
----------
Platt (1999), Probabilistic outputs for support vector machines; Lin, Lin, Weng (2007), A note on Platt's probabilistic
outputs, algorithm 1; Wu, Lin, Weng (2004), Probability estimates by pairwise coupling, JMLR 5, eq. 16-21.
"""

import numpy as np

from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.solvers import Solver
from svmcore.sources.base import Source
from svmcore.tasks.base import Task

__all__ = ["class_probabilities", "couple", "fit_sigmoid", "held_out_decisions", "sigmoid"]

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
    task: Task,
    source: Source,
    y: Floats,
    C: Floats,
    inverse: Floats,
    weights: Floats,
    solver: Solver,
    rng: np.random.Generator,
) -> Floats:
    """Decision values (n,) of the original rows of a classifier, each by a model that has not seen it.

    Original row t is row `inverse[t]` of the source, with the share `weights[t]` of its C (m,): a fold is a smaller C.
    Each solve starts from nothing: where all variables end at their bounds the bias is an interval, and a start from
    the solution of all rows leaves it at one of its ends, another one in each fold.
    A training part of one class alone gives its sign, an empty one 0, as in LIBSVM.
    """
    n, m = len(inverse), len(y)
    order = rng.permutation(n)
    decision = np.empty(n)
    whole = np.bincount(inverse, weights=weights, minlength=m)
    for fold in range(FOLDS):
        held = order[fold * n // FOLDS : (fold + 1) * n // FOLDS]
        if not len(held):
            continue
        left = np.ones(n, dtype=bool)
        left[held] = False
        part = np.bincount(inverse[left], weights=weights[left], minlength=m)
        signs = np.sign(y[part > 0])
        if len(set(signs.tolist())) < 2:
            decision[held] = signs[0] if len(signs) else 0.0
            continue
        with np.errstate(invalid="ignore"):  # an infinite C times 0
            costs = np.where(part > 0, C * (part / whole), 0.0)
        qp = task.nearest(y, costs).program(source, y, costs)
        solution = solver.solve(qp, monitor=Monitor(warn=False))
        decision[held] = solution.decision[inverse[held]] / task.answer(qp, solution).scale
    return decision


def class_probabilities(later: Floats, n_classes: int, scheme: str) -> Floats:
    """Probabilities (n, n_classes) from those of each problem's positive class (n, k).

    >>> class_probabilities(np.array([[0.2, 0.6, 0.0]]), 3, "ovr")
    array([[0.25, 0.75, 0.  ]])
    """
    if n_classes == 2:
        return np.hstack([1.0 - later, later])
    if scheme == "ovo":
        return couple(1.0 - later, n_classes)
    total = later.sum(axis=1, keepdims=True)
    return np.divide(later, total, out=np.full(later.shape, 1.0 / later.shape[1]), where=total > 0)


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
