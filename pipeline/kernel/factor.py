"""The factor G of an approximation of low rank, computed by blocks of rows into one file that every solver maps.

    ROOT/gram/FINGERPRINT/         as of a kernel matrix, see `pipeline.kernel.folder`
                          map.npz  landmarks and L: chosen once, by who asks for the factor

The blocks depend on the shape alone. Whoever computes one takes the landmarks from the folder.
"""

import dataclasses
import functools
import hashlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.compute.progress import Progress, silent
from pipeline.compute.workers import VERSION, Workers
from pipeline.kernel.folder import VALUES, check_shared, create, mark, marker, opened, publish, pwrite
from pipeline.kernel.gram import Gram, gram_folder
from pipeline.kernel.strips import overflow
from pipeline.kernel.worker_points import worker_rows
from pipeline.storage.cache import claim, in_turn
from pipeline.storage.files import sha256_of_json, write_atomic
from svmcore.approximation import Approximation, FeatureMap
from svmcore.kernels import Kernel
from svmcore.points import Floats, Points

__all__ = ["BLOCK_BYTES", "compute_factor", "factor_fingerprint", "feature_map", "open_factor"]

FORMAT = 3
BLOCK_BYTES = 32 << 20
KIND = "factor"
MAP = "map.npz"


@dataclasses.dataclass(frozen=True)
class BlockTask:
    """Block `index` of the rows of a factor: all that travels to a worker."""

    dataset: str
    n: int
    dtype: str
    kernel: Kernel
    folder: str
    index: int


def factor_fingerprint(dataset: Any, kernel: Kernel, approximation: Approximation, dtype: Any) -> str:
    """Sha256 of all that decides the bytes of a factor."""
    about = {"format": FORMAT, "version": VERSION, "rows": dataset.rows_fingerprint, "dtype": np.dtype(dtype).name}
    plan = {key: value for key, value in approximation.spec().items() if key != "polish"}
    return sha256_of_json(about | {"kernel": kernel.spec(), "approximation": plan, "block": BLOCK_BYTES})


def blocks_of(n: int, rank: int, dtype: Any) -> list[tuple[int, int]]:
    """Row ranges of the blocks.

    >>> blocks_of(20_000, 1000, np.float32)
    [(0, 8192), (8192, 16384), (16384, 20000)]
    """
    height = max(512, BLOCK_BYTES // (rank * np.dtype(dtype).itemsize) // 512 * 512)
    return [(start, min(start + height, n)) for start in range(0, n, height)]


def compute_factor(
    dataset: Any,
    kernel: Kernel,
    approximation: Approximation,
    dtype: Any,
    root: str | Path,
    workers: Workers,
    progress: Progress | None = None,
) -> Gram:
    """Compute the factor of the dataset's merged training rows, or what is missing of it.

    Raises
    ------
    MemoryLimit, InputError
        As `compute_grams`.
    """
    tell, dtype, n = progress or silent, np.dtype(dtype), int(dataset.n_merged)
    fingerprint = factor_fingerprint(dataset, kernel, approximation, dtype)
    folder = gram_folder(root, fingerprint)
    claim(Path(root), [f"gram/{folder.name}"])
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / MAP).is_file():
        _write_map(folder, approximation.map(kernel, dataset.X(), dtype))
    rank = feature_map(str(folder), kernel).rank
    create(folder, (n, rank), dtype, "the factor of the kernel matrix")
    count = len(blocks_of(n, rank, dtype))
    tasks = [BlockTask(str(dataset.path), n, dtype.name, kernel, str(folder), index) for index in range(count)]
    reused = 0
    for done, (_, intact) in enumerate(workers.map(compute_block, in_turn(Path(root), tasks)), start=1):
        reused += intact
        tell("kernel", done, count, reused=reused, kernels=1)
    facts = {"kernel": kernel.spec(), "rows": dataset.rows_fingerprint}
    publish(folder, KIND, facts, (n, rank), dtype, count, [MAP])
    return Gram(folder, fingerprint, n, dtype, count, reused)


def _write_map(folder: Path, found: FeatureMap) -> None:
    """Keep a map: of landmarks that are rows their places, of means themselves."""
    buffer = io.BytesIO()
    landmarks = {"places": found.places} if found.places is not None else {"landmarks": found.landmarks}
    np.savez(buffer, L=found.L, **landmarks)
    write_atomic(folder / MAP, buffer.getvalue())


@functools.lru_cache(maxsize=2)
def feature_map(folder: str, kernel: Kernel, dataset: str = "") -> FeatureMap:
    """The map of a factor; its landmarks are there where the path of its `dataset` is given."""
    with np.load(Path(folder) / MAP, allow_pickle=False) as kept:
        L, places = kept["L"], kept.get("places")
        if places is None:
            return FeatureMap(kernel, kept["landmarks"], L)
    rows = worker_rows(dataset)[places] if dataset else np.empty((0, 0))
    return FeatureMap(kernel, rows, L, places)


def open_factor(path: str | Path) -> Floats:
    """Map the finished factor in folder `path`, (n, r), read-only.

    Raises
    ------
    InputError
        If it is not finished, or its file has another size.
    """
    return opened(Path(path), KIND)


# --- on a worker ----------------------------------------------------------------------------------------------------
def compute_block(task: BlockTask) -> bool:
    """Make a block finished; True where it was already, and intact."""
    check_shared([task.folder])
    found = feature_map(task.folder, task.kernel, task.dataset)
    start, stop = blocks_of(task.n, found.rank, task.dtype)[task.index]
    place = Path(task.folder) / VALUES
    offset = start * found.rank * np.dtype(task.dtype).itemsize
    if _is_intact(task, place, offset, (stop - start) * found.rank * np.dtype(task.dtype).itemsize):
        return True
    points, landmarks = _sides(task.dataset, task.folder, task.kernel, task.dtype)
    out = np.empty((stop - start, found.rank), task.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        found.fill(points.rows(start, stop), landmarks, out)
    if not np.isfinite(out).all():
        raise overflow(task.kernel, task.dtype)
    file = os.open(place, os.O_WRONLY)
    try:
        pwrite(file, out, offset)
    finally:
        os.close(file)
    mark(marker(task.folder, task.index), hashlib.sha256(out.data).hexdigest())
    return False


def _is_intact(task: BlockTask, place: Path, offset: int, n_bytes: int) -> bool:
    """Whether the block is marked and its bytes are those that were marked; unmarked if not."""
    path = marker(task.folder, task.index)
    try:
        marked = path.read_text()
    except FileNotFoundError:
        return False
    with place.open("rb") as file:
        file.seek(offset)
        if hashlib.sha256(file.read(n_bytes)).hexdigest() == marked:
            return True
    path.unlink(missing_ok=True)
    return False


@functools.lru_cache(maxsize=1)
def _sides(dataset: str, folder: str, kernel: Kernel, dtype: str) -> tuple[Points, Points]:
    """Rows and landmarks as the kernel takes them, once per process."""
    return feature_map(folder, kernel, dataset).sides(worker_rows(dataset), dtype)
