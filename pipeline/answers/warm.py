"""Imports and compiled code, loaded in a worker before its first task: that second is of the start, not of a stage."""

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["warm_up"]

ROWS = 1100  # more than a solver takes as one working set
STRIP, LINES = 64, 32


def warm_up() -> None:
    """Read an array, compute strips, and solve problems of a thousand rows with the production solver in float32."""
    import pipeline.answers.solve  # noqa: F401
    from svmcore.kernels import Kernel

    _read()

    kernel = Kernel.create({"name": "rbf", "gamma": 0.1})
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 9, (2 * ROWS, 80)) * (rng.random((2 * ROWS, 80)) < 0.2)  # most are 0, as in pictures
    for unit in (1.0, 255.0):  # whole numbers, and pixels
        lattice = _Rows(kernel, numbers.astype(np.float32) / np.float32(unit))
        lattice.strip(0, STRIP)  # wide enough for several tiles
        some = np.arange(STRIP)
        columns = lattice.exact.columns(some)
        lattice.exact.product(np.arange(9), columns, np.ones(STRIP))
        lattice.exact.symmetric_product(some, np.ones(STRIP), columns)
    _solve(_Rows(kernel, rng.normal(size=(ROWS, 20)).astype(np.float32)))


def _read() -> None:
    """One array on storage, whose library takes a tenth of a second to load."""
    import zarr

    from pipeline.storage.sealed import ArrayWriter

    with tempfile.TemporaryDirectory(prefix="marginflow-warm-") as folder:
        writer = ArrayWriter(Path(folder) / "array", (1,), np.int8)
        writer.append(np.zeros((9, 1), np.int8))
        writer.close()
        zarr.open_array(str(Path(folder) / "array"), mode="r")[:]


class _Rows:
    """Rows of a worker: K strip by strip, and exact values."""

    def __init__(self, kernel: Any, X: Any) -> None:
        from svmcore.kernels.exact import ExactKernel

        self.kernel, self.X, self.P = kernel, X, kernel.prepare_gram(X)
        self.exact = ExactKernel(kernel, X, like=self.P)

    def strip(self, start: int, stop: int) -> Any:
        """Rows start ... stop - 1 of K from the diagonal on, through all that a strip goes through."""
        from pipeline.kernel import checksums, strips
        from svmcore.kernels.base import blocks

        left, right = self.P.rows(start, stop), self.P.rows(start, len(self.P))
        out = np.empty((stop - start, len(right)), np.float32)
        blocks([self.kernel], left, right, [out], np.empty_like(out))
        strips._finish(out, self.kernel.diagonal_of(left).astype(np.float32))
        strips._transpose(out[:, :LINES], np.empty((LINES, stop - start), np.float32))
        checksums.of_strip(out, 0, start, stop)
        return out

    def gram(self) -> Any:
        """K (n, n), read-only as a mapping is."""
        from pipeline.kernel import checksums

        n = len(self.X)
        K = np.empty((n, n), np.float32)
        for start, stop in itertools.pairwise([*range(0, n, STRIP), n]):
            K[start:stop, start:] = self.strip(start, stop)
            K[start:, start:stop] = K[start:stop, start:].T
        K.flags.writeable = False
        checksums.sum_of_rows(K, 0)
        return K


def _solve(rows: _Rows) -> None:
    """Two problems along C on one K, with pairs and with single variables."""
    from svmcore.solvers import Solver
    from svmcore.sources import ComputedColumns, ResidentGram
    from svmcore.tasks import SVC, classification
    from svmcore.train.chains import same_optimum
    from svmcore.train.doubt import doubt

    source = ResidentGram(rows.gram(), ComputedColumns(rows.kernel, rows.P, np.float32, rows.exact))
    y = np.where(rows.X[:, 0] + rows.X[:, 1] > 0, 1.0, -1.0)
    solver = Solver.create({"name": "smo", "tol": 0.1})
    for bias in ("free", "penalised"):
        qp, wider = (classification(source, y, C, bias=bias) for C in (0.1, 0.2))
        first = solver.solve(qp)
        doubt(SVC(), qp, first)
        same_optimum((qp, first), wider, solver.tol)
        solver.solve(wider, first.beta, score=first.score)  # copies a square
