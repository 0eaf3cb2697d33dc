"""The two bases of all kernels: any k(x, z), and those that are functions of the inner product.

A kernel of the inner product turns a block of products into kernel values in one elementwise pass, so that a whole
sweep over gamma, degree or C shares one matrix product. No kernel here knows labels, solvers or storage.
"""

import dataclasses
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from svmcore.errors import InputError, Unsupported
from svmcore.kernels.rounding import UNIT64, Errors, Rounding, unit_of
from svmcore.passes.kernel.kernel_tiles import Blocks, Tiles
from svmcore.passes.kernel.kernel_values import sums_of_values
from svmcore.points import Extent, Floats, Moments, Points, Rows, check_fit, inner_products
from svmcore.points.byte_products import byte_products, products_size
from svmcore.points.lattice import sides
from svmcore.runtime.plugins import Plugin

__all__ = ["NOTHING", "InnerProductKernel", "Kernel", "blocks", "check_gamma", "check_number", "reach"]

LATTICE_ROWS, LATTICE_COLUMNS = 256, 1536  # of an int32 temporary, 1.5 MB; long rows are written at full speed
TILE = 512  # rows and columns of a float64 temporary: 2 MB, which stays in the second-level cache
NOTHING = Rounding(np.inf, np.inf)


class Kernel(Plugin, ABC):
    """k(x, z), a frozen dataclass; override `__call__`, and `diagonal` where a formula is at hand.

    `example` holds the parameters with which the contract tests build the kernel.
    """

    example: ClassVar[dict[str, Any]] = {}
    is_linear: ClassVar[bool] = False  # k(x, z) = x'z, of centred rows or not: a sum of values has weights
    is_centred: ClassVar[bool] = False
    is_positive: ClassVar[bool] = False  # whether no value is below 0
    mirrors_on_lattice: ClassVar[bool] = False  # k(x, z) is k(z, x) to the last bit, and finite, for rows on a lattice

    @property
    def psd(self) -> bool:
        """Whether every Gram matrix is known to be positive semi-definite, with these parameters."""
        return True

    @abstractmethod
    def __call__(self, X: Rows, Z: Rows) -> Floats:
        """Kernel values (n, m) of rows `X` (n, p) against rows `Z` (m, p), in float64."""

    def centred(self) -> "Kernel":
        """The kernel about the points' centre m in feature space: k(x, z) - k(x, m) - k(m, z) + k(m, m).

        For every program whose coefficients sum to 0 it is the same kernel, and its values are as small as the data's
        spread. It forms them without cancellation; a kernel whose values a shift does not enlarge is its own.
        """
        return self

    def at_centre(self, P: Points) -> Floats:
        """c_i = k(x_i, m) (n,) up to a constant, zeros for a kernel that is not centred.

        With the bias b' of a centred kernel, b' - sum_j coef_j c_j is that of the kernel itself.
        """
        return np.zeros(len(P))

    def diagonal(self, X: Rows) -> Floats:
        """k(x_i, x_i), shape (n,)."""
        return np.array([self(X[i : i + 1], X[i : i + 1])[0, 0] for i in range(X.shape[0])])

    def prepare(self, X: Rows, centre: Floats | None = None, dtype: DTypeLike = np.float32) -> Points:
        """Rows in the form that `block` takes."""
        return Points.prepare(X, centre, dtype)

    def prepare_gram(self, X: Rows, dtype: DTypeLike = np.float32) -> Points:
        """Rows that meet only each other, in the form in which `block` is fastest for values of `dtype`.

        Of a kernel that is known by its values alone the rows stay as they are: what a shift or a cast would do to
        them nobody can tell.
        """
        return Points.prepare(X, None if sparse.issparse(X) else np.zeros(X.shape[1]), np.float64)

    def rounding(self, P: Points, Q: Points | Extent | None = None, dtype: DTypeLike = np.float32) -> Rounding:
        """A bound of the errors of all values that `block` serves as `dtype` of rows of `P` against those of `Q`.

        A kernel that does not say is taken to be right to a few roundings for each feature where its rows are exact,
        and to nothing where they have been rounded. `Q` may be a mere `Extent` of rows prepared as `P` is; None is
        `P` itself.
        """
        exact = P.is_sparse or (P.dtype == np.float64 and not P.centre.any())
        return Rounding((8 * P.n_features + 64) * UNIT64 + unit_of(dtype), 0.0) if exact else NOTHING

    def block(self, P: Points, Q: Points, out: Floats | None = None) -> Floats:
        """Kernel values (len(P), len(Q)), written to `out` (float32 or float64) if given."""
        out = np.empty((len(P), len(Q)), P.dtype) if out is None else out
        Z = Q.origin_values
        for start in range(0, len(P), TILE):
            part = P.rows(start, min(start + TILE, len(P)))
            out[start : start + len(part)] = self(part.origin_values, Z)
        return out

    def add_sums(self, P: Points, Q: Points, weights: Floats, out: Floats, memory: Floats) -> None:
        """Add K weights' to `out` (n, k), of float32 values, as `kernel_values.sums_of_values` does.

        `memory` (n, m) may hold the values. The last of the weights (k, m) are of absolute values.
        """
        sums_of_values(self.block(P, Q, memory), weights, not self.is_positive, out)

    def sums_alone(self, P: Points, Q: Points | Extent, dtype: DTypeLike) -> bool:
        """Whether `add_by_sign` computes values of `dtype` as fast as memory gives them back."""
        return False

    def add_by_sign(self, P: Points, Q: Points, weights: Floats, sums: Floats) -> None:
        """Add the values of columns `P` (c rows) at rows `Q` (m), times `weights` (k, c), to `sums` (k, 2, m).

        What has a plus goes to the first of each pair, what has a minus to the second, without it. Each term is off by
        `SUMMED_FLOAT32` of itself at most, beside its value. Of a kernel that `sums_alone`.

        Raises
        ------
        Unsupported
            For any other.
        """
        raise Unsupported(f"kernel {self.name!r} stores its values before they are added")

    def place(self, P: Points, Q: Points, out: Floats, at: Floats, shift: float, unit: float | None) -> None:
        """out[at[r], c] = k(p_r, q_c) + shift, or in whole numbers of a unit, in 16 bits.

        Of a kernel that `sums_alone`.

        Raises
        ------
        Unsupported
            For any other.
        """
        raise Unsupported(f"kernel {self.name!r} stores its values before they are placed")

    def tiles(self, P: Points, Q: Points) -> Tiles:
        """The blocks of float64 values of float64 or lattice rows, to be weighted and added up."""
        return Blocks(P, Q, self)

    def diagonal_of(self, P: Points) -> Floats:
        """k(x_i, x_i) (n,) float64 of prepared rows."""
        return self.diagonal(P.origin_values)

    def resolved(self, n_features: int, variance: float) -> Self:
        """Return the same kernel with `gamma` a number: scale = 1 / (p var(X)), auto = 1 / p."""
        changes: dict[str, Any] = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Kernel):
                changes[field.name] = value.resolved(n_features, variance)
            elif field.name == "gamma" and isinstance(value, str):
                scaled = 1.0 / (n_features * variance) if variance > 0 else 1.0
                changes["gamma"] = scaled if value == "scale" else 1.0 / n_features
        return dataclasses.replace(self, **changes) if changes else self  # type: ignore[type-var]


class InnerProductKernel(Kernel):
    """k(x, z) as a function of x'z, x'x and z'z: override `from_inner_products` and `from_moments`."""

    @abstractmethod
    def from_inner_products(self, G: Floats, x: Moments, z: Moments, out: Floats | None = None) -> Floats:
        """Turn centred inner products `G` (n, m) into kernel values, in place, or into `out` of another type.

        `x` and `z` hold the norms and offsets of the two sides, (n,) and (m,), see `svmcore.points`.
        """

    def from_integer_products(self, G: Floats, unit: float, x: Moments, z: Moments, out: Floats) -> Floats:
        """As `from_inner_products`, from exact products in multiples of `unit`: integers `G` (n, m), not changed."""
        return self.from_inner_products(G * unit, x, z, out)

    @abstractmethod
    def from_moments(self, x: Moments) -> Floats:
        """k(x_i, x_i) (n,) float64 from the norms alone."""

    def prepare_gram(self, X: Rows, dtype: DTypeLike = np.float32) -> Points:
        """Rows that meet only each other: on their lattice if they have one."""
        return Points.for_gram(X, dtype)

    def rounding(self, P: Points, Q: Points | Extent | None = None, dtype: DTypeLike = np.float32) -> Rounding:
        """A bound of the errors of all values that `block` serves as `dtype` of rows of `P` against those of `Q`."""
        Q = P if Q is None else Q
        return self.rounding_within(Errors.of(P, Q, dtype, self.needs_float64(P, Q, dtype)))

    def rounding_within(self, errors: Errors) -> Rounding:
        """`rounding_of`, where no value can overflow."""
        if not self.largest(errors) < errors.overflow:
            return NOTHING
        found = self.rounding_of(errors)
        return found if math.isfinite(found.relative) and math.isfinite(found.absolute) else NOTHING

    def rounding_of(self, errors: Errors) -> Rounding:
        """The bound of the values that `from_inner_products` makes of products with `errors`.

        A kernel that does not say is taken to be right to a few roundings where the products are float64 of rows that
        were not cast, and to nothing elsewhere.
        """
        return NOTHING

    def largest(self, errors: Errors) -> float:
        """A bound of abs(k(x, z)); a kernel with `rounding_of` has one."""
        return np.inf

    def stands_alone(self, P: Points, Q: Points | Extent, dtype: DTypeLike) -> bool:
        """Whether `block` has a better way than inner products, which it then shares with no other kernel."""
        return False

    def too_coarse(self, norm2: float) -> bool:
        """Whether float32 products of rows with squared norm up to `norm2` lose digits of this kernel."""
        return False

    def __call__(self, X: Rows, Z: Rows) -> Floats:
        """Kernel values (n, m) in float64 of rows `X` (n, p) against rows `Z` (m, p)."""
        Q = self.prepare(Z, None, np.float64)
        return self.block(self.prepare(X, Q.centre, np.float64), Q, np.empty((X.shape[0], Z.shape[0])))

    def diagonal(self, X: Rows) -> Floats:
        """k(x_i, x_i), shape (n,), float64."""
        return self.diagonal_of(self.prepare(X, None, np.float64))

    def diagonal_of(self, P: Points) -> Floats:
        """k(x_i, x_i) (n,) float64 from the norms that the rows carry."""
        return self.from_moments(P.moments)

    def block(self, P: Points, Q: Points, out: Floats | None = None) -> Floats:
        """Kernel values (len(P), len(Q)): one matrix product and one elementwise pass, in place."""
        check_fit(P, Q)
        out = np.empty((len(P), len(Q)), P.dtype) if out is None else out
        if P.on_lattice:
            _lattice_blocks([(self, out)], P, Q)
            return out
        if self.needs_float64(P, Q, out.dtype):
            _float64_blocks([(self, out)], P, Q)
            return out
        inner_products(P, Q, out)
        return self.from_inner_products(out, P.moments, Q.moments)

    def needs_float64(self, P: Points, Q: Points | Extent, dtype: DTypeLike) -> bool:
        """Whether the products of this block must be float64: sparse rows, mixed types, or a coarse result."""
        coarse = P.dtype == np.float32 and self.too_coarse(reach(P, Q))
        return bool(P.is_sparse or P.dtype != dtype or coarse)


def reach(P: Points, Q: Points | Extent) -> float:
    """The largest squared norm about the centre."""
    return max(P.extent.norm2, (Q if isinstance(Q, Extent) else Q.extent).norm2)


def blocks(
    kernels: Sequence[Kernel], P: Points, Q: Points, outs: Sequence[Floats], scratch: Floats | None = None
) -> None:
    """Write the values (len(P), len(Q)) of `kernels[k]` into `outs[k]`: one set of inner products for all.

    They are those of `Kernel.block` to the last bit. `scratch` (n, m) of the rows' type is for the products.
    """
    check_fit(P, Q)
    sharing: list[tuple[InnerProductKernel, Floats]] = []
    for kernel, out in zip(kernels, outs, strict=True):
        if not isinstance(kernel, InnerProductKernel) or kernel.stands_alone(P, Q, out.dtype):
            kernel.block(P, Q, out)
        else:
            sharing.append((kernel, out))
    if P.on_lattice and sharing:
        _lattice_blocks(sharing, P, Q)
        return
    wide = [(kernel, out) for kernel, out in sharing if kernel.needs_float64(P, Q, out.dtype)]
    direct = [(kernel, out) for kernel, out in sharing if not kernel.needs_float64(P, Q, out.dtype)]
    if direct:
        G = inner_products(P, Q, np.empty((len(P), len(Q)), P.dtype) if scratch is None else scratch)
        for kernel, out in direct:
            kernel.from_inner_products(G, P.moments, Q.moments, out)
    if wide:
        _float64_blocks(wide, P, Q)


def _float64_blocks(wide: Sequence[tuple[InnerProductKernel, Floats]], P: Points, Q: Points) -> None:
    """As `blocks`, with float64 products in tiles that stay in cache."""
    T = np.empty((min(TILE, len(P)), min(TILE, len(Q))))
    rows = [_widened(P.rows(i, min(i + TILE, len(P)))) for i in range(0, len(P), TILE)]
    for j in range(0, len(Q), TILE):
        right = _widened(Q.rows(j, min(j + TILE, len(Q))))
        for i, left in zip(range(0, len(P), TILE), rows, strict=True):
            G = inner_products(left, right, T[: len(left), : len(right)])
            for kernel, out in wide:
                target = out[i : i + len(left), j : j + len(right)]
                kernel.from_inner_products(G, left.moments, right.moments, target)


def _lattice_blocks(exact: Sequence[tuple[InnerProductKernel, Floats]], P: Points, Q: Points) -> None:
    """As `blocks`, with integer products in tiles that stay in cache."""
    T = np.empty(products_size(min(LATTICE_ROWS, len(P)), min(LATTICE_COLUMNS, len(Q))), np.int32)
    (rows, packed), unit = sides(P.values, Q.values), P.values.step**2
    for j in range(0, len(Q), LATTICE_COLUMNS):
        across = slice(j, min(j + LATTICE_COLUMNS, len(Q)))
        columns, right = packed.take(across), Q.moments.take(across)
        for i in range(0, len(P), LATTICE_ROWS):
            down = slice(i, min(i + LATTICE_ROWS, len(P)))
            left = P.moments.take(down)
            G = byte_products(rows.take(down), columns, T)[: len(left.norm2), : len(right.norm2)]
            for kernel, out in exact:
                kernel.from_integer_products(G, unit, left, right, out[down, across])


def _widened(P: Points) -> Points:
    """The same rows in float64; CSR already accumulates in it."""
    return P if P.is_sparse else dataclasses.replace(P, values=P.values.astype(np.float64, copy=False))


def check_number(kernel: str, name: str, value: Any, positive: bool = False) -> None:
    """Raise InputError unless `value` is a finite real number (and > 0 if `positive`)."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool) and np.isfinite(float(value))
    if not real or (positive and float(value) <= 0):
        accepted = "a number > 0" if positive else "a finite number"
        raise InputError(f"kernel {kernel!r}: {name} must be {accepted}; given {value!r}")


def check_gamma(kernel: str, value: Any) -> None:
    """Raise InputError unless `gamma` is scale, auto or a number > 0."""
    if isinstance(value, str):
        if value not in ("scale", "auto"):
            raise InputError(f"kernel {kernel!r}: gamma must be scale, auto or a number > 0; given {value!r}")
        return
    check_number(kernel, "gamma", value, positive=True)
