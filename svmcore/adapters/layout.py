"""LIBSVM's layout of a multi-class model and scikit-learn's names of kernels; it imports neither.

Support vectors are grouped by class. For the pair (i, j), i < j, class i is the positive one; the coefficients of the
vectors of class i are in row j - 1, those of class j in row i. With two classes scikit-learn turns the sign, so that
classes[1] is positive, as everywhere in this package.
"""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from svmcore.errors import InputError, did_you_mean
from svmcore.kernels import RBF, Linear, Polynomial, Precomputed, Tanh
from svmcore.kernels.base import Kernel
from svmcore.points import Floats

__all__ = ["class_order", "from_layout", "kernel_of", "pairs", "parameters_of", "to_layout"]

NAMES: dict[str, type[Kernel]] = {
    "linear": Linear,
    "poly": Polynomial,
    "rbf": RBF,
    "sigmoid": Tanh,
    "precomputed": Precomputed,
}
NO_GAMMA = 1e-300  # scikit-learn allows gamma=0; a number that vanishes in every product does the same


@functools.lru_cache(maxsize=64, typed=True)
def kernel_of(name: str, degree: int, gamma: float | str, coef0: float) -> Kernel:
    """Kernel of scikit-learn's parameters, those it does not have ignored.

    >>> kernel_of("poly", 2, "scale", 1.0)
    Polynomial(degree=2, gamma='scale', coef0=1.0)
    """
    if name not in NAMES:
        raise InputError(f"unknown kernel {name!r}; known: {', '.join(NAMES)}{did_you_mean(name, NAMES)}")
    gamma = gamma if isinstance(gamma, str) else max(float(gamma), NO_GAMMA)
    given = {"degree": int(degree), "gamma": gamma, "coef0": float(coef0)}
    fields = NAMES[name].__dataclass_fields__  # type: ignore[attr-defined]
    return NAMES[name](**{key: value for key, value in given.items() if key in fields})


def parameters_of(kernel: Kernel) -> dict[str, Any]:
    """scikit-learn's parameters of `kernel`; one that it does not have is passed as it is.

    >>> parameters_of(Tanh(gamma=0.5, coef0=-1.0))
    {'kernel': 'sigmoid', 'gamma': 0.5, 'coef0': -1.0}
    """
    for name, kind in NAMES.items():
        if type(kernel) is kind:
            return {"kernel": name} | {key: value for key, value in kernel.spec().items() if key != "name"}
    return {"kernel": kernel}


def class_order(codes: Floats) -> Floats:
    """Order (m,) that groups support vectors with class codes (m,) by class, the original order inside a class."""
    return np.argsort(codes, kind="stable")


def pairs(n_classes: int) -> list[tuple[int, int]]:
    """The pairs i < j in LIBSVM's order.

    >>> pairs(3)
    [(0, 1), (0, 2), (1, 2)]
    """
    return [(i, j) for i in range(n_classes) for j in range(i + 1, n_classes)]


def to_layout(coef: Floats, codes: Floats, n_classes: int) -> Floats:
    """`dual_coef` (n_classes - 1, m) of one-vs-one coefficients `coef` (k, m) with the later class positive.

    >>> to_layout(np.array([[-1.0, 1, 0], [-2, 0, 2], [0, -3, 3]]), np.array([0, 1, 2]), 3)
    array([[ 1., -1., -2.],
           [ 2.,  3., -3.]])
    """
    if n_classes == 2:
        return np.array(coef)
    out = np.empty((n_classes - 1, coef.shape[1]))
    for rows, members in _by_class(codes, n_classes):
        out[:, members] = 0.0 - coef[rows[:, None], members]
    return out


def from_layout(dual_coef: Floats, codes: Floats, n_classes: int) -> Floats:
    """Inverse of `to_layout`: (k, m) with the later class of each pair positive.

    >>> from_layout(np.array([[1.0, -1, -2], [2, 3, -3]]), np.array([0, 1, 2]), 3)
    array([[-1.,  1.,  0.],
           [-2.,  0.,  2.],
           [ 0., -3.,  3.]])
    """
    if n_classes == 2:
        return np.array(dual_coef)
    coef = np.zeros((n_classes * (n_classes - 1) // 2, dual_coef.shape[1]))
    for rows, members in _by_class(codes, n_classes):
        coef[rows[:, None], members] = 0.0 - dual_coef[:, members]
    return coef


def _by_class(codes: Floats, n_classes: int) -> Iterator[tuple[Floats, Floats]]:
    """Of each class its pairs, in the order of the other class, and its members: all that `dual_coef` tells of them."""
    for code, rows in enumerate(_pairs_of_each(n_classes)):
        yield rows, np.flatnonzero(codes == code)


@functools.lru_cache(maxsize=16)
def _pairs_of_each(n_classes: int) -> Floats:
    """(n_classes, n_classes - 1) numbers of the pairs that each class is in."""
    number = np.zeros((n_classes, n_classes), np.int64)
    number[np.triu_indices(n_classes, 1)] = np.arange(n_classes * (n_classes - 1) // 2)
    number += number.T
    return number[~np.eye(n_classes, dtype=bool)].reshape(n_classes, n_classes - 1)
