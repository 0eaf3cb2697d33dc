"""Compiled loops count no references unless they make arrays."""

import numba
import numpy as np
import pytest
from numba.core.errors import NumbaError

from svmcore.passes.steps.coordinates import csr_pass, dense_pass
from svmcore.passes.steps.pairs import _solve_long, _solve_short
from svmcore.runtime.compiled import njit

SINGLE, REAL, WHOLE = numba.float32, numba.float64, numba.int64
SQUARE, SINGLES, REALS, PLACES = SINGLE[:, ::1], SINGLE[::1], REAL[::1], WHOLE[::1]
BOX = (REALS, REALS, REALS)
LONG = numba.types.Tuple((SQUARE, SQUARE, SQUARE)), REAL, WHOLE, REAL, REAL, WHOLE, PLACES
SHORT = numba.types.Tuple((numba.int32[:, ::1], numba.int32[:, ::1], SQUARE)), REAL, WHOLE, REAL
PAIRS = (REALS, SINGLES, *BOX, SINGLES, REALS)
LINEAR = (PLACES, PLACES, REALS, REAL, REALS, REALS, REALS, REALS, REALS, REALS, REALS, REALS, REAL, numba.boolean[::1])
LOOPS = [
    (_solve_short, (SQUARE, *PAIRS, *SHORT)),
    (_solve_long, (SQUARE, *PAIRS, *LONG)),
    (_solve_long, (numba.uint16[:, ::1], *PAIRS, *LONG)),
    (dense_pass, (REAL[:, ::1], *LINEAR)),
    (csr_pass, (REALS, PLACES, PLACES, *LINEAR)),
]


def body(function, signature):
    """What LLVM makes of the function itself, without how Python calls it."""
    options = {name: value for name, value in function.targetoptions.items() if name != "nopython"}
    fresh = numba.njit(signature, **options)(function.py_func)
    _, *parts = fresh.inspect_llvm(fresh.signatures[0]).split("\ndefine ")
    own = (part for part in parts if function.__name__ in part.partition("{")[0] and "@_ZN7cpython" not in part)
    return next(own).partition("\n}")[0]


@pytest.mark.parametrize(
    ("function", "signature"), LOOPS, ids=lambda of: str(of[0]) if isinstance(of, tuple) else of.__name__
)
def test_loops__count_no_references(function, signature):
    assert "NRT_" not in body(function, signature)


def test_makes_arrays__is_needed_for_an_array_and_counts_references():
    def total(values):
        copy = values.copy()
        return copy[0]

    assert "NRT_" in body(njit(makes_arrays=True)(total), (REALS,))
    with pytest.raises(NumbaError, match="NRT required"):
        njit(total)(np.ones(2))
