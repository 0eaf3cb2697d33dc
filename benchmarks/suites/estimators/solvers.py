"""The textbook solvers against `smo`: `python -m benchmarks.suites.estimators.solvers --data FOLDER`.

Pendigits, 5,000 rows, class 0 against the rest, RBF: `smo-mvp` and `smo-platt` within 5 times `smo`. Svmguide1, RBF,
squared hinge: Newton to a gap of 1e-10 in at most 15 steps. Every solver that promises tol agrees within 10 tol.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from svmcore import RBF, Bias, Hinge, Loss, ResidentGram, SignedQP, Solution, Solver, SquaredHinge, classification
from svmcore.errors import Unsupported


def _read(path: Path) -> tuple[Any, Any]:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(path))
    return X.toarray(), y


def pendigits(data: Path) -> tuple[Any, Any]:
    """5,000 rows scaled to [0, 1]; class 0 is +1."""
    X, y = _read(data / "pendigits.bz2")
    return X[:5000] / 100.0, np.where(y[:5000] == 0, 1.0, -1.0)


def svmguide1(data: Path) -> tuple[Any, Any]:
    """3,089 standardised rows."""
    X, y = _read(data / "svmguide1.bz2")
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(y > 0, 1.0, -1.0)


def timed(solver: Solver, qp: SignedQP, repeats: int) -> tuple[float, Solution]:
    """Median seconds of `repeats` solves after one that compiles and warms, and the last solution."""
    solution, seconds = solver.solve(qp), []
    for _ in range(repeats):
        started = time.perf_counter()
        solution = solver.solve(qp)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds), solution


def compare(rows: tuple[Any, Any], gamma: float, C: float, loss: Loss, bias: Bias, repeats: int) -> None:
    """Print every solver that promises tol on one problem."""
    X, y = rows
    K = RBF(gamma=gamma)(X, X)
    gram = ResidentGram(K.astype(np.float32))
    base, reference = timed(Solver.create("smo"), classification(gram, y, C, loss, bias), repeats)
    for name in Solver.names():
        solver = Solver.create(name)
        try:
            solver.admits(loss, bias, RBF(gamma=gamma))
        except Unsupported:
            continue
        if solver.solves.certifies:
            qp = classification(ResidentGram(K.astype(solver.column_dtype)), y, C, loss, bias)
            seconds, solution = timed(solver, qp, 1 if name == "primal-newton" else repeats)
            found = solution.certificate
            off = abs(found.dual - reference.certificate.dual) / abs(reference.certificate.dual)
            print(
                f"{name:14s} {1e3 * seconds:8.1f} ms {seconds / base:6.1f} x  {solution.n_iter:7d} steps  "
                f"dual {found.dual:.7g} (off {off:.0e})  gap {found.kkt_gap:.1e}  {solution.status}"
            )


def newton(rows: tuple[Any, Any], gamma: float, C: float) -> None:
    """Print the steps that Newton takes to 1e-10."""
    X, y = rows
    gram = ResidentGram(RBF(gamma=gamma)(X, X))
    for bias in Bias:
        solver = Solver.create({"name": "primal-newton", "tol": 1e-10})
        solution = solver.solve(classification(gram, y, C, SquaredHinge(), bias))
        gap = solution.certificate.kkt_gap
        print(f"primal-newton, {bias} bias: {solution.n_iter} steps, gap {gap:.1e}, {solution.status}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all comparisons."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suites.estimators.solvers", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of pendigits.bz2 and svmguide1.bz2")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    print("pendigits 5,000 x 16, class 0 against the rest, rbf gamma 1, C 10, hinge, free bias")
    compare(pendigits(options.data), 1.0, 10.0, Hinge(), Bias.FREE, options.repeats)
    guide = svmguide1(options.data)
    for loss, bias in ((Hinge(), Bias.FREE), (Hinge(), Bias.PENALISED), (SquaredHinge(), Bias.PENALISED)):
        print(f"svmguide1 3,089 x 4, rbf gamma 0.25, C 10, {loss.name}, {bias} bias")
        compare(guide, 0.25, 10.0, loss, bias, options.repeats)
    newton(guide, 0.25, 10.0)


if __name__ == "__main__":
    main()
