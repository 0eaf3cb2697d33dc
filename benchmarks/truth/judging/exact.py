"""Arrays of double-double numbers: twice the digits of float64, with operations of a float64 machine.

References
----------
Dekker (1971), A floating-point technique for extending the available precision, Numerische Mathematik 18.
Ogita, Rump, Oishi (2005), Accurate sum and dot product, SIAM J. Sci. Comput. 26.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]
SPLITTER = 2.0**27 + 1.0
EPS = 2.0**-103


def _two_sum(a: Float, b: Float) -> tuple[Float, Float]:
    """Return (s, e), s + e = a + b without error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a: Float, b: Float) -> tuple[Float, Float]:
    """Return (p, e), p + e = a b without error, for factors below 1e150."""
    p = a * b
    c, d = SPLITTER * a, SPLITTER * b
    a_hi, b_hi = c - (c - a), d - (d - b)
    a_lo, b_lo = a - a_hi, b - b_hi
    return p, ((a_hi * b_hi - p) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo


@dataclass(frozen=True, eq=False)
class Double2:
    """hi + lo, arrays of one shape, abs(lo) <= ulp(hi) / 2; relative error about 2^-103 per operation.

    Examples
    --------
    >>> third = (Double2.of(1e16) + 1.0) - 1e16
    >>> float(third.value)
    1.0
    """

    hi: Float
    lo: Float
    __array_ufunc__ = None  # array * Double2 is ours, not a loop over objects

    @classmethod
    def of(cls, value: ArrayLike | Double2) -> Double2:
        """Take float64 values as they are."""
        if isinstance(value, Double2):
            return value
        hi = np.asarray(value, dtype=np.float64)
        return cls(hi, np.zeros_like(hi))

    @property
    def value(self) -> Float:
        """Nearest float64."""
        return self.hi + self.lo

    def __getitem__(self, index: Any) -> Double2:
        return Double2(self.hi[index], self.lo[index])

    def __neg__(self) -> Double2:
        return Double2(-self.hi, -self.lo)

    def __add__(self, other: ArrayLike | Double2) -> Double2:
        other = Double2.of(other)
        s, e = _two_sum(self.hi, other.hi)
        t, f = _two_sum(self.lo, other.lo)
        s, e = _two_sum(s, e + t)
        return Double2(*_two_sum(s, e + f))

    def __sub__(self, other: ArrayLike | Double2) -> Double2:
        return self + (-Double2.of(other))

    def __mul__(self, other: ArrayLike | Double2) -> Double2:
        other = Double2.of(other)
        p, e = _two_product(self.hi, other.hi)
        return Double2(*_two_sum(p, e + (self.hi * other.lo + self.lo * other.hi)))

    __radd__, __rmul__ = __add__, __mul__

    def sum(self, axis: int = 0) -> Double2:
        """Sum over an axis, in pairs."""
        part = Double2(np.moveaxis(self.hi, axis, 0), np.moveaxis(self.lo, axis, 0))
        while (n := part.hi.shape[0]) > 1:
            half = n // 2
            folded = part[:half] + part[half : 2 * half]
            part = folded if n % 2 == 0 else Double2(*(np.concatenate(both) for both in _pairs(folded, part[-1:])))
        return part[0]


def _pairs(a: Double2, b: Double2) -> tuple[tuple[Float, Float], tuple[Float, Float]]:
    return (a.hi, b.hi), (a.lo, b.lo)
