"""What a folder or a file holds, in the one JSON form of runs, models, datasets, K and answers: damage shows.

    {"kind": "dataset", "format": 2, ..., "parts": {"train/codes/zarr.json": SHA256, ...}, "self": SHA256 of the rest}

The manifest is written last: a folder that has one is whole. A folder in it with a manifest of its own, as the model of
a run, is one part: that manifest. What is one file, an answer, has it as its first line (`answers/array_file.py`).
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.storage.files import sha256_of_json, write_atomic
from svmcore.errors import InputError, SVMError

__all__ = [
    "MANIFEST",
    "Damaged",
    "believing",
    "check_manifest",
    "check_parts",
    "compare",
    "new_manifest",
    "read_manifest",
    "renew",
    "sha256_of_file",
    "write_manifest",
]

MANIFEST = "manifest.json"
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, OSError, RuntimeError, ArithmeticError, MemoryError)


class Damaged(InputError):
    """A folder or file that is not what was written: `part` of it differs."""

    def __init__(self, folder: Path, part: str, what: str) -> None:
        super().__init__(f"{folder}: damaged: {part} {what}; delete it and run again")
        self.part = part


@contextlib.contextmanager
def believing(what: str, remedy: str, *more: type[Exception]) -> Iterator[None]:
    """Raise InputError in place of what content of another shape makes the block raise: who changed it can hash it too.

    `what` says what it is not, `remedy` what to do; `more` are errors of a library that reads it.
    """
    unreadable: tuple[type[Exception], ...] = (*UNREADABLE, *more)
    try:
        yield
    except SVMError:
        raise
    except unreadable as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{what} ({type(error).__name__}: {reason}); {remedy}") from error


def write_manifest(
    folder: Path,
    kind: str,
    number: int,
    facts: Mapping[str, Any] | None = None,
    beside: Collection[str] = (),
    parts: Collection[str] | None = None,
) -> dict[str, Any]:
    """Write and return the manifest of a finished folder: format `number`, the facts, and a sha256 of every part.

    The parts are all files but those `beside`, which are about the parts and are none.
    """
    named = _files(folder, beside) if parts is None else parts
    manifest = new_manifest(kind, number, facts or {}, {part: sha256_of_file(folder / part) for part in named})
    _write(folder, manifest)
    return manifest


def _write(folder: Path, manifest: Mapping[str, Any]) -> None:
    write_atomic(folder / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode())


def new_manifest(kind: str, number: int, facts: Mapping[str, Any], parts: Mapping[str, str]) -> dict[str, Any]:
    """A manifest of parts with these sha256."""
    manifest = {**facts, "kind": kind, "format": number, "parts": dict(parts)}
    return manifest | {"self": _self_digest(manifest)}


def _self_digest(manifest: Mapping[str, Any]) -> str:
    """Sha256 of all that a manifest says but this; of models before format 3, of their list of parts."""
    if "kind" not in manifest and manifest["format"] < 3:
        return sha256_of_json(manifest["parts"])
    return sha256_of_json({key: value for key, value in manifest.items() if key != "self"})


def sha256_of_file(path: Path) -> str:
    """Sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path, beside: Collection[str]) -> list[str]:
    names = (file.relative_to(folder).as_posix() for file in _walk(folder))
    return sorted(name for name in names if name != MANIFEST and name not in beside)


def _walk(folder: Path) -> Iterator[Path]:
    """Every file; of a folder with a manifest of its own, that alone."""
    for parent, folders, names in os.walk(folder):
        if parent != str(folder) and MANIFEST in names:
            folders.clear()
            names = [MANIFEST]
        yield from (Path(parent, name) for name in names)


def renew(folder: Path, part: str) -> None:
    """Enter what one part of a folder is now, where the folder has a manifest; what it says of others stays."""
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        facts = {key: value for key, value in manifest.items() if key != "self"}
        parts = manifest["parts"] | {part: sha256_of_file(folder / part)}
        _write(folder, new_manifest(manifest["kind"], manifest["format"], facts, parts))


def read_manifest(
    folder: Path,
    kind: str | None = None,
    newest: int | None = None,
    error: type[Damaged] = Damaged,
    where: str | None = None,
) -> dict[str, Any]:
    """Read the manifest of a folder of a kind, default any; no other file is looked at.

    `where` is what the folder is called, default its path.

    Raises
    ------
    Damaged
        As `error`: no manifest, or one that was changed.
    InputError
        One of another kind, or of a format beyond `newest`.
    """
    try:
        data = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise error(folder, MANIFEST, "is missing") from None
    return check_manifest(data, folder, kind, newest, error, where)


def check_manifest(
    data: bytes,
    path: Path,
    kind: str | None = None,
    newest: int | None = None,
    error: type[Damaged] = Damaged,
    where: str | None = None,
) -> dict[str, Any]:
    """The manifest that these bytes of a folder or file `path` are: see `read_manifest`."""
    try:
        manifest = json.loads(data)
        found, number = manifest.get("kind", "model"), int(manifest["format"])
        changed = manifest["self"] != _self_digest(manifest) or not isinstance(manifest["parts"], dict)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise error(path, MANIFEST, "cannot be read") from None
    if newest is not None and number > newest:
        raise InputError(
            f"{found} {where or path} has format {number}; "
            f"this marginflow reads up to format {newest}: install a newer marginflow"
        )
    if changed:
        raise error(path, MANIFEST, "was changed")
    if kind not in (None, found):
        raise InputError(f"{where or path}: holds a {found}, and a {kind} is needed; give the folder of one")
    return dict(manifest)


def check_parts(
    folder: Path, manifest: Mapping[str, Any], error: type[Damaged] = Damaged, beside: Collection[str] = ()
) -> None:
    """Compare every file with the manifest; Damaged, as `error`, at the first that differs, is missing or was added."""
    for part in sorted({*_files(folder, beside), *manifest["parts"]}):
        if part not in manifest["parts"]:
            raise error(folder, part, "is not in the manifest")
        compare(folder, manifest, part, error)


def compare(folder: Path, manifest: Mapping[str, Any], part: str, error: type[Damaged] = Damaged) -> None:
    """Compare one part with the manifest."""
    try:
        found = sha256_of_file(folder / part)
    except FileNotFoundError:
        raise error(folder, part, "is missing") from None
    if found != manifest["parts"][part]:
        raise error(folder, part, "was changed (its sha256 differs)")
