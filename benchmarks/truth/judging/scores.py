"""K beta in the precision that the question needs: float64, long double, or double-double.

Everything is centred at one point m of feature space, the image of the mean row (for a given matrix: the mean of all
images), by k(x, z) - k(x, m) - k(m, z) + k(m, m). With sum beta = 0 this changes no difference of scores and no
objective; with a sum of rounding errors S it takes away S k(x, m), which on data far from the origin is all there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.truth.judging import exact
from benchmarks.truth.judging.exact import Double2
from benchmarks.truth.problems.design import TOL
from benchmarks.truth.problems.program import COEF0, Program, kernel_values

Float = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)
SHARE = 50.0  # float64 does where one rounding of every product cannot move a score by tol / 50
CHUNK_ROWS = 256


@dataclass(frozen=True, eq=False)
class Scores:
    """`centred` (n,) = sum_j beta_j k_c(x_i, x_j) and `norm2` = beta'K_c beta; `sum_beta` as it is.

    `at_mean` (n,) = k(x_i, m) - k(m, m) and `mean2` = k(m, m): what was taken away is sum_beta times the former.
    `error` bounds what one rounding of every product does to a score; float64 answers need it below tol / 50.
    """

    centred: Float
    norm2: float
    sum_beta: float
    at_mean: Float
    mean2: float
    precision: str
    error: float


@dataclass(frozen=True)
class Sizes:
    """Largest abs(k(x, x)) as it is and centred; `bend` is how much an error of x'z grows inside the kernel."""

    k_max: float
    k_max_centred: float
    bend: float


def sizes_of(program: Program) -> Sizes:
    """Sizes of the kernel's values, which decide on the precision."""
    X = program.X
    if program.kernel == "precomputed":
        mean = X.mean(axis=1)
        centred = np.diag(X) - 2 * mean + mean.mean()
        return Sizes(float(abs(X).max()), float(abs(centred).max()), 1.0)
    m = X.mean(axis=0)
    U = X - m
    far, near = float((X * X).sum(axis=1).max()), float((U * U).sum(axis=1).max())
    if program.kernel == "linear":
        return Sizes(far, near, 1.0)
    if program.kernel == "poly":
        a, t = program.gamma * (U @ m), program.gamma * (U * U).sum(axis=1)
        A = program.gamma * float(m @ m) + COEF0
        return Sizes((program.gamma * far + COEF0) ** 2, float((2 * a**2 + 2 * (A + 2 * a) * t + t**2).max()), 1.0)
    return Sizes(1.0, 1.0, 1.0 + program.gamma * (near if program.kernel == "rbf" else far))


def scores_of(program: Program, beta: Float, sizes: Sizes, finest: bool = False) -> Scores:
    """Scores at `beta` (n,): float64 where it does and `finest` is not asked for."""
    load = sizes.k_max * sizes.bend * float(abs(beta).sum())
    if not finest and load * EPS <= TOL / SHARE:
        return _computed(program, beta, np.float64, load)
    if program.kernel in ("rbf", "sigmoid"):
        return _computed(program, beta, np.longdouble, load)
    form = {"linear": _linear, "poly": _polynomial, "precomputed": _given}[program.kernel]
    return form(program, beta, load * exact.EPS)


def _computed(program: Program, beta: Float, precision: type, load: float) -> Scores:
    """Kernel values of all rows with the support vectors, a block of rows at a time."""
    support = np.flatnonzero(beta)
    b = beta[support].astype(precision)
    X = program.X.astype(precision)
    if program.kernel == "precomputed":
        k_m = X.mean(axis=1)
        values, k_mm = X[:, support] @ b, k_m.mean()
    else:
        m = X.mean(axis=0, keepdims=True)
        # distances alone matter to rbf, and they are finest near the origin
        X, m = (X - m, 0 * m) if program.kernel == "rbf" else (X, m)
        gamma, S = precision(program.gamma), X[support]
        blocks = (X[i : i + CHUNK_ROWS] for i in range(0, len(X), CHUNK_ROWS))
        values = np.concatenate([kernel_values(program.kernel, gamma, block, S) @ b for block in blocks])
        k_m = kernel_values(program.kernel, gamma, X, m)[:, 0]
        k_mm = kernel_values(program.kernel, gamma, m, m)[0, 0]
    total = b.sum()
    centred = values - k_m[support] @ b - total * (k_m - k_mm)
    norm2, eps = centred[support] @ b, float(np.finfo(precision).eps)
    name = "float64" if precision is np.float64 else "long double"
    return _rounded((centred, norm2, total, k_m - k_mm, k_mm), name, load * eps)


def _rounded(parts: Sequence[NDArray | Double2], precision: str, error: float) -> Scores:
    """To float64, whatever the precision was."""
    values = [part.value if isinstance(part, Double2) else part for part in parts]
    f, square, s, away, origin = (np.asarray(part, dtype=np.float64) for part in values)
    return Scores(f, float(square), float(s), away, float(origin), precision, error)


def _centred_rows(X: Float) -> tuple[Double2, Float]:
    """X - m without error, and m (p,)."""
    m = X.mean(axis=0)
    return Double2.of(X) - m, m


def _linear(program: Program, beta: Float, error: float) -> Scores:
    """u_i'w with w = sum_j beta_j u_j."""
    U, m = _centred_rows(program.X)
    centred = (U * (U * beta[:, None]).sum(axis=0)).sum(axis=1)
    return _finest(centred, beta, (U * m).sum(axis=1), (Double2.of(m) * m).sum(), error)


def _polynomial(program: Program, beta: Float, error: float) -> Scores:
    """sum_j beta_j (2 a_i a_j + 2 (A + a_i + a_j) t_ij + t_ij^2), t_ij = gamma u_i'u_j, a_i = gamma u_i'm.

    That is k_c of (A + a_i + a_j + t_ij)^2; t_ij^2 is summed through the matrix of second moments, (p, p).
    """
    U, m = _centred_rows(program.X)
    gamma, u = Double2.of(program.gamma), U * beta[:, None]
    a, A = (U * m).sum(axis=1) * gamma, (Double2.of(m) * m).sum() * gamma + COEF0
    w, v = u.sum(axis=0), (u * a[:, None]).sum(axis=0)
    linear = (U * w).sum(axis=1) * (A + a) + (U * v).sum(axis=1)
    centred = (a * (a * beta).sum() + linear * gamma) * 2.0 + _second(U, u) * (gamma * gamma)
    return _finest(centred, beta, A * a * 2.0 + a * a, A * A, error)


def _second(U: Double2, u: Double2) -> Double2:
    """sum_j (u_i'u_j)^2 beta_j (n,), a feature at a time; `u` is U weighted by beta."""
    total = Double2.of(np.zeros(U.hi.shape[0]))
    used = np.flatnonzero(u.hi.any(axis=1))
    for k in range(U.hi.shape[1] if len(used) else 0):
        moments = (U[used] * u[used][:, k][:, None]).sum(axis=0)
        total = total + (U * moments).sum(axis=1) * U[:, k]
    return total


def _given(program: Program, beta: Float, error: float) -> Scores:
    """Products with the matrix as it is given."""
    K, support = program.X, np.flatnonzero(beta)
    b, k_m = beta[support], K.mean(axis=1)
    parts = [(Double2.of(K[i : i + CHUNK_ROWS][:, support]) * b).sum(axis=1) for i in range(0, len(K), CHUNK_ROWS)]
    values = Double2(np.concatenate([part.hi for part in parts]), np.concatenate([part.lo for part in parts]))
    at_mean, total = Double2.of(k_m) - k_m.mean(), Double2.of(b).sum()
    centred = values - (Double2.of(k_m[support]) * b).sum() - at_mean * total
    return _finest(centred, beta, at_mean, Double2.of(k_m.mean()), error)


def _finest(centred: Double2, beta: Float, at_mean: Double2, mean2: Double2, error: float) -> Scores:
    total = Double2.of(beta).sum()
    return _rounded((centred, (centred * beta).sum(), total, at_mean, mean2), "double-double", error)
