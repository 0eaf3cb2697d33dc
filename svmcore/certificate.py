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

from svmcore.outputs import BoundedOutputs, KnownOutputs, multipliers_of
from svmcore.passes.proof.multipliers import group_ends
from svmcore.points import Floats
from svmcore.primal import best_multiplier, objectives
from svmcore.qp import SignedQP
from svmcore.runtime.threads import one_blas_thread
from svmcore.sources.base import Served

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
    error
        Bound of the error of every output; infinite where the outputs are somebody else's.
    """

    primal: float
    dual: float
    kkt_gap: float
    infeasibility: float
    relative_gap: float | None
    uncertainty: float = 0.0
    bar: float = 0.0
    exact: int = 0
    error: float = np.inf

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
    qp: SignedQP,
    beta: Floats,
    resolution: float = 0.0,
    known: tuple[Floats, Floats] | None = None,
    at_hand: Served | None = None,
) -> Evaluation:
    """Certificate, outputs, scores and multipliers at `beta` (m,).

    `resolution` is how large the error of a score may be that decides the gap; above it values are exact. Where the
    outputs K beta (n,) are `known`, with bounds (n,) of their errors, nothing is computed from the columns. What
    was served of K beta may be `at_hand`.
    """
    beta = np.asarray(beta, dtype=np.float64)
    if not np.isfinite(beta).all():  # a program without a least value has overflowed
        return _nothing(qp)
    known = known or qp.source.direct_outputs(qp.at_rows(beta))
    outputs = BoundedOutputs(qp, beta, at_hand) if known is None else KnownOutputs(qp, beta, *known)
    outputs.sharpen(resolution)
    outputs.doubt_sums()
    score, errors = outputs.scores, qp.at_variables(outputs.errors)
    ends = np.empty((len(qp.groups.sums) + 1, 6))
    outside, finite = group_ends(score, errors, beta, qp.lo, qp.hi, qp.codes, ends)
    best = [best_multiplier(qp, outputs.values, g) for g in range(len(qp.groups.sums))]
    norm2 = outputs.norm2
    found = objectives(qp, qp.at_variables(outputs.values), errors, norm2, np.array(best))
    dual = outputs.dual(norm2)
    certificate = Certificate(
        found.primal,
        dual,
        (gap := _gap(ends[:, :2].tolist())),
        max([outside, *outputs.sum_errors]),
        _relative_gap(qp, found.primal, dual),
        _gap(ends[:, 2:4].tolist()) - gap,  # errors can widen it by no less than they can narrow it
        outputs.bar(found),
        int(np.count_nonzero(outputs.exact_rows)),
        np.inf if known is not None else float(outputs.errors.max(initial=0.0)),
    )
    if not (finite and np.isfinite(dual)):
        certificate = NOTHING
    return Evaluation(certificate, outputs.values, score, multipliers_of(ends, best), norm2)


def _nothing(qp: SignedQP) -> Evaluation:
    """What can be said of a beta that is no number."""
    unknown = np.full(qp.m, np.nan)
    return Evaluation(NOTHING, np.full(qp.source.n, np.nan), unknown, np.zeros(len(qp.groups.sums)), np.inf)


def _gap(ends: list[list[float]]) -> float:
    """KKT gap: of groups from their largest to their smallest score, last of variables in none from 0."""
    *grouped, (most, least) = ends
    return max([0.0, most, -least, *(high - low for high, low in grouped)])


def _relative_gap(qp: SignedQP, primal: float, dual: float) -> float | None:
    if not qp.source.psd or not np.isfinite(primal):
        return None
    scale = max(abs(primal), abs(dual))
    return (primal - dual) / scale if scale > 0 else 0.0
