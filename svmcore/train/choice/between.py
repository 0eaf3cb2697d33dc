r"""What the exact optima between two solved values of C would say: bounds of decision values for every C in between.

Let beta_a and beta_b be answers at C_a < C_b of hinge-loss machines with a free bias. On the way between them

.. math::
    C(s) = (1 - s) C_a + s C_b, \qquad \beta(s) = (1 - s) \beta_a + s \beta_b, \qquad u(s) = K \beta(s)

beta(s) stays in the box of C(s) and its sum 0, so it is a dual point there, and w(s) with any b(s) is a primal one.
Their gap bounds how far the optimum at C(s) is: :math:`\|w(s) - w^*\|^2 \le G(s)`,

.. math::
    G(s) = \beta(s)'u(s) + C(s) L(s) - y'\beta(s), \qquad L(s) = \sum_i c_i \max(0, 1 - y_i (u_i(s) + b(s)))

The first term and L are convex in s where b(s) is linear, hence below their chords on any part of the way, and

.. math::  G(s) \le \max(G_1, G_2) + \tfrac14 \max(0, -(C_2 - C_1)(L_2 - L_1))

from one end of the part to the other. The optimal bias is a weighted quantile of :math:`t_i = y_i - u^*_i`, which grows
with each of them: bounds of all u* bound it. So no C in the part has other decision values than

.. math::
    \min_s u_i(s) - \sqrt{G k_{ii}} + \min b^* \le f^*_i \le \max_s u_i(s) + \sqrt{G k_{ii}} + \max b^*

The aim is that of Shibagaki, Suzuki, Karasuyama and Takeuchi, "Regularization path of cross-validation error lower
bounds" (arXiv 1502.02344), whose ball needs one end alone and is as wide as C is far.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from svmcore.points import Floats

__all__ = ["End", "Rows", "bands"]

ROUNDED = 1e-9  # of the sum of weights: what rounding may do to a quantile's place


class Rows(NamedTuple):
    """Rows that a problem is about.

    Attributes
    ----------
    y
        (n,) +1 or -1, 0 of a row that is not trained on.
    weight
        (n,) c_i: C_i is C c_i.
    norm
        (n,) square roots of k_ii.
    """

    y: Floats
    weight: Floats
    norm: Floats


class End(NamedTuple):
    """An answer: C, the coefficients (n,), the outputs K beta (n,), and bounds (n,) of their errors."""

    C: float
    beta: Floats
    outputs: Floats
    errors: Floats


def bands(rows: Rows, left: End, right: End, cuts: Floats) -> Iterator[tuple[Floats, Floats]]:
    """(low, high), (n,) each, of the optimal decision values for all C from one of `cuts` (k,) to the next.

    The cuts ascend from the C of `left` to that of `right`.
    """
    way = _Way(rows, left, right)
    places = [way.place((C - left.C) / (right.C - left.C)) for C in cuts]
    for first, last in itertools.pairwise(places):
        yield way.band(first, last)


class _Place(NamedTuple):
    """What there is at one s."""

    C: float
    outputs: Floats
    errors: Floats
    loss: float
    gap: float


class _Way:
    """From one answer to the next."""

    def __init__(self, rows: Rows, left: End, right: End) -> None:
        self.rows, self.ends = rows, (left, right)
        self.trained = rows.weight > 0
        y = np.where(self.trained, rows.y, 0.0)
        self.linear = [float(y @ end.beta) for end in self.ends]
        self.bias = [sum(self._quantiles(y - end.outputs, y - end.outputs)) / 2.0 for end in self.ends]
        self.products = [[float(one.beta @ other.outputs) for other in self.ends] for one in self.ends]
        self.rounding = [float(np.abs(end.beta) @ (left.errors + right.errors)) for end in self.ends]

    def place(self, s: float) -> _Place:
        """Gap and loss are bounded from above, rounding included."""
        share = np.array([1.0 - s, s])
        C, bias, linear = (float(share @ values) for values in ([e.C for e in self.ends], self.bias, self.linear))
        outputs, errors = (
            sum(part * values for part, values in zip(share, both, strict=True))
            for both in ([e.outputs for e in self.ends], [e.errors for e in self.ends])
        )
        y, weight, _ = self.rows
        loss = float((weight * np.maximum(0.0, 1.0 - y * (outputs + bias) + errors))[self.trained].sum())
        norm2 = float(share @ np.array(self.products) @ share) + float(share @ self.rounding)
        return _Place(C, outputs, errors, loss, norm2 + C * loss - linear)

    def band(self, first: _Place, last: _Place) -> tuple[Floats, Floats]:
        """Bounds for all s between two places."""
        excess = 0.25 * max(0.0, -(last.C - first.C) * (last.loss - first.loss))
        gap = max(first.gap, last.gap, 0.0) + excess
        radius = np.sqrt(gap) * self.rows.norm + np.maximum(first.errors, last.errors)
        low, high = np.minimum(first.outputs, last.outputs) - radius, np.maximum(first.outputs, last.outputs) + radius
        least, most = self._quantiles(self.rows.y - high, self.rows.y - low)
        return low + least, high + most

    def _quantiles(self, low: Floats, high: Floats) -> tuple[float, float]:
        """The least and the largest b that can be optimal where t is between `low` and `high` (n,).

        The slope of the loss in b is minus the weight of all positive rows, and grows by c_i as b passes t_i.
        """
        weight = self.rows.weight[self.trained]
        positive = float(weight[self.rows.y[self.trained] > 0].sum())
        slack = ROUNDED * float(weight.sum())
        found = []
        for t, wanted in ((low[self.trained], positive - slack), (high[self.trained], positive + slack)):
            order = np.argsort(t, kind="stable")
            at = int(np.searchsorted(np.cumsum(weight[order]), wanted))
            found.append(float(t[order][min(at, len(t) - 1)]))
        return found[0], found[1]
