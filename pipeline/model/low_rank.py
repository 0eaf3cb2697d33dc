"""Answers on a factor of low rank as a model over landmarks, and proved from the rows: when stored, and by `verify`."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pipeline.answers.problem import ProblemTask, problem_of, training_counts
from pipeline.answers.result import ProblemResult, judged_result
from pipeline.kernel.factor import feature_map
from pipeline.model.claims import Difference, Found, variables_of
from svmcore.approximation import ExactBound, FeatureMap, Proof
from svmcore.kernels import Kernel
from svmcore.monitor import Progress
from svmcore.points import Floats
from svmcore.solution import Status
from svmcore.solvers import Outcome, Solver
from svmcore.solvers.base import judged

__all__ = ["LowRankFound", "Proved", "bound_differences", "landmark_model", "proved", "recomputed"]

INDEPENDENT = 1e-15  # of stored landmarks all are kept
SAME = 1e-9  # relative: bounds of one answer on two machines


@dataclasses.dataclass(frozen=True, eq=False)
class Proved:
    """Answers judged by float64 values of the rows: with decision values (m, k) and bounds of the exact optimum."""

    results: list[ProblemResult]
    decision: Floats
    bounds: list[ExactBound]


def _proof(dataset: Any, kernel: dict[str, Any], task: ProblemTask, coef: Floats) -> Proof:
    """Proof of coefficients (k, m) by the map that the factor was made with."""
    found, X = feature_map(str(task.gram), Kernel.create(kernel), task.dataset), dataset.X()
    return Proof(found, X, found.sides(X, np.float32)[0], coef)


def _all_rows(results: Sequence[ProblemResult], m: int) -> Floats:
    """Coefficients (k, m) of the programs at all rows."""
    return np.array([np.bincount(result.rows, weights=result.beta, minlength=m) for result in results])


def landmark_model(
    dataset: Any, kernel: dict[str, Any], task: ProblemTask, results: Sequence[ProblemResult]
) -> tuple[Any, Floats]:
    """Landmarks (r, p) and coefficients (k, r) that the answers are as a model."""
    proof = _proof(dataset, kernel, task, _all_rows(results, dataset.n_merged))
    return proof.map.landmarks, proof.landmark_coef.T / np.array([result.scale for result in results])[:, None]


def proved(
    dataset: Any, kernel: dict[str, Any], tasks: Sequence[ProblemTask], results: Sequence[ProblemResult]
) -> Proved:
    """The answers as the rows in float64 judge them: the factor itself was rounded."""
    proof = _proof(dataset, kernel, tasks[0], _all_rows(results, dataset.n_merged))
    quadratic, outline = proof.quadratic(), proof.outline
    found, decision, bounds = [], [], []
    for k, (task, before) in enumerate(zip(tasks, results, strict=True)):
        qp = problem_of(task, outline)
        beta = np.zeros(qp.m)
        beta[before.support] = before.beta
        evaluation = proof.evaluation(k, qp, beta, slice(None))
        refuted = before.status == Status.CONVERGED and not evaluation.certificate.proves(float(task.solver["tol"]))
        status = Status.STALLED if refuted else Status(before.status)
        history = tuple(Progress(*each) for each in before.history)  # type: ignore[arg-type]
        solution = judged(qp, Outcome(status, before.n_iter, beta), evaluation, history)
        result, values = judged_result(task, qp, solution, before.seconds)
        found.append(result)
        decision.append(values)
        bounds.append(proof.bound(k, qp, solution, float(quadratic[k])))
    return Proved(found, np.array(decision).T, bounds)


# --- verify ---------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True, eq=False)
class LowRankFound(Found):
    """One problem recomputed through the landmarks, and what it proves of the exact machine."""

    errors: Floats = dataclasses.field(default_factory=lambda: np.empty(0))
    exact: ExactBound | None = None

    def doubts(self, served: Any, claim: dict[str, Any]) -> Floats:
        """Both decision values are of float64 values."""
        return np.asarray(2.0 * self.errors + self.bias_slack(claim)) / self.scale


def recomputed(
    model: Any, alpha: Floats, support: Floats, dataset: Any, tasks: Sequence[ProblemTask], claims: Sequence[Any]
) -> Iterator[LowRankFound]:
    """Each problem from the landmarks of a stored model and coefficients `alpha` (k, s) of the rows `support`."""
    map_ = FeatureMap.of(model.kernel, model.support_vectors, INDEPENDENT)
    X, scales = dataset.X(), np.array([float(claim.get("rho", 1.0)) for claim in claims])
    coef = np.zeros((len(tasks), dataset.n_merged))
    coef[:, support] = alpha * scales[:, None]
    proof = Proof(map_, X, map_.sides(X, np.float64)[0], coef)
    quadratic, outline = proof.quadratic(), proof.outline
    for k, task in enumerate(tasks):
        qp = problem_of(task, outline)
        beta = variables_of(qp, task.built.variables(qp, coef[k]), claims[k].get("doubled", []))
        evaluation = proof.evaluation(k, qp, beta, slice(None))
        solver, counts = Solver.create(task.solver), training_counts(task)
        known = qp, beta, evaluation, solver, counts, np.zeros(qp.source.n), task.built, float(scales[k])
        found = LowRankFound(*known, errors=proof.errors(k))
        solution = judged(qp, Outcome(Status.CONVERGED, 0, beta), evaluation, ())
        yield dataclasses.replace(found, exact=proof.bound(k, qp, solution, float(quadratic[k])))


def bound_differences(claim: dict[str, Any], found: LowRankFound) -> list[Difference]:
    """What a model claims of the exact optimum, and its coefficients do not bear out."""
    assert found.exact is not None
    stated, here, slack = claim["exact"], dataclasses.asdict(found.exact), found.bar(claim)
    return [
        Difference(f"exact {name} of class {claim['label']}", stated[name], here[name])
        for name in ("primal", "dual")
        if not abs(stated[name] - here[name]) <= slack + SAME * abs(here[name])
    ]
