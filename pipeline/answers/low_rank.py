"""Answers on a factor of low rank: as coefficients of landmarks, and as the rows in float64 judge them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.answers.problem import ProblemTask, problem_of
from pipeline.answers.result import ProblemResult, judged_result
from pipeline.kernel.factor import feature_map
from svmcore.approximation import ExactBound, Proof
from svmcore.kernels import Kernel
from svmcore.model import Part
from svmcore.monitor import Progress
from svmcore.points import Floats
from svmcore.solution import Status
from svmcore.solvers import Outcome
from svmcore.solvers.base import judged

__all__ = ["Proved", "landmark_parts", "proved"]


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


def landmark_parts(
    dataset: Any, kernel: dict[str, Any], task: ProblemTask, results: Sequence[ProblemResult]
) -> tuple[Any, list[Part]]:
    """Landmarks (r, p), and the answers in terms of them."""
    proof = _proof(dataset, kernel, task, _all_rows(results, dataset.n_merged))
    every = np.arange(len(proof.landmark_coef))
    parts = [Part(every, coef, of.bias, of.scale) for coef, of in zip(proof.landmark_coef.T, results, strict=True)]
    return proof.map.landmarks, parts


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
