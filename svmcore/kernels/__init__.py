"""Kernels as frozen data: the fields are the hyperparameters, one block method does the work.

Every module of this package is imported, so a kernel is added by adding one file (`docs/adding_a_kernel.md`).
"""

from svmcore.kernels.base import InnerProductKernel, Kernel
from svmcore.kernels.compose import Conformal, Product, Scaled, Sum
from svmcore.kernels.linear import Linear
from svmcore.kernels.polynomial import Polynomial
from svmcore.kernels.precomputed import Precomputed
from svmcore.kernels.rbf import RBF
from svmcore.kernels.tanh import Tanh
from svmcore.runtime.plugins import import_siblings

__all__ = [
    "RBF",
    "Conformal",
    "InnerProductKernel",
    "Kernel",
    "Linear",
    "Polynomial",
    "Precomputed",
    "Product",
    "Scaled",
    "Sum",
    "Tanh",
]

import_siblings(__name__, list(__path__))
