"""What a model claims of one problem against what float64 says: where `verify` draws its lines.

A claim is right if it is true within the uncertainty that it states and the recomputation's own; the precision that
the solver worked in excuses nothing.

- kkt_gap: within both uncertainties and 2 % of tol. primal, dual, norm2: within both bars.
- uncertainty, bar: of a converged problem at most 2 % of tol, and 1e-6 of the objectives: a proof within wide bounds
  is none. Where a solver ended otherwise nothing is promised, and a wide bound that is true is no lie.
- status: converged needs gap and uncertainty together within 1.05 tol; infeasible needs a variable without bound.
- infeasibility: what is claimed, and of a converged problem at most 1e-12 of the coefficients' sum.
- coefficients: dual and norm2 were computed from one ||w||^2, so that dual + ||w||^2 / 2 is a sum of coefficients
  alone, known to rounding, in which a change of a single one shows.
- bias, rho, epsilon: any multiplier between the extreme scores is right, so within the gap and the uncertainties.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pipeline.answers.result import finite
from svmcore.approximation import ExactBound
from svmcore.certificate import BAR, SHARE, SLACK, Certificate, Evaluation
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solution import Solution, Status
from svmcore.solvers import Solver
from svmcore.sources.base import matvec_and_sizes
from svmcore.tasks import SVC, Answer, Task

__all__ = ["Difference", "Found", "LowRankFound", "bound_differences", "differences_of", "variables_of"]

SAME = 1e-9  # relative: bounds of one answer on two machines
FEASIBLE = 1e-12  # of the sum of the coefficients' sizes
EPS = float(np.finfo(np.float64).eps)


@dataclasses.dataclass(frozen=True)
class Difference:
    """One part that is not what the model claims."""

    part: str
    stored: Any
    recomputed: Any

    def __str__(self) -> str:
        return f"{self.part}: stored {self.stored}, recomputed {self.recomputed}"


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
    """One problem recomputed.

    Attributes
    ----------
    qp, beta, evaluation
        The program over float64 columns, the model's coefficients (m,), and what follows.
    solver
        What claims to have solved it.
    counts
        (m,) copies of the rows that were trained on.
    anchor
        (m,) what centring the kernel put into the bias for each coefficient: large for rows far from the origin.
    machine
        Whose program it is.
    scale
        What the model divides coefficients and bias by: the margin of a nu-SVC, else 1.
    """

    qp: SignedQP
    beta: Floats
    evaluation: Evaluation
    solver: Solver
    counts: Floats
    anchor: Floats
    machine: Task = dataclasses.field(default_factory=SVC)
    scale: float = 1.0

    @property
    def certificate(self) -> Certificate:
        """As recomputed; without a relative gap where the solver's objective is another."""
        found = self.evaluation.certificate
        return found if self.solver.solves.bounds else dataclasses.replace(found, relative_gap=None)

    @property
    def record(self) -> dict[str, float | None]:
        """The certificate as JSON."""
        keys = ("primal", "dual", "relative_gap", "kkt_gap", "infeasibility", "uncertainty", "bar")
        return {key: finite(getattr(self.certificate, key)) for key in keys}

    @property
    def coef(self) -> Floats:
        """Of the rows (n,)."""
        return self.qp.at_rows(self.beta)

    @property
    def length(self) -> float:
        """Sum of abs(beta)."""
        return float(np.abs(self.beta).sum())

    @property
    def rounding(self) -> float:
        """Relative error of a float64 sum over the support."""
        return EPS * (np.count_nonzero(self.beta) / 8.0 + 8.0)

    @property
    def multiplier(self) -> float:
        """B of the program: 0 without a group."""
        return float(self.evaluation.multipliers.mean()) if len(self.evaluation.multipliers) else 0.0

    @property
    def decision(self) -> Floats:
        """F (m,) at the rows, as the model scales it."""
        return (self.evaluation.outputs + self.multiplier) / self.scale

    @property
    def answer(self) -> Answer:
        """What follows from the multipliers."""
        found = self.evaluation
        solution = Solution(
            self.beta,
            self.bias,
            Status.CONVERGED,
            0,
            found.certificate,
            found.outputs,
            found.score,
            found.norm2,
            multipliers=found.multipliers,
        )
        return self.machine.answer(self.qp, solution)

    @property
    def bias(self) -> float:
        """That of the kernel as it is, whatever was centred."""
        return self.multiplier + self.qp.shift * float(self.beta.sum()) - self.qp.source.offset(self.coef)

    def doubts(self, served: Any, claim: dict[str, Any]) -> Floats:
        """How far (m,) decision values from kernel values with the rounding `served` may be from these."""
        _, sizes = matvec_and_sizes(self.qp.source, self.coef)
        error = served.relative * sizes + (served.absolute * self.length if self.length else 0.0)
        return np.asarray(error + self.rounding * sizes + self.bias_slack(claim)) / self.scale

    def bias_slack(self, claim: dict[str, Any]) -> float:
        """How far two right biases may be apart."""
        rounding = self.rounding * (abs(self.bias) + float(np.abs(self.coef) @ np.abs(self.anchor)))
        if not self.qp.groups.sums:
            return rounding + self.rounding * self.length
        here, tol = self.evaluation.certificate, self.solver.tol
        return max(here.kkt_gap, _number(claim, "kkt_gap")) + self.uncertainty(claim) + SHARE * tol + rounding

    def uncertainty(self, claim: dict[str, Any]) -> float:
        """Of both gaps together."""
        return self.evaluation.certificate.uncertainty + _number(claim, "uncertainty")

    def bar(self, claim: dict[str, Any]) -> float:
        """Of both pairs of objectives together."""
        return self.evaluation.certificate.bar + _number(claim, "bar")


@dataclasses.dataclass(frozen=True, eq=False)
class LowRankFound(Found):
    """One problem recomputed through the landmarks, and what it proves of the exact machine."""

    errors: Floats = dataclasses.field(default_factory=lambda: np.empty(0))
    exact: ExactBound | None = None

    def doubts(self, served: Any, claim: dict[str, Any]) -> Floats:
        """Both decision values are of float64 values."""
        return np.asarray(2.0 * self.errors + self.bias_slack(claim)) / self.scale


def _number(claim: dict[str, Any], key: str) -> float:
    """A stated number; models of an older format state no uncertainty, and infinite ones are None."""
    value = claim.get(key)
    return float(value) if value is not None else 0.0 if key not in claim else math.inf


def variables_of(qp: SignedQP, beta: Floats, doubled: Sequence[Sequence[float]]) -> Floats:
    """Variables (m,) of a solution from those of its coefficients, rounded as these are.

    `doubled` are rows, with amounts, whose two variables were both not 0.
    """
    amounts = np.zeros(qp.source.n)
    for row, amount in doubled:
        amounts[int(row)] = amount
    both = qp.at_variables(amounts)
    return qp.snapped(beta + np.where(qp.hi > 0, both, -both) if len(doubled) else beta)


def differences_of(claim: dict[str, Any], bias: float, found: Found) -> list[Difference]:
    """What a model claims of a class (or pair) and its coefficients do not bear out."""
    parts = [*_certificate(claim, found), *_status(claim, found), *_counts(claim, found), *_bias(claim, bias, found)]
    return [Difference(f"{part} of class {claim['label']}", stored, here) for part, stored, here in parts]


def bound_differences(claim: dict[str, Any], found: LowRankFound) -> list[Difference]:
    """What a model claims of the exact optimum, and its coefficients do not bear out."""
    assert found.exact is not None
    stated, here, slack = claim["exact"], dataclasses.asdict(found.exact), found.bar(claim)
    return [
        Difference(f"exact {name} of class {claim['label']}", stated[name], here[name])
        for name in ("primal", "dual")
        if not abs(stated[name] - here[name]) <= slack + SAME * abs(here[name])
    ]


Wrong = Iterator[tuple[str, Any, Any]]


def _certificate(claim: dict[str, Any], found: Found) -> Wrong:
    here, bar, tol = found.record, found.bar(claim), found.solver.tol
    scale = max(abs(here["primal"] or 0.0), abs(here["dual"] or 0.0))
    allowed = {
        "primal": bar,
        "dual": bar,
        "relative_gap": 4.0 * bar / scale + 1e-12 if scale > 0 else 0.0,
        "kkt_gap": found.uncertainty(claim) + SHARE * tol,
        "infeasibility": FEASIBLE * found.length,
    }
    for key, slack in allowed.items():
        if not _close(claim[key], here[key], slack):
            yield key, claim[key], here[key]
    if "norm2" in claim:  # a model of format 1 does not state it
        yield from _norms(claim, found, bar)


def _norms(claim: dict[str, Any], found: Found, bar: float) -> Wrong:
    """||w||^2, and the coefficients by what dual and ||w||^2 leave of them."""
    qp, beta, norm2, stated = found.qp, found.beta, found.evaluation.norm2, claim["norm2"]
    if not _close(stated, norm2, 2.0 * bar + found.rounding * abs(norm2)):
        yield "norm2", stated, norm2
    implied, linear = claim["dual"] + 0.5 * stated, float(qp.p @ beta - 0.5 * (qp.ridge * beta) @ beta)
    if not _close(implied, linear, 4.0 * found.rounding * (found.length + abs(claim["dual"]) + abs(stated))):
        yield "coefficients", implied, linear


def _status(claim: dict[str, Any], found: Found) -> Wrong:
    here, tol = found.certificate, found.solver.tol
    if claim["status"] == Status.INFEASIBLE and not found.qp.unbounded.any():
        yield "status", claim["status"], "every variable has a bound"
    if claim["status"] != Status.CONVERGED:
        return
    if not here.kkt_gap + here.uncertainty <= SLACK * tol:
        yield "status", claim["status"], f"kkt_gap {here.kkt_gap:g} +- {here.uncertainty:g}, tol {tol:g}"
    if not here.infeasibility <= FEASIBLE * found.length:
        yield "status", claim["status"], f"infeasibility {here.infeasibility:g}"
    if not _number(claim, "uncertainty") <= SHARE * tol:
        yield "uncertainty", claim["uncertainty"], f"at most {SHARE * tol:g}"
    scale = max(abs(here.primal), abs(here.dual))
    most = BAR * scale if scale > here.bar else here.bar  # of objectives that are 0 no digit is known
    if not _number(claim, "bar") <= most:
        yield "bar", claim["bar"], f"at most {most:g}"


def _counts(claim: dict[str, Any], found: Found) -> Wrong:
    qp, beta = found.qp, found.beta
    support = beta != 0
    bounded = support & ((beta >= qp.hi) | (beta <= qp.lo))
    for key, variables in (("n_support", support), ("n_bounded", bounded)):
        rows = np.unique(qp.rows_of(np.flatnonzero(variables)))
        here = int(found.counts[rows].sum())
        if claim[key] != here:
            yield key, claim[key], here


def _bias(claim: dict[str, Any], bias: float, found: Found) -> Wrong:
    slack, answer = found.bias_slack(claim), found.answer
    if bias != claim["bias"] or not abs(bias * found.scale - found.bias) <= slack:
        yield "bias", bias, found.bias / found.scale
    if not abs(found.scale - answer.scale) <= slack:
        yield "rho", found.scale, answer.scale
    if not _close(claim.get("epsilon"), answer.epsilon, slack):
        yield "epsilon", claim.get("epsilon"), answer.epsilon


def _close(stated: float | None, here: float | None, allowed: float) -> bool:
    if stated is None or here is None:
        return stated is here
    return abs(stated - here) <= allowed
