"""Folders of zarr arrays that cannot lie: with a manifest, published by a rename.

Every chunk carries a CRC-32C, so a flipped bit is an error when it is read; the manifest knows every file, so a
missing chunk is an error and never zeros. `verify` compares all hashes.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pipeline.storage.bucket import Copy, is_url
from pipeline.storage.files import publish_folder, remove_empty
from pipeline.storage.leases import owned_folder, release, remove_folder, told_when_lost
from pipeline.storage.manifest import MANIFEST, Damaged, check_parts, compare, read_manifest
from svmcore.errors import InputError

__all__ = ["ArrayWriter", "Sealed", "building"]

CHUNK_BYTES = 16 << 20


def _codecs() -> list[Any]:
    from zarr.codecs import BloscCodec, BloscShuffle, Crc32cCodec

    return [BloscCodec(cname="lz4", clevel=1, shuffle=BloscShuffle.shuffle), Crc32cCodec()]


class ArrayWriter:
    """A zarr array (n, *row) in `folder` written from front to back, a whole chunk at a time; n is known at the end.

    An array of less than a chunk has one of its own length: zarr fills up what a chunk has beyond the array, and who
    reads a row unpacks that too.
    """

    def __init__(self, folder: Path, row: tuple[int, ...], dtype: DTypeLike) -> None:
        self.folder, self.row, self.dtype = folder, row, np.dtype(dtype)
        self.n = 0
        self._chunk = max(1, CHUNK_BYTES // max(1, int(np.prod(row)) * self.dtype.itemsize))
        self._held: list[NDArray[Any]] = []
        self._n_held = 0
        self._array: Any = None

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows at the end."""
        self._held.append(np.asarray(rows, self.dtype))
        self._n_held += len(rows)
        if self._n_held >= self._chunk:
            self._flush(self._n_held // self._chunk * self._chunk)

    def _flush(self, count: int) -> None:
        rows = np.concatenate(self._held) if len(self._held) != 1 else self._held[0]
        if self._array is None:
            self._create(self._chunk)
        self._array.resize((self.n + count, *rows.shape[1:]))
        # one chunk at a time, or zarr keeps many encoded chunks in flight; equal to the fill value is written too
        for start in range(0, count, self._chunk):
            part = rows[start : min(start + self._chunk, count)]
            self._array[self.n + start : self.n + start + len(part)] = part
        self.n += count
        self._held, self._n_held = [rows[count:].copy()], len(rows) - count

    def _create(self, chunk: int) -> None:
        import zarr

        chunks = tuple(max(1, size) for size in (chunk, *self.row))
        self._array = zarr.create_array(
            str(self.folder),
            shape=(0, *self.row),
            chunks=chunks,
            dtype=self.dtype,
            compressors=_codecs(),
            zarr_format=3,
        )

    def close(self) -> None:
        """Write what is left."""
        if self._array is None:
            self._create(self._n_held)
        if self._n_held:
            self._flush(self._n_held)


@contextlib.contextmanager
def building(target: Path, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside `target`, renamed to it at the end, or removed if anything goes wrong.

    If somebody else published `target` meanwhile, theirs stays: equal names mean equal contents. With `replace` what
    stands there goes, when the new one is whole. What killed processes left behind is swept.

    Raises
    ------
    LeaseLost
        If others took this process for dead and removed the folder.
    """
    drafts = target.parent / ".building"
    with contextlib.ExitStack() as stack:
        stack.callback(remove_empty, drafts)  # if nobody else is building
        try:
            folder = stack.enter_context(owned_folder(drafts))
        except OSError as error:
            raise InputError(f"{target.parent}: cannot be written ({error.strerror}); choose another store") from None
        with told_when_lost(folder):
            yield folder
        release(folder)
        if replace:
            remove_folder(target, drafts)
        try:
            publish_folder(folder, target)
        except OSError:
            if not (target / MANIFEST).exists():
                raise


class Sealed:
    """A published folder: its manifest, and arrays read with every doubt an InputError.

    Parameters
    ----------
    path
        A folder, or the `s3://` URL of one, of which only those files are fetched that hold the rows asked for.
    kind, newest
        What it must hold, and the highest format of it that can be read.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str, newest: int) -> None:
        self._copy = Copy.of(str(path)) if is_url(str(path)) else None
        self.path = Path(path) if self._copy is None else self._copy.folder
        self.manifest = read_manifest(self.path, kind, newest)
        for part in self.manifest["parts"]:
            if part.endswith("zarr.json"):
                self._fetch([part])
                compare(self.path, self.manifest, part)

    def has(self, name: str) -> bool:
        """Whether there is an array `name`."""
        return f"{name}/zarr.json" in self.manifest["parts"]

    def read(self, name: str, lo: int = 0, hi: int | None = None) -> NDArray[Any]:
        """Return rows lo ... hi - 1 of the array `name`."""
        import zarr

        try:
            array = zarr.open_array(str(self.path / name), mode="r")
            hi = array.shape[0] if hi is None else hi
            self._all_there(name, lo // array.chunks[0], -(-hi // array.chunks[0]))
            return np.asarray(array[lo:hi])
        except (ValueError, RuntimeError, OSError, KeyError) as error:
            if isinstance(error, Damaged):
                raise
            raise Damaged(self.path, name, f"cannot be decoded ({str(error).splitlines()[0][:120]})") from None

    def chunk_rows(self, name: str) -> int:
        """Rows of one chunk of the array `name`."""
        import zarr

        return int(zarr.open_array(str(self.path / name), mode="r").chunks[0])

    def length(self, name: str) -> int:
        """Rows of the array `name`."""
        import zarr

        return int(zarr.open_array(str(self.path / name), mode="r").shape[0])

    def verify(self) -> None:
        """Compare the sha256 of every file; a difference is an InputError naming the file."""
        check_parts(self.path, self.manifest)

    def _all_there(self, name: str, first: int, last: int) -> None:
        """Refuse an array of which a file is missing that holds some of the chunks of rows first ... last - 1."""
        chunks = [part for part in self.manifest["parts"] if part.startswith(f"{name}/c/")]
        wanted = [part for part in chunks if first <= int(part[len(name) + 3 :].split("/")[0]) < last]
        self._fetch(wanted)
        for part in wanted:
            if not (self.path / part).exists():
                raise Damaged(self.path, part, "is missing")

    def _fetch(self, parts: Iterable[str]) -> None:
        """Bring files from the bucket that are not here, and check them."""
        if self._copy is not None:
            for part in self._copy.fetch(parts):
                compare(self.path, self.manifest, part)
