"""Models on storage: a zarr group whose every part is hashed, versioned, without pickle.

Loading checks each hash and runs no code of the file. Runs as a whole are the business of `pipeline.storage`.
"""

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config.values import expand, is_url
from pipeline.kinds import Kind, kind_of
from pipeline.kinds.labels import label_array
from pipeline.rows.scaling import Scaling
from pipeline.rows.sources.streams import check_expansion
from pipeline.storage.base import Store
from pipeline.storage.copies import address_of, fetched
from pipeline.storage.files import sha256_of_json, write_atomic
from pipeline.storage.local import LocalStore
from pipeline.storage.private import is_own, mark_of
from pipeline.storage.runs import open_store, run_id
from svmcore.errors import InputError, SVMError
from svmcore.kernels import Kernel
from svmcore.model import Model
from svmcore.tasks import Task

__all__ = [
    "FORMAT",
    "ChangedPart",
    "LocalStore",
    "Store",
    "StoredModel",
    "check_own_config",
    "check_parts",
    "is_own_model",
    "load_model",
    "model_folder",
    "open_store",
    "run_folder",
    "run_id",
    "save_model",
]

FORMAT = 4  # 2: signed programs; certificates with their uncertainty. 3: the manifest covers all of itself. 4: machines
MANIFEST = "manifest.json"
OWNER = "owner"  # this account's mark on the manifest
SIGNATURE = "model.sig"
BESIDE = (MANIFEST, OWNER, SIGNATURE)  # what is about the parts, and is none
ROWS_BYTES = 32 << 20
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, OSError, RuntimeError, ArithmeticError, MemoryError)


class ChangedPart(InputError):
    """A part of a model that is not what its manifest says."""

    def __init__(self, folder: Path, part: str, what: str) -> None:
        super().__init__(f"model {address_of(folder)}: part {part} {what}; restore it or train again")
        self.part = part


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """A model as it was trained, with the scaling of its rows.

    Attributes
    ----------
    model
        Of scaled rows.
    scaling
        What the training rows went through; `predict` applies it.
    metadata
        Configuration, certificates and counts of the run that made it.
    support
        (m,) merged training rows that the support vectors are.
    path
        The model's folder.
    """

    model: Model
    scaling: Scaling
    metadata: dict[str, Any]
    support: Any
    path: str

    @property
    def classes(self) -> list[Any]:
        """Labels as they were in the data, in the order of their codes; none of values."""
        return list(self.metadata["classes"])

    @property
    def kind(self) -> Kind:
        """What it tells."""
        return kind_of(self.model.machine)

    def decision_function(self, X: Any) -> Any:
        """Decision values (n, k) of raw rows; two classes have one column, positive for classes[1]."""
        return self.model.decision_function(self.scaling.apply(_rows(X)))

    def predict(self, X: Any) -> Any:
        """Labels (n,) of raw rows, with the types they had in the data; values; or 1 inside and -1 outside."""
        return self.model.predict(self.scaling.apply(_rows(X)))


def _rows(X: Any) -> Any:
    """Rows as an array: a matrix, a frame or a list of lists; one row alone is refused, as scikit-learn does."""
    rows = X if hasattr(X, "tocsr") else np.asarray(X)
    if rows.ndim != 2:
        raise InputError(f"X has shape {rows.shape}; rows and features, (n, p), are needed: give [row] for one row")
    return rows


def save_model(
    path: str | Path, model: Model, scaling: Scaling, support: Any, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a model as a zarr group and its manifest; returns the manifest.

    Chunks are raw with a crc32c, so that equal models are equal bytes.
    """
    import zarr

    group = zarr.create_group(str(path), zarr_format=3, overwrite=False)
    arrays = {"coef": model.coef, "bias": model.bias, "support": np.asarray(support, np.int64)}
    arrays |= {"shift": scaling.shift, "factor": scaling.factor}
    arrays |= _rows_as_arrays(model.support_vectors)
    for name, values in arrays.items():
        _write_array(group, name, np.ascontiguousarray(values))
    group.attrs.update(
        {
            **metadata,
            "format": FORMAT,
            "kernel": model.kernel.spec(),
            "classes": metadata.get("classes", _plain(model.classes)),
            "multiclass": model.scheme,
            "machine": model.machine,
            "scaling": scaling.kind,
            "shape": list(model.support_vectors.shape),
            "sparse": not isinstance(model.support_vectors, np.ndarray),
        }
    )
    manifest = _write_manifest(Path(path))
    if mark := mark_of(_digest(Path(path) / MANIFEST)):
        write_atomic(Path(path) / OWNER, mark.encode())
    return manifest


def is_own_model(folder: Path) -> bool:
    """Whether this account wrote the model: its mark holds for the manifest, and so for every part."""
    try:
        return is_own(_digest(folder / MANIFEST), (folder / OWNER).read_text(encoding="ascii", errors="replace")[:128])
    except OSError:
        return False


def _plain(values: Any) -> list[Any]:
    """JSON values of an array or a list of labels."""
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def check_own_config(config: str | Path) -> None:
    """Refuse the config in the folder of a run that this account did not write: it may name any file or address."""
    folder = Path(config).expanduser().absolute().parent
    if (folder / "metrics.json").is_file() and not is_own_model(folder / "model.zarr"):
        raise InputError(
            f"{config}: lies in a run that this account did not write, so what it names is not opened; "
            "copy it to a file of your own, or give --trust"
        )


def _rows_as_arrays(rows: Any) -> dict[str, Any]:
    if isinstance(rows, np.ndarray):
        return {"support_vectors": rows}
    csr = rows.tocsr()
    return {"sv_data": csr.data, "sv_indices": csr.indices, "sv_indptr": csr.indptr}


def _write_array(group: Any, name: str, values: Any) -> None:
    from zarr.codecs import Crc32cCodec

    rows = max(1, ROWS_BYTES // max(1, values[:1].nbytes)) if values.ndim else 1
    chunks = (max(1, min(rows, values.shape[0])), *(max(1, size) for size in values.shape[1:]))
    array = group.create_array(
        name, shape=values.shape, dtype=values.dtype, chunks=chunks, compressors=[Crc32cCodec()], fill_value=0
    )
    array[...] = values


def _write_manifest(folder: Path) -> dict[str, Any]:
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


def load_model(path: str | Path) -> StoredModel:
    """Load a model from its folder or its run's folder, after checking every hash.

    Raises
    ------
    InputError
        No model there, a part that is missing or was changed, or a newer format; nothing of it is executed.
    """
    folder = model_folder(path)
    check_parts(folder)
    try:
        return _opened(folder)
    except UNREADABLE as error:  # hashes that fit say nothing of who hashed
        if isinstance(error, SVMError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"model {address_of(folder)}: its hashes fit, but it is no model ({type(error).__name__}: {reason}); "
            "restore it or train again"
        ) from None


def _opened(folder: Path) -> StoredModel:
    import zarr

    group = zarr.open_group(str(folder), mode="r", zarr_format=3)
    metadata = dict(group.attrs)
    read = functools.partial(_read_array, folder, group)
    machine = metadata.get("machine", "svc")  # the only one before there was a choice
    model = Model(
        kernel=Kernel.create(metadata["kernel"]),
        support_vectors=_rows_from_arrays(read, metadata),
        coef=read("coef"),
        bias=read("bias"),
        classes=label_array(metadata["classes"] if Task.named(machine).answers == "labels" else []),
        scheme=metadata["multiclass"],
        machine=machine,
    )
    scaling = Scaling(metadata["scaling"], read("shift"), read("factor"))
    _check_shapes(model, scaling, metadata)
    return StoredModel(model, scaling, metadata, read("support"), address_of(folder))


def _check_shapes(model: Model, scaling: Scaling, metadata: Mapping[str, Any]) -> None:
    """Refuse parts that do not belong together: coefficients (k, m), rows (m, p), biases (k,), scaling (p,)."""
    k, m = model.coef.shape
    p = model.support_vectors.shape[1]
    found = {
        "support_vectors": (model.support_vectors.shape, (m, p)),
        "bias": (model.bias.shape, (k,)),
        "shift": (scaling.shift.shape, (p,)),
        "factor": (scaling.factor.shape, (p,)),
    }
    for name, (given, needed) in found.items():
        if given != needed:
            raise InputError(f"{name} has the shape {given}, and {needed} belongs to coefficients of {(k, m)}")


def _read_array(folder: Path, group: Any, name: str) -> Any:
    """An array of the model, unless its shape or chunks promise far more than is stored: hashes do not tell."""
    array = group[name]
    stored = sum(file.stat().st_size for file in (folder / name).rglob("*") if file.is_file())
    largest = max(math.prod(array.shape), math.prod(array.chunks) if 0 not in array.shape else 0)
    check_expansion(str(folder), f"the array {name!r} of shape {array.shape}", largest * array.dtype.itemsize, stored)
    return array[...]


def _rows_from_arrays(read: Any, metadata: Mapping[str, Any]) -> Any:
    if not metadata["sparse"]:
        return read("support_vectors")
    from scipy import sparse

    return sparse.csr_matrix((read("sv_data"), read("sv_indices"), read("sv_indptr")), shape=metadata["shape"])
