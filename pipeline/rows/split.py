"""Which rows of a source train and which test: seeded, and a function of targets and seed alone.

Classes keep their shares; rows of values are drawn without a look at them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config.schema import Experiment
from pipeline.kinds.labels import Label
from svmcore.errors import InputError

__all__ = ["Split", "choose_rows", "stratified_sample"]


@dataclass(frozen=True, eq=False)
class Split:
    """Masks over the rows of a source: `train` (n,) and `test` (n,)."""

    train: NDArray[np.bool_]
    test: NDArray[np.bool_]


def choose_rows(exp: Experiment, targets: NDArray[Any], classes: Sequence[Label]) -> Split:
    """Sample `data.rows` of the rows and hold out `data.test` of those, both stratified where there are classes."""
    n, wanted = len(targets), exp.data.rows
    chosen = np.arange(n)
    if wanted is not None and wanted < n:
        codes = targets if exp.kind.stratified else np.zeros(n, np.int32)
        chosen = stratified_sample(codes, wanted, exp.seed, exp.data.source)
    train, test = np.zeros(n, bool), np.zeros(n, bool)
    if not isinstance(exp.data.test, float):
        train[chosen] = True
        return Split(train, test)
    hold_out = _hold_out if exp.kind.stratified else _hold_any_out
    kept, held_out = hold_out(exp, exp.data.test, chosen, targets, classes)
    train[kept] = True
    test[held_out] = True
    return Split(train, test)


def stratified_sample(codes: NDArray[np.int32], n: int, seed: int, url: str) -> NDArray[np.int64]:
    """Return `n` sorted positions, classes in proportion by largest remainders and none left out.

    >>> stratified_sample(np.array([0] * 8 + [1] * 4, np.int32), 6, 0, "x").shape
    (6,)
    """
    sizes = np.bincount(codes)
    if n < len(sizes):
        raise InputError(f"{url}: data.rows {n} is fewer than the {len(sizes)} classes; ask for more rows")
    exact = sizes * (n / len(codes))
    wanted = np.maximum(np.floor(exact).astype(np.int64), 1)
    while wanted.sum() < n:
        wanted[np.argmax(np.where(wanted < sizes, exact - wanted, -np.inf))] += 1
    while wanted.sum() > n:
        wanted[np.argmax(np.where(wanted > 1, wanted - exact, -np.inf))] -= 1
    random = np.random.default_rng(seed)
    parts = [random.permutation(np.flatnonzero(codes == c))[:k] for c, k in enumerate(wanted.tolist())]
    return np.sort(np.concatenate(parts))


def _hold_out(
    exp: Experiment, fraction: float, chosen: NDArray[np.int64], codes: NDArray[np.int32], classes: Sequence[Label]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split as scikit-learn's train_test_split(stratify=y, random_state=seed) does."""
    from sklearn.model_selection import train_test_split

    sizes = np.bincount(codes[chosen], minlength=len(classes))
    where = f"{exp.data.source}: data.test {fraction:g}"
    if sizes.min() < 2:
        label = classes[int(np.argmin(sizes))]
        raise InputError(f"{where}: the class {label!r} has one row, which cannot both train and test; remove it")
    n_test = int(np.ceil(fraction * len(chosen)))
    if min(n_test, len(chosen) - n_test) < len(classes):
        raise InputError(
            f"{where}: a split of {len(chosen) - n_test} training and {n_test} test rows, fewer than the "
            f"{len(classes)} classes on one side; change the fraction"
        )
    kept, held_out = train_test_split(chosen, test_size=fraction, stratify=codes[chosen], random_state=exp.seed)
    left = np.bincount(codes[kept], minlength=len(classes))
    if left.min() == 0:
        label = classes[int(np.argmin(left))]
        raise InputError(f"{where}: no row of the class {label!r} is left to train on; hold out less")
    return kept, held_out


def _hold_any_out(
    exp: Experiment, fraction: float, chosen: NDArray[np.int64], targets: NDArray[Any], classes: Sequence[Label]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split as scikit-learn's train_test_split(random_state=seed) does."""
    from sklearn.model_selection import train_test_split

    n_test = int(np.ceil(fraction * len(chosen)))
    if len(chosen) - n_test < 2:
        raise InputError(
            f"{exp.data.source}: data.test {fraction:g}: a split of {len(chosen) - n_test} training and {n_test} test "
            "rows, and two are needed to train on; change the fraction"
        )
    kept, held_out = train_test_split(chosen, test_size=fraction, random_state=exp.seed)
    return kept, held_out
