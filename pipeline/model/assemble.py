"""From solved problems to one model, and its scores.

Training rows are scored by the solver's own decision values, test rows by `pipeline.model.decisions`; nothing is stored
here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.answers.low_rank import landmark_model
from pipeline.answers.problem import ProblemTask
from pipeline.answers.result import ProblemResult, coefficients, sigmoids_of
from pipeline.kinds.labels import label_array
from pipeline.model import metrics
from svmcore.kernels import Kernel
from svmcore.model import Model

__all__ = ["assemble", "class_entries", "evaluation_of"]


def assemble(
    dataset: Any, kernel: dict[str, Any], tasks: Sequence[ProblemTask], results: Sequence[ProblemResult]
) -> tuple[Model, Any]:
    """One model over the union of the problems' support vectors, or over landmarks.

    Returns it with the merged rows (m,) of the support vectors.
    """
    union = np.unique(np.concatenate([result.rows for result in results]))
    coef = np.array([coefficients(result, union) for result in results])
    bias = np.array([result.bias / result.scale for result in results])
    classes = label_array(dataset.classes if dataset.kind.answers == "labels" else [])
    first, vectors = tasks[0], None
    if first.approximation is not None:
        vectors, coef = landmark_model(dataset, kernel, first, results)
    rows = dataset.X()[union] if vectors is None else vectors
    parts = rows, coef, bias, classes, first.multiclass, first.built.name, sigmoids_of(results)
    return Model(Kernel.create(kernel), *parts), union


def class_entries(labels: Sequence[Any], results: Sequence[ProblemResult], model: Model) -> list[dict[str, Any]]:
    """`per_class` of the metrics; a linear kernel's entries carry its weights."""
    entries = [metrics.class_entry(*pair) for pair in zip(labels, results, strict=True)]
    if model.kernel.name == "linear":
        for entry, coef in zip(entries, model.coef, strict=True):
            weights = metrics.hyperplane(model.support_vectors, coef)
            if weights is not None:
                entry["weights"] = weights
    return entries


def evaluation_of(dataset: Any, model: Model, decision: Any, tested: Any) -> dict[str, Any]:
    """What the report shows, on the test rows where there are any.

    Parameters
    ----------
    decision, tested
        The solver's values (m, k) on the merged training rows, and the model's (n_test, k) on the test rows.
    """
    shown = (dataset.test_targets(), tested, None)
    if not dataset.n_test:
        shown = (dataset.targets(), decision, dataset.counts())
    where = {"task": model.machine, "evaluated_on": "test" if dataset.n_test else "train"}
    return where | dataset.kind.evaluation(dataset, model, shown)
