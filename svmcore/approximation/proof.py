r"""What the answers on a factor prove, from the rows in float64: of the low-rank machine, and of the exact one.

With T = K_ZX beta, w = L^{-1} T and c = L^{-T} w, the outputs of the low-rank machine are K_XZ c. Its w lies in the
space of the exact machine, and beta in its box, so for 0 <= t and t beta in the box

.. math::
    P(w) \ge optimum \ge t \, p'\beta - \tfrac{t^2}{2} \Big(\beta' K \beta + \sum_v ridge_v \beta_v^2\Big)

The t is the best one where all sums are 0, else 1. All problems of a kernel share three passes: landmarks by support
vectors, rows by landmarks, and support vectors by support vectors.
"""

import dataclasses
from functools import cached_property

import numpy as np

from svmcore.approximation.nystroem import FeatureMap
from svmcore.certificate import Evaluation, evaluate
from svmcore.errors import Unsupported
from svmcore.kernels.exact import ExactKernel
from svmcore.points import Floats, Points, Rows
from svmcore.qp import SignedQP
from svmcore.solution import Solution
from svmcore.sources import Source

__all__ = ["ExactBound", "Outline", "Proof"]

EPS = float(np.finfo(np.float64).eps)


@dataclasses.dataclass(frozen=True)
class ExactBound:
    """Bounds of the exact machine's optimum, rounding included: dual <= optimum <= primal."""

    primal: float
    dual: float
    relative_gap: float


class Outline(Source):
    """K of rows of which a program needs no more than the diagonal (n,): it is proved, not solved."""

    def __init__(self, diagonal: Floats) -> None:
        self.n, self.dtype, self._diagonal = len(diagonal), np.dtype(np.float64), diagonal

    def diagonal(self) -> Floats:
        """K_ii (n,)."""
        return self._diagonal

    def columns(self, idx: Floats) -> Floats:
        """Refused."""
        raise Unsupported("only the diagonal of this K is known")


class Proof:
    """Evaluations of answers on the factor of rows `X` (n, p).

    Parameters
    ----------
    like
        The rows as the factor was made of them; see `FeatureMap.sides`.
    coef
        (k, n) coefficients of all problems at the rows.
    """

    def __init__(self, map_: FeatureMap, X: Rows, like: Points, coef: Floats) -> None:
        self.map = map_
        self.exact = ExactKernel(map_.kernel, X, like=like)
        points, landmarks = self.exact.prepared(slice(0, X.shape[0])), self._landmarks()
        self.support = np.flatnonzero((coef != 0).any(axis=0))
        self.coef = np.ascontiguousarray(coef[:, self.support].T)  # (s, k)
        products = self.exact.product(landmarks, points.take(self.support), self.coef)
        w = map_.weights(products)
        self.norm = np.sqrt((w * w).sum(axis=0))
        self.landmark_coef = map_.coefficients(w)  # (r, k)
        self._points, self._marks, self._unit = points, landmarks, self.exact.rounding(points, landmarks)
        self._sizes = np.sqrt(np.maximum(map_.kernel.diagonal_of(landmarks), 0.0))
        self._lengths = np.sqrt(np.maximum(map_.kernel.diagonal_of(points), 0.0))

    @cached_property
    def outputs(self) -> Floats:
        """K_XZ c (n, k)."""
        return self.exact.product(self._points, self._marks, self.landmark_coef)

    def _landmarks(self) -> Points:
        if self.map.places is not None:
            return self.exact.prepared(self.map.places)
        return self.exact.others(self.map.landmarks)

    def evaluation(self, k: int, qp: SignedQP, beta: Floats, rows: Floats | slice) -> Evaluation:
        """Of problem `k`, `beta` (m,) for `qp` over the rows `rows`."""
        return evaluate(qp, beta, known=(self.outputs[rows, k], self.errors(k)[rows]))

    @property
    def outline(self) -> Outline:
        """A source for programs that are proved here."""
        return Outline(self._lengths**2)

    def errors(self, k: int) -> Floats:
        """Bound (n,) of the errors of the outputs: values, their sums, and what K_ZZ^-1 makes of both."""
        coef, unit = np.abs(self.landmark_coef[:, k]), self._unit
        of_sum = self.exact.summation(len(coef)) + unit.relative
        of_coef = EPS * self.map.condition * float(self.norm[k])
        return self._lengths * (of_sum * float(coef @ self._sizes) + of_coef) + unit.absolute * float(coef.sum())

    def quadratic(self) -> Floats:
        """Beta'K beta (k,) of the exact K: one pass over the pairs of support vectors."""
        columns = self._points.take(self.support)
        return np.asarray((self.coef * self.exact.symmetric_product(self.support, self.coef, columns)).sum(axis=0))

    def bound(self, k: int, qp: SignedQP, solution: Solution, quadratic: float) -> ExactBound:
        """The bounds of the exact optimum of problem `k`, `qp`, where `quadratic` is beta'K beta."""
        beta, found = solution.beta, solution.certificate
        linear = float(qp.p @ beta)
        curvature = quadratic + qp.shift * float(beta.sum()) ** 2 + float((qp.ridge * beta) @ beta)
        t = _best_scale(qp, beta, linear, curvature)
        coef, unit = np.abs(self.coef[:, k]), self.exact.unit
        slack = (self.exact.summation(len(coef)) + unit.relative) * float(coef @ self._lengths[self.support]) ** 2
        slack += unit.absolute * float(coef.sum()) ** 2
        dual = t * linear - 0.5 * t**2 * (curvature + slack) - EPS * qp.m * t * float(np.abs(qp.p) @ np.abs(beta))
        primal = found.primal + found.bar
        scale = max(abs(primal), abs(dual))
        return ExactBound(primal, dual, (primal - dual) / scale if scale > 0.0 else 0.0)


def _best_scale(qp: SignedQP, beta: Floats, linear: float, curvature: float) -> float:
    """The t at which t beta is in the box and its dual largest; 1 where a sum fixes it."""
    if any(qp.groups.sums) or not curvature > 0.0:
        return 1.0
    bound = np.where(beta > 0, qp.hi, qp.lo)[beta != 0]
    farthest = float((bound / beta[beta != 0]).min(initial=np.inf))
    return min(max(linear / curvature, 0.0), max(farthest, 1.0))
