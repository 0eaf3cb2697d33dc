"""Copies of objects for readers that need files, in a folder that ends with this process."""

import atexit
import contextlib
import functools
import tempfile
from pathlib import Path

from pipeline.storage.bucket import Bucket
from pipeline.storage.leases import owned_folder
from pipeline.storage.private import cache_folder, private_folder

__all__ = ["address_of", "fetched"]

_addresses: dict[Path, str] = {}


@functools.cache
def _copies() -> Path:
    """Folder of this process's copies, gone at its end; those of killed processes are swept."""
    parent = private_folder(cache_folder() / "copies")
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(owned_folder(parent))


@functools.lru_cache(maxsize=16)
def fetched(url: str) -> Path:
    """Copy all objects below `url` into a folder of this process, which is not there if they are none."""
    bucket = Bucket(url)
    folder = Path(tempfile.mkdtemp(dir=_copies())).joinpath(*bucket.url.split("/")[-2:])
    bucket.download("", bucket.keys(), folder)
    _addresses[folder] = bucket.url
    return folder


def address_of(folder: Path) -> str:
    """Return where a folder came from, as a user gives it: a URL, or its own path."""
    for parent in (folder, *folder.parents):
        if parent in _addresses:
            return "/".join([_addresses[parent], *folder.relative_to(parent).parts])
    return str(folder)
