"""The kernel matrix K of a dataset, computed in strips by the workers into one file that every solver maps.

    ROOT/gram/FINGERPRINT/c/0/0          K, C order, uncompressed: the one chunk of a zarr v3 array is such a file
                          strips/00012   written after strip 12: its checksums
                          zarr.json      makes it an array
                          manifest.json  written last: n, dtype, kernel, fingerprint of the rows, all strips

Each symmetric pair is computed once, or twice where that costs less than to write its mirror image in its place. The
strips depend on the rows, the kernel and the type alone, so any workers, a resume after a crash and a second run at the
same time write the same bytes. Several kernels of one dataset share their inner products.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pipeline.compute.progress import Progress, silent
from pipeline.compute.workers import VERSION, Workers
from pipeline.kernel.folder import create, marker, opened, publish
from pipeline.kernel.sample import SampleTask, differing_strips
from pipeline.kernel.strips import StripTask, compute_strip, in_whole_rows, partition, unmap
from pipeline.storage.cache import claim, in_turn
from pipeline.storage.files import sha256_of_json
from svmcore.errors import InputError, SVMError
from svmcore.kernels import Kernel
from svmcore.points import Floats

__all__ = [
    "Gram",
    "WrongKernel",
    "columns_fingerprint",
    "compute_gram",
    "compute_grams",
    "gram_fingerprint",
    "gram_folder",
    "open_gram",
]

KIND = "kernel matrix"
FORMAT = 7  # of the folder, and of everything that decides the bytes of K: raise it when they change


class WrongKernel(SVMError):
    """Values of a kernel matrix that are not those of its rows."""


@dataclasses.dataclass(frozen=True)
class Gram:
    """K (n, n) on this node's disk: `n_reused` of its `n_blocks` strips were found finished and intact."""

    path: Path
    fingerprint: str
    n: int
    dtype: np.dtype
    n_blocks: int
    n_reused: int

    def open(self) -> Floats:
        """K (n, n), mapped read-only."""
        return open_gram(self.path)


def open_gram(path: str | Path) -> Floats:
    """Map the finished kernel matrix in folder `path`, (n, n), read-only.

    Raises
    ------
    InputError
        If it is not finished, or its file has another size.
    """
    return opened(Path(path), KIND)


def gram_fingerprint(dataset: Any, kernel: Kernel, dtype: DTypeLike) -> str:
    """Sha256 of all that decides the bytes of K: data, kernel with numbers for its parameters, type, strips, code."""
    strips = partition(dataset.n_merged, dtype)
    return sha256_of_json(_identity(dataset, kernel, dtype) | {"strips": [len(strips), strips[0][1]]})


def columns_fingerprint(dataset: Any, kernel: Kernel, dtype: DTypeLike, plan: str = "columns") -> str:
    """As `gram_fingerprint`, of columns that are computed on demand."""
    return sha256_of_json(_identity(dataset, kernel, dtype) | {"plan": plan})


def _identity(dataset: Any, kernel: Kernel, dtype: DTypeLike) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "rows": dataset.rows_fingerprint,
        "kernel": kernel.spec(),
        "dtype": np.dtype(dtype).name,
    }


def compute_gram(
    dataset: Any,
    kernel: Kernel,
    dtype: DTypeLike,
    root: str | Path,
    workers: Workers,
    progress: Progress | None = None,
) -> Gram:
    """Compute K of the dataset's merged training rows, or what is missing of it; see `compute_grams`."""
    return compute_grams(dataset, [kernel], dtype, root, workers, progress)[0]


def compute_grams(
    dataset: Any,
    kernels: Sequence[Kernel],
    dtype: DTypeLike,
    root: str | Path,
    workers: Workers,
    progress: Progress | None = None,
) -> list[Gram]:
    """Compute one K for each kernel; kernels of the inner product share one matrix product per strip.

    Parameters
    ----------
    dataset
        With `path`, `rows_fingerprint`, `n_merged`, `n_features`, `variance`; workers open it by its path.
    root
        The cache; K is in `root`/gram/FINGERPRINT.
    progress
        Called as `progress("kernel", done, total, reused=...)` after each strip.

    Raises
    ------
    MemoryLimit
        If the disk has no room for K.
    WrongKernel
        If sampled values are not those of the rows, computed twice.
    InputError
        If the folder cannot be written, or not all workers see it.
    """
    tell = progress or silent
    dtype = np.dtype(dtype)
    numeric = [_computable(kernel).resolved(dataset.n_features, dataset.variance) for kernel in kernels]
    fingerprints = [gram_fingerprint(dataset, kernel, dtype) for kernel in numeric]
    folders = [gram_folder(root, fingerprint) for fingerprint in fingerprints]
    claim(Path(root), [f"gram/{folder.name}" for folder in folders])
    for folder in folders:
        create(folder, (dataset.n_merged, dataset.n_merged), dtype, f"the {KIND}")
    tasks = _tasks(dataset, numeric, dtype, folders)
    reused = np.zeros(len(kernels), int)

    def told(done: int) -> None:
        tell("kernel", done, len(tasks), reused=int(reused.sum()), kernels=len(kernels))

    try:
        for done, (_, intact) in enumerate(workers.map(compute_strip, in_turn(Path(root), tasks)), start=1):
            reused += intact
            told(done)
        repaired = _repaired(tasks, workers)
        reused -= repaired
        if repaired.any():
            told(len(tasks))
    finally:
        unmap()  # the solver maps K too, and pages count once a mapping
    for folder, kernel in zip(folders, numeric, strict=True):
        facts = {"kernel": kernel.spec(), "rows": dataset.rows_fingerprint}
        publish(folder, KIND, facts, (dataset.n_merged, dataset.n_merged), dtype, len(tasks))
    return [
        Gram(folder, fingerprint, dataset.n_merged, dtype, len(tasks), int(count))
        for folder, fingerprint, count in zip(folders, fingerprints, reused, strict=True)
    ]


def _repaired(tasks: Sequence[StripTask], workers: Workers) -> Any:
    """Compare sampled values with the rows, and compute strips that differ again; how many (k,) of each kernel."""
    wrong = _differing(tasks[0], workers)
    again = sorted(set().union(*wrong))
    if again:
        for folder, strips in zip(tasks[0].folders, wrong, strict=True):
            for index in strips:
                marker(folder, index).unlink(missing_ok=True)
        by_index = {task.index: task for task in tasks}
        list(workers.map(compute_strip, [by_index[index] for index in again]))
        for folder, strips in zip(tasks[0].folders, _differing(tasks[0], workers), strict=True):
            if strips:
                raise WrongKernel(
                    f"the kernel matrix in {folder} is not that of its rows, though it was computed again (strips "
                    f"{list(strips)[:5]}); check the memory of the workers, and that all run the same program"
                )
    return np.array([len(strips) for strips in wrong])


def _differing(task: StripTask, workers: Workers) -> list[tuple[int, ...]]:
    """Strips of each kernel whose sampled values differ from the rows."""
    samples = [
        SampleTask(task.dataset, task.n, task.dtype, *of_kernel)
        for of_kernel in zip(task.kernels, task.folders, task.whole, strict=True)
    ]
    found = dict(workers.map(differing_strips, samples))
    return [found[k] for k in range(len(samples))]


def gram_folder(root: str | Path, fingerprint: str) -> Path:
    """Where the K of a fingerprint is, or will be."""
    return Path(root) / "gram" / fingerprint[:32]


def _computable(kernel: Kernel) -> Kernel:
    if kernel.name == "precomputed":
        raise InputError(
            "kernel 'precomputed' has no rows to compute from; use svmcore.estimator.SVC(kernel='precomputed')"
        )
    return kernel


def _tasks(dataset: Any, kernels: Sequence[Kernel], dtype: np.dtype, folders: Sequence[Path]) -> list[StripTask]:
    """One task per strip, the longest first."""
    paths, whole = tuple(map(str, folders)), tuple(in_whole_rows(dataset, kernel, dtype) for kernel in kernels)
    n = int(dataset.n_merged)
    return [
        StripTask(str(dataset.path), n, dtype.name, tuple(kernels), paths, whole, index)
        for index in range(len(partition(n, dtype)))
    ]
