"""For how many test rows the exact optimum provably gives the label that the model gives.

Each answer bounds how far it may be from the exact optimum (`svmcore.train.doubt`), hence how far each decision value
may be. A label is proved if no values within these bounds would change it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.answers.problem import ProblemTask
from pipeline.answers.result import ProblemResult
from svmcore.model import Model
from svmcore.model.multiclass import is_told
from svmcore.train.doubt import Doubts
from svmcore.train.posing.plan import served_kernel

__all__ = ["proved_labels"]


def proved_labels(
    dataset: Any, model: Model, tasks: Sequence[ProblemTask], results: Sequence[ProblemResult], decision: Any
) -> int | None:
    """How many test rows with decision values (n_test, k) have a proved label.

    None where an answer has no duality gap, as of a kernel that is not positive semi-definite, or is of a version that
    did not keep its bound.
    """
    found = [result.doubt for result in results]
    if any(each is None or None in each for each in found):
        return None
    served = served_kernel(model.kernel, tasks[0].built)
    centre = served.prepare_gram(dataset.X(), np.float32).centre if served.is_centred else None
    scale = np.array([result.scale for result in results])
    doubts = Doubts(served, centre, np.array(found, dtype=np.float64), scale)
    proved, start = 0, 0
    for X, _ in dataset.test_blocks():
        values = np.asarray(decision[start : start + X.shape[0]])
        told = is_told(values, doubts.bound(X, values), len(model.classes), model.scheme)
        proved, start = proved + int(told.sum()), start + X.shape[0]
    return proved
