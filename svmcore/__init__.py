"""The mathematics of SVM training: kernels, columns, solvers, certificates, models.

NumPy, Numba and SciPy, nothing else: no cluster, no storage, no configuration library.

>>> import numpy as np
>>> import svmcore
>>> X, y = np.array([[0.0, 0], [2, 2], [-1, -8], [-1, -1], [3, 3]]), np.array([-1, 1, -1, -1, 1])
>>> kernel = svmcore.Linear()
>>> program = svmcore.classification(svmcore.ResidentGram(kernel(X, X)), y, C=np.inf)
>>> solution = svmcore.SMO().solve(program)
>>> solution.beta, solution.bias, str(solution.status)
(array([-0.25,  0.25,  0.  ,  0.  ,  0.  ]), -1.0, 'converged')
"""

from svmcore.approximation import Approximation, ExactBound, Nystroem
from svmcore.certificate import Certificate, certify
from svmcore.errors import InputError, InvalidProblem, MemoryLimit, SVMError, UnknownPlugin, Unsupported
from svmcore.kernels import (
    RBF,
    Conformal,
    Kernel,
    Linear,
    Polynomial,
    Precomputed,
    Product,
    Scaled,
    Sum,
    Tanh,
)
from svmcore.model import Model, Target, assemble, targets
from svmcore.monitor import Monitor, Progress
from svmcore.points import Points
from svmcore.points.identical import Merged, merge_rows
from svmcore.qp import Bias, Groups, SignedQP
from svmcore.runtime.memory import release as release_memory
from svmcore.solution import Solution, Status
from svmcore.solvers import SMO, Solver
from svmcore.sources import CachedColumns, ComputedColumns, ResidentGram, Source
from svmcore.tasks import SVC, Task, classification
from svmcore.tasks.losses import Hinge, Loss, SquaredHinge

__all__ = [
    "RBF",
    "SMO",
    "SVC",
    "Approximation",
    "Bias",
    "CachedColumns",
    "Certificate",
    "ComputedColumns",
    "Conformal",
    "ExactBound",
    "Groups",
    "Hinge",
    "InputError",
    "InvalidProblem",
    "Kernel",
    "Linear",
    "Loss",
    "MemoryLimit",
    "Merged",
    "Model",
    "Monitor",
    "Nystroem",
    "Points",
    "Polynomial",
    "Precomputed",
    "Product",
    "Progress",
    "ResidentGram",
    "SVMError",
    "Scaled",
    "SignedQP",
    "Solution",
    "Solver",
    "Source",
    "SquaredHinge",
    "Status",
    "Sum",
    "Tanh",
    "Target",
    "Task",
    "UnknownPlugin",
    "Unsupported",
    "assemble",
    "certify",
    "classification",
    "merge_rows",
    "release_memory",
    "targets",
]
