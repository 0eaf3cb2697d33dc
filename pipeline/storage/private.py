"""What belongs to one user of a host: folders that nobody else can look into, and a key that tells their own work.

The key stays on this account. A code made with it (HMAC-SHA256) says that this account wrote what it stands beside,
so a config that came with somebody else's folder is not mistaken for one's own.
"""

import contextlib
import functools
import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from pathlib import Path

from svmcore.errors import InputError

__all__ = ["cache_folder", "is_own", "mark_of", "private_folder"]

KEY_BYTES = 32


def private_folder(folder: Path) -> Path:
    """Make a folder of mode 0700, or take the one there; InputError if it is another user's, or a link.

    >>> with tempfile.TemporaryDirectory() as parent:
    ...     oct(private_folder(Path(parent, "mine")).stat().st_mode & 0o777)
    '0o700'
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise InputError(f"{folder}: is no folder of this user; remove it, or set XDG_CACHE_HOME to another place")
    if facts.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def cache_folder() -> Path:
    """Folder for scratch files of this user: XDG_CACHE_HOME/marginflow, ~/.cache/marginflow, or one below /tmp."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        return private_folder(home / "marginflow")
    except OSError:  # an account without a home that can be written
        return private_folder(Path(tempfile.gettempdir()) / f"marginflow-{os.getuid()}")


def mark_of(digest: str) -> str | None:
    """HMAC of a digest with this account's key; None where no key can be kept."""
    key = _key()
    return None if key is None else hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()


def is_own(digest: str, mark: object) -> bool:
    """Whether `mark` is this account's for `digest`."""
    own = mark_of(digest)
    return own is not None and isinstance(mark, str) and hmac.compare_digest(own.encode(), mark.encode())


def _key() -> bytes | None:
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    try:
        return _kept_key(home / "marginflow")
    except OSError:
        return None


@functools.lru_cache(maxsize=4)
def _kept_key(folder: Path) -> bytes:
    """The key of a private folder, made by whoever asks first: a link never replaces a file that is there."""
    path = private_folder(folder) / "key"
    if not path.exists():
        descriptor, fresh = tempfile.mkstemp(dir=folder)  # of mode 0600
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
        os.unlink(fresh)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise InputError(f"{path}: holds no key of {KEY_BYTES} bytes; remove it, a new one is made")
    return key
