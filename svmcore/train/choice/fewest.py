"""The errors at validation rows that no optimum between two solved values of C is without."""

import itertools
from collections.abc import Iterable

import numpy as np

from svmcore.kernels import Kernel
from svmcore.kernels.rounding import Rounding
from svmcore.model.multiclass import Wrong
from svmcore.points import Floats
from svmcore.solvers import Solver
from svmcore.tasks import SVC, Task
from svmcore.train.choice.between import EPS, End, Rows, bands

__all__ = ["PARTS", "Fewest", "objection", "output_error"]

PARTS = 8  # of the way between neighbours that are bounded one by one


def objection(task: Task, kernel: Kernel, solver: Solver) -> str:
    """Why nothing can be proved of optima between solved values of C, or an empty string.

    >>> from svmcore.kernels import RBF
    >>> from svmcore.solvers import SMO
    >>> objection(SVC("squared_hinge"), RBF(1.0), SMO())
    'bounds between values of C are known for SVC with the hinge loss and a free bias alone'
    """
    if task != SVC():
        return "bounds between values of C are known for SVC with the hinge loss and a free bias alone"
    if not kernel.psd:
        return f"kernel {kernel.name!r} is not known to be positive semi-definite"
    return "" if solver.solves.bounds else f"the answers of solver {solver.name!r} bound nothing"


def output_error(rounding: Rounding | None, rows: Rows, beta: Floats) -> float:
    """Bound of the error of K beta where values of K are rounded: abs(k) is at most the product of the norms."""
    support, largest = np.abs(beta), max(float(rows.norm.max()), float(rows.asked_norm.max(initial=0.0)))
    relative, absolute = rounding or (0.0, 0.0)
    relative += EPS * (len(beta) / 8.0 + 8.0)  # of a sum, eight terms at a time
    return relative * largest * float(support @ rows.norm) + absolute * float(support.sum())


class Fewest:
    """Errors that are left for all C between neighbours, told problem by problem.

    Parameters
    ----------
    n
        How many values of C are solved.
    codes, copies
        (h,) the class of each validation row, and how often it is there.
    """

    def __init__(self, n: int, codes: Floats, copies: Floats, n_classes: int, scheme: str) -> None:
        self.copies = copies
        self.wrong = [Wrong(codes, n_classes, scheme, (PARTS,)) for _ in range(n - 1)]

    def add(self, k: int, rows: Rows, ends: Iterable[End]) -> None:
        """Take problem `k`, solved at all C, which ascend."""
        for wrong, (left, right) in zip(self.wrong, itertools.pairwise(ends), strict=True):
            wrong.add(k, *bands(rows, left, right, np.geomspace(left.C, right.C, PARTS + 1)))

    def counts(self) -> Floats:
        """(n - 1, PARTS) of each part, when all problems are told."""
        return np.array([wrong.found() @ self.copies for wrong in self.wrong])
