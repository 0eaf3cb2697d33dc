"""Folds, exactly scikit-learn's: workers need them too, and should not spend a second on importing it."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["plain_folds", "stratified_folds"]


def stratified_folds(codes: ArrayLike, folds: int, seed: int) -> NDArray[np.int64]:
    """Fold (n,) of every row: that of `StratifiedKFold(folds, shuffle=True, random_state=seed)`.

    Classes in the order of their first row; each deals its rows to the folds as evenly as the classes before it allow.

    >>> stratified_folds([0, 0, 0, 1, 1, 1], 3, 0).tolist()
    [2, 1, 0, 2, 0, 1]
    """
    codes = np.asarray(codes)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    ordinal = np.argsort(np.argsort(first))[inverse]
    dealt = np.sort(ordinal)
    shares = np.stack([np.bincount(dealt[k::folds], minlength=len(first)) for k in range(folds)])
    generator = np.random.RandomState(seed)
    fold = np.empty(len(codes), np.int64)
    for k in range(len(first)):
        own = np.arange(folds).repeat(shares[:, k])
        generator.shuffle(own)
        fold[ordinal == k] = own
    return fold


def plain_folds(n: int, folds: int, seed: int) -> NDArray[np.int64]:
    """Fold (n,) of every row: that of `KFold(folds, shuffle=True, random_state=seed)`.

    >>> plain_folds(5, 2, 0).tolist()
    [0, 0, 0, 1, 1]
    """
    order = np.arange(n)
    np.random.RandomState(seed).shuffle(order)
    sizes = np.full(folds, n // folds)
    sizes[: n % folds] += 1
    fold = np.empty(n, np.int64)
    fold[order] = np.arange(folds).repeat(sizes)
    return fold
