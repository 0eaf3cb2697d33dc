"""Small problems with known answers, and what builds them for a solver; the contract suite runs over all of them."""

import dataclasses
import functools
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from svmcore import (
    RBF,
    Bias,
    ComputedColumns,
    Kernel,
    Linear,
    Loss,
    Points,
    ResidentGram,
    SignedQP,
    Solver,
    classification,
)
from svmcore.errors import Unsupported

FIVE = np.array([[0.0, 0], [2, 2], [-1, -8], [-1, -1], [3, 3]])
FIVE_LABELS = np.array([-1.0, 1, -1, -1, 1])

SOLVERS = {name: Solver.create(name) for name in Solver.names()}
TIGHT = {"smo-simplified": {"max_passes": 50}, "gd": {"max_iter": 6000}, "sgd": {"max_iter": 2000}}


@dataclasses.dataclass(frozen=True)
class Case:
    """Rows (n, p), labels in {-1, +1}, a kernel and C: everything of a problem but loss and bias."""

    name: str
    X: Any
    y: Any
    kernel: Kernel
    C: Any

    def problem(self, solver: Solver, loss: Loss, bias: Bias, **changes: Any) -> SignedQP:
        """The program over columns of the type that the solver asks for; linear columns carry their rows."""
        case = dataclasses.replace(self, **changes)
        dtype = solver.column_dtype
        points = case.kernel.prepare(case.X, None, np.float64)
        if isinstance(case.kernel, Linear):
            source: Any = ComputedColumns(case.kernel, Points.prepare(case.X, None, dtype), dtype)
        else:
            source = ResidentGram(case.kernel.block(points, points).astype(dtype), psd=case.kernel.psd)
        return classification(source, case.y, case.C, loss, bias)


@functools.cache
def digits() -> tuple[Any, Any]:
    """Digits 3 against 8, scaled to [0, 1]: 357 rows of 64 pixels."""
    data = load_digits()
    kept = np.isin(data.target, (3, 8))
    return data.data[kept] / 16.0, np.where(data.target[kept] == 8, 1.0, -1.0)


@functools.cache
def overlapping() -> tuple[Any, Any]:
    """120 rows of two Gaussians that no hyperplane separates, some of them twice and under both labels."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(100, 3)) + 0.7 * np.repeat([[1.0], [-1.0]], 50, axis=0)
    y = np.repeat([1.0, -1.0], 50)
    return np.concatenate([X, X[:10], X[50:60]]), np.concatenate([y, y[:10], -y[50:60]])


def cases() -> list[Case]:
    """All problems of the contract suite."""
    X, y = overlapping()
    weights = np.random.default_rng(6).choice([0.0, 0.5, 1.0, 3.0], size=len(y))
    return [
        Case("five-points", FIVE, FIVE_LABELS, Linear(), 0.1),
        Case("overlap-linear", X, y, Linear(), 1.0),
        Case("overlap-rbf", X, y, RBF(gamma=0.5), 10.0),
        Case("overlap-weights", X, y, RBF(gamma=0.5), weights),
        Case("digits-linear", *digits(), Linear(), 1.0),
        Case("digits-rbf", *digits(), RBF(gamma=0.05), 10.0),
    ]


def admitted(case: Case, solver: Solver) -> list[tuple[Loss, Bias]]:
    """The pairs of loss and bias with which the solver takes the case."""
    pairs = [(Loss.create(loss), bias) for loss in Loss.names() for bias in Bias]
    return [(loss, bias) for loss, bias in pairs if admits(solver, case, loss, bias)]


def admits(solver: Solver, case: Case, loss: Loss, bias: Bias) -> bool:
    """Whether the solver's declaration takes this problem."""
    try:
        solver.admits(loss, bias, case.kernel, bool(np.isinf(case.C).any()))
    except Unsupported:
        return False
    return True


def tight(name: str, **changes: Any) -> Solver:
    """The solver with enough passes to do its best on small problems."""
    return Solver.create({"name": name, **TIGHT.get(name, {}), **changes})


@functools.cache
def optimum(case_name: str, loss: Loss, bias: Bias) -> float:
    """Optimal value of a case, to eight digits by its certificate."""
    case = {case.name: case for case in cases()}[case_name]
    solver = Solver.create({"name": "smo-mvp" if bias is Bias.FREE else "dual-ascent", "tol": 1e-8})
    certificate = solver.solve(case.problem(solver, loss, bias)).certificate
    assert certificate.primal - certificate.dual <= 1e-6 * abs(certificate.dual)
    return certificate.dual
