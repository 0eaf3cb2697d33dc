"""Bytes from a path or an object store, decompressed as they pass, in blocks that end where a line ends.

This is the only file of the readers that knows where bytes live; formats are the business of `rows.sources.open`.
"""

import bz2
import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from pipeline.config.values import COMPRESSED, expand, is_url
from svmcore.errors import InputError

__all__ = ["LineBlocks", "check_expansion", "folder_of", "local_path", "open_bytes", "readable", "sha256_of"]

READ_BYTES = 1 << 20
LINE_BYTES = 64 << 20  # a line of 5 million numbers
FREE_BYTES = 64 << 20  # what any file may become
MAX_RATIO = 250  # text of numbers is packed 3 to 30 times; an archive made to fill a memory, 1,000 times and more


def local_path(url: str) -> Path:
    """Return the path that `url` (with `${ENV}` filled in) names on this machine."""
    return Path(os.path.abspath(Path(expand(url)).expanduser()))


def folder_of(url: str) -> Path:
    """Return the folder that `url` names; of an object store's, a copy that ends with this process."""
    place = expand(url)
    if not is_url(place):
        return local_path(url)
    from pipeline.storage.bucket import fetched

    return fetched(place.rstrip("/"))


def open_bytes(url: str) -> BinaryIO:
    """Open a path or an object store's URL for reading, seekable, as it is stored (no decompression)."""
    place = expand(url)
    if is_url(place):
        return _open_object(place, url)
    path = local_path(url)
    if path.is_dir():
        raise InputError(f"{url}: is a folder; give a file, or a zarr group whose name ends in .zarr")
    try:
        return path.open("rb")
    except FileNotFoundError:
        looked = "" if str(path) == url else f" (looked for {path})"
        raise InputError(f"{url}: no such file{looked}; give the path of a file, from this folder or from /") from None
    except OSError as error:
        raise InputError(f"{url}: cannot be read ({error.strerror})") from None


def _open_object(place: str, shown: str) -> BinaryIO:
    """Open an object; credentials and endpoint come from the environment (AWS_...)."""
    from pipeline.storage.bucket import open_reader

    return cast(BinaryIO, io.BufferedReader(_ObjectFile(open_reader(place, shown)), READ_BYTES))


class _ObjectFile(io.RawIOBase):
    """An obstore reader as a file, which every parser takes."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._reader.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: int(self._reader.size)}[whence]
        return int(self._reader.seek(start + offset))

    def readinto(self, buffer: Any) -> int:
        data = memoryview(self._reader.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)


def check_expansion(url: str, what: str, becomes: int, stored: int) -> None:
    """Raise InputError if `stored` bytes become, or promise, more bytes than data does."""
    if becomes > max(FREE_BYTES, MAX_RATIO * stored):
        raise InputError(
            f"{url}: {what} makes {becomes:,} bytes of {stored:,} stored ones, more than {MAX_RATIO} times as many; "
            "if this is meant, write it again without compression"
        )


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0][:200]


def readable(url: str) -> None:
    """Raise InputError unless `url` can be opened."""
    open_bytes(url).close()


def sha256_of(url: str) -> str:
    """Sha256 of the bytes as they are stored; of a folder, over the names and bytes of all its files."""
    digest = hashlib.sha256()
    path = None if is_url(expand(url)) else local_path(url)
    if path is not None and path.is_dir():
        for part in sorted(p for p in path.rglob("*") if p.is_file()):
            digest.update(part.relative_to(path).as_posix().encode())
            digest.update(sha256_of(str(part)).encode())
        return digest.hexdigest()
    with open_bytes(url) as raw:
        while chunk := raw.read(4 * READ_BYTES):
            digest.update(bytes(chunk))
    return digest.hexdigest()


def _decompressed(raw: BinaryIO, url: str) -> BinaryIO:
    if url.endswith(".gz"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    return cast(BinaryIO, bz2.BZ2File(raw)) if url.endswith(".bz2") else raw


class _Heard:
    """A stream that is read in order, and the sha256 of what was read."""

    def __init__(self, raw: BinaryIO) -> None:
        self.raw, self.hash, self.tell = raw, hashlib.sha256(), raw.tell

    def read(self, size: int) -> bytes:
        data = self.raw.read(size)
        self.hash.update(data)
        return data

    def whole(self) -> str:
        """Read what is left, and tell."""
        while self.read(READ_BYTES):
            pass
        return self.hash.hexdigest()


class LineBlocks:
    """The lines of a text file in blocks of about `block_bytes`, each ending at a line's end.

    Iterating gives `(text, first_line)`: the bytes of whole lines and the number of the first one, counted from 1.
    `done` and `total` are bytes of the stored file, for progress; `digest` is the sha256 of all that was read, at the
    end. Memory is one block and the longest line.
    """

    digest: str | None = None

    def __init__(self, url: str, block_bytes: int) -> None:
        self.url = url
        self.block_bytes = block_bytes
        self.done = 0
        self.total = 0

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        first_line, rest = 1, b""
        with open_bytes(self.url) as raw:
            self.total = raw.seek(0, io.SEEK_END)
            raw.seek(0)
            heard = _Heard(raw)
            for chunk in self._chunks(heard):
                end = chunk.rfind(b"\n") + 1
                if not end:
                    rest += chunk
                    if len(rest) > LINE_BYTES:
                        raise InputError(
                            f"{self.url}: line {first_line} is longer than {LINE_BYTES:,} bytes; a row a line is needed"
                        )
                    continue
                block, rest = rest + chunk[:end], chunk[end:]
                yield block, first_line
                first_line += block.count(b"\n")
            self.digest = heard.whole()
        if rest:
            yield rest, first_line

    def _chunks(self, raw: "_Heard") -> Iterator[bytes]:
        """Yield decompressed chunks of `block_bytes`, without a byte order mark; a broken archive is an InputError."""
        stream = _decompressed(cast(BinaryIO, raw), self.url)
        read: Callable[[int], bytes] = stream.read
        start, becomes = True, 0
        while True:
            try:
                chunk = bytes(read(self.block_bytes))
            except (EOFError, OSError, zlib.error) as error:
                if not self.url.endswith(COMPRESSED):
                    raise
                kind = self.url.rsplit(".", 1)[-1]
                raise InputError(
                    f"{self.url}: not a whole .{kind} archive ({_first_line(error)}); fetch or compress the file again"
                ) from None
            if not chunk:
                return
            becomes += len(chunk)
            if self.url.endswith(COMPRESSED):
                check_expansion(self.url, "this archive", becomes, self.total)
            self.done = min(raw.tell(), self.total)
            yield chunk.removeprefix(b"\xef\xbb\xbf") if start else chunk
            start = False
