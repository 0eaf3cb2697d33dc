"""Vectors of many numbers and few different ones, as they travel: a byte for each place, and the numbers once.

The bounds of a class are its C on either side of 0, and its targets are two numbers: 40 bytes a row would say nothing
that one does not.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from svmcore.points import Floats

__all__ = ["Packed"]

KINDS = 256  # that a byte tells apart


class Packed(NamedTuple):
    """Vectors (v,): numbers of kind `kinds[i]` at place i, or all numbers in order where `kinds` is None.

    Where all places are of one kind, `kinds` is how many there are: k(x, x) is one number for many kernels.
    """

    kinds: Floats | int | None
    numbers: tuple[Floats, ...]

    @classmethod
    def of(cls, vectors: Sequence[Floats]) -> "Packed":
        """The vectors, as short as may be.

        >>> Packed.of([np.array([1.0, -1.0, 1.0]), np.array([5.0, 0.0, 5.0])]).kinds
        array([1, 0, 1], dtype=uint8)
        """
        kinds = _kinds(vectors)
        if kinds is None:
            return cls(None, tuple(vectors))
        _, first, inverse = np.unique(kinds, return_index=True, return_inverse=True)
        if len(first) > KINDS:
            return cls(None, tuple(vectors))
        told = len(kinds) if len(first) == 1 else inverse.astype(np.uint8)
        return cls(told, tuple(vector[first] for vector in vectors))

    def vectors(self) -> list[Floats]:
        """What was packed."""
        kinds = np.zeros(self.kinds, np.uint8) if isinstance(self.kinds, int) else self.kinds
        return [numbers if kinds is None else numbers[kinds] for numbers in self.numbers]


def _kinds(vectors: Sequence[Floats]) -> Floats | None:
    """A number for each combination that may occur; None where a vector alone has too many."""
    kinds = np.zeros(len(vectors[0]), np.int64)
    for vector in vectors:
        values, inverse = np.unique(vector, return_inverse=True)
        if len(values) > KINDS:
            return None
        kinds = kinds * len(values) + inverse  # five vectors at most: below 256^5
    return kinds
