"""Metrics of a run: the keys of `metrics.json` and `run --json`.

Nothing is computed here that an answer does not already hold; scores come from `pipeline.kinds.evaluation`.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.answers.result import ProblemResult
from svmcore.points import Rows
from svmcore.solution import Status
from svmcore.tasks import Task

__all__ = ["class_entry", "hyperplane", "worst", "worst_status"]

WEIGHTS_LIMIT = 1000  # features of a linear model whose weights are listed


def worst(values: Sequence[float | None]) -> float | None:
    """Largest of the values; None if one of them has no bound.

    >>> worst([0.1, 0.3]), worst([0.1, None])
    (0.3, None)
    """
    numbers = [value for value in values if value is not None]
    return max(numbers) if len(numbers) == len(values) and numbers else None


def worst_status(statuses: Sequence[str]) -> str:
    """Most severe of several statuses.

    >>> worst_status(["converged", "time_limit"])
    'time_limit'
    """
    return max((Status(status) for status in statuses), key=lambda status: status.severity).value


def class_entry(label: Any, result: ProblemResult) -> dict[str, Any]:
    """One entry of `per_class`."""
    certificate = result.certificate
    separates = Task.create(result.machine).answers == "labels"
    found = {"rho": result.scale} if result.scale != 1.0 else {}
    found |= {} if result.epsilon is None else {"epsilon": result.epsilon}
    return {
        "label": label,
        "n_support": result.n_support,
        "n_bounded": result.n_bounded,
        "n_iter": result.n_iter,
        "status": result.status,
        "primal": certificate["primal"],
        "dual": certificate["dual"],
        "relative_gap": certificate["relative_gap"],
        "kkt_gap": certificate["kkt_gap"],
        "infeasibility": certificate["infeasibility"],
        "uncertainty": certificate["uncertainty"],
        "bar": certificate["bar"],
        "bias": result.bias / result.scale,
        **found,
        "norm2": result.norm2,
        "margin": result.scale / math.sqrt(result.norm2) if separates and result.norm2 > 0 else None,
        "slack": result.slack,
        "seconds": result.seconds,
    }


def hyperplane(support_vectors: Rows, coef: Any) -> list[float] | None:
    """Weights w = sum_i coef_i x_i (p,) of a linear kernel, in units of the scaled features; None if p > 1000."""
    if support_vectors.shape[1] > WEIGHTS_LIMIT:
        return None
    return [float(value) for value in np.asarray(support_vectors.T @ coef).ravel()]
