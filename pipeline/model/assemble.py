"""From solved problems to one model, and its scores.

Training rows are scored by the solver's own decision values, test rows by `pipeline.model.decisions`; nothing is stored
here.
"""

from collections.abc import Sequence
from typing import Any

from pipeline.answers.low_rank import landmark_parts
from pipeline.answers.problem import ProblemTask
from pipeline.answers.result import ProblemResult, sigmoids_of
from pipeline.kinds.labels import label_array
from pipeline.model import metrics
from svmcore.kernels import Kernel
from svmcore.model import Model, model_of, support_of

__all__ = ["assemble", "class_entries", "evaluation_of"]


def assemble(
    dataset: Any, kernel: dict[str, Any], tasks: Sequence[ProblemTask], results: Sequence[ProblemResult]
) -> tuple[Model, Any]:
    """One model over the union of the problems' support vectors, or over landmarks.

    Returns it with the merged rows (m,) of the support vectors.
    """
    parts = [result.part for result in results]
    support, vectors = support_of(parts), dataset.take
    classes = label_array(dataset.classes if dataset.kind.answers == "labels" else [])
    first = tasks[0]
    if first.approximation is not None:
        landmarks, parts = landmark_parts(dataset, kernel, first, results)
        vectors = lambda rows: landmarks[rows]  # noqa: E731
    about = classes, first.multiclass, first.built.name, sigmoids_of(results)
    return model_of(Kernel.create(kernel), vectors, parts, *about)[0], support


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
