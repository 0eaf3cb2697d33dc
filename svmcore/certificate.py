r"""How far a beta is from optimal: what float64 says, from beta and the kernel alone, by code that no solver wrote.

With the outputs u = (K + shift) beta and the scores s = p - u - ridge beta (`svmcore.qp`),

.. math::
    dual = p'\beta - \tfrac12 \beta'u - \tfrac12 \sum_v ridge_v \beta_v^2, \qquad
    primal(b) = \tfrac12 \beta'u + \sum_v h_v(p_v - u_v - b_{g(v)}) + \sum_g b_g d_g

so dual <= optimum <= primal for a feasible beta and any b; the primal is taken at its best b.

The outputs are those of `svmcore.outputs`, each with a bound of its error; so are gap and objectives.
"""

import dataclasses

import numpy as np

from svmcore.outputs import BoundedOutputs, KnownOutputs, dual_at, free_multipliers, parts
from svmcore.points import Floats
from svmcore.primal import best_multiplier, primal_at
from svmcore.qp import SignedQP
from svmcore.runtime.threads import one_blas_thread

__all__ = ["BAR", "SHARE", "SLACK", "Certificate", "Evaluation", "certify", "evaluate"]

SLACK = 1.05  # converged means kkt_gap + uncertainty <= 1.05 tol,
SHARE = 0.02  # of tol is the largest uncertainty of a proof,
BAR = 1e-6  # of the objectives the largest bar


@dataclasses.dataclass(frozen=True)
class Certificate:
    r"""Primal, dual and the violations of one beta.

    Attributes
    ----------
    primal, dual
        Bounds of the optimal value: dual <= optimum <= primal (for a positive semi-definite K).
    kkt_gap
        max - min of the scores that may grow and shrink, over all variables; see `svmcore.qp`. What `tol` bounds.
    infeasibility
        Worst violation of the box and of the sums.
    relative_gap
        (primal - dual) / max(abs(primal), abs(dual)); None where no bound exists.
    uncertainty
        Bound of the error of `kkt_gap`: rounding of the values it was computed from.
    bar
        The same for primal and dual.
    exact
        Rows whose outputs were computed from exact values, the others from those served.
    """

    primal: float
    dual: float
    kkt_gap: float
    infeasibility: float
    relative_gap: float | None
    uncertainty: float = 0.0
    bar: float = 0.0
    exact: int = 0

    def proves(self, tol: float) -> bool:
        """Whether the gap is proved to be within `tol`: a proof within wide bounds is none."""
        return self.kkt_gap + self.uncertainty <= SLACK * tol and not self.is_wide(tol)

    def is_wide(self, tol: float) -> bool:
        """Whether rounding leaves more doubt than a proof may have: float64 cannot tell.

        Of objectives that cannot be told from 0 no digit can be known.
        """
        scale = max(abs(self.primal), abs(self.dual))
        return not (self.uncertainty <= SHARE * tol and (self.bar <= BAR * scale or scale <= self.bar < np.inf))


NOTHING = Certificate(np.inf, -np.inf, np.inf, np.inf, None, np.inf, np.inf)  # is known


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """One pass over the columns at one beta: the certificate and what a solver or a model needs from it."""

    certificate: Certificate
    outputs: Floats  # (n,) u at the rows of K
    score: Floats  # (m,) s of the variables
    multipliers: Floats  # (k,) b_g of the groups
    norm2: float  # ||w||^2 = beta'u


def certify(qp: SignedQP, beta: Floats) -> Certificate:
    """Certificate of any `beta` (m,) for `qp`.

    >>> from svmcore.sources import ResidentGram
    >>> from svmcore.tasks import classification
    >>> qp = classification(ResidentGram(np.array([[1.0, -1.0], [-1.0, 1.0]])), np.array([1.0, -1.0]), C=10.0)
    >>> found = certify(qp, np.array([0.5, -0.5]))
    >>> found.primal, found.dual, found.kkt_gap, found.relative_gap
    (0.5, 0.5, 0.0, 0.0)
    """
    return evaluate(qp, beta).certificate


@one_blas_thread()
def evaluate(
    qp: SignedQP, beta: Floats, resolution: float = 0.0, known: tuple[Floats, Floats] | None = None
) -> Evaluation:
    """Certificate, outputs, scores and multipliers at `beta` (m,).

    `resolution` is how large the error of a score may be that decides the gap; above it values are exact. Where the
    outputs K beta (n,) are `known`, with bounds (n,) of their errors, nothing is computed from the columns.
    """
    beta = np.asarray(beta, dtype=np.float64)
    if not np.isfinite(beta).all():  # a program without a least value has overflowed
        return _nothing(qp)
    known = known or qp.source.direct_outputs(qp.at_rows(beta))
    outputs = BoundedOutputs(qp, beta) if known is None else KnownOutputs(qp, beta, *known)
    outputs.sharpen(resolution)
    outputs.doubt_sums()
    score = outputs.scores
    best = np.array([best_multiplier(qp, outputs.values, g) for g in range(len(qp.groups.sums))])
    multipliers = free_multipliers(qp, beta, score)
    gap, uncertainty = _gap(qp, beta, outputs, score)
    norm2 = float(outputs.coef @ outputs.values)
    dual = dual_at(qp, beta, norm2)
    primal = primal_at(qp, outputs.values, norm2, best)
    certificate = Certificate(
        primal,
        dual,
        gap,
        _infeasibility(qp, beta, outputs.sum_errors),
        _relative_gap(qp, primal, dual),
        uncertainty,
        *outputs.bars(best),
    )
    if not (np.isfinite(dual) and np.isfinite(score).all()):
        certificate = NOTHING
    multipliers = np.where(np.isnan(multipliers), best, multipliers)
    return Evaluation(certificate, outputs.values, score, multipliers, norm2)


def _nothing(qp: SignedQP) -> Evaluation:
    """What can be said of a beta that is no number."""
    unknown = np.full(qp.m, np.nan)
    return Evaluation(NOTHING, np.full(qp.source.n, np.nan), unknown, np.zeros(len(qp.groups.sums)), np.inf)


def _gap(qp: SignedQP, beta: Floats, outputs: BoundedOutputs, score: Floats) -> tuple[float, float]:
    """KKT gap and the bound of its error."""
    error = qp.at_variables(outputs.errors)
    grows, shrinks = beta < qp.hi, beta > qp.lo
    gap, most = 0.0, 0.0
    for at, anchored in parts(qp):
        ends = []
        for up, down in ((score, score), (score + error, score - error)):
            m, least = up[at][grows[at]].max(initial=-np.inf), down[at][shrinks[at]].min(initial=np.inf)
            ends.append(float(max(m, -least) if anchored else m - least))
        gap, most = max(gap, ends[0]), max(most, ends[1])  # errors can widen it by no less than they can narrow it
    return gap, most - gap


def _infeasibility(qp: SignedQP, beta: Floats, sum_errors: list[float]) -> float:
    return max([float(np.maximum(qp.lo - beta, beta - qp.hi).max(initial=0.0)), *sum_errors])


def _relative_gap(qp: SignedQP, primal: float, dual: float) -> float | None:
    if not qp.source.psd or not np.isfinite(primal):
        return None
    scale = max(abs(primal), abs(dual))
    return (primal - dual) / scale if scale > 0 else 0.0
