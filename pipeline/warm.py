"""Imports and compiled code, loaded in a worker before its first task: that second is of the start, not of a stage."""

import numpy as np

__all__ = ["warm_up"]


def warm_up() -> None:
    """Compute a strip and solve a problem of three rows, as a run does with the production solver in float32."""
    import pipeline.chains  # noqa: F401
    from pipeline import strips
    from svmcore.kernels import Kernel
    from svmcore.kernels.base import blocks
    from svmcore.kernels.exact import ExactKernel
    from svmcore.points import Points
    from svmcore.solvers import Solver
    from svmcore.sources import ComputedColumns, ResidentGram
    from svmcore.tasks import classification

    kernel = Kernel.create({"name": "rbf", "gamma": 1.0})
    K = np.empty((3, 3), np.float32)
    for rows in (np.array([[0.0], [1.0], [2.0]]), np.linspace(0, 1, 60).reshape(3, 20) ** 2):  # on a lattice, and not
        P = Points.for_gram(rows)
        blocks([kernel], P, P, [K])
    strips._finish(K, kernel.diagonal_of(P).astype(np.float32))
    strips._transpose(K, np.empty_like(K))
    strips._checksums(K, 0, 0, 3)
    source = ResidentGram(K, ComputedColumns(kernel, P, np.float32, ExactKernel(kernel, rows, like=P)))
    for bias in ("free", "penalised"):  # pairs, and one variable at a time
        qp = classification(source, np.array([1.0, -1.0, 1.0]), 1.0, bias=bias)
        for _ in range(2):  # the second time the square is copied from the first
            solution = Solver.create("smo").solve(qp)
        Solver.create("smo").solve(qp, solution.beta, score=solution.score)
