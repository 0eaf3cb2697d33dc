"""What a solver returns: the answer, how it ended, and the proof of how far it is from optimal."""

import dataclasses

import numpy as np

from svmcore.certificate import Certificate
from svmcore.monitor import Progress
from svmcore.points import Floats
from svmcore.status import Status

__all__ = ["Solution", "Status"]


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """The variables of one program and what follows from them.

    Attributes
    ----------
    beta
        (m,) float64, in the box, with the sums of the groups.
    bias
        b of f(x) = sum_v beta_v K(x, row of v) + b.
    status, n_iter
        How the solve ended, and after how many steps of its kind.
    certificate
        Recomputed from beta alone, see `svmcore.certificate`.
    decision
        (n,) f at all rows of K, those that were left out too: for a fold, its cross-validation prediction.
    score
        (m,) s = p - u - ridge beta: where the next problem of a chain starts.
    norm2
        ||w||^2.
    history
        Progress of the solve: (seconds, n_iter, kkt_gap).
    multipliers
        (k,) of the groups; `bias` is their mean.
    """

    beta: Floats
    bias: float
    status: Status
    n_iter: int
    certificate: Certificate
    decision: Floats
    score: Floats
    norm2: float
    history: tuple[Progress, ...] = ()
    multipliers: Floats = dataclasses.field(default_factory=lambda: np.empty(0))

    @property
    def alpha(self) -> Floats:
        """abs(beta) (m,): LIBSVM's dual variables, where each has one sign."""
        return np.abs(self.beta)

    @property
    def support(self) -> Floats:
        """Indices of the variables that are not 0."""
        return np.flatnonzero(self.beta)
