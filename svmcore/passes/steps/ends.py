"""The larger and the smaller of two floats in one instruction, so that a loop over many is of vectors.

Python's `max` asks first whether one is no number, and in which place: that leaves a loop scalar.
"""

from typing import Any

from numba import types
from numba.extending import intrinsic

__all__ = ["larger", "smaller"]

NUMBERS = ("nnan", "nsz")  # both are numbers, and of zeros any will do


def _chosen(comparison: str) -> Any:
    """What is the first of two floats where the comparison holds, else the second."""

    @intrinsic
    def choose(typing_context, a, b):  # type: ignore[no-untyped-def]
        """Of floats of one type; where one of them is no number, any float."""
        if not isinstance(a, types.Float) or a != b:
            return None

        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            holds = builder.fcmp_ordered(comparison, *arguments, flags=NUMBERS)
            return builder.select(holds, *arguments, flags=NUMBERS)

        return a(a, a), generate

    return choose


larger, smaller = _chosen(">"), _chosen("<")
