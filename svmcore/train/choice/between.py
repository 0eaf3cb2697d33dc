r"""What the exact optima between two solved values of C would say: bounds of decision values for every C in between.

Let beta_a and beta_b be answers at C_a < C_b of hinge-loss machines with a free bias. On the way between them

.. math::
    C(s) = (1 - s) C_a + s C_b, \qquad \beta(s) = (1 - s) \beta_a + s \beta_b, \qquad u(s) = K \beta(s)

beta(s) stays in the box of C(s) and its sum 0, so it is a dual point there, and w(s) with any b(s) is a primal one.
Their gap bounds how far the optimum at C(s) is: :math:`\rho^2 = \|w(s) - w^*\|^2 \le G(s)`,

.. math::
    G(s) = \beta(s)'u(s) + C(s) L(s) - y'\beta(s), \qquad L(s) = \sum_i c_i \max(0, 1 - y_i (u_i(s) + b(s)))

The first term and L are convex in s where b(s) is linear, hence below their chords on any part of the way, and

.. math::  G(s) \le \max(G_1, G_2) + \tfrac14 \max(0, -(C_2 - C_1)(L_2 - L_1))

from one end of the part to the other. A sum of beta(s) that misses 0 by d adds :math:`d |b^*|`, the Lagrangian's term;
:math:`|b^*| \le 1 + \max |u| + \rho \max \sqrt{k_{jj}}` because the optimal bias is a weighted quantile Q of
:math:`y_j - u^*_j` over the rows that are trained on. So a decision value is one too, and Q grows with each of its
arguments:

.. math::  f^*_i = u^*_i + b^* = Q_j (y_j - u^*_j + u^*_i), \qquad
    |(u^*_i - u^*_j) - (u_i - u_j)| \le \rho \|\phi_i - \phi_j\|

The distance of two rows is at most :math:`\sqrt{k_{ii} + k_{jj}}` where no value of the kernel is below 0, and
:math:`\sqrt{k_{ii}} + \sqrt{k_{jj}}` always.

The aim is that of Shibagaki, Suzuki, Karasuyama and Takeuchi, "Regularization path of cross-validation error lower
bounds" (arXiv 1502.02344), whose ball needs one end alone and is as wide as C is far.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from svmcore.points import Floats

__all__ = ["End", "Rows", "bands"]

EPS = float(np.finfo(np.float64).eps)
ROUNDED = 1e-9  # of the sum of weights: what rounding may do to a quantile's place


class Rows(NamedTuple):
    """Rows that a problem is trained on, and rows whose decision values are asked for.

    Attributes
    ----------
    y
        (n,) +1 or -1.
    weight
        (n,) c_i > 0: C_i is C c_i.
    norm, asked_norm
        (n,) and (h,) square roots of k_ii.
    is_positive
        Whether no value of the kernel is below 0.
    """

    y: Floats
    weight: Floats
    norm: Floats
    asked_norm: Floats
    is_positive: bool = False


class End(NamedTuple):
    """An answer: C, the coefficients (n,), K beta at both kinds of rows, and a bound of the errors of these."""

    C: float
    beta: Floats
    outputs: Floats  # (n,)
    asked: Floats  # (h,)
    error: float

    @property
    def size(self) -> float:
        """Sum of abs(beta)."""
        return float(np.abs(self.beta).sum())


def bands(rows: Rows, left: End, right: End, cuts: Floats) -> tuple[Floats, Floats]:
    """(low, high), (k - 1, h) each, of the optimal decision values for all C from one of `cuts` (k,) to the next.

    The cuts ascend from the C of `left` to that of `right`.
    """
    way = _Way(rows, left, right, cuts)
    radius, near, far = way.radius(), rows.norm, rows.asked_norm
    if rows.is_positive:
        near, far = np.zeros(len(rows.y)), np.sqrt(rows.asked_norm**2 + rows.norm.max() ** 2)
    if (radius * far.min(initial=np.inf) >= way.largest).all():  # each band would have 0 inside: it tells no label
        return np.full((len(radius), len(far)), -np.inf), np.full((len(radius), len(far)), np.inf)
    (low, high), (asked_low, asked_high) = way.outputs, way.asked
    least = _quantiles(rows, rows.y - high - radius * near, -ROUNDED)
    most = _quantiles(rows, rows.y - low + radius * near, ROUNDED)
    return asked_low - radius * far + least, asked_high + radius * far + most


class _Way:
    """From one answer to the next: numbers (k,) and outputs (k, n) at its cuts."""

    def __init__(self, rows: Rows, left: End, right: End, cuts: Floats) -> None:
        self.rows, self.left, self.right, self.C = rows, left, right, cuts
        s = (cuts - left.C) / (right.C - left.C)
        self.shares = np.array([1.0 - s, s]).T
        self.at = self.shares @ np.array([left.outputs, right.outputs])
        self.error = max(left.error, right.error) + EPS * float(np.abs(self.at).max())
        self.sums = EPS * (len(rows.y) / 8.0 + 8.0)  # relative error of a sum

    def radius(self) -> Floats:
        """Bound (k - 1, 1) of how far w(s) is from the optimum anywhere on each part."""
        rows, ends = self.rows, (self.left, self.right)
        largest = float(np.abs(self.at).max()) + self.error
        size = max(end.size for end in ends)
        missed = max(abs(float(end.beta.sum())) for end in ends) + self.sums * size
        loss = self._loss()
        gap = self._norm2() + self.C * loss - self.shares @ [float(rows.y @ end.beta) for end in ends]
        gap += self.sums * (size * (1.0 + largest) + self.C * loss) + missed * (1.0 + largest)
        excess = 0.25 * np.maximum(0.0, -np.diff(self.C) * np.diff(loss))
        most = np.maximum(gap[:-1], gap[1:]).clip(0.0) + excess
        return np.asarray(np.sqrt(most) + missed * rows.norm.max())[:, None]

    def _loss(self) -> Floats:
        """L (k,) at most."""
        y, bias = self.rows.y, self.shares @ self.biases
        return np.asarray(np.maximum(0.0, 1.0 - y * (self.at + bias[:, None]) + self.error) @ self.rows.weight)

    @cached_property
    def biases(self) -> Floats:
        """Optimal b (2,) at both ends."""
        y, weight, *_ = self.rows
        places = _places(self.rows, np.array([-ROUNDED, ROUNDED]))
        return np.array([_quantile(weight, y - end.outputs, places).mean() for end in (self.left, self.right)])

    @property
    def largest(self) -> float:
        """The largest absolute decision value at the rows that are asked for."""
        ends = zip((self.left, self.right), self.biases, strict=True)
        return max(float(np.abs(end.asked + b).max(initial=0.0)) for end, b in ends) + self.error

    def _norm2(self) -> Floats:
        """Squared norms beta'u (k,) at most."""
        ends = self.left, self.right
        products = np.array([[float(one.beta @ other.outputs) for other in ends] for one in ends])
        size = self.shares @ [end.size for end in ends]
        return np.asarray(np.einsum("ki,ij,kj->k", self.shares, products, self.shares) + size * self.error)

    @property
    def outputs(self) -> tuple[Floats, Floats]:
        """The least and the largest (k - 1, n) on each part, at the rows trained on."""
        return self._range(self.at)

    @property
    def asked(self) -> tuple[Floats, Floats]:
        """The same (k - 1, h) at the rows that are asked for."""
        return self._range(self.shares @ np.array([self.left.asked, self.right.asked]))

    def _range(self, at: Floats) -> tuple[Floats, Floats]:
        return np.minimum(at[:-1], at[1:]) - self.error, np.maximum(at[:-1], at[1:]) + self.error


def _quantiles(rows: Rows, t: Floats, slack: float) -> Floats:
    """The b (k, 1) that are optimal where y_j - u_j is t (k, n), their place moved by a share `slack` of all weight.

    They lie between those of the least and of the largest t of all k, so that few need to be sorted for each.
    """
    place = _places(rows, slack)
    least, most = (_quantile(rows.weight, end, place) for end in (t.min(axis=0), t.max(axis=0)))
    found = np.empty((len(t), 1))
    for k, each in enumerate(t):
        before = each < least
        inside = ~before & (each <= most)
        found[k] = _quantile(rows.weight[inside], each[inside], place - rows.weight[before].sum())
    return found


def _places(rows: Rows, slack: Any) -> Any:
    """How much weight is before the optimal b: its slope of the loss is minus that of all positive rows.

    The slope grows by c_i as b passes t_i.
    """
    return float(rows.weight[rows.y > 0].sum()) + slack * float(rows.weight.sum())


def _quantile(weight: Floats, t: Floats, place: Any) -> Any:
    """The smallest of t (n,) with so much weight up to it."""
    order = np.argsort(t)
    at = np.searchsorted(np.cumsum(weight[order]), place)
    return t[order[np.minimum(at, len(t) - 1)]]
