"""What kernels need of rows beside their inner products: norms about a centre and offsets, in float64."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from svmcore.runtime.compiled import njit_sums
from svmcore.runtime.threads import split_range

__all__ = ["Extent", "Floats", "Moments", "empty_moments", "moments_of", "scaled_moments"]

Floats: TypeAlias = NDArray[Any]


class Moments(NamedTuple):
    """What a kernel of the inner product needs beside the products: (n,) float64 vectors of one side of a block."""

    norm2: Floats  # ||u||^2, squared norms about the centre
    along: Floats  # u'c
    half: float = 0.0  # c'c / 2

    @property
    def offset(self) -> Floats:
        """O = u'c + c'c / 2 (n,), so that x'z = u_x'u_z + o_x + o_z."""
        return self.along + self.half

    @property
    def square(self) -> Floats:
        """X'x (n,), the squared norms about the origin."""
        return self.norm2 + 2.0 * self.offset

    def take(self, rows: Any) -> "Moments":
        """Those of some rows."""
        return Moments(self.norm2[rows], self.along[rows], self.half)


class Extent(NamedTuple):
    """How far rows reach: what bounds the rounding of their kernel values."""

    norm2: float  # the largest ||u||^2, about the centre
    square: float  # the largest x'x, about the origin


def empty_moments(n: int, centre: Floats) -> Moments:
    """Of n rows about `centre` (p,), to be filled."""
    return Moments(np.empty(n), np.empty(n), 0.5 * float(centre @ centre))


def moments_of(X: Floats, centre: Floats) -> Moments:
    """Of dense rows `X` (n, p) about `centre` (p,).

    >>> moments_of(np.array([[1.0, 3.0]]), np.array([1.0, 2.0])).norm2
    array([1.])
    """
    return _filled(X, 1.0, centre, centre)


def scaled_moments(K: Floats, step: float, centre: Floats) -> Moments:
    """Of the rows `centre` + `step` K, with whole numbers `K` (n, p)."""
    return _filled(K, step, np.zeros(len(centre)), centre)


def _filled(X: Floats, scale: float, shift: Floats, centre: Floats) -> Moments:
    found = empty_moments(len(X), centre)

    def some(lo: int, hi: int) -> None:
        _fill(X[lo:hi], scale, shift, centre, found.norm2[lo:hi], found.along[lo:hi])

    split_range(len(X), some, least=1024)
    return found


@njit_sums
def _fill(X, scale, shift, centre, norm2, along):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        square, product = 0.0, 0.0
        for f in range(X.shape[1]):
            u = scale * np.float64(X[i, f]) - shift[f]
            square += u * u
            product += u * centre[f]
        norm2[i], along[i] = square, product
