"""Rows of a dataset as the kernels of a worker take them, prepared once a process."""

import functools
from typing import Any

import numpy as np

from svmcore.kernels import Kernel
from svmcore.kernels.base import InnerProductKernel
from svmcore.points import Points

__all__ = ["strip_points", "worker_points", "worker_rows"]


def worker_points(dataset: str, dtype: str, kernel: Kernel) -> Points:
    """Rows of a dataset as a kernel takes them, prepared once."""
    return _points(dataset, dtype, None if isinstance(kernel, InnerProductKernel) else kernel)


def strip_points(dataset: str, dtype: str, kernel: Kernel, whole: bool) -> Points:
    """Rows as the strips of a kernel take them: whole rows on their lattice, whatever this processor is fast at."""
    points = worker_points(dataset, dtype, kernel)
    return points if points.on_lattice or not whole else _on_lattice(dataset)


@functools.lru_cache(maxsize=2)
def _points(dataset: str, dtype: str, kernel: Kernel | None) -> Points:
    if kernel is not None:
        return kernel.prepare_gram(worker_rows(dataset), dtype)
    found = _on_bytes(dataset) if np.dtype(dtype) == np.float32 else None
    return Points.for_gram(worker_rows(dataset), dtype) if found is None else found


def _on_bytes(dataset: str, always: bool = False) -> Points | None:
    """Rows that are stored as bytes, which are never made floats here: where that is fast, or `always`."""
    from pipeline.rows.dataset import dataset_at

    found = dataset_at(dataset)
    rows = found.bytes()
    return None if rows is None or found.step is None else Points.of_bytes(rows, found.step, always)


@functools.lru_cache(maxsize=2)
def _on_lattice(dataset: str) -> Points:
    found = _on_bytes(dataset, always=True)
    assert found is not None
    return found


@functools.lru_cache(maxsize=2)
def worker_rows(dataset: str) -> Any:
    """Merged training rows of a dataset as they are stored, read once per process."""
    from pipeline.rows.dataset import dataset_at

    return dataset_at(dataset).X()
