"""Objects of a bucket: opened with the standard AWS_* variables, copied in parallel, errors told in one sentence.

The only file that knows obstore. What the objects mean is the business of `pipeline.storage.s3` and of the readers.
Readers that need files get copies, in a folder that ends with this process.
"""

import atexit
import contextlib
import datetime
import functools
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pipeline.storage.files import write_atomic
from pipeline.storage.leases import owned_folder
from pipeline.storage.manifest import MANIFEST
from pipeline.storage.private import cache_folder, private_folder
from svmcore.errors import InputError

__all__ = ["Bucket", "Copy", "address_of", "fetched", "is_url", "open_reader"]

ATTEMPTS = 4
PATIENCE = datetime.timedelta(seconds=30)  # for all attempts at one request
CONNECT = "5s"
THREADS = 8
REMEDY = "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, for a server of your own, AWS_ENDPOINT_URL"


def _open(url: str) -> Any:
    """Return obstore's view of everything below `url`; connects to nothing yet."""
    from obstore.store import from_url

    if url.startswith("file:"):
        return from_url(url)
    # plain http only where AWS_ENDPOINT_URL says so: it is the user who writes the scheme
    client: Any = {"allow_http": True, "connect_timeout": CONNECT}
    retries: Any = {"max_retries": ATTEMPTS, "retry_timeout": PATIENCE}
    return from_url(url, client_options=client, retry_config=retries)


def _reason(error: BaseException) -> str:
    """Say what an object store answered, in a few words."""
    text = str(error)
    code = re.search(r"<Code>(\w+)</Code>", text)
    if code:
        return code[1]
    if "169.254." in text or "credential" in text.lower():
        return "no credentials"
    line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return line.rpartition(" - ")[2][:200].rstrip(": ") if " - " in line else line[:200]


@contextlib.contextmanager
def _told(url: str, refuse: bool = False) -> Iterator[None]:
    """Turn obstore's errors into ours: InputError if access is denied (or `refuse`), else OSError."""
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise InputError(f"{url}: access denied ({_reason(error)}); {REMEDY}") from None
    except BaseError as error:
        reason = _reason(error)
        if refuse or reason == "no credentials":
            raise InputError(f"{url}: cannot be opened ({reason}); correct the URL, or {REMEDY}") from None
        raise OSError(f"{url}: the store failed ({reason}); run the command again, what is finished is kept") from None


def open_reader(url: str, shown: str) -> Any:
    """Open the object at `url` for reading; InputError, naming it as `shown`, if it cannot be."""
    import obstore

    base, _, key = url.rpartition("/")
    try:
        with _told(shown, refuse=True):
            return obstore.open_reader(_open(base), key)
    except FileNotFoundError:
        raise InputError(f"{shown}: cannot be opened (no such object); correct the URL") from None


class Bucket:
    """Objects below `url`; keys are relative to it."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        with _told(self.url, refuse=True):
            self._store = _open(self.url)

    def check(self) -> None:
        """Raise InputError unless the bucket answers and lets us look."""
        import obstore

        with _told(self.url, refuse=True):
            obstore.list_with_delimiter(self._store)

    def get(self, key: str) -> bytes:
        """Return an object's bytes; FileNotFoundError if there is none."""
        import obstore

        try:
            with _told(self.url):
                return bytes(obstore.get(self._store, key).bytes())
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.url}/{key}: no such object") from None

    def put(self, key: str, data: bytes | Path) -> None:
        """Write an object, whole or not at all."""
        import obstore

        with _told(self.url):
            obstore.put(self._store, key, data)

    def create(self, key: str, data: bytes | Path) -> bool:
        """Write an object unless it is there; whether it was written. Of several writers one succeeds."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with _told(self.url):
            try:
                obstore.put(self._store, key, data, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def replace(self, key: str, data: bytes, tag: str) -> str | None:
        """Write an object over the one with the entity tag `tag`; its new tag, or None if it is another or has gone.

        In one step where the server knows `If-Match`, else in two.
        """
        import obstore
        from obstore.exceptions import BaseError, PreconditionError

        with _told(self.url):
            try:
                return str(obstore.put(self._store, key, data, mode={"e_tag": tag})["e_tag"])
            except (PreconditionError, FileNotFoundError):
                return None
            except BaseError as error:
                if "NotImplemented" not in str(error):
                    raise
            with contextlib.suppress(FileNotFoundError):
                if self.stat(key)[0] == tag:
                    return str(obstore.put(self._store, key, data)["e_tag"])
        return None

    def stat(self, key: str) -> tuple[str, float]:
        """Return the entity tag of an object, and when it was written by the server's clock; or FileNotFoundError."""
        import obstore

        with _told(self.url):
            found = obstore.head(self._store, key)
        return str(found["e_tag"]), found["last_modified"].timestamp()

    def folders(self, prefix: str = "") -> list[str]:
        """Return the names of the folders directly below `prefix`."""
        import obstore

        with _told(self.url):
            found = obstore.list_with_delimiter(self._store, prefix or None)["common_prefixes"]
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys of all objects below the folder `prefix`."""
        import obstore

        with _told(self.url):
            pages = obstore.list(self._store, prefix or None)
            return sorted(entry["path"] for page in pages for entry in page)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that are not there are no error."""
        import obstore

        if keys:
            with _told(self.url):
                obstore.delete(self._store, list(keys))

    def upload(
        self, folder: Path, prefix: str, files: Iterable[Path], may_replace: Callable[[], bool] | None = None
    ) -> bool:
        """Put files of `folder` below `prefix`, several at a time; whether all were put.

        Where an object is there already, `may_replace` is asked, and only if it says so is it replaced.
        """

        def put(file: Path) -> bool:
            key = f"{prefix}/{file.relative_to(folder).as_posix()}"
            if may_replace is not None and self.create(key, file):
                return True
            if may_replace is not None and not may_replace():
                return False
            self.put(key, file)
            return True

        return all(_all(put, files))

    def download(self, prefix: str, keys: Iterable[str], folder: Path) -> None:
        """Get objects below `prefix` into `folder`, several at a time."""
        _all(lambda key: write_atomic(folder / key.removeprefix(f"{prefix}/"), self.get(key)), keys)


def _all(fn: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(fn, items))


# ---- copies for readers that need files
_addresses: dict[Path, str] = {}


@functools.cache
def _copies() -> Path:
    """Folder of this process's copies, gone at its end; those of killed processes are swept."""
    parent = private_folder(cache_folder() / "copies")
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(owned_folder(parent))


def is_url(path: str) -> bool:
    """Whether a path is that of a bucket."""
    return path.startswith("s3://")


class Copy:
    """A folder of a bucket of which files are brought into a folder of this process as they are needed."""

    def __init__(self, url: str) -> None:
        self.bucket, self.folder = Bucket(url), Path(tempfile.mkdtemp(dir=_copies()))
        self.fetch([MANIFEST])

    @staticmethod
    @functools.lru_cache(maxsize=16)
    def of(url: str) -> "Copy":
        """The copy of a folder that this process has."""
        return Copy(url)

    def fetch(self, parts: Iterable[str]) -> list[str]:
        """Bring the files that are not here, and say which came."""
        wanted = [part for part in parts if not (self.folder / part).exists()]
        return [part for part, came in zip(wanted, _all(self._bring, wanted), strict=True) if came]

    def _bring(self, part: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            write_atomic(self.folder / part, self.bucket.get(part), durable=False)
            return True
        return False


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
