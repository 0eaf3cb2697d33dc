"""The matrices K of the interior point: products with them and factors of K + diag D, no more.

Neither knows boxes, groups or steps. A factor is a good approximation and not the last word: what it solves is refined
against `times` by who asks (`_interior_steps`).
"""

from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from svmcore.sources import RowMap

__all__ = ["Dense", "Factor", "Floats", "LowRank", "System"]

Floats: TypeAlias = NDArray[Any]

SPREAD = 1.5  # most pivots eliminated last, as a multiple of the rank
SMALL_PIVOT = 1e-5  # a D_i below this share of the mean of K's diagonal is eliminated last
NEAR = 0.05  # trace of K - GG' as a share of the smallest D, where G stands for K in a factor
NARROW = 0.4  # columns of such a G as a share of n: above, the dense factor is as fast
WORTH_PIVOTS = 200  # variables from which on such a G is looked for
EPS = float(np.finfo(np.float64).eps)
NEGLIGIBLE = 1e-4  # sum of K_ii / D_i over the variables that a dense factor treats as uncoupled


class Factor(Protocol):
    """What solves (K + border border' + diag D) x = r, up to rounding."""

    def solve(self, r: Floats) -> Floats:
        """Solution x (n,) of the right-hand side `r` (n,)."""


class System(Protocol):
    """A positive semidefinite K (n, n)."""

    diagonal: Floats

    def times(self, beta: Floats) -> Floats:
        """Product K beta (n,)."""

    def factorise(self, D: Floats, border: Floats) -> Factor:
        """Factor of K + border border' + diag D, for `D` (n,) positive and `border` (n, k)."""

    @property
    def is_convex(self) -> bool:
        """Whether K is positive semidefinite up to rounding."""

    def rows(self, keep: Any) -> "System":
        """The same on some of the variables, given as a mask or as indices."""


class LowRank:
    """K = G G' of rows `G` (n, r), an array or a map of rows that are somewhere; n r^2 a factor.

    Everything of length n is a sum over rows or local to a row: products with G and its normal matrix are all that
    shards of the rows would have to send.
    """

    def __init__(self, G: RowMap | Floats) -> None:
        self.G = G if isinstance(G, RowMap) else RowMap(G)
        self.diagonal = self.G.square_lengths()
        self.is_convex = True

    def times(self, beta: Floats) -> Floats:
        """Product G (G' beta) (n,)."""
        return self.G.times(self.G.weights(beta))

    def rows(self, keep: Any) -> "LowRank":
        """The factor of some of the rows."""
        return LowRank(self.G.taken(keep))

    def factorise(self, D: Floats, border: Floats) -> "LowRankFactor":
        """Factor of G G' + border border' + diag D."""
        return LowRankFactor(self, D, border)


class LowRankFactor:
    r"""Woodbury's formula for all variables but those of the smallest D, which are eliminated last and by QR.

    With F the few smallest D (the free variables of a late iterate), B the rest and M = I + G_B' D_B^-1 G_B = L L',

    .. math::  (D_F + E'E) x_F = r_F - G_F M^{-1} t, \quad E = L^{-1} G_F', \quad t = G_B' D_B^{-1} r_B, \quad
               x_B = D_B^{-1} (r_B - G_B M^{-1} (t + G_F' x_F)).

    Woodbury alone divides a difference that has lost all its digits by the tiny D_F. E'E + D_F is never formed: its
    factor is the R of the stacked [E; D_F^1/2], pivoted, with long rows first.

    References
    ----------
    Fine, Scheinberg (2001), Efficient SVM training using low-rank kernel representations, JMLR 2; Cox, Higham (1998),
    Stability of Householder QR factorization for weighted least squares problems.
    """

    def __init__(self, system: LowRank, D: Floats, border: Floats) -> None:
        self.G, self.border = system.G, border
        scale = float(system.diagonal.mean()) or 1.0
        self.free = _smallest(D, int(SPREAD * (self.G.rank + border.shape[1])) + 5, SMALL_PIVOT * scale)
        self.weights = 1.0 / D
        self.weights[self.free] = 0.0
        self._factor_rest()
        if len(self.free):
            self._factor_free(D[self.free])

    def _factor_rest(self) -> None:
        """Cholesky factor of M, scaled to a unit diagonal."""
        w, r = self.weights, self.G.rank
        M = np.empty((r + self.border.shape[1],) * 2)
        M[:r, :r] = self.G.normal_matrix(w)
        M[r:, :r] = [self.G.weights(w * side) for side in self.border.T] or np.empty((0, r))
        M[:r, r:] = M[r:, :r].T
        M[r:, r:] = (self.border * w[:, None]).T @ self.border
        M.flat[:: len(M) + 1] += 1.0
        self.scale = 1.0 / np.sqrt(M.diagonal())
        self.L = cholesky(M * self.scale * self.scale[:, None])

    def _factor_free(self, D: Floats) -> None:
        """The R of [E; D_F^1/2]."""
        self.rows = np.hstack([self.G.take(self.free).dense(), self.border[self.free]])
        E = linalg.solve_triangular(self.L, (self.rows * self.scale).T, lower=True, check_finite=False)
        stacked = np.vstack([E, np.diag(np.sqrt(D))])
        stacked = stacked[np.argsort(-np.abs(stacked).max(axis=1), kind="stable")]
        R, self.pivots = linalg.qr(stacked, mode="r", pivoting=True, check_finite=False)
        self.R = R[: len(D)]

    def _inner(self, t: Floats) -> Floats:
        """Product M^-1 t (r + k,)."""
        return self.scale * linalg.cho_solve((self.L, True), self.scale * t, check_finite=False)

    def _solve_free(self, r: Floats) -> Floats:
        """Solution x_F of (D_F + E'E) x_F = r."""
        y = linalg.solve_triangular(self.R, r[self.pivots], trans="T", check_finite=False)
        x = np.empty(len(r))
        x[self.pivots] = linalg.solve_triangular(self.R, y, check_finite=False)
        return x

    def solve(self, r: Floats) -> Floats:
        """Solution x (n,) of the right-hand side `r` (n,)."""
        weighted = self.weights * r
        t = np.concatenate([self.G.weights(weighted), weighted @ self.border])
        if len(self.free):
            x_free = self._solve_free(r[self.free] - self.rows @ self._inner(t))
            t += x_free @ self.rows
        u = self._inner(t)
        split = self.G.rank
        x = self.weights * (r - self.G.times(u[:split]) - self.border @ u[split:])
        if len(self.free):
            x[self.free] = x_free
        return x


class Dense:
    """A square K (n, n), float64; n^3 / 3 a factor, less where a narrow G with GG' near K will do.

    A pivoted Cholesky factor of K, made once, tells by the diagonal it leaves how far each prefix of its columns is
    from K: polynomials of few features are one of low rank, and next to a large D so is nearly every kernel.
    """

    def __init__(self, K: Floats) -> None:
        self.K = np.asarray(K, dtype=np.float64)
        self.diagonal = self.K.diagonal().copy()

    @cached_property
    def pivoted(self) -> tuple[Floats, Floats]:
        """G (n, r) with GG' = K up to rounding, and the trace (r + 1,) of what each prefix leaves."""
        n, largest = len(self.K), float(np.abs(self.diagonal).max(initial=0.0))
        L, pivots, rank, _ = linalg.lapack.dpstrf(self.K.T, tol=n * EPS * largest, lower=1)
        G = np.zeros((n, rank))
        G[pivots - 1] = np.tril(L)[:, :rank]
        kept = np.concatenate([[0.0], np.cumsum(np.einsum("ij,ij->j", G, G))])
        rounding = n * float(np.abs(self._image(G)).max(initial=0.0)) + n * EPS * largest
        return G, np.maximum(kept[-1] - kept, 0.0) + rounding

    def _image(self, G: Floats) -> Floats:
        """What K - GG' makes of a vector of signs (n,), each entry over the root of n: an error of one entry of K."""
        signs = np.where(np.random.default_rng(0).random(len(G)) < 0.5, -1.0, 1.0)
        return (self.K @ signs - G @ (signs @ G)) / np.sqrt(max(len(G), 1))

    @cached_property
    def is_convex(self) -> bool:
        """Whether K is positive semidefinite, as far as values rounded to float32 would show."""
        return bool(np.abs(self._image(self.pivoted[0])).max(initial=0.0) <= 1e-5 * np.abs(self.diagonal).max())

    def times(self, beta: Floats) -> Floats:
        """Product K beta (n,)."""
        return self.K @ beta

    def rows(self, keep: Any) -> "Dense":
        """The square of some of the variables."""
        index = np.flatnonzero(keep) if np.asarray(keep).dtype == bool else keep
        return Dense(self.K[np.ix_(index, index)])

    def factorise(self, D: Floats, border: Floats) -> Factor:
        """Factor of K + border border' + diag D."""
        if len(D) >= WORTH_PIVOTS:
            G, left = self.pivoted
            rank = int(np.searchsorted(-left, -NEAR * float(D.min())))
            if rank <= NARROW * len(D):
                return LowRankFactor(LowRank(G[:, :rank]), D, border)
        return DenseFactor(self.K, D, border)


class DenseFactor:
    """Cholesky of the coupled variables; the others, whose D dwarfs K, count by their diagonal alone.

    For a positive semidefinite K the refinement gains a factor sum K_ii / D_i over the uncoupled variables a round.
    """

    def __init__(self, K: Floats, D: Floats, border: Floats) -> None:
        full = K.diagonal() + np.einsum("ij,ij->i", border, border)
        share = np.abs(full) / D
        order = np.argsort(share)
        n_apart = int(np.searchsorted(np.cumsum(share[order]), NEGLIGIBLE))
        self.coupled, self.apart = np.sort(order[n_apart:]), order[:n_apart]
        self.apart_diagonal = (full + D)[self.apart]
        self.scale = 1.0 / np.sqrt(np.maximum((full + D)[self.coupled], np.finfo(float).tiny))
        H = K[np.ix_(self.coupled, self.coupled)] if n_apart else K.copy()
        H += border[self.coupled] @ border[self.coupled].T
        H *= self.scale
        H *= self.scale[:, None]
        H.flat[:: len(H) + 1] = 1.0
        self.L = cholesky(H)

    def solve(self, r: Floats) -> Floats:
        """Solution x (n,) of the right-hand side `r` (n,), without the coupling to the variables set apart."""
        x = np.empty(len(r))
        x[self.apart] = r[self.apart] / self.apart_diagonal
        right = self.scale * r[self.coupled]
        x[self.coupled] = self.scale * linalg.cho_solve((self.L, True), right, check_finite=False)
        return x


def cholesky(M: Floats) -> Floats:
    """Lower factor of `M`, unit diagonal; a ridge, growing tenfold, makes definite what rounding left without."""
    ridge = 0.0
    while True:
        try:
            return linalg.cholesky(M, lower=True, check_finite=False)
        except linalg.LinAlgError:
            more = max(9.0 * ridge, 1e-15)
            M.flat[:: len(M) + 1] += more
            ridge += more
            if not ridge < 1e3:  # not a number in M: what is solved will be none either, and the run ends
                return np.full_like(M, np.nan)


def _smallest(D: Floats, count: int, below: float) -> Any:
    """Indices of the `count` smallest of `D` (n,), those `below` a bound only."""
    index = np.argpartition(D, count - 1)[:count] if len(D) > count else np.arange(len(D))
    return index[D[index] < below]
