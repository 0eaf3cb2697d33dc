"""Solvers by name. `smo` is the fast one; the others read like their pseudo-code (`docs/choosing_a_solver.md`).

Every module of this package is imported, so a solver is added by adding one file (`docs/adding_a_solver.md`).
"""

from svmcore.runtime.plugins import import_siblings
from svmcore.solvers.auto import Auto
from svmcore.solvers.base import Outcome, Solver, Solves
from svmcore.solvers.smo import SMO

__all__ = ["SMO", "Auto", "Outcome", "Solver", "Solves"]

import_siblings(__name__, list(__path__))
