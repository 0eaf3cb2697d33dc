"""The four machines beside C-SVC on the same tables: each certificate against the truth, `make bench-truth-machines`.

The table's classes for nu-svc, its last column (standardised) for the regressions, no target for one-class; 800 rows at
most. Outputs are judged in the precision that `scores` finds them in. Exit 1 for any false certificate.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import results
from benchmarks.truth import run
from benchmarks.truth.judging import machine_judge
from benchmarks.truth.judging.scores import EPS, scores_of, sizes_of
from benchmarks.truth.judging.verdicts import GAP_SHARE, JUDGED_RTOL, OBJECTIVE_RTOL, ROUNDING, SOLVED, SUM_RTOL
from benchmarks.truth.problems import tables
from benchmarks.truth.problems.design import LIMIT_SECONDS, SCALINGS, SEED, TABLES, TOL
from benchmarks.truth.problems.program import COEF0, DEGREE, Program
from benchmarks.truth.workers import CACHE_MB

MACHINES = {"nu-svc": "NuSVC", "svr": "SVR", "nu-svr": "NuSVR", "one-class": "OneClassSVM"}
KERNELS = ("linear", "rbf", "poly")
LEVELS = (0.1, 0.5)  # nu, or for svr C = 1 and C = 100
ROWS = 800
EPSILON = 0.1
NEARLY = 0.95  # of the largest feasible nu


@dataclass(frozen=True)
class Machine:
    """One problem."""

    table: str
    scaling: str
    kernel: str
    machine: str
    level: float
    weighted: bool

    @property
    def key(self) -> str:
        """Its name."""
        weights = "weights" if self.weighted else "equal"
        return f"{self.table}/{self.scaling}/{self.kernel}/{self.machine}/{self.level:g}/{weights}"


def design() -> list[Machine]:
    """All problems, in a fixed random order; coins decide on weights.

    Examples
    --------
    >>> len(design())
    3384
    """
    rng = np.random.default_rng(SEED)
    every = product(TABLES, SCALINGS, KERNELS, MACHINES, LEVELS)
    problems = [Machine(*each, weighted=bool(rng.random() < 0.5)) for each in every]
    return [problems[i] for i in rng.permutation(len(problems))]


def problem_of(one: Machine) -> dict[str, Any]:
    """As `machine_judge` has it, with the weights as `weights`."""
    X, y = tables.rows_of(one.table, one.scaling)
    kept = np.sort(tables.seeded(one.table, "machines").permutation(len(y))[:ROWS])
    X, y = X[kept], y[kept]
    if "svr" in one.machine:
        X, y = X[:, :-1], _standardised(X[:, -1])
    gamma = 1.0 / (X.shape[1] * max(float(X.var()), 1e-300))
    weights = tables.weights_of(one.table, len(y)) if one.weighted else np.ones(len(y))
    found = {"machine": one.machine, "X": X, "y": y, "weights": weights, "c": weights, "kernel": one.kernel}
    found |= {"gamma": gamma, "degree": DEGREE, "coef0": COEF0, "epsilon": EPSILON, "nu": one.level, "C": 1.0}
    if one.machine == "svr":
        found["C"] = 1.0 if one.level == LEVELS[0] else 100.0
    if one.machine == "nu-svc":
        least = min(weights[y > 0].sum(), weights[y < 0].sum())
        found["nu"] = min(one.level, float(NEARLY * 2 * least / weights.sum()))
    return found | {"c": found["C"] * weights}


def _standardised(y: NDArray) -> NDArray:
    return (y - y.mean()) / (y.std() or 1.0)


def fitted(problem: dict[str, Any]) -> Any:
    """Our estimator on the problem."""
    from svmcore import estimator

    name = problem["machine"]
    own = {"svr": ("C", "epsilon"), "nu-svr": ("C", "nu")}.get(name, ("nu",))
    names = (*own, "kernel", "gamma", "degree", "coef0")
    limits = {"tol": TOL, "time_limit": LIMIT_SECONDS, "cache_size": CACHE_MB}
    model = getattr(estimator, MACHINES[name])(**{key: problem[key] for key in names}, **limits)
    return model.fit(problem["X"], problem["y"], problem["weights"])


def truth_of(problem: dict[str, Any], coef: NDArray, finest: bool = False) -> machine_judge.Judged:
    """What coefficients (n,) of the program are worth.

    All machines but one-class have a sum of 0: theirs are judged by the centred kernel, which is the same program, and
    does not see what rounding leaves of the sum.
    """
    program = Program(problem["kernel"], problem["gamma"], problem["X"], problem["y"], 1.0)
    sizes = sizes_of(program)
    found = scores_of(program, coef, sizes, finest)
    u, norm2, total = found.centred, found.norm2, found.sum_beta
    if problem["machine"] == "one-class":
        along = float(coef @ found.at_mean)
        u = u + total * (found.at_mean + found.mean2) + along
        norm2 += 2.0 * total * along + total**2 * found.mean2
    # nu-svc: coefficients were divided by a margin and multiplied again; one-class: the parts are added up in float64
    size = {"nu-svc": sizes.k_max_centred, "one-class": sizes.k_max}.get(problem["machine"], 0.0)
    doubt = EPS * size * float(np.abs(coef).sum()) * float(problem["c"].sum())
    return machine_judge.judge_outputs(problem, coef, u, norm2, doubt, found.error)


def verdicts_of(claims: Any, status: str, truth: machine_judge.Judged, doubled: bool) -> list[str]:
    """What is to be held against a certificate; `doubled` where both variables of a row may be in use."""
    gap = max(0.0, truth.kkt_gap)
    slack = claims.uncertainty + truth.score_doubt + GAP_SHARE * TOL + ROUNDING * gap
    off = gap - claims.kkt_gap if doubled else abs(gap - claims.kkt_gap)
    scale = max(abs(truth.primal), abs(truth.dual))
    bar = max(claims.bar, JUDGED_RTOL * scale) + truth.doubt
    found = {
        "false gap": off > slack,
        "false converged": status == "converged"
        and (gap > SOLVED * TOL + truth.score_doubt or truth.infeasibility > SUM_RTOL),
        "objective outside its bar": np.isfinite(claims.primal)
        and not (doubled and status != "converged")
        and max(abs(claims.primal - truth.primal), abs(claims.dual - truth.dual)) > bar,
        "wide claim": status == "converged" and OBJECTIVE_RTOL * scale < claims.bar < scale,
        "unsolved": status != "converged",
    }
    return [name for name, holds in found.items() if holds]


def record_of(one: Machine) -> dict[str, Any]:
    """A problem solved and judged; nobody is accused of a falsehood but by the finest judge."""
    warnings.simplefilter("ignore")
    problem = problem_of(one)
    model = fitted(problem)
    coef, _ = machine_judge.program_coef(problem, model, model.support_)
    claims, status = model.certificate_[0], str(model.status_[0])
    doubled = one.machine == "nu-svr" or (one.machine == "svr" and status != "converged")
    truth = truth_of(problem, coef)
    verdicts = verdicts_of(claims, status, truth, doubled)
    if verdicts not in ([], ["unsolved"]):
        truth = truth_of(problem, coef, finest=True)
        verdicts = verdicts_of(claims, status, truth, doubled)
    return {"case": one.key, "status": status, "says": claims.kkt_gap, "is": truth.kkt_gap, "verdicts": verdicts}


def judged(minutes: float, jobs: int) -> Iterator[dict[str, Any]]:
    """Records of as many problems as the minutes allow."""
    end = time.monotonic() + 60.0 * minutes
    left = iter(design())
    with run.one_thread(), ProcessPoolExecutor(jobs) as pool:
        waiting = {pool.submit(record_of, one) for one in _some(left, 2 * jobs)}
        while waiting:
            done = next(iter(waiting))
            waiting.remove(done)
            yield done.result()
            if time.monotonic() < end:
                waiting |= {pool.submit(record_of, one) for one in _some(left, 1)}


def _some(left: Iterator[Machine], count: int) -> list[Machine]:
    return [one for one, _ in zip(left, range(count), strict=False)]


def main() -> int:
    """Run, count and keep the counts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.machines", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for record in judged(given.minutes, given.jobs):
        counts.update(["problems", f"status {record['status']}", *record["verdicts"]])
        if record["verdicts"]:
            print(
                f"{record['case']}: {', '.join(record['verdicts'])}: says {record['says']:.3g}, is {record['is']:.3g}"
            )
    print(", ".join(f"{count} {name}" for name, count in counts.most_common()))
    name = time.strftime("%Y-%m-%dT%H:%M:%S")
    results.Results(results.DEFAULT, "truth-machines", name).append("machines", [dict(counts)])
    return int(any(name.startswith(("false", "objective")) for name in counts))


if __name__ == "__main__":
    sys.exit(main())
