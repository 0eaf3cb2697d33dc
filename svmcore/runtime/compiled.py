"""The options every compiled function shares, in one place.

`nogil`: two problems run on two threads, and a worker keeps answering its scheduler. `cache`: compiled once per
machine, and again when anything changes that it is made from (`svmcore.runtime.compiled_from`).
"""

from collections.abc import Callable
from typing import Any

import numba

from svmcore.runtime.compiled_files import compiled_once

__all__ = ["njit", "njit_fused", "njit_sums"]


def _decorator(doc: str, **options: Any) -> Callable[..., Any]:
    """A decorator of these options; see `njit`. `_nrt` is numba's own switch: a test tells if it ever goes."""

    def compiled(
        function: Callable[..., Any] | None = None, *, makes_arrays: bool = False, inside: bool = False
    ) -> Callable[..., Any]:
        if function is None:
            return lambda given: compiled(given, makes_arrays=makes_arrays, inside=inside)
        shared = {"nogil": True, "cache": True, "error_model": "numpy", "forceinline": inside, "_nrt": makes_arrays}
        found = numba.njit(**shared, **options)(function)
        return function if numba.config.DISABLE_JIT else compiled_once(found)  # Python runs it where somebody asks so

    compiled.__doc__ = doc
    return compiled


njit = _decorator(
    """Compile a function without the interpreter lock, cached on disk; `a / 0` gives inf, as NumPy does.

    Parameters
    ----------
    makes_arrays
        Whether it makes arrays, or calls what returns some. Only then numba counts who refers to an array: up and down
        at each call and each view, which took nine tenths of the time of some loops.
    inside
        Whether it becomes a part of the loops that call it at every turn: to hand arrays over takes time too.
    """
)
njit_fused = _decorator(
    "As `njit`, with a * b + c rounded once: a quarter less time where the arithmetic is all there is.",
    fastmath={"contract"},
)
njit_sums = _decorator(
    "As `njit_fused`, with the terms of a sum added in the order that is fastest: the same one in every call.",
    fastmath={"contract", "reassoc"},
)
