"""One strip of K on a worker, and its checksum.

A strip is rows I against rows I and beyond, written with its transpose. Where a value costs less than to write it a
second time, it is rows I against all rows (`in_whole_rows`): then K is symmetric because its values are, to the last
bit.

A checksum is what makes a strip finished: values are never taken for finished because they are there. Nothing waits for
the disk (a strip costs 30 ms, its fsync more); after a power cut a strip that did not reach it fails its checksum and
is computed again. This file knows no scheduler.
"""

import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pipeline.kernel.checksums import of_mirror, of_rows, of_strip, sum_of_rows
from pipeline.kernel.folder import VALUES, check_shared, mark, marker, pwrite
from pipeline.kernel.worker_points import strip_points
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.kernels.base import InnerProductKernel, blocks
from svmcore.points import Floats, Points
from svmcore.runtime.compiled import njit

__all__ = ["StripTask", "compute_strip", "in_whole_rows", "overflow", "partition", "unmap"]

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
# K of MNIST's 10,000 rows on two workers, twice the products of bytes: 0.51 s in strips with their transpose, 0.36 s in
# whole rows; of three gammas 1.5 and 0.75 s, and problems on K are solved 3 % faster, whose pages are larger.
FEATURES = 1024  # bytes of a row up to which that pays
ROWS = 256  # of whole rows that are made at a time
RUN_BYTES = 640 << 10  # of whole rows at a time: a longer write keeps the file from other workers, and asks for pages
# larger than are at hand (of one row at a time 0.61 s, of 2 MB 0.58, of 6 MB 0.89)


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
    kernels, folders, whole
        With numbers for their parameters, the folder that each one's values go to, and whether in whole rows.
    """

    dataset: str
    n: int
    dtype: str
    kernels: tuple[Kernel, ...]
    folders: tuple[str, ...]
    whole: tuple[bool, ...]
    index: int


def in_whole_rows(dataset: Any, kernel: Kernel, dtype: DTypeLike) -> bool:
    """Whether strips are whole rows: few features on bytes, and a kernel that is symmetric to the last bit there.

    It depends on the rows and the kernel alone, so all workers and all runs that share a K agree.
    """
    exact = dataset.step is not None and np.dtype(dtype) == np.float32
    return bool(exact and dataset.n_features <= FEATURES and kernel.mirrors_on_lattice)


def compute_strip(task: StripTask) -> tuple[bool, ...]:
    """Make strip `task.index` of each kernel finished; True where it was already, and intact."""
    check_shared(task.folders)
    start, stop = partition(task.n, task.dtype)[task.index]
    reused = tuple(_is_intact(task, k, start, stop) for k in range(len(task.kernels)))
    missing = [k for k, intact in enumerate(reused) if not intact]
    for alike in _on_equal_blocks(task, missing):
        for first in range(0, len(alike), SHARED):
            _compute(task, alike[first : first + SHARED], start, stop)
    return reused


# ---- computing
def _on_equal_blocks(task: StripTask, which: Sequence[int]) -> list[list[int]]:
    """Kernels of the inner product take the same rows; any other has its own way to prepare them."""
    found: dict[Any, list[int]] = {}
    for k in which:
        shared = isinstance(task.kernels[k], InnerProductKernel)
        found.setdefault(task.whole[k] if shared else f"kernel {k}", []).append(k)
    return list(found.values())


def _compute(task: StripTask, which: Sequence[int], start: int, stop: int) -> None:
    """Compute, write and mark the strip of the kernels `which`."""
    made = _made_rows(task, which, start, stop) if task.whole[which[0]] else _made_strips(task, which, start, stop)
    for k, text in made:
        mark(marker(task.folders[k], task.index), text)


def _made_rows(task: StripTask, which: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, str]]:
    """Write whole rows, some at a time: they are still in cache; texts of their markers.

    No value is infinite where a kernel mirrors.
    """
    totals = dict.fromkeys(which, 0)
    for first in range(start, stop, ROWS):
        _, outs = _blocks(task, which, first, min(first + ROWS, stop), 0)
        for k, out in _in_turn(task, which, outs):
            _write_rows(task.folders[k], first, out)
            totals[k] += sum_of_rows(out, first)
    yield from ((k, of_rows(total)) for k, total in totals.items())


def _made_strips(task: StripTask, which: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, str]]:
    """Finish strips, write them and their transposes; texts of their markers."""
    P, outs = _blocks(task, which, start, stop, start)
    for k, out in _in_turn(task, which, outs):
        with np.errstate(over="ignore", invalid="ignore"):  # counted below
            diagonal = task.kernels[k].diagonal_of(P).astype(task.dtype)
        if _finish(out, diagonal):
            raise overflow(task.kernels[k], task.dtype)
        _write_strip(task.folders[k], task.n, out)
        yield k, of_strip(out, 0, start, stop)


def _blocks(task: StripTask, which: Sequence[int], start: int, stop: int, left: int) -> tuple[Points, list[Floats]]:
    """Rows start ... stop - 1, and their values of the kernels `which` from column `left` on: one set of products.

    Values are made in private memory and copied when final: a second writer of the same strip (a task that Dask took
    for lost, another run) then only ever writes the same bytes again.
    """
    scratch, *outs = _buffers(len(which) + 1, (stop - start, task.n - left), np.dtype(task.dtype))
    kernels = [task.kernels[k] for k in which]
    points = strip_points(task.dataset, task.dtype, kernels[0], task.whole[which[0]])
    P = points.rows(start, stop)
    with np.errstate(over="ignore", invalid="ignore"):
        blocks(kernels, P, points.rows(left, task.n), outs, scratch)
    return P, outs


def _in_turn(task: StripTask, which: Sequence[int], outs: Sequence[Floats]) -> list[tuple[int, Floats]]:
    """Kernels and their values, from another one on in each strip: a file serves one worker at a time."""
    made, first = list(zip(which, outs, strict=True)), task.index % len(which)
    return made[first:] + made[:first]


def overflow(kernel: Kernel, dtype: str) -> InputError:
    """Return the error of a kernel whose values are not all finite."""
    return InputError(f"kernel {kernel.name} overflows {dtype}; scale the data or lower its degree, gamma or coef0")


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
def _write_rows(folder: str, start: int, rows: Floats) -> None:
    """Write whole rows of K, the first of which is row `start`."""
    width = rows[0].nbytes
    count = max(1, RUN_BYTES // width)
    with _opened(folder) as file:
        for i in range(0, len(rows), count):
            pwrite(file, rows[i : i + count], (start + i) * width)


def _write_strip(folder: str, n: int, strip: Floats) -> None:
    """Write a strip of K (n, n) and its transpose, a few lines at a time: they are still in cache when written."""
    h, width, start = len(strip), strip.itemsize, n - strip.shape[1]
    lines = np.empty((LINES, h), strip.dtype)
    with _opened(folder) as file:
        for i, row in enumerate(strip, start=start):
            pwrite(file, row, (i * n + start) * width)
        for first in range(h, strip.shape[1], LINES):
            part = strip[:, first : first + LINES]
            _transpose(part, lines)
            for j, line in enumerate(lines[: part.shape[1]], start=start + first):
                pwrite(file, line, (j * n + start) * width)


@contextlib.contextmanager
def _opened(folder: str) -> Iterator[int]:
    """The file of a K, to be written to; a reader on another host sees the bytes once it is closed."""
    file = os.open(Path(folder) / VALUES, os.O_WRONLY)
    try:
        yield file
    finally:
        os.close(file)


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
def _is_intact(task: StripTask, k: int, start: int, stop: int) -> bool:
    """Whether the strip of a kernel is marked, and its bytes, wherever they are, are those; unmarked if not."""
    path = marker(task.folders[k], task.index)
    try:
        marked = path.read_text()
    except FileNotFoundError:
        return False
    K = _mapped(task.folders[k], task.n, task.dtype)
    found = of_rows(sum_of_rows(K[start:stop], start)) if task.whole[k] else _of_both(K, start, stop)
    if marked == found:
        return True
    path.unlink(missing_ok=True)
    return False


def _of_both(K: Floats, start: int, stop: int) -> str | None:
    """Text of the marker of a strip in K whose transpose is there too."""
    text = of_strip(K[start:stop], start, start, stop)
    return text if text.split()[1] == of_mirror(K[stop:], start, stop) else None
