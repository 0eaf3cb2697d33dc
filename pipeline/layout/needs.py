"""Bytes of memory and disk that a run needs, told from shapes; what cannot fit is refused with both numbers."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from pipeline.config.quantities import size
from pipeline.config.schema import Experiment
from pipeline.kernel.factor import BLOCK_BYTES
from pipeline.kernel.strips import partition
from pipeline.layout.parts import Part, bundles, whole
from pipeline.rows import dataset as datasets
from svmcore.errors import MemoryLimit
from svmcore.points.byte_products import is_fast
from svmcore.runtime.threads import n_threads
from svmcore.solvers.smo import SMO

__all__ = ["check_fits", "needed_bytes"]

BASE_BYTES = 200 << 20  # a process with everything imported


def needed_bytes(exp: Experiment, parts: Sequence[Part]) -> dict[str, int]:
    """Of the largest K, on disk, of a worker and of the node that solves."""
    on_disk = [part.kernel_bytes for part in parts if part.plan.gram]
    paths = {part.data.path for part in parts}
    held = [_held_bytes(exp, part) + _squares_bytes(part) for part in parts]
    return {
        "kernel_bytes": max(part.kernel_bytes for part in parts),
        "disk_bytes": sum(on_disk) + sum(map(_folder_bytes, paths)) + _answer_bytes(parts),
        "worker_bytes": BASE_BYTES + max(_strip_bytes([p for p, _ in one]) for one in bundles(exp, whole(parts))),
        "memory_bytes": BASE_BYTES + max(held),
    }


def _held_bytes(exp: Experiment, part: Part) -> int:
    """Rows and K, or its columns, on the node that solves; where they are in shards of other hosts it has neither."""
    far = part.plan.plan == "shards" and exp.cluster.remote
    held = part.kernel_bytes if part.plan.plan == "factor" else min(part.kernel_bytes, exp.cache.limit)
    return 0 if far else held + _row_bytes(part)


def _row_bytes(part: Part) -> int:
    """Rows as a kernel takes them, and as they are stored, for exact values; of bytes these are the same."""
    dataset = datasets.open_dataset(part.data.path)
    if dataset.step is not None and is_fast():
        return int(dataset.n_merged * dataset.n_features * 3)  # and as either side of products
    itemsize = np.dtype(part.plan.dtype).itemsize + dataset.dtype.itemsize
    if dataset.sparse:
        sample = dataset.X(0, min(1000, dataset.n_merged))
        return int(sample.nnz / sample.shape[0] * dataset.n_merged * (itemsize + 8))
    return int(dataset.n_merged * dataset.n_features * itemsize)


def _squares_bytes(part: Part) -> int:
    """The largest squares of working sets: a thread has one and keeps that of its last problem."""
    square = min(SMO.working_set, part.data.n_merged) ** 2 * np.dtype(part.plan.dtype).itemsize
    return int(min(2 * n_threads(), len(part.chains)) * square)


def _answer_bytes(parts: Sequence[Part]) -> int:
    """Every answer holds p - u of all rows, and about as much as that for its support."""
    return sum((16_384 + 12 * part.data.n_merged) * len(chain) for part in parts for chain in part.chains)


def _strip_bytes(bundle: Sequence[Part]) -> int:
    """Rows, and one strip of inner products and of each kernel."""
    part = bundle[0]
    if part.plan.gram is None:
        return _row_bytes(part)
    if part.plan.plan == "factor":
        return _row_bytes(part) + 2 * BLOCK_BYTES
    strips = partition(part.data.n_merged, part.plan.dtype)
    strip = (strips[0][1] - strips[0][0]) * part.data.n_merged * np.dtype(part.plan.dtype).itemsize
    return _row_bytes(part) + (len(bundle) + 1) * strip


def _folder_bytes(path: str) -> int:
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def check_fits(exp: Experiment, root: Path, parts: Sequence[Part], found: dict[str, Any]) -> None:
    """Raise MemoryLimit if what was `found` to be needed is not there: memory of a worker, of this node, or disk."""
    worker, node = exp.cluster.memory, psutil.virtual_memory().total
    resident = any(part.plan.gram for part in parts)
    if worker is not None and exp.cluster.kind != "inline" and resident and found["worker_bytes"] > worker:
        raise MemoryLimit(
            f"a worker needs {size(found['worker_bytes'])} for its rows and strips of K, and cluster.memory is "
            f"{size(worker)}; raise cluster.memory or lower data.rows"
        )
    held = [part for part in parts if part.plan.plan not in ("shards", "factor")]
    columns = max([2 * part.data.n_merged * np.dtype(part.plan.dtype).itemsize for part in held], default=0)
    if columns > exp.cache.limit:
        raise MemoryLimit(
            f"two columns of K need {size(columns)}, and cache.limit is {size(exp.cache.limit)}; "
            "raise cache.limit or lower data.rows"
        )
    if found["memory_bytes"] > node:
        raise MemoryLimit(
            f"the solver needs {size(found['memory_bytes'])} of memory, and this machine has {size(node)}; "
            + _smaller(parts)
        )
    _check_disk(root, parts, exp.cache.disk)


def _smaller(parts: Sequence[Part]) -> str:
    """What would need less memory."""
    if any(part.plan.plan == "factor" for part in parts):
        return "lower approximation.rank or data.rows"
    return "lower cache.limit, so that columns are computed on demand, or data.rows"


def _check_disk(root: Path, parts: Sequence[Part], budget: int) -> None:
    there = next(folder for folder in (root, *root.parents) if folder.is_dir())
    missing = sum(part.kernel_bytes for part in parts if part.plan.gram and not Path(part.plan.gram).is_dir())
    missing = min(missing, max(budget, 2 * max(part.kernel_bytes for part in parts)))
    disk = os.statvfs(there)
    free = disk.f_bavail * disk.f_frsize
    if missing > free:
        raise MemoryLimit(
            f"the kernel matrices need {size(missing)} on disk, and {there} has {size(free)} free; "
            "free space, name another store or sweep over fewer kernels"
        )
