"""The parts of a model on storage: which folder is one, a sha256 of every part, and whose mark it bears."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config.values import expand, is_url
from pipeline.storage.copies import address_of, fetched
from pipeline.storage.files import sha256_of_json, write_atomic
from pipeline.storage.private import is_own, mark_of
from svmcore.errors import InputError

__all__ = [
    "FORMAT",
    "OWNER",
    "SIGNATURE",
    "ChangedPart",
    "check_own_config",
    "check_parts",
    "is_own_model",
    "mark_as_own",
    "model_folder",
    "run_folder",
    "write_manifest",
]

FORMAT = 4
"""2: signed programs; certificates with their uncertainty. 3: the manifest covers all of itself. 4: the schema."""
MANIFEST = "manifest.json"
OWNER = "owner"  # this account's mark on the manifest
SIGNATURE = "model.sig"
BESIDE = (MANIFEST, OWNER, SIGNATURE)  # what is about the parts, and is none


class ChangedPart(InputError):
    """A part of a model that is not what its manifest says."""

    def __init__(self, folder: Path, part: str, what: str) -> None:
        super().__init__(f"model {address_of(folder)}: part {part} {what}; restore it or train again")
        self.part = part


def mark_as_own(folder: Path) -> None:
    """Leave this account's mark on the manifest."""
    if mark := mark_of(_digest(folder / MANIFEST)):
        write_atomic(folder / OWNER, mark.encode())


def is_own_model(folder: Path) -> bool:
    """Whether this account wrote the model: its mark holds for the manifest, and so for every part."""
    try:
        return is_own(_digest(folder / MANIFEST), (folder / OWNER).read_text(encoding="ascii", errors="replace")[:128])
    except OSError:
        return False


def check_own_config(config: str | Path) -> None:
    """Refuse the config in the folder of a run that this account did not write: it may name any file or address."""
    folder = Path(config).expanduser().absolute().parent
    if (folder / "metrics.json").is_file() and not is_own_model(folder / "model.zarr"):
        raise InputError(
            f"{config}: lies in a run that this account did not write, so what it names is not opened; "
            "copy it to a file of your own, or give --trust"
        )


def write_manifest(folder: Path) -> dict[str, Any]:
    """Write the manifest of the parts that are there; returns it."""
    parts = {part: _digest(folder / part) for part in _parts(folder)}
    manifest: dict[str, Any] = {"format": FORMAT, "parts": parts}
    manifest["self"] = _self_digest(manifest)
    write_atomic(folder / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode())
    return manifest


def _self_digest(manifest: Mapping[str, Any]) -> str:
    """Sha256 of all that a manifest says but this; before format 3, of its list of parts."""
    if manifest["format"] < 3:
        return sha256_of_json(manifest["parts"])
    return sha256_of_json({key: value for key, value in manifest.items() if key != "self"})


def _parts(folder: Path) -> list[str]:
    names = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return sorted(name for name in names if name not in BESIDE)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _local(path: str | Path) -> Path:
    """Return the path, or a copy of what is at a URL."""
    place = expand(str(path))
    return fetched(place.rstrip("/")) if is_url(place) else Path(place).expanduser().absolute()


def model_folder(path: str | Path) -> Path:
    """Folder of a model given it or its run folder (a path, or a URL: copied here); InputError if there is none."""
    folder = _local(path)
    for candidate in (folder, folder / "model.zarr"):
        if (candidate / MANIFEST).is_file() or (candidate.name == "model.zarr" and candidate.is_dir()):
            return candidate
    raise InputError(f"no model at {path}; give the model.zarr of a run, or the run's folder")


def run_folder(path: str | Path) -> Path:
    """Folder of a run given it or its model (a path, or a URL: copied here); InputError if there is none."""
    folder = _local(str(path).rstrip("/").removesuffix("/model.zarr"))
    for candidate in (folder, folder.parent):
        if (candidate / "metrics.json").is_file():
            return candidate
    raise InputError(f"no run at {path}; give the folder that holds metrics.json (`marginflow runs` lists them)")


def check_parts(folder: Path) -> None:
    """Compare every part with the manifest; InputError naming the first that differs, is missing or was added."""
    manifest = _read_manifest(folder)
    parts = manifest["parts"]
    if manifest.get("self") != _self_digest(manifest):
        raise ChangedPart(folder, MANIFEST, "was changed")
    here = set(_parts(folder))
    for part in sorted(here | set(parts)):
        if part not in here:
            raise ChangedPart(folder, part, "is missing")
        if part not in parts:
            raise ChangedPart(folder, part, "is not in the manifest")
        if _digest(folder / part) != parts[part]:
            raise ChangedPart(folder, part, "was changed (its sha256 differs)")


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise ChangedPart(folder, MANIFEST, "is missing") from None
    except ValueError:
        raise ChangedPart(folder, MANIFEST, "is not JSON") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("parts"), dict):
        raise ChangedPart(folder, MANIFEST, "lists no parts")
    if not isinstance(manifest.get("format"), int) or manifest["format"] > FORMAT:
        raise InputError(
            f"model {address_of(folder)} has format {manifest.get('format')}; "
            f"this marginflow reads up to format {FORMAT}: install a newer marginflow"
        )
    return manifest
