"""Where runs are and what they are called: the store at a path or a URL, and the name of a run in it."""

import datetime
from pathlib import Path

from pipeline.config.redact import redacted_text
from pipeline.config.values import expand, is_url
from pipeline.storage.base import Store
from pipeline.storage.local import LocalStore
from pipeline.storage.s3 import ObjectStore
from svmcore.errors import InputError

__all__ = ["open_store", "run_id"]


def open_store(url: str | Path, write: bool = True) -> Store:
    """Open the store at a path or at s3://bucket/prefix, checked to be there (and to take files) before any work."""
    place = expand(str(url))
    store: Store
    if is_url(place):
        if redacted_text(place) != place or "?" in place:
            raise InputError(
                f"store {redacted_text(str(url))}: runs are named after their store, so no login and no query; "
                "give s3://bucket/prefix, and credentials by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if not place.startswith("s3://") or not place[5:].strip("/"):
            raise InputError(f"store {url}: runs live in a folder or on s3://bucket/prefix; give one of the two")
        store = ObjectStore(place)
    else:
        store = LocalStore(place)
    store.check(write)
    return store


def run_id(fingerprint: str, now: datetime.datetime | None = None) -> str:
    """UTC time and the first eight digits of the fingerprint.

    >>> run_id("0123456789abcdef", datetime.datetime(2026, 1, 2, 3, 4, 5))
    '20260102T030405Z-01234567'
    """
    now = now or datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%dT%H%M%SZ}-{fingerprint[:8]}"
