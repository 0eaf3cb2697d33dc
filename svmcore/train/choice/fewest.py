"""The errors at validation rows that no optimum between two solved values of C is without."""

import numpy as np

from svmcore.kernels.rounding import Rounding
from svmcore.model.multiclass import Wrong
from svmcore.points import Floats
from svmcore.tasks import SVC, Task
from svmcore.train.choice.between import End, Rows, bands

__all__ = ["PARTS", "Fewest", "is_provable", "output_error"]

PARTS = 8  # of the way between neighbours that are bounded one by one


def is_provable(task: Task, psd: bool) -> bool:
    """Whether optima between solved values of C are bounded: those of an SVC with the hinge loss and a free bias."""
    return task == SVC() and psd


def output_error(rounding: Rounding, rows: Rows, beta: Floats) -> float:
    """Bound of the error of K beta where values of K are rounded: abs(k) is at most the product of the norms."""
    support, largest = np.abs(beta), max(float(rows.norm.max()), float(rows.asked_norm.max(initial=0.0)))
    return rounding.relative * largest * float(support @ rows.norm) + rounding.absolute * float(support.sum())


class Fewest:
    """Errors that are left for all C between two neighbours, told problem by problem.

    Parameters
    ----------
    codes, copies
        (h,) the class of each validation row, and how often it is there.
    """

    def __init__(self, codes: Floats, copies: Floats, n_classes: int, scheme: str) -> None:
        self.copies, self.wrong = copies, Wrong(codes, n_classes, scheme, (PARTS,))

    def add(self, k: int, rows: Rows, left: End, right: End) -> None:
        """Take problem `k`, solved at both ends."""
        self.wrong.add(k, *bands(rows, left, right, np.geomspace(left.C, right.C, PARTS + 1)))

    def counts(self) -> Floats:
        """(PARTS,) of each part, when all problems are told."""
        return np.asarray(self.wrong.found() @ self.copies)
