"""A kernel whose values the user brings: the rows of the data are rows of K."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse
from scipy.linalg.lapack import dpotrf

from svmcore.errors import InvalidProblem
from svmcore.kernels.base import Kernel
from svmcore.kernels.rounding import Rounding, tiny_of, unit_of
from svmcore.points import Extent, Floats, Moments, Points, Rows
from svmcore.runtime.memory import empty

__all__ = ["Precomputed", "is_psd"]


@dataclass(frozen=True)
class Precomputed(Kernel):
    """k(x, x_j) = x_j-th entry of the row x: the data are K(x, training rows).

    A training row j stands on the right-hand side as the unit vector e_j (CSR), since k(x, x_j) = x'e_j: that is what
    a model keeps as its support vectors.

    >>> K = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> Precomputed()(K, Precomputed.units([1], 2))
    array([[1.],
           [3.]])
    """

    name: ClassVar[str] = "precomputed"

    @property
    def psd(self) -> bool:
        """A property of the matrix that was given, which `is_psd` tests."""
        return False

    @staticmethod
    def units(idx: object, n: int) -> Rows:
        """CSR unit vectors e_j (len(idx), n) for the training rows `idx`."""
        columns = np.asarray(idx, dtype=np.int64)
        data = np.ones(len(columns))
        return sparse.csr_matrix((data, columns, np.arange(len(columns) + 1)), shape=(len(columns), n))

    def __call__(self, X: Rows, Z: Rows) -> Floats:
        """Entries of the rows `X` (n, N) at the training rows that the units `Z` (m, N) name."""
        if X.shape[1] != Z.shape[1]:
            raise InvalidProblem(
                f"a precomputed kernel needs rows of {Z.shape[1]} values, one per training row; given {X.shape[1]}"
            )
        dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
        return dense[:, Z.indices].astype(np.float64)

    def prepare(self, X: Rows, centre: Floats | None = None, dtype: DTypeLike = np.float32) -> Points:
        """Rows as they are: entries of K have no centre."""
        zeros = np.zeros(X.shape[0])
        return Points(X, Moments(zeros, zeros), np.zeros(X.shape[1]))

    def prepare_gram(self, X: Rows, dtype: DTypeLike = np.float32) -> Points:
        """Rows as they are."""
        return self.prepare(X)

    def rounding(self, P: Points, Q: Points | Extent | None = None, dtype: DTypeLike = np.float32) -> Rounding:
        """The store alone: the given values are the exact ones."""
        kept = np.result_type(P.dtype, np.float32) if P.dtype.kind in "fbi" else np.dtype(np.float64)
        exact = np.can_cast(kept, dtype)
        return Rounding(0.0, 0.0) if exact else Rounding(unit_of(dtype), tiny_of(dtype))

    def block(self, P: Points, Q: Points, out: Floats | None = None) -> Floats:
        """Entries of the rows P at the training rows that the units Q name."""
        values = self(P.values, Q.values)
        if out is None:
            return values
        out[...] = values
        return out

    def diagonal(self, X: Rows) -> Floats:
        """K_ii (n,) of a square matrix of rows."""
        if X.shape[0] != X.shape[1]:
            raise InvalidProblem(f"a precomputed kernel is trained on a square matrix; given {X.shape}")
        return np.asarray(X.diagonal(), dtype=np.float64)


def is_psd(K: Floats, tolerance: float | None = None) -> bool:
    """Whether a symmetric matrix `K` (n, n) has no eigenvalue below -`tolerance`: one Cholesky factorisation.

    The default is n eps max K_ii, what rounding the values of a positive semi-definite matrix in their own type can do.

    >>> is_psd(np.array([[1.0, 1.0], [1.0, 1.0]])), is_psd(np.array([[1.0, 2.0], [2.0, 1.0]]))
    (True, False)
    """
    K = np.asarray(K)
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise InvalidProblem(f"a kernel matrix is square; given shape {K.shape}")
    diagonal = K.diagonal().astype(np.float64)
    if not np.isfinite(diagonal).all() or (diagonal < 0).any():
        return False
    if tolerance is None:
        eps = np.finfo(K.dtype if K.dtype.kind == "f" else np.float64).eps
        tolerance = len(K) * float(eps) * float(diagonal.max(initial=0.0))
    shifted = empty(K.shape, np.float64)
    shifted[...] = K
    if not np.array_equal(shifted, shifted.T) and not np.abs(shifted - shifted.T).max() <= 2 * tolerance:
        return False
    shifted.flat[:: len(K) + 1] += tolerance if tolerance > 0 else np.finfo(np.float64).tiny
    # in place: fresh memory takes as long as the work
    return not len(K) or bool(dpotrf(shifted.T, overwrite_a=True, clean=False)[1] == 0)
