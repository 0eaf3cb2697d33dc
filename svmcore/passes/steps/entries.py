"""Entries of a square that may be of floats or of whole numbers."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["difference"]


@intrinsic
def difference(typing_context, a, b, like):  # type: ignore[no-untyped-def]
    """A - b in the type of `like`. Whole numbers of 16 bits are subtracted first: that is exact, and one conversion."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        first, second, _ = arguments
        if isinstance(a, types.Integer):
            wide = (builder.zext(entry, ir.IntType(32)) for entry in (first, second))
            return builder.sitofp(builder.sub(*wide), context.get_value_type(like))
        return builder.fsub(context.cast(builder, first, a, like), context.cast(builder, second, b, like))

    return like(a, b, like), generate
