"""Where a program of a chain needs no solver: its boxes are wider, and leave the solution before what it is."""

import dataclasses

import numpy as np

from svmcore.certificate import Certificate, Evaluation
from svmcore.outputs import free_multipliers
from svmcore.passes.proof.boxes import widened
from svmcore.primal import objectives
from svmcore.qp import SignedQP
from svmcore.solution import Solution, Status
from svmcore.solvers.base import Outcome, judged
from svmcore.train.chains.loop import Handover, Solved

__all__ = ["restored", "same_optimum"]


def same_optimum(before: Solved | None, qp: SignedQP, tol: float) -> Solution | None:
    """The solution before, where wider boxes leave it what it is: no variable is at a bound that has moved.

    Its KKT gap is the same number. The primal, a bound at any multipliers, is taken again at those that it has.
    """
    if before is None or qp.is_hard or not _is_alike(before[0], qp):
        return None
    (last, solution), beta = before, before[1].beta
    found = solution.certificate
    wider = widened(beta, last.lo, last.hi, qp.lo, qp.hi)
    if not (wider and found.proves(tol)):
        return None
    outputs = qp.p - solution.score - qp.ridge * beta
    primal = objectives(qp, outputs, np.zeros(qp.m), solution.norm2, solution.multipliers).primal
    scale = max(abs(primal), abs(found.dual))
    gap = None if found.relative_gap is None else (primal - found.dual) / scale if scale else 0.0
    found = dataclasses.replace(found, primal=primal, relative_gap=gap, bar=wider * found.bar)
    return dataclasses.replace(solution, certificate=found, n_iter=0) if found.proves(tol) else None


def restored(qp: SignedQP, left: Handover, certificate: Certificate, norm2: float) -> Solution | None:
    """The solution of `qp` that `left` is of, or None where no variable tells a multiplier: all are at their bounds."""
    beta = np.zeros(qp.m)
    beta[left.support] = left.beta
    score = left.residual - qp.ridge * beta
    multipliers = free_multipliers(qp, beta, score)
    if np.isnan(multipliers).any():
        return None
    outputs = np.zeros(qp.source.n)
    outputs[qp.rows_of(np.arange(qp.m))] = qp.p - left.residual
    outcome = Outcome(Status.CONVERGED, 0, beta)
    return judged(qp, outcome, Evaluation(certificate, outputs, score, multipliers, norm2), ())


def _is_alike(last: SignedQP, qp: SignedQP) -> bool:
    """Whether programs differ in their boxes alone."""
    if last.m != qp.m or last.groups.sums != qp.groups.sums:
        return False
    return np.array_equal(last.p, qp.p) and np.array_equal(last.ridge, qp.ridge)
