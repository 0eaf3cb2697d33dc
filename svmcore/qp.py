r"""The program that every solver minimises and every certificate judges, with every sign. No label appears.

.. math::
    \min_\beta \; \tfrac12 \beta'(K + shift)\beta + \tfrac12 \sum_v ridge_v \beta_v^2 - p'\beta, \qquad
    lo \le \beta \le hi, \qquad \sum_{v \in g} \beta_v = d_g \text{ for each group } g

A variable v lives on a row of K; two variables may share one. What people train is a choice of p, box, ridge and
groups, made in `svmcore.tasks`. With the outputs u = (K + shift) beta and a multiplier b_g for each group,

.. math::
    s_v = p_v - u_v - ridge_v \beta_v, \qquad
    gap = \max_g \; \max_{v \in g,\, \beta_v < hi_v} s_v - \min_{v \in g,\, \beta_v > lo_v} s_v

are the scores and the KKT gap (at least 0); a variable in no group counts by its projected gradient, that is, max and
min are taken together with 0. `tol` bounds this gap. The primal, whose minimum is the maximum of minus the program:

.. math::
    P(b) = \tfrac12 \beta'(K + shift)\beta + \sum_v h_v(p_v - u_v - b_{g(v)}) + \sum_g b_g d_g, \qquad
    h_v(r) = \max_{lo_v \le t \le hi_v} r t - \tfrac12 ridge_v t^2

The decision function is f(x) = sum_v beta_v (K(x, row of v) + shift) + b, b the mean of the multipliers.
"""

import dataclasses
import functools
from enum import StrEnum

import numpy as np

from svmcore.errors import InvalidProblem
from svmcore.passes.proof.boxes import boxes, clipped, no_more_than
from svmcore.passes.proof.exact_sums import MENDING_STEPS, mend
from svmcore.points import Floats
from svmcore.sources.base import Source

__all__ = ["NO_GROUPS", "Bias", "Groups", "SignedQP"]


class Bias(StrEnum):
    """Where the bias b of f(x) = w'phi(x) + b is."""

    FREE = "free"  # outside the norm: one group with sum 0
    PENALISED = "penalised"  # inside w: K + 1, box only
    NONE = "none"  # b = 0, box only


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """The equalities of a program: none, one, or two over disjoint variables.

    Attributes
    ----------
    sums
        (k,) what the variables of each group add up to, k = 0, 1 or 2.
    codes
        (m,) int8 group of each variable, -1 for none; None if all are in the only group, or none is in any.
    """

    sums: tuple[float, ...] = ()
    codes: Floats | None = None

    def of(self, m: int) -> Floats:
        """Codes (m,) of all variables."""
        if self.codes is not None:
            return self.codes
        return np.full(m, len(self.sums) - 1, dtype=np.int8)

    def members(self, g: int, m: int) -> Floats | slice:
        """Index of the variables of group g."""
        return slice(0, m) if self.codes is None else np.flatnonzero(self.codes == g)


NO_GROUPS = Groups()
SNAP = 1e-12  # relative: what rounding leaves between a variable and the bound that it was on
LARGEST = {np.dtype(kind): float(np.finfo(kind).max) for kind in (np.float32, np.float64)}
ROUNDED = 1e-12  # of the sizes of what is summed: what rounding leaves of a sum


@dataclasses.dataclass(frozen=True, eq=False)
class SignedQP:
    """One program over a label-free source of K; see the module docstring.

    Parameters
    ----------
    source
        Of the columns of K (n, n): every program on the same rows can share it.
    p, lo, hi
        (m,) float64; lo may be -inf and hi inf.
    ridge
        (m,) >= 0; None for zeros.
    groups
        The equalities.
    rows
        (m,) row of K of each variable; None where variable v lives on row v.
    shift
        Added to every entry of K: 1 for a penalised bias.
    likely
        Variables that are probably not 0 at the optimum, ascending: a working set begins with them.

    Raises
    ------
    InvalidProblem
        For other shapes, an empty box, sums that the box does not allow, or a diagonal of K that is not finite.
    """

    source: Source
    p: Floats
    lo: Floats
    hi: Floats
    ridge: Floats = None  # type: ignore[assignment]
    groups: Groups = NO_GROUPS
    rows: Floats | None = None
    shift: float = 0.0
    likely: Floats | None = None
    diagonal: Floats = dataclasses.field(init=False, repr=False)  # (m,) of K + shift at the variables' rows, float64
    codes: Floats = dataclasses.field(init=False, repr=False)  # (m,) int8 group of each variable, -1 for none
    is_hard: bool = dataclasses.field(init=False, repr=False)  # whether some variable is unbounded
    is_soft: bool = dataclasses.field(init=False, repr=False)  # whether some variable has a ridge
    steepest: float = dataclasses.field(init=False, repr=False)  # sum of the largest abs(beta_v) that the box allows

    def __post_init__(self) -> None:
        m = len(self.p)
        ridge = np.zeros(m) if self.ridge is None else self.ridge
        given = {"p": self.p, "lo": self.lo, "hi": self.hi, "ridge": ridge}
        self.__dict__.update({name: np.ascontiguousarray(values, np.float64) for name, values in given.items()})
        self._check(m)
        diagonal = np.asarray(self.source.diagonal(), dtype=np.float64)
        if not no_more_than(diagonal, LARGEST[np.dtype(self.source.dtype)]):
            raise InvalidProblem("the kernel overflows on these rows: scale the data, or lower gamma or the degree")
        self.__dict__["diagonal"] = self.at_variables(diagonal) + self.shift

    def _check(self, m: int) -> None:
        if self.rows is None and m != self.source.n:
            raise InvalidProblem(f"there must be one variable per row of K, {self.source.n}; given {m}")
        if not all(len(v) == m for v in (self.lo, self.hi, self.ridge)):
            raise InvalidProblem(f"p, lo, hi and ridge must all be ({m},)")
        given = self.groups.codes
        if given is not None and not (len(given) == m and ((given >= -1) & (given < len(self.groups.sums))).all()):
            raise InvalidProblem(f"codes of groups must be ({m},), from -1 to {len(self.groups.sums) - 1}")
        codes = np.ascontiguousarray(self.groups.of(m), dtype=np.int8)
        least, most = np.zeros((2, len(self.groups.sums)))
        valid, is_hard, is_soft, steepest = boxes(self.lo, self.hi, self.ridge, codes, least, most)
        if not valid:
            raise InvalidProblem("every box needs lo <= hi, every ridge must be >= 0")
        self.__dict__.update(codes=codes, is_hard=is_hard, is_soft=is_soft, steepest=steepest)
        for g, (total, low, high) in enumerate(zip(self.groups.sums, least.tolist(), most.tolist(), strict=True)):
            if not low - 1e-9 * abs(low) <= total <= high + 1e-9 * abs(high):
                raise InvalidProblem(f"the sum of group {g} must be in [{low:g}, {high:g}]; given {total:g}")

    @property
    def m(self) -> int:
        """Number of variables."""
        return len(self.p)

    @functools.cached_property
    def unbounded(self) -> Floats:
        """(m,) whether a variable has no bound on one side and no ridge: only then the program may have no minimum."""
        return (self.ridge == 0) & (np.isinf(self.lo) | np.isinf(self.hi))

    def at_variables(self, values: Floats) -> Floats:
        """Values (m,) at the variables' rows of values (n,) at the rows of K."""
        return values if self.rows is None else values[self.rows]

    def at_rows(self, beta: Floats) -> Floats:
        """Coefficients (n,) of the rows of K: the sum over the variables of each."""
        return beta if self.rows is None else np.bincount(self.rows, weights=beta, minlength=self.source.n)

    def rows_of(self, idx: Floats) -> Floats:
        """Rows of K of the variables `idx`."""
        return idx if self.rows is None else self.rows[idx]

    def feasible(self, beta: Floats | None) -> Floats:
        """The `beta` (m,) clipped to the box, its sums repaired; without one, a point of the box with the right sums.

        A sum is repaired by moving all variables in proportion to the room that they have. From nothing the first ones
        are put on their bounds: as few columns of K as possible are needed, and few variables have to find one.
        """
        given = np.zeros(self.m) if beta is None else np.ascontiguousarray(beta, dtype=np.float64)
        held, sizes = np.zeros((2, len(self.groups.sums)))
        found = clipped(given, self.lo, self.hi, self.codes, held, sizes)
        for g, (total, now, size) in enumerate(zip(self.groups.sums, held.tolist(), sizes.tolist(), strict=True)):
            if abs(total - now) > ROUNDED * size:
                at = self.groups.members(g, self.m)
                if beta is None:
                    self._fill(found, at, total)
                self._repair(found, at, total)
        return found

    def _fill(self, beta: Floats, at: Floats | slice, total: float) -> None:
        part = beta[at]
        missing = total - float(part.sum())
        room = self.hi[at] - part if missing > 0 else self.lo[at] - part
        if missing != 0.0 and np.isfinite(room).all():
            before = np.cumsum(room) - room
            beta[at] = part + np.sign(missing) * np.clip(np.abs(missing) - np.abs(before), 0.0, np.abs(room))

    def _repair(self, beta: Floats, at: Floats | slice, total: float) -> None:
        part, lo, hi = beta[at], self.lo[at], self.hi[at]
        missing = total - float(part.sum())
        if abs(missing) <= ROUNDED * float(np.abs(part).sum()):
            return
        shrinks = np.where(missing * part < 0, np.abs(part), 0.0)  # towards 0 first: the warm start stays sparse
        grows = np.where(missing > 0, hi - part, part - lo)
        endless = np.isinf(grows)
        far = np.where(endless, 1.0, 0.0) if endless.any() else grows  # who has no bound carries it all
        room = shrinks if shrinks.sum() >= abs(missing) else far
        if room.sum() > 0:
            beta[at] = np.clip(part + missing * room / room.sum(), lo, hi)

    def snapped(self, beta: Floats) -> Floats:
        """`beta` (m,) that went through a scaling and back: a variable next to its bound was on it."""
        for bound in (self.lo, self.hi):
            near = np.isfinite(bound) & (np.abs(beta - bound) <= SNAP * np.abs(bound))
            beta = np.where(near, bound, beta)
        return beta

    def mended(self, beta: Floats) -> Floats:
        """`beta` with what rounding has left of its sums put on free variables."""
        for g, total in enumerate(self.groups.sums):
            at = self.groups.members(g, self.m)
            part = beta[at]
            mend(part, self.lo[at], self.hi[at], float(total), MENDING_STEPS)
            if self.groups.codes is not None:
                beta[at] = part  # it was a copy
        return beta
