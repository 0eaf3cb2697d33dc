r"""Probabilities from decision values: Platt's sigmoid per problem, pairwise coupling over classes.

.. math::  P(y = 1 | f) = \frac{1}{1 + \exp(A f + B)}

References
----------
Platt (1999), Probabilistic outputs for support vector machines; Lin, Lin, Weng (2007), A note on Platt's probabilistic
outputs, algorithm 1; Wu, Lin, Weng (2004), Probability estimates by pairwise coupling, JMLR 5, eq. 16-21.
"""

import numpy as np

from svmcore.points import Floats

__all__ = ["class_probabilities", "couple", "fit_sigmoid", "sigmoid"]

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
