"""From solved problems to one model, and its scores.

Training rows are scored by the solver's own decision values, test rows by `pipeline.model.decisions`; nothing is stored
here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.answers.problem import ProblemTask
from pipeline.answers.result import ProblemResult
from pipeline.model import evaluation, metrics
from pipeline.model.stored import label_array
from svmcore.kernels import Kernel
from svmcore.model import Model, vote

__all__ = ["assemble", "class_entries", "evaluation_of", "train_confusion"]


def assemble(
    dataset: Any, kernel: dict[str, Any], tasks: Sequence[ProblemTask], results: Sequence[ProblemResult]
) -> tuple[Model, Any]:
    """One model over the union of the problems' support vectors; returns it with their merged rows (m,)."""
    union = np.unique(np.concatenate([result.support for result in results]))
    coef = np.zeros((len(results), len(union)))
    for row, result in zip(coef, results, strict=True):
        row[np.searchsorted(union, result.support)] = result.beta
    bias = np.array([result.bias for result in results])
    vectors = dataset.X()[union]
    return Model(Kernel.create(kernel), vectors, coef, bias, label_array(dataset.classes), tasks[0].multiclass), union


def class_entries(labels: Sequence[Any], results: Sequence[ProblemResult], model: Model) -> list[dict[str, Any]]:
    """`per_class` of the metrics; a linear kernel's entries carry its weights."""
    entries = [metrics.class_entry(*pair) for pair in zip(labels, results, strict=True)]
    if model.kernel.name == "linear":
        for entry, coef in zip(entries, model.coef, strict=True):
            weights = metrics.hyperplane(model.support_vectors, coef)
            if weights is not None:
                entry["weights"] = weights
    return entries


def train_confusion(dataset: Any, model: Model, decision: Any) -> Any:
    """Confusion matrix of the original training rows, from decision values (m, k) of the merged ones."""
    predicted = vote(decision, len(dataset.classes), model.scheme)
    return evaluation.confusion(dataset.codes(), predicted, len(dataset.classes), dataset.counts())


def evaluation_of(
    dataset: Any, model: Model, decision: Any, train: Any, tested: tuple[Any, Any, Any, Any]
) -> dict[str, Any]:
    """What the report shows: confusion, ROC and regions, on the test rows where there are any.

    `right` says of each test row, by 1 or 0, whether its label is right: `compare` tells two runs apart by that.

    Parameters
    ----------
    decision
        (m, k) the solver's values on the merged training rows.
    train, tested
        Results of `train_confusion` and `decisions.score_test_rows`.
    """
    matrix, codes, values, right = tested
    weights = None
    if not dataset.n_test:
        matrix, codes, values, weights = train, dataset.codes(), decision[:, 0], dataset.counts()
    curve = evaluation.roc(np.asarray(codes) == 1, values, weights) if len(dataset.classes) == 2 else None
    return {
        "classes": list(dataset.classes),
        "confusion": matrix.tolist(),
        "right": "".join("01"[int(one)] for one in right),
        "evaluated_on": "test" if dataset.n_test else "train",
        "roc": curve,
        "plane": _plane(dataset, model) if dataset.n_features == 2 and not dataset.sparse else None,
    }


def _plane(dataset: Any, model: Model) -> dict[str, Any]:
    scaling = dataset.scaling

    def decide(X: Any) -> Any:
        return model.decision_function(scaling.apply(X))

    def codes_of(X: Any) -> Any:
        return vote(decide(X), len(dataset.classes), model.scheme)

    raw = scaling.undo(np.asarray(dataset.X(), np.float64))
    return evaluation.plane(raw, np.asarray(dataset.codes()), decide, codes_of, len(dataset.classes))
