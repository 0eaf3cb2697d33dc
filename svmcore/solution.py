"""What a solver returns: the answer, how it ended, and the proof of how far it is from optimal."""

import dataclasses
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from svmcore.points import Floats

if TYPE_CHECKING:
    from svmcore.certificate import Certificate
    from svmcore.monitor import Progress

__all__ = ["Solution", "Status"]


class Status(StrEnum):
    """How a solve ended; only CONVERGED promises kkt_gap <= tol, refreshed, on all rows."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    TIME_LIMIT = "time_limit"
    STOPPED = "stopped"
    STALLED = "stalled"  # nothing left to do by the solver's own rule or at this precision, yet the gap is above tol
    INFEASIBLE = "infeasible"  # hard margin, not separable

    @property
    def severity(self) -> int:
        """0 for CONVERGED, larger is worse: the status of several problems is their worst."""
        return list(Status).index(self)


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """The dual variables of one problem and what follows from them.

    Attributes
    ----------
    alpha
        (n,) float64, 0 <= alpha <= upper.
    bias
        b of f(x) = sum_i alpha_i y_i K(x_i, x) + b.
    status, n_iter
        How the solve ended, and after how many steps of its kind.
    certificate
        Recomputed from alpha alone, see `svmcore.certificate`.
    decision
        (n,) f(x_i) on all rows, those with C_i = 0 too: for a fold, its cross-validation prediction.
    gradient
        (n,) of the minimised dual at alpha, refreshed in float64: where the next problem of a chain starts.
    history
        Progress of the solve: (seconds, n_iter, kkt_gap).
    """

    alpha: Floats
    bias: float
    status: Status
    n_iter: int
    certificate: "Certificate"
    decision: Floats
    gradient: Floats | None = None
    history: tuple["Progress", ...] = ()

    @property
    def support(self) -> Floats:
        """Indices (m,) of the support vectors, alpha > 0."""
        return np.flatnonzero(self.alpha)
