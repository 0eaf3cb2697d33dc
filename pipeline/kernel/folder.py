"""A matrix on storage that workers write by parts: the file, marks of what is finished, and what makes it one.

c/0/0          its values, C order, uncompressed: the one chunk of a zarr v3 array is such a file
strips/00012   written after part 12: its checksum
zarr.json      makes it an array
manifest.json  written last, when every part is finished: what it is, and the sha256 of every mark
"""

import contextlib
import errno
import math
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config.quantities import size
from pipeline.storage.files import remove_empty, rename, writing
from pipeline.storage.leases import owned_folder
from pipeline.storage.manifest import compare, read_manifest, write_manifest
from svmcore.errors import InputError, MemoryLimit
from svmcore.points import Floats

__all__ = ["VALUES", "allocate", "check_shared", "create", "mark", "marker", "opened", "publish", "pwrite"]

VALUES = "c/0/0"
FORMAT = 1


def marker(folder: str | Path, index: int) -> Path:
    """Path of the file that says that a strip is finished, and its checksums."""
    return Path(folder) / "strips" / f"{index:05d}"


def mark(path: Path, text: str) -> None:
    """Publish a marker in one step, after the values that it stands for."""
    with writing(path, durable=False) as partial:
        partial.write_text(text)


def check_shared(folders: Sequence[str]) -> None:
    """Refuse a worker that does not see where its parts belong."""
    for folder in folders:
        if not (Path(folder) / VALUES).is_file():
            raise InputError(
                f"worker on host {socket.gethostname()} does not see {folder}; "
                "set store to a folder that every host of the cluster shares"
            )


def pwrite(file: int, row: Floats, offset: int) -> None:
    """Write all of an array at an offset of an open file."""
    view = row.data.cast("B")
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def create(folder: Path, shape: tuple[int, int], dtype: np.dtype, what: str) -> None:
    """Make the folder and reserve the whole file, so that a full disk is met here and not by a worker's mapping."""
    n_bytes = shape[0] * shape[1] * dtype.itemsize
    try:
        (folder / VALUES).parent.mkdir(parents=True, exist_ok=True)
        (folder / "strips").mkdir(exist_ok=True)
        _reserve(folder / VALUES, n_bytes)
        os.utime(folder)  # the cache evicts the oldest
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            disk = os.statvfs(folder)
            raise MemoryLimit(
                f"{what} needs {size(n_bytes)} on disk and {folder} has "
                f"{size(disk.f_bavail * disk.f_frsize)}; free space or name another store"
            ) from error
        raise InputError(f"store {folder} cannot be written ({error}); name another store") from error


def _reserve(path: Path, n_bytes: int) -> None:
    """Put a file of the whole size at `path`; what is in one that is there stays, checksums tell what it is worth.

    It has its blocks when it appears: where a file system only emulates `fallocate`, that writes zeros, which must not
    meet what another run has begun to write.
    """
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size == n_bytes:
            return
    building = path.parents[3] / ".building"
    with owned_folder(building) as folder:
        made = folder / "values"
        allocate(made, n_bytes)
        try:
            os.link(made, path)
        except FileExistsError:  # another run was first, or its size shows that it is damaged
            if path.stat().st_size != n_bytes:
                rename(made, path, durable=False)
        except OSError:  # no links on this file system
            rename(made, path, durable=False)
    remove_empty(building)


def allocate(path: Path, n_bytes: int) -> None:
    """Make a file with all its blocks, or where that is not to be had, a sparse one."""
    with path.open("wb") as file:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, n_bytes)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        os.ftruncate(file.fileno(), n_bytes)


def publish(
    folder: Path,
    kind: str,
    facts: dict[str, Any],
    shape: tuple[int, int],
    dtype: np.dtype,
    count: int,
    beside: Sequence[str] = (),
) -> None:
    """Make the folder a zarr array and write its manifest, once every part is marked; `beside` are more files."""
    markers = [marker(folder, index) for index in range(count)]
    absent = sum(not path.is_file() for path in markers)
    if absent:
        raise InputError(
            f"{absent} of {count} strips computed by workers are not in {folder}; "
            "set store to a folder that every host of the cluster shares"
        )
    if not (folder / "zarr.json").is_file():
        import zarr

        zarr.create_array(str(folder), shape=shape, chunks=shape, dtype=dtype, compressors=None, fill_value=np.nan)
    parts = [*(path.relative_to(folder).as_posix() for path in markers), "zarr.json", *beside]
    facts = facts | {"shape": [int(size) for size in shape], "dtype": dtype.name}
    write_manifest(folder, kind, FORMAT, facts, parts=parts)


def opened(folder: Path, kind: str) -> Floats:
    """Map what is finished in a folder, read-only.

    Raises
    ------
    InputError
        If it is not finished, of another kind, or its file has another size.
    """
    try:
        manifest = read_manifest(folder, kind, FORMAT)
        for part in manifest["parts"]:
            compare(folder, manifest, part)
        shape, dtype = tuple(map(int, manifest["shape"])), np.dtype(manifest["dtype"])
        whole = (folder / VALUES).stat().st_size == math.prod(shape) * dtype.itemsize
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder} holds no finished {kind} ({error}); run the experiment again") from error
    if not whole:
        raise InputError(f"the {kind} in {folder} is not whole; run the experiment again")
    return np.memmap(folder / VALUES, dtype, "r", shape=shape)
