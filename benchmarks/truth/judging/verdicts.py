"""What is to be held against an answer: rules over the numbers of a record, no arithmetic of kernels."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.truth.judging.judge import can_tell
from benchmarks.truth.problems.design import LIMIT_SECONDS, TOL

Record = dict[str, Any]
GAP_SHARE = 0.02  # of tol, by which a claimed gap may be off beyond its own uncertainty
SOLVED = 1.05  # times tol
SUM_RTOL = 1e-12
PEER_SUM_RTOL = 1e-9
ROUNDING = 1e-12  # relative: what float64 leaves of a gap of millions
OBJECTIVE_RTOL = 1e-6
JUDGED_RTOL = 1e-8  # what the coarser judge and the shares of copies may leave
LATE = 1.1  # times the limit: the certificate and the last step may end after it

FALSE_GAP, FALSE_CONVERGED, OFF_ITS_BAR = "false gap", "false converged", "objective outside its bar"
VERDICTS = {
    FALSE_GAP: "the certificate's gap is off by more than its uncertainty and 2 % of tol",
    FALSE_CONVERGED: "converged with a gap above 1.05 tol, or infeasible by more than 1e-12 of sum abs(beta)",
    OFF_ITS_BAR: "the certificate's primal or dual is off by more than its bar (none stated: 1e-6)",
    "wide claim": "converged with an uncertainty above 2 % of tol or a bar above 1e-6 of the objective",
    "dual below LIBSVM": "hinge, psd kernel: the dual is more than 1e-6 below LIBSVM's, whose answer is within tol",
    "stalled unjustly": "stalled where float64 can tell",
    "unsolved": "not converged to a gap within 1.05 tol in time, whatever the reason",
    "late": "answered more than a tenth after the limit",
    "failed": "an exception, a dead process, or no answer long after the limit",
}


def within(truth: Record | None, sum_rtol: float = SUM_RTOL) -> bool:
    """Whether an answer is optimal within tol."""
    return bool(truth and truth["kkt_gap"] <= SOLVED * TOL and truth["infeasibility"] <= sum_rtol * truth["beta_l1"])


def in_time(answer: Record) -> bool:
    """Whether the processor was busy for ten seconds at most; one thread, so that an idle machine shows the same."""
    return bool(answer["cpu_seconds"] <= LATE * LIMIT_SECONDS)


def solved(record: Record) -> bool:
    """Whether our answer says that it is optimal, and is, in time."""
    ours = record["ours"]
    return ours["status"] == "converged" and in_time(ours) and within(record.get("truth"))


def peer_solved(record: Record) -> bool:
    """Whether LIBSVM ended of itself, in time, with an answer within tol.

    A stationary point of a program without a least value is no answer: there another beta has a dual far above.
    """
    peer = record["peer"]
    solved = peer["status"] == "converged" and in_time(peer) and within(peer.get("truth"), PEER_SUM_RTOL)
    return solved and not (not record["bounded"] and _beaten(record.get("truth"), peer["truth"]))


def _beaten(ours: Record | None, theirs: Record) -> bool:
    return bool(ours and ours["infeasibility"] <= SUM_RTOL * ours["beta_l1"] and ours["dual"] > 2 * theirs["primal"])


def tellable(record: Record) -> bool:
    """Whether float64 can tell: eps64 times the largest kernel value times ||beta||_1 is at most tol / 50.

    The kernel centred, since the free bias allows it; a matrix that was given has been rounded as it is. The answer
    with the smaller ||beta||_1 counts. Programs that may have no least value are left out as well, and those whose
    objective, within 1e-6, hangs on the digits that float64 has not for K beta.
    """
    name = "load" if "precomputed" in record["case"] else "load_centred"
    truths = [truth for truth in (record.get("truth"), record["peer"].get("truth")) if truth]
    ours = record.get("truth")
    held = not ours or ours.get("rounding", 0.0) <= OBJECTIVE_RTOL
    return record["bounded"] and held and (not truths or can_tell(min(truth[name] for truth in truths)))


def verdicts_of(record: Record) -> list[str]:
    """Names out of VERDICTS; none for an answer without fault."""
    ours, truth = record["ours"], record.get("truth")
    if truth is None:
        return ["failed", "unsolved"]
    converged = ours["status"] == "converged"
    found = {
        FALSE_GAP: false_gap(ours["claims"], truth),
        FALSE_CONVERGED: converged and not within(truth),
        OFF_ITS_BAR: _objective_off(ours["claims"], truth),
        "wide claim": converged and _wide(ours["claims"], truth),
        "dual below LIBSVM": _below(record),
        "stalled unjustly": ours["status"] == "stalled" and tellable(record),
        "unsolved": not solved(record),
        "late": not in_time(ours),
    }
    return [name for name, holds in found.items() if holds]


def false_gap(claims: Record, truth: Record) -> bool:
    """Compare with the gap of the centred kernel and of the kernel as it is: sum beta = 0 makes them one."""
    slack = claims["uncertainty"] + GAP_SHARE * TOL + ROUNDING * abs(truth["kkt_gap"])
    return not any(_near(claims["kkt_gap"], truth[name], slack) for name in ("kkt_gap", "plain_gap"))


def _near(claimed: float, true: float, slack: float) -> bool:
    return claimed == true or abs(claimed - true) <= slack


def _objective_off(claims: Record, truth: Record) -> bool:
    """A primal that the certificate does not give, or that is infinite, claims nothing."""
    for name in ("primal", "dual"):
        claimed = claims[name]
        if claimed is None or not math.isfinite(claimed):
            continue
        slack = claims["bar"] or OBJECTIVE_RTOL * _scale(truth)
        slack = max(slack, JUDGED_RTOL * _scale(truth))  # copies share a variable, and the judge rounds too
        if not any(_near(claimed, truth[prefix + name], slack) for prefix in ("", "plain_")):
            return True
    return False


def _scale(truth: Record) -> float:
    return max(abs(truth["primal"]), abs(truth["dual"]))


def _wide(claims: Record, truth: Record) -> bool:
    """Of objectives that are 0 within the bar no digit can be known."""
    return claims["uncertainty"] > GAP_SHARE * TOL or OBJECTIVE_RTOL * _scale(truth) < claims["bar"] < _scale(truth)


def _below(record: Record) -> bool:
    """Only where both maximise the same: hinge, psd, and a given matrix that rounding has left psd."""
    _, _, kernel, loss, *_ = record["case"].split("/")
    if loss != "hinge" or kernel == "sigmoid" or not peer_solved(record):
        return False
    if kernel.startswith("precomputed") and not tellable(record):
        return False
    theirs = record["peer"]["truth"]["dual"]
    return theirs - record["truth"]["dual"] > OBJECTIVE_RTOL * abs(theirs)
