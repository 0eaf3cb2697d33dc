"""The parts of a model on storage: which folder is one, a sha256 of every part, and whose mark it bears."""

from pathlib import Path
from typing import Any

from pipeline.config.values import expand, is_url
from pipeline.registry.aliases import resolved
from pipeline.storage.bucket import address_of, fetched
from pipeline.storage.files import write_atomic
from pipeline.storage.manifest import (
    MANIFEST,
    Damaged,
    check_parts,
    read_manifest,
    sha256_of_file,
    write_manifest,
)
from pipeline.storage.private import is_own, mark_of
from svmcore.errors import InputError

__all__ = [
    "FORMAT",
    "OWNER",
    "SIGNATURE",
    "ChangedPart",
    "check_model",
    "check_own_config",
    "is_own_model",
    "mark_as_own",
    "model_folder",
    "run_folder",
    "write_model_manifest",
]

FORMAT = 4
"""2: signed programs; certificates with their uncertainty. 3: the manifest covers all of itself. 4: the schema."""
KIND = "model"
OWNER = "owner"  # this account's mark on the manifest
SIGNATURE = "model.sig"
BESIDE = (OWNER, SIGNATURE)  # what is about the parts, and is none


class ChangedPart(Damaged):
    """A part of a model that is not what its manifest says."""

    def __init__(self, folder: Path, part: str, what: str) -> None:
        InputError.__init__(self, f"model {address_of(folder)}: part {part} {what}; restore it or train again")
        self.part = part


def mark_as_own(folder: Path) -> None:
    """Leave this account's mark on the manifest."""
    if mark := mark_of(sha256_of_file(folder / MANIFEST)):
        write_atomic(folder / OWNER, mark.encode())


def is_own_model(folder: Path) -> bool:
    """Whether this account wrote the model: its mark holds for the manifest, and so for every part."""
    try:
        return is_own(
            sha256_of_file(folder / MANIFEST), (folder / OWNER).read_text(encoding="ascii", errors="replace")[:128]
        )
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


def write_model_manifest(folder: Path) -> dict[str, Any]:
    """Write the manifest of the parts that are there; returns it."""
    return write_manifest(folder, KIND, FORMAT, beside=BESIDE)


def _local(path: str | Path) -> Path:
    """Return the path, or a copy of what is at a URL; STORE/NAME@ALIAS is the run that the alias names."""
    place = expand(resolved(str(path)))
    return fetched(place.rstrip("/")) if is_url(place) else Path(place).expanduser().absolute()


def model_folder(path: str | Path) -> Path:
    """Folder of a model given it or its run folder (a path, or a URL: copied here); InputError if there is none."""
    folder = _local(path)
    for candidate in (folder / "model.zarr", folder):
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


def check_model(folder: Path) -> None:
    """Compare every part with the manifest; ChangedPart at the first that differs, is missing or was added."""
    check_parts(folder, read_manifest(folder, KIND, FORMAT, ChangedPart, address_of(folder)), ChangedPart, BESIDE)
