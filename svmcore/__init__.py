"""The mathematics of one SVM training problem: kernels, columns, solvers, certificates, models.

NumPy and Numba, nothing else: no cluster, no storage, no configuration library.

>>> import numpy as np
>>> import svmcore
>>> X, y = np.array([[0.0, 0], [2, 2], [-1, -8], [-1, -1], [3, 3]]), np.array([-1, 1, -1, -1, 1])
>>> kernel = svmcore.Linear()
>>> problem = svmcore.Problem(svmcore.ResidentGram(kernel(X, X)), y, C=np.inf)
>>> solution = svmcore.SMO().solve(problem)
>>> solution.alpha, solution.bias, str(solution.status)
(array([0.25, 0.25, 0.  , 0.  , 0.  ]), -1.0, 'converged')
"""

from svmcore.certificate import Certificate, certify
from svmcore.sources import CachedColumns, ComputedColumns, KernelColumns, ResidentGram
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
from svmcore.losses import Hinge, Loss, SquaredHinge
from svmcore.model import Model, assemble
from svmcore.monitor import Monitor, Progress
from svmcore.multiclass import Target, targets
from svmcore.points import Points
from svmcore.problem import Bias, Problem
from svmcore.rows import Merged, merge_rows
from svmcore.solution import Solution, Status
from svmcore.solvers import SMO, Solver

__all__ = [
    "RBF",
    "SMO",
    "Bias",
    "CachedColumns",
    "Certificate",
    "ComputedColumns",
    "Conformal",
    "Hinge",
    "InputError",
    "InvalidProblem",
    "Kernel",
    "KernelColumns",
    "Linear",
    "Loss",
    "MemoryLimit",
    "Merged",
    "Model",
    "Monitor",
    "Points",
    "Polynomial",
    "Precomputed",
    "Problem",
    "Product",
    "Progress",
    "ResidentGram",
    "SVMError",
    "Scaled",
    "Solution",
    "Solver",
    "SquaredHinge",
    "Status",
    "Sum",
    "Tanh",
    "Target",
    "UnknownPlugin",
    "Unsupported",
    "assemble",
    "certify",
    "merge_rows",
    "targets",
]
