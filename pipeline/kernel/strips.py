r"""One strip of K on a worker: rows I against rows I and beyond, written with its transpose, and its checksum.

.. math::  s(A) = \sum_{ij} w_i w_j \, bits(A_{ij}) \bmod 2^{64}, \qquad w \text{ odd}

The checksum is bilinear, so that a block and its transpose, written elsewhere in the file, have the same one. It is
what makes a strip finished: values are never taken for finished because they are there. Nothing waits for the disk
(a strip costs 30 ms, its fsync more); after a power cut a strip that did not reach it fails its checksum and is
computed again. This file knows no scheduler.
"""

import dataclasses
import functools
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pipeline.kernel.folder import VALUES, check_shared, mark, marker, pwrite
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.kernels.base import InnerProductKernel, blocks
from svmcore.points import Floats, Points
from svmcore.runtime.compiled import njit

__all__ = ["StripTask", "compute_strip", "overflow", "partition", "unmap", "worker_points", "worker_rows"]

# Measured on MNIST (784 columns, float32), seconds of CPU of one K of n = 10,000 in strips of 1024 / 1280 / 2048 rows:
# 0.66 / 0.64 / 0.60, half of it writes of the transposed part's lines, which cost 4 microseconds each whatever their
# length; but an eighth of the rows is the most that leaves several workers their share.
# Written by ranges, not through a mapping, whose every page is faulted and zeroed first: 1.2 -> 1.0 s for one K of
# n = 10,000, 2.5 -> 1.7 s for three gammas at once; and hosts that share a file system may write parts of one page.
LINE_BYTES = 8192
STRIP_BYTES = 96 << 20  # beyond it strips get flatter, down to 64 rows
SHARED = 8  # kernels whose blocks a worker holds at once
TILE = 16
LINES = 64  # of a transpose at a time, at most 512 kB


def partition(n: int, dtype: DTypeLike) -> list[tuple[int, int]]:
    """Row ranges of the strips; a function of n and the type alone, because a GEMM's last bits depend on it.

    >>> partition(300, np.float32)
    [(0, 64), (64, 128), (128, 192), (192, 256), (256, 300)]
    >>> len(partition(20_000, np.float32)), len(partition(60_000, np.float32))
    (20, 235)
    """
    width = np.dtype(dtype).itemsize
    fits = STRIP_BYTES // max(1, n * width)
    height = min(LINE_BYTES // width, -(-n // 8), max(64, 1 << fits.bit_length() - 1 if fits else 0))
    height = -(-height // 64) * 64
    return [(start, min(start + height, n)) for start in range(0, n, height)]


@dataclasses.dataclass(frozen=True)
class StripTask:
    """Strip `index` of several kernels on one dataset: all that travels to a worker.

    Attributes
    ----------
    dataset
        Path that `pipeline.rows.dataset.open_dataset` takes.
    kernels, folders
        With numbers for their parameters, and the folder that each one's values go to.
    """

    dataset: str
    n: int
    dtype: str
    kernels: tuple[Kernel, ...]
    folders: tuple[str, ...]
    index: int


def compute_strip(task: StripTask) -> tuple[bool, ...]:
    """Make strip `task.index` of each kernel finished; True where it was already, and intact."""
    check_shared(task.folders)
    start, stop = partition(task.n, task.dtype)[task.index]
    reused = tuple(_is_intact(task, folder, start, stop) for folder in task.folders)
    missing = [k for k, intact in enumerate(reused) if not intact]
    for alike in _on_equal_rows(task, missing):
        for first in range(0, len(alike), SHARED):
            _compute(task, alike[first : first + SHARED], start, stop)
    return reused


# ---- computing
def _on_equal_rows(task: StripTask, which: Sequence[int]) -> list[list[int]]:
    """Kernels of the inner product take the same rows; any other has its own way to prepare them."""
    shared = [k for k in which if isinstance(task.kernels[k], InnerProductKernel)]
    return [alike for alike in (shared, *([k] for k in which if k not in shared)) if alike]


def _compute(task: StripTask, which: Sequence[int], start: int, stop: int) -> None:
    """Compute, write and mark the strip of the kernels `which`, from one set of inner products."""
    shape = (stop - start, task.n - start)
    # values are made in private memory and copied when final: a second writer of the same strip (a task that Dask
    # took for lost, another run) then only ever writes the same bytes again
    scratch, *outs = _buffers(len(which) + 1, shape, np.dtype(task.dtype))
    kernels = [task.kernels[k] for k in which]
    points = worker_points(task.dataset, task.dtype, kernels[0])
    P, Q = points.rows(start, stop), points.rows(start, task.n)
    with np.errstate(over="ignore", invalid="ignore"):  # counted below
        blocks(kernels, P, Q, outs, scratch)
        diagonals = [kernel.diagonal_of(P).astype(task.dtype) for kernel in kernels]
    made = list(zip(which, kernels, outs, diagonals, strict=True))
    first = task.index % len(made)  # two workers seldom write to one file at a time: it would serve one
    for k, kernel, out, diagonal in made[first:] + made[:first]:
        if _finish(out, diagonal):
            raise overflow(kernel, task.dtype)
        _write_strip(task, task.folders[k], start, out)
        mark(marker(task.folders[k], task.index), _checksums(out, 0, start, stop))


def overflow(kernel: Kernel, dtype: str) -> InputError:
    """Return the error of a kernel whose values are not all finite."""
    return InputError(f"kernel {kernel.name} overflows {dtype}; scale the data or lower its degree, gamma or coef0")


def worker_points(dataset: str, dtype: str, kernel: Kernel) -> Points:
    """Rows of a dataset as a kernel takes them, prepared once per process."""
    return _points(dataset, dtype, None if isinstance(kernel, InnerProductKernel) else kernel)


@functools.lru_cache(maxsize=2)
def _points(dataset: str, dtype: str, kernel: Kernel | None) -> Points:
    if kernel is not None:
        return kernel.prepare_gram(worker_rows(dataset), dtype)
    found = _on_bytes(dataset) if np.dtype(dtype) == np.float32 else None
    return Points.for_gram(worker_rows(dataset), dtype) if found is None else found


def _on_bytes(dataset: str) -> Points | None:
    """Rows that are stored as bytes, which are never made floats here."""
    from pipeline.rows.dataset import dataset_at

    found = dataset_at(dataset)
    rows = found.bytes()
    return None if rows is None or found.step is None else Points.of_bytes(rows, found.step)


@functools.lru_cache(maxsize=2)
def worker_rows(dataset: str) -> Any:
    """Merged training rows of a dataset as they are stored, read once per process."""
    from pipeline.rows.dataset import dataset_at

    return dataset_at(dataset).X()


_thread = threading.local()


def _buffers(count: int, shape: tuple[int, int], dtype: np.dtype) -> list[Floats]:
    """`count` blocks of a shape in memory this thread has already touched: fresh pages cost as much as the GEMM."""
    size = shape[0] * shape[1]
    held: list[Floats] = getattr(_thread, "held", [])
    if len(held) < count or held[0].size < size or held[0].dtype != dtype:
        held = _thread.held = [np.empty(size, dtype) for _ in range(count)]
    return [buffer[:size].reshape(shape) for buffer in held[:count]]


@njit
def _finish(block, diagonal):  # type: ignore[no-untyped-def]
    """Make the leading square (h, h) symmetric to the last bit, with an exact diagonal; count infinities and NaN."""
    h, m = block.shape
    bad = 0
    for i in range(h):
        for j in range(i):
            block[i, j] = block[j, i]
        block[i, i] = diagonal[i]
        row = block[i]
        for j in range(m):
            bad += row[j] - row[j] != 0
    return bad


# ---- writing
def _write_strip(task: StripTask, folder: str, start: int, block: Floats) -> None:
    """Write a strip and its transpose, a few lines at a time: they are still in cache when they are written."""
    h, width = len(block), block.itemsize
    lines = np.empty((LINES, h), block.dtype)
    file = os.open(Path(folder) / VALUES, os.O_WRONLY)
    try:
        for i, row in enumerate(block):
            pwrite(file, row, ((start + i) * task.n + start) * width)
        for first in range(h, block.shape[1], LINES):
            part = block[:, first : first + LINES]
            _transpose(part, lines)
            for j, line in enumerate(lines[: part.shape[1]], start=start + first):
                pwrite(file, line, (j * task.n + start) * width)
    finally:
        os.close(file)  # close-to-open consistency: a reader on another host sees the bytes from here on


@njit
def _transpose(source, target):  # type: ignore[no-untyped-def]
    """Write source (h, m) transposed into target (m, h), in tiles that stay in the first-level cache."""
    h, m = source.shape
    for j0 in range(0, m, TILE):
        for i0 in range(0, h, TILE):
            for j in range(j0, min(j0 + TILE, m)):
                line = target[j]
                for i in range(i0, min(i0 + TILE, h)):
                    line[i] = source[i, j]


def _mapped(folder: str, n: int, dtype: str) -> Floats:
    path = Path(folder) / VALUES
    return _mapping(str(path), path.stat().st_ino, n, dtype)


@functools.lru_cache(maxsize=2 * SHARED)
def _mapping(path: str, inode: int, n: int, dtype: str) -> Floats:
    """K (n, n), mapped once per process and file: each new mapping would fault every page again."""
    try:
        return np.asarray(np.memmap(path, dtype, "r", shape=(n, n)))
    except (OSError, ValueError) as error:
        raise InputError(f"kernel matrix {path} cannot be mapped ({error}); remove it and run again") from error


def unmap() -> None:
    """Let go of every K that strips of this process were written to or read from."""
    _mapping.cache_clear()


# ---- what is finished
def _is_intact(task: StripTask, folder: str, start: int, stop: int) -> bool:
    """Whether the strip is marked and its bytes, in both places, are those that were marked; unmarked if not."""
    path = marker(folder, task.index)
    try:
        marked = path.read_text()
    except FileNotFoundError:
        return False
    K = _mapped(folder, task.n, task.dtype)
    w = _weights(task.n)
    found = _checksums(K[start:stop], start, start, stop)
    mirrored = _hex(_checksum(_bits(K[stop:]), start, w[stop:], w[start:stop]))
    if marked == found and found.split()[1] == mirrored:
        return True
    path.unlink(missing_ok=True)
    return False


def _checksums(rows: Floats, first: int, start: int, stop: int) -> str:
    """Text of a marker: the checksum of the strip, and of its part right of the diagonal square.

    The strip begins at column `first` of `rows`.
    """
    w = _weights(start + rows.shape[1] - first)
    bits, w_rows = _bits(rows), w[start:stop]
    square = int(_checksum(bits, first, w_rows, w_rows))
    beyond = int(_checksum(bits, first + stop - start, w_rows, w[stop:]))
    return f"{_hex((square + beyond) % 2**64)} {_hex(beyond)}\n"


def _hex(value: int) -> str:
    return f"{int(value):016x}"


def _bits(block: Floats) -> Any:
    return block.view(np.uint32 if block.itemsize == 4 else np.uint64)


@functools.lru_cache(maxsize=4)
def _weights(n: int) -> Any:
    """Odd weights (n,) from splitmix64 of the index: a change of one value always changes the sum."""
    z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


@njit
def _checksum(bits, first, row_weights, column_weights):  # type: ignore[no-untyped-def]
    """sum_ij w_i w_j bits_ij modulo 2^64 over the columns from `first` on; `bits` is contiguous, for vector loads."""
    total = np.uint64(0)
    for i in range(bits.shape[0]):
        row = bits[i, first : first + len(column_weights)]
        part = np.uint64(0)
        for j in range(len(row)):
            part += np.uint64(row[j]) * column_weights[j]
        total += part * row_weights[i]
    return total
