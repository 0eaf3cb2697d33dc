"""Metrics of a run: the keys of `metrics.json` and `run --json`, and the clock behind `seconds`.

Nothing is computed here that an answer does not already hold; scores come from `pipeline.evaluation`.
"""

import contextlib
import math
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pipeline.answers import ProblemResult
from svmcore.points import Rows
from svmcore.solution import Status

__all__ = ["STAGES", "Clock", "class_entry", "hyperplane", "peak_memory_bytes", "worst"]

STAGES = ("start", "ingest", "kernel", "solve", "score")
WEIGHTS_LIMIT = 1000  # features of a linear model whose weights are listed


class Clock:
    """Wall clock shared out among stages: a stage inside another pauses it, so nothing is counted twice.

    Whatever is in no stage (imports, cluster, compilation, Prefect) is `start`.

    >>> clock = Clock()
    >>> with clock("kernel"), clock("start"):
    ...     pass
    >>> seconds = clock.seconds()
    >>> sorted(seconds) == ["ingest", "kernel", "score", "solve", "start", "total"]
    True
    """

    def __init__(self, started: float | None = None) -> None:
        self.started = self.since = time.monotonic() if started is None else started
        self.current = "start"
        self.spent = dict.fromkeys(STAGES, 0.0)

    @contextlib.contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Attribute the time inside to `stage`."""
        outer = self._switch(stage)
        try:
            yield
        finally:
            self._switch(outer)

    def _switch(self, stage: str) -> str:
        now, outer = time.monotonic(), self.current
        self.spent[outer] = self.spent.get(outer, 0.0) + now - self.since
        self.since, self.current = now, stage
        return outer

    def seconds(self) -> dict[str, float]:
        """Seconds of each stage so far, and in all."""
        self._switch(self.current)
        return {stage: self.spent[stage] for stage in STAGES} | {"total": self.since - self.started}


def peak_memory_bytes() -> int:
    """Largest resident set of this process since it began, mapped pages of K included."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


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
        "bias": result.bias,
        "norm2": result.norm2,
        "margin": 1.0 / math.sqrt(result.norm2) if result.norm2 > 0 else None,
        "slack": result.slack,
        "seconds": result.seconds,
    }


def hyperplane(support_vectors: Rows, coef: Any) -> list[float] | None:
    """Weights w = sum_i coef_i x_i (p,) of a linear kernel, in units of the scaled features; None if p > 1000."""
    if support_vectors.shape[1] > WEIGHTS_LIMIT:
        return None
    return [float(value) for value in np.asarray(support_vectors.T @ coef).ravel()]
