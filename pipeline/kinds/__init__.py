"""What a task means to the pipeline: one class each for classification, regression and novelty, found by name.

A kind says how targets are read, which rows are held out, which programs are solved, how they are scored and what a
report shows of them. Everything else asks it and looks at no label.
"""

from pipeline.kinds.base import Kind
from pipeline.kinds.classification import Classification
from pipeline.kinds.novelty import Novelty
from pipeline.kinds.regression import Regression
from svmcore.tasks import Task

__all__ = ["KINDS", "Kind", "kind_of"]

KINDS: dict[str, Kind] = {kind.answers: kind for kind in (Classification(), Regression(), Novelty())}


def kind_of(task: str) -> Kind:
    """The kind of the machine of this name.

    >>> kind_of("nu-svr").answers
    'values'
    """
    return KINDS[Task.named(task).answers]
