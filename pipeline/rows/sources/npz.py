"""npz archives as row blocks."""

import errno
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pipeline.rows.sources.blocks import BLOCK_BYTES, RowBlock, StoredSource, check_labels, finite_rows, rows_in
from pipeline.rows.sources.streams import check_expansion, open_bytes

__all__ = ["NpzSource"]

BROKEN_ZIP = (
    zipfile.BadZipFile,  # no archive at all, one that is cut short, or a checksum that does not hold
    zlib.error,  # a changed byte of a compressed member
    lzma.LZMAError,  # the same
    EOFError,  # fewer values than the shape says
    UnicodeDecodeError,  # a directory whose names are not UTF-8
    struct.error,  # a directory that ends in the middle
    NotImplementedError,  # what zipfile raises of a compression that it does not know
)
BROKEN_ERRNO = (None, errno.EINVAL)  # of an OSError: a changed byte in bzip2, an offset that points out of the file
ENCRYPTED = 1  # flag of a member


class NpzSource(StoredSource):
    """Members `X` (n, p) and `y` (n,) of an npz file; X is streamed out of the archive, objects are refused."""

    def __init__(self, url: str, n_features: int | None = None, labelled: bool = True) -> None:
        super().__init__(url)
        self.n_features = n_features
        self.labelled = labelled  # whether it must have a y, where it is not to be predicted

    def blocks(self, rows_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
        """Yield dense blocks."""
        with open_bytes(self.url) as raw:
            try:
                with zipfile.ZipFile(raw) as archive:
                    y = self._labels(archive)
                    yield from self._rows(archive, y, rows_bytes)
            except (*BROKEN_ZIP, OSError) as error:
                raise self._blamed(error) from None

    def _blamed(self, error: Exception) -> Exception:
        """The file's fault as InputError; that of a disk or a network as it came, for it is worth another try."""
        cause = error.__context__ if isinstance(error, zipfile.BadZipFile) else error  # zipfile hides an OSError so
        if isinstance(cause, OSError) and cause.errno not in BROKEN_ERRNO:
            return cause
        return self.fail(f"not a whole .npz archive ({error}); fetch it again, or write it again with numpy.savez")

    def _member(self, archive: zipfile.ZipFile, name: str) -> tuple[IO[bytes], tuple[int, ...], bool, np.dtype[Any]]:
        """Open a member behind its header: (stream, shape, Fortran order, dtype)."""
        stored = archive.getinfo(f"{name}.npy")
        if stored.flag_bits & ENCRYPTED:
            raise self.fail(f"the member {name!r} needs a password; write it again with numpy.savez, without one")
        check_expansion(self.url, f"the member {name!r}", stored.file_size, stored.compress_size)
        stream = archive.open(stored)
        try:
            version = npy.read_magic(stream)
            read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = read_header(stream)
        except (ValueError, tokenize.TokenError) as error:  # the header is a text that NumPy parses
            raise self.fail(f"the member {name!r} is not a NumPy array ({error}); save it with numpy.savez") from None
        if dtype.hasobject:
            raise self.fail(
                f"the member {name!r} holds Python objects, which are never loaded; save numbers or strings"
            )
        promised = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or promised > stored.file_size:
            raise self.fail(
                f"the member {name!r} of shape {shape} promises {promised:,} bytes and has {stored.file_size:,}; "
                "fetch it again, or write it again with numpy.savez"
            )
        return stream, shape, fortran, dtype

    def _labels(self, archive: zipfile.ZipFile) -> NDArray[Any] | None:
        members = {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
        missing = [name for name in ("X", "y") if name not in members]
        if "X" in missing or (missing and self.n_features is None and self.labelled):
            found = ", ".join(sorted(members)) or "none"
            raise self.fail(f"no member {missing[0]!r}; an npz needs X (n, p) and y (n,), found: {found}")
        if missing:
            return None
        stream, shape, _, dtype = self._member(archive, "y")
        with stream:
            flat = self._read(stream, math.prod(shape), dtype)
        return check_labels(self, flat.reshape(shape))

    def _read(self, stream: IO[bytes], count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        data = stream.read(count * dtype.itemsize)
        if len(data) < count * dtype.itemsize:
            raise EOFError("an array ends before its shape says")
        return np.frombuffer(data, dtype)

    def _rows(self, archive: zipfile.ZipFile, y: NDArray[Any] | None, rows_bytes: int) -> Iterator[RowBlock]:
        stream, shape, fortran, dtype = self._member(archive, "X")
        n, p = self._checked_shape(shape, dtype, y)
        self.total = n
        step = n if fortran else rows_in(rows_bytes, p)  # columns first cannot be streamed by rows
        with stream:
            for start in range(0, n, step):
                rows = min(step, n - start)
                flat = self._read(stream, rows * p, dtype)
                X = finite_rows(self, flat.reshape((p, rows)).T if fortran else flat.reshape((rows, p)), start)
                self.done = start + rows
                yield RowBlock(X, None if y is None else y[start : start + rows])

    def _checked_shape(self, shape: tuple[int, ...], dtype: np.dtype[Any], y: NDArray[Any] | None) -> tuple[int, int]:
        if len(shape) != 2 or 0 in shape:
            raise self.fail(f"X has shape {shape}; rows and features, (n, p), are needed")
        if dtype.kind not in "biuf":
            raise self.fail(f"X has type {dtype}; features must be real numbers")
        if y is not None and len(y) != shape[0]:
            raise self.fail(f"X has {shape[0]} rows but y has {len(y)} labels")
        if self.n_features is not None and shape[1] != self.n_features:
            raise self.fail(f"X has {shape[1]} features, but {self.n_features} are expected")
        return int(shape[0]), int(shape[1])
