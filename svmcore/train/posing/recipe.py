"""What a training of several programs solves, and with what."""

import dataclasses

import numpy as np

from svmcore.approximation import Approximation
from svmcore.kernels.base import Kernel
from svmcore.points import Floats
from svmcore.solvers import SMO, Solver
from svmcore.sources import FactorRows
from svmcore.tasks import SVC, Task
from svmcore.train.posing.plan import served_kernel

__all__ = ["Recipe"]

FACTOR_ROWS = 4096  # rows up to which columns of a linear kernel cost little


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What to solve and with what, apart from the data.

    Parameters
    ----------
    kernel, task, solver
        What `kernel` holds may still be `gamma: scale`.
    C
        Of a row of weight one. nu-SVC and one-class are trained with 1.
    class_weight
        (n_classes,) factors of C; None for ones.
    scheme
        "ovo" or "ovr".
    cache_bytes
        Budget of K, or of its columns.
    n_jobs
        Problems solved at once, on threads; None for all cores.
    seed
        Of the folds that probabilities are fitted on; None for no folds.
    left_out
        Whether they are fitted on what each row is told without it, see `svmcore.model.left_out`, instead.
    approximation
        A K of low rank in place of K; None for K itself.
    nearest
        Whether a task that its targets make infeasible gives way to its nearest feasible one, with a warning.
    """

    kernel: Kernel
    task: Task = dataclasses.field(default_factory=SVC)
    C: float = 1.0
    solver: Solver = dataclasses.field(default_factory=SMO)
    class_weight: Floats | None = None
    scheme: str = "ovo"
    cache_bytes: int = 200 << 20
    n_jobs: int | None = None
    seed: int | None = None
    left_out: bool = False
    nearest: bool = False
    approximation: Approximation | None = None

    @property
    def calibrates(self) -> bool:
        """Whether probabilities are asked for."""
        return self.left_out or self.seed is not None

    @property
    def pairs(self) -> bool:
        """Whether there is one problem for each pair of classes."""
        return self.task.answers == "labels" and self.scheme == "ovo"

    def reads_rows(self, n: int, p: int, n_classes: int) -> bool:
        """Whether the rows (n, p) of a linear kernel are all that is needed: no column of K is looked at."""
        pairs = self.pairs and n_classes > 2
        if not self.kernel.is_linear or pairs or n <= FACTOR_ROWS or self.approximation is not None:
            return False
        smallest = self.task.program(FactorRows(np.eye(2)), np.array([1.0, -1.0]), self.C)
        return self.solver.takes_factor(smallest, p)

    @property
    def served(self) -> Kernel:
        """The kernel that K is of."""
        return served_kernel(self.kernel, self.task)
