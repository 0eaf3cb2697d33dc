"""What a run will take, before it is run: bytes from the shapes, seconds from what this machine was seen to do."""

import time
from typing import Any

import numpy as np

from pipeline import dataset as datasets
from pipeline.config import Experiment
from pipeline.experiment import check_inputs, choose_plan
from pipeline.progress import Progress
from svmcore.kernels import Kernel

__all__ = ["plan_of"]

SAMPLE = 512  # rows of the calibration block


def plan_of(exp: Experiment, store: str | None = None, progress: Progress | None = None) -> dict[str, Any]:
    """Bytes and seconds of a run; reads the source into the store's cache, where the run finds it."""
    opened = check_inputs(exp, store)
    try:
        dataset = datasets.ingest(exp, opened.cache, progress, opened)
        return _plan(exp, dataset)
    finally:
        opened.tidy()


def _plan(exp: Experiment, dataset: Any) -> dict[str, Any]:
    dtype = np.dtype(exp.build_solver().column_dtype)
    n, k = dataset.n_merged, len(dataset.classes)
    K_bytes = n * n * dtype.itemsize
    kind = choose_plan(exp, n, dtype.itemsize)
    pairs = k * (k - 1) // 2
    return {
        "plan": kind,
        "n_train": dataset.n_train,
        "n_merged": n,
        "n_features": dataset.n_features,
        "problems": 1 if k == 2 else (k if exp.multiclass == "ovr" else pairs),
        "kernel_bytes": K_bytes,
        "disk_bytes": K_bytes if kind == "resident" else 0,
        "memory_bytes": min(K_bytes, exp.cache.limit),
        "kernel_seconds": _kernel_seconds(exp, dataset, dtype),
    }


def _kernel_seconds(exp: Experiment, dataset: Any, dtype: Any) -> float:
    """Seconds to compute K on one core: a small block of it, timed, and the rest in proportion (each pair once)."""
    kernel: Kernel = exp.build_kernel().resolved(dataset.n_features, dataset.variance)
    rows = kernel.prepare(dataset.X(0, min(SAMPLE, dataset.n_merged)), None, dtype)
    out = np.empty((len(rows), len(rows)), dtype)
    kernel.block(rows, rows, out)  # compiles
    started = time.perf_counter()
    kernel.block(rows, rows, out)
    each = (time.perf_counter() - started) / out.size
    return 0.5 * each * dataset.n_merged**2
