"""The problems: every table, scaling, kernel, loss and C, in a fixed random order: any prefix is a fair sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

SEED = 20261122
TOL = 1e-3
LIMIT_SECONDS = 10.0
ROWS = 2_500

_KEEL = (
    "australian banana bands breast bupa chess contraceptive crx german hayes-roth heart housevotes ionosphere iris "
    "led7digit letter magic mammographic marketing monk-2 movement_libras mushroom optdigits penbased phoneme pima "
    "ring saheart satimage segment sonar spambase splice tae texture tic-tac-toe titanic twonorm vehicle vowel wdbc "
    "wine wisconsin"
)
KEEL = tuple(_KEEL.split())
SKLEARN = ("sklearn-breast_cancer", "sklearn-digits", "sklearn-iris", "sklearn-wine")
TABLES = KEEL + SKLEARN
SCALINGS = ("raw", "standardised", "shifted")
KERNELS = ("linear", "rbf", "poly", "sigmoid", "precomputed")
LOSSES = ("hinge", "squared_hinge")
COSTS = (0.01, 1.0, 100.0, 10_000.0)


@dataclass(frozen=True)
class Problem:
    """One binary problem; `gram` is the kernel that a precomputed K is made with, "" for the other kernels."""

    table: str
    scaling: str
    kernel: str
    gram: str
    loss: str
    C: float
    weighted: bool

    @property
    def key(self) -> str:
        """Name of the problem in every file."""
        kernel = f"{self.kernel}-{self.gram}" if self.gram else self.kernel
        weights = "weights" if self.weighted else "equal"
        return f"{self.table}/{self.scaling}/{kernel}/{self.loss}/C={self.C:g}/{weights}"

    @property
    def words(self) -> tuple[str, ...]:
        """What a selection may name."""
        return (self.table, self.scaling, self.kernel, self.loss, f"{self.C:g}", _WEIGHTS[self.weighted])


_WEIGHTS = {True: "weighted", False: "equal"}
FACTORS = (TABLES, SCALINGS, KERNELS, LOSSES, tuple(f"{C:g}" for C in COSTS), tuple(_WEIGHTS.values()))


def design() -> list[Problem]:
    """All 5,640 problems in the order of the run; coins decide on weights and on the kernel of a precomputed K.

    Examples
    --------
    >>> len(design()), design()[0].key == design()[0].key
    (5640, True)
    """
    rng = np.random.default_rng(SEED)
    problems = []
    for table, scaling, kernel, loss, C in product(TABLES, SCALINGS, KERNELS, LOSSES, COSTS):
        linear, weighted = rng.random(2) < 0.5
        gram = ("linear" if linear else "rbf") if kernel == "precomputed" else ""
        problems.append(Problem(table, scaling, kernel, gram, loss, C, bool(weighted)))
    return [problems[i] for i in rng.permutation(len(problems))]


def selected(names: Sequence[str]) -> list[Problem]:
    """Problems that match, of every factor, one of the words that name it; all of them for no words."""
    known = {word for factor in FACTORS for word in factor}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"unknown {unknown[0]!r}; known: {', '.join(sorted(known))}")
    wanted = [set(names) & set(factor) or set(factor) for factor in FACTORS]
    return [one for one in design() if all(word in of for word, of in zip(one.words, wanted, strict=True))]
