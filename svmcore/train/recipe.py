"""What a training of several programs solves, and with what."""

import dataclasses

from svmcore.approximation import Approximation
from svmcore.kernels.base import Kernel
from svmcore.points import Floats
from svmcore.solvers import SMO, Solver
from svmcore.tasks import SVC, Task

__all__ = ["Recipe"]


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
        Of the folds that sigmoids are fitted on; None for no sigmoids.
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
    nearest: bool = False
    approximation: Approximation | None = None

    @property
    def pairs(self) -> bool:
        """Whether there is one problem for each pair of classes."""
        return self.task.answers == "labels" and self.scheme == "ovo"

    @property
    def served(self) -> Kernel:
        """The kernel that K is of: centred where all sums are 0, so that it is the same program."""
        return self.kernel.centred() if self.task.can_centre else self.kernel
