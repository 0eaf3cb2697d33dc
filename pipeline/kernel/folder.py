"""A matrix on storage that workers write by parts: the file, marks of what is finished, and what makes it one.

gram.json     what it is
c/0/0         its values, C order, uncompressed: the one chunk of a zarr v3 array is such a file
strips/00012  written after part 12: its checksum
zarr.json     written last, when every part is finished
"""

import contextlib
import errno
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config.quantities import size
from pipeline.storage.files import remove_empty, rename, write_json, writing
from pipeline.storage.leases import owned_folder
from svmcore.errors import InputError, MemoryLimit
from svmcore.points import Floats

__all__ = ["VALUES", "allocate", "check_shared", "create", "mark", "marker", "publish", "pwrite"]

VALUES = "c/0/0"


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


def create(folder: Path, shape: tuple[int, int], dtype: np.dtype, described: dict[str, Any], what: str) -> None:
    """Make the folder and reserve the whole file, so that a full disk is met here and not by a worker's mapping."""
    n_bytes = shape[0] * shape[1] * dtype.itemsize
    try:
        (folder / VALUES).parent.mkdir(parents=True, exist_ok=True)
        (folder / "strips").mkdir(exist_ok=True)
        _reserve(folder / VALUES, n_bytes)
        write_json(folder / "gram.json", described)
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


def publish(folder: Path, shape: tuple[int, int], dtype: np.dtype, parts: int) -> None:
    """Write the metadata that makes the folder a zarr array, once every part is marked."""
    absent = [index for index in range(parts) if not marker(folder, index).is_file()]
    if absent:
        raise InputError(
            f"{len(absent)} of {parts} strips computed by workers are not in {folder}; "
            "set store to a folder that every host of the cluster shares"
        )
    if (folder / "zarr.json").is_file():
        return
    import zarr

    zarr.create_array(str(folder), shape=shape, chunks=shape, dtype=dtype, compressors=None, fill_value=np.nan)
