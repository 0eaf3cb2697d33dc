r"""Nystroem's approximation: K of all rows through r landmarks Z, as a linear kernel of rows with r features.

.. math::  \hat K = K_{XZ} K_{ZZ}^{-1} K_{ZX} = G G', \qquad G = K_{XZ} L^{-T}, \quad K_{ZZ} = L L'

The best w = sum_j c_j phi(z_j) for a machine has c = L^{-T} w_G, w_G that of the linear machine on G, and the same
norm: it solves the exact primal over the span of the landmarks. So a model is a kernel expansion over the landmarks.

References
----------
Williams, Seeger (2001), Using the Nystroem method to speed up kernel machines, NIPS 13, equation 7.
"""

import dataclasses
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike
from scipy import linalg

from svmcore.approximation.landmarks import LANDMARKS, landmarks_of
from svmcore.errors import InputError, Unsupported
from svmcore.kernels.base import Kernel
from svmcore.points import Floats, Points, Rows
from svmcore.runtime.plugins import Plugin
from svmcore.runtime.threads import one_blas_thread, split_range

__all__ = ["Approximation", "FeatureMap", "Nystroem", "factor_rows"]

DEPENDENT = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-10}  # share of K_zz that a landmark must add
BLOCK = 2048  # rows of the factor in one product: as many as make it as fast as large ones
PANEL = 256  # of its columns, each of the landmarks before it: half of the product with a square matrix


class Approximation(Plugin, ABC):
    """How K is replaced by one of low rank, as data."""

    polish: bool

    def admits(self, kernel: Kernel) -> None:
        """Raise Unsupported unless the kernel is one of rows and positive semi-definite."""
        if not kernel.psd or kernel.name == "precomputed":
            raise Unsupported(
                f"an approximation needs a positive semi-definite kernel of rows, not kernel={kernel.name}"
            )

    @abstractmethod
    def map(self, kernel: Kernel, X: Rows, dtype: DTypeLike = np.float32) -> "FeatureMap":
        """The map that rows `X` (n, p) give, for a factor of type `dtype`."""


@dataclasses.dataclass(frozen=True)
class Nystroem(Approximation):
    """K through at most `rank` landmarks.

    Parameters
    ----------
    rank
        Landmarks at most; those that others as good as span are left out.
    landmarks
        "uniform": rows drawn at random. "kmeans": means of rows, dense rows only. "rpcholesky": rows drawn by what
        those before leave of their K_ii, best where the spectrum falls fast.
    polish
        Whether `smo` goes on from the answer until the exact machine is solved, or the time limit is reached.
    seed
        Of the draws.
    """

    name: ClassVar[str] = "nystroem"
    rank: int = 500
    landmarks: str = "rpcholesky"
    polish: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise InputError(f"approximation 'nystroem': rank must be a whole number, 1 or more; given {self.rank!r}")
        if self.landmarks not in LANDMARKS:
            raise InputError(
                f"approximation 'nystroem': landmarks must be {', '.join(LANDMARKS)}; given {self.landmarks!r}"
            )
        if not isinstance(self.polish, bool):
            raise InputError(f"approximation 'nystroem': polish must be true or false; given {self.polish!r}")

    def map(self, kernel: Kernel, X: Rows, dtype: DTypeLike = np.float32) -> "FeatureMap":
        """As declared."""
        self.admits(kernel)
        Z, places = landmarks_of(self.landmarks, kernel, X, self.rank, self.seed)
        return FeatureMap.of(kernel, Z, DEPENDENT[np.dtype(dtype)], places)


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureMap:
    """x -> L^-1 k(Z, x).

    Attributes
    ----------
    kernel, landmarks
        With numbers for its parameters, and Z (r, p).
    L
        (r, r) lower triangular, float64: K_ZZ = LL'.
    places
        (r,) which of the rows that it was made of the landmarks are; None where they are means, or not known.
    """

    kernel: Kernel
    landmarks: Rows
    L: Floats
    places: Floats | None = None

    @classmethod
    @one_blas_thread()
    def of(cls, kernel: Kernel, Z: Rows, dependent: float, places: Floats | None = None) -> "FeatureMap":
        """The map through `Z` (r, p), less landmarks that add no more than a share `dependent` to those kept."""
        K = np.array(kernel(Z, Z), dtype=np.float64)
        least = dependent * float(K.diagonal().max(initial=0.0))
        L, pivots, rank, _ = linalg.lapack.dpstrf(K, tol=least, lower=1)
        if not rank:
            raise InputError("every landmark is at the origin of the kernel's space: scale the data, or take another")
        kept, L = pivots[:rank] - 1, np.ascontiguousarray(np.tril(L)[:rank, :rank])
        return cls(kernel, Z[kept], L, None if places is None else places[kept])

    @property
    def rank(self) -> int:
        """Number of landmarks r."""
        return len(self.L)

    @property
    def condition(self) -> float:
        """How many times rounding grows in K_ZZ^-1, about."""
        pivots = self.L.diagonal()
        return float((pivots.max() / pivots.min()) ** 2)

    def coefficients(self, w: Floats) -> Floats:
        """C = L^-T w (r, k) of the landmarks, from weights (r, k) of the features."""
        return np.asarray(linalg.solve_triangular(self.L, w, lower=True, trans="T", check_finite=False))

    def weights(self, products: Floats) -> Floats:
        """W = L^-1 K_ZX beta (r, k), from the products K_ZX beta (r, k)."""
        return np.asarray(linalg.solve_triangular(self.L, products, lower=True, check_finite=False))

    def sides(self, X: Rows, dtype: DTypeLike) -> tuple[Points, Points]:
        """Rows `X`, those that it was made of, and landmarks as the kernel takes them, in one form."""
        points = self.kernel.prepare_gram(X, dtype)
        landmarks = points.alike(self.landmarks) if self.places is None else points.take(self.places)
        if landmarks is not None:
            return points, landmarks
        points = self.kernel.prepare(X, None, dtype)  # no lattice has both
        return points, self.kernel.prepare(self.landmarks, points.centre, dtype)

    def fill(self, points: Points, landmarks: Points, out: Floats) -> None:
        """Write G (n, r) of prepared rows to `out`, block by block on all threads."""
        inverse, rank = linalg.lapack.dtrtri(self.L, lower=1)[0].astype(out.dtype), self.rank

        def part(start: int, stop: int) -> None:
            values = np.empty((min(BLOCK, stop - start), rank), out.dtype)
            for lo in range(start, stop, BLOCK):
                block = out[lo : min(lo + BLOCK, stop)]
                some = self.kernel.block(points.rows(lo, lo + len(block)), landmarks, values[: len(block)])
                for j in range(0, rank, PANEL):  # trmm would keep other threads waiting: SciPy does not let them go on
                    end = min(j + PANEL, rank)
                    np.matmul(some[:, :end], inverse[j:end, :end].T, out=block[:, j:end])

        split_range(len(points), part, least=BLOCK, grain=BLOCK)


def factor_rows(map_: FeatureMap, X: Rows, dtype: DTypeLike = np.float32) -> Floats:
    """G (n, r) of rows `X` (n, p).

    >>> from svmcore.kernels import RBF
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> G = factor_rows(Nystroem(3).map(RBF(gamma=0.5), X, np.float64), X, np.float64)
    >>> bool(np.allclose(G @ G.T, RBF(gamma=0.5)(X, X)))
    True
    """
    points, landmarks = map_.sides(X, dtype)
    out = np.empty((len(points), map_.rank), dtype)
    map_.fill(points, landmarks, out)
    return out
