"""Trainings that were solved together, before the fits that ask for them: a fit takes the one that is its own.

A training is another's own only if recipe, rows, codes and weights are equal, compared one by one; no hash, no order.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from svmcore.model import Model
from svmcore.points import Floats, Rows
from svmcore.train import Recipe, Training
from svmcore.train.shared import Found

__all__ = ["KnownModel", "Prepared", "prepared", "preparing"]

STEP = 1 << 20  # entries compared at a time


@dataclasses.dataclass(frozen=True, eq=False)
class KnownModel(Model):
    """A model that was told its decision values at some rows: pairs of rows (n, p) and values (n, k)."""

    known: tuple[tuple[Rows, Floats], ...] = ()

    def _in_blocks(self, X: Rows, add: Callable[[Rows, Floats], None], quick: bool = False) -> Floats:
        """Values that are known are not computed."""
        for rows, values in self.known:
            if _equal(rows, X):
                return values.copy()
        return super()._in_blocks(X, add, quick)


@dataclasses.dataclass(eq=False)
class Prepared:
    """One training that was solved.

    Attributes
    ----------
    recipe
        As the estimator makes it.
    rows
        Gives the rows that it was trained on.
    blocks
        Rows that scorers will ask for, in the order of the decision values that were found.
    taken
        Whether a fit has asked for it.
    """

    recipe: Recipe
    found: Found
    rows: Callable[[], Rows]
    blocks: Sequence[Rows]
    taken: bool = False

    def is_of(self, recipe: Recipe, rows: Rows, codes: Floats, classes: Floats, weights: Floats | None) -> bool:
        """Whether this is the training of exactly these."""
        fold = self.found.fold
        return (
            _alike(self.recipe, recipe)
            and np.array_equal(fold.codes, codes)
            and np.array_equal(fold.classes, classes)
            and np.array_equal(fold.weights, weights)  # type: ignore[arg-type]
            and _equal(self.rows(), rows)
        )

    def training(self) -> Training:
        """The training, its model told the values at the blocks."""
        training = self.found.training()
        ends = np.cumsum([block.shape[0] for block in self.blocks])[:-1]
        known = tuple(zip(self.blocks, np.split(self.found.decisions, ends), strict=True))
        fields = {field.name: getattr(training.model, field.name) for field in dataclasses.fields(Model)}
        return dataclasses.replace(training, model=KnownModel(**fields, known=known))


_ready: contextvars.ContextVar[Sequence[Prepared]] = contextvars.ContextVar("prepared", default=())


@contextlib.contextmanager
def preparing(ready: Sequence[Prepared]) -> Iterator[None]:
    """Fits inside find these trainings."""
    token = _ready.set(ready)
    try:
        yield
    finally:
        _ready.reset(token)


def prepared(recipe: Recipe, rows: Rows, codes: Floats, classes: Floats, weights: Floats | None) -> Training | None:
    """The training of exactly these, if it was prepared."""
    for each in sorted(_ready.get(), key=lambda each: each.taken):  # fits come in their order: mostly it is the next
        if each.is_of(recipe, rows, codes, classes, weights):
            each.taken = True
            return each.training()
    return None


def _alike(a: Recipe, b: Recipe) -> bool:
    same = np.array_equal(a.class_weight, b.class_weight)  # type: ignore[arg-type]
    return same and dataclasses.replace(a, class_weight=None) == dataclasses.replace(b, class_weight=None)


def _equal(a: Rows, b: Any) -> bool:
    """Whether two tables hold the same numbers."""
    if a is b:
        return True
    if a.shape != b.shape or sparse.issparse(a) != sparse.issparse(b):
        return False
    if sparse.issparse(a):
        return (a != b).nnz == 0
    step = max(1, STEP // max(1, a.shape[1]))
    return all(np.array_equal(a[i : i + step], b[i : i + step]) for i in range(0, len(a), step))
