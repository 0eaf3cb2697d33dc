"""Models on storage: a zarr group whose every part is hashed, versioned, without pickle.

Loading checks each hash and runs no code of the file. Runs as a whole are the business of `pipeline.storage`.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.kinds import Kind, kind_of
from pipeline.kinds.labels import label_array
from pipeline.model.parts import FORMAT, check_model, mark_as_own, model_folder, write_model_manifest
from pipeline.rows.drift import Summary
from pipeline.rows.row_files import as_dense
from pipeline.rows.scaling import Scaling
from pipeline.rows.schema import Schema
from pipeline.rows.sources.arrow import FrameSource, is_frame
from pipeline.rows.sources.streams import check_expansion
from pipeline.storage.bucket import address_of
from pipeline.storage.manifest import believing
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.model import Model
from svmcore.tasks import Task

__all__ = ["StoredModel", "load_model", "save_model"]

ROWS_BYTES = 32 << 20


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
    schema
        What the columns were that it was trained on; `predict` matches tables with it.
    support
        (m,) merged training rows that the support vectors are.
    path
        The model's folder.
    summary
        What its training rows were like; None of a model from elsewhere.
    alpha
        (k, m) coefficients of the rows `support`, where the model is one over landmarks; else None: they are its own.
    """

    model: Model
    scaling: Scaling
    schema: Schema
    metadata: dict[str, Any]
    support: Any
    path: str
    summary: Summary | None = None
    alpha: Any = None

    @property
    def classes(self) -> list[Any]:
        """Labels as they were in the data, in the order of their codes; none of values."""
        return list(self.metadata["classes"])

    @property
    def kind(self) -> Kind:
        """What it tells."""
        return kind_of(self.model.machine)

    def decision_function(self, X: Any, ignore_extra: bool = False) -> Any:
        """Decision values (n, k) of raw rows; two classes have one column, positive for classes[1]: see `predict`."""
        return self.decide(self._rows(X, ignore_extra))

    def predict(self, X: Any, ignore_extra: bool = False) -> Any:
        """Labels (n,) of raw rows, with the types they had in the data; values; or 1 inside and -1 outside.

        Parameters
        ----------
        X
            Rows (n, p) as an array, CSR or a list of lists, columns in the order of training; or a data frame of
            pandas, polars or pyarrow, whose columns are found by name where the training data had names.
        ignore_extra
            Whether columns of a data frame that the training data did not have are left out; they are refused else.

        Raises
        ------
        InputError
            Another number of columns, one that is missing or of another kind, or a missing value that is not filled.
        """
        return self.model.predict(self.scaling.apply(self.schema.encode(self._rows(X, ignore_extra))))

    def predict_proba(self, X: Any, ignore_extra: bool = False) -> Any:
        """Probabilities (n, n_classes) of raw rows, classes in the order of `classes`; see `predict`.

        Raises
        ------
        InputError
            As `predict`, and if the model was trained without `probability: true`.
        """
        found = self.model.probabilities(self.decision_function(X, ignore_extra))
        if found is None:
            raise InputError("the model has no probabilities; train it with probability: true")
        return found

    def decide(self, X: Any) -> Any:
        """Decision values of rows (n, p) as a source reads them: see `Schema.encode`."""
        return self.model.decision_function(self.prepared(X))

    def prepared(self, X: Any) -> Any:
        """Rows (n, p) as a source reads them, as the kernel sees them."""
        return self.scaling.apply(self.schema.encode(X))

    def _rows(self, X: Any, ignore_extra: bool) -> Any:
        if is_frame(X):
            return FrameSource(X, self.schema.ignoring_extra() if ignore_extra else self.schema).rows()
        rows = X if hasattr(X, "tocsr") else np.asarray(X, order="C")  # another order would be other bits
        if rows.ndim != 2:
            raise InputError(f"X has shape {rows.shape}; rows and features, (n, p), are needed: give [row] for one row")
        if self.schema.categories:
            raise InputError("the model has columns of text, which an array has not; give a data frame")
        if self.schema.is_plain:
            return rows
        return np.asarray(as_dense(rows), np.float64)


def save_model(
    path: str | Path,
    model: Model,
    scaling: Scaling,
    support: Any,
    metadata: Mapping[str, Any],
    schema: Schema | None = None,
    summary: Summary | None = None,
    alpha: Any = None,
) -> dict[str, Any]:
    """Write a model as a zarr group and its manifest; returns the manifest. Without a schema, rows are taken as read.

    `alpha` (k, len(support)) are the coefficients of the training rows, of a model over landmarks.

    Chunks are raw with a crc32c, so that equal models are equal bytes.
    """
    import zarr

    group = zarr.create_group(str(path), zarr_format=3, overwrite=False)
    arrays = {"coef": model.coef, "bias": model.bias, "support": np.asarray(support, np.int64)}
    arrays |= {} if model.sigmoids is None else {"sigmoids": model.sigmoids}
    arrays |= {"shift": scaling.shift, "factor": scaling.factor}
    arrays |= {} if alpha is None else {"alpha": alpha}
    schema = schema or Schema(len(scaling.factor))
    arrays |= schema.arrays()
    arrays |= _rows_as_arrays(model.support_vectors)
    arrays |= {} if summary is None else _summary_arrays(summary)
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
            "schema": schema.record(),
            "shape": list(model.support_vectors.shape),
            "sparse": not isinstance(model.support_vectors, np.ndarray),
            **({} if summary is None else {"summary": {"rows": summary.rows.shape[0], "shares": [*summary.shares]}}),
        }
    )
    manifest = write_model_manifest(Path(path))
    mark_as_own(Path(path))
    return manifest


def _plain(values: Any) -> list[Any]:
    """JSON values of an array or a list of labels."""
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _rows_as_arrays(rows: Any, name: str = "support_vectors", short: str = "sv") -> dict[str, Any]:
    if isinstance(rows, np.ndarray):
        return {name: rows}
    csr = rows.tocsr()
    return {f"{short}_data": csr.data, f"{short}_indices": csr.indices, f"{short}_indptr": csr.indptr}


def _summary_arrays(summary: Summary) -> dict[str, Any]:
    known = {} if summary.quantiles is None else {"quantiles": summary.quantiles}
    return known | _rows_as_arrays(summary.rows, "sample", "sample")


def _write_array(group: Any, name: str, values: Any) -> None:
    from zarr.codecs import Crc32cCodec

    rows = max(1, ROWS_BYTES // max(1, values[:1].nbytes)) if values.ndim else 1
    chunks = (max(1, min(rows, values.shape[0])), *(max(1, size) for size in values.shape[1:]))
    array = group.create_array(
        name, shape=values.shape, dtype=values.dtype, chunks=chunks, compressors=[Crc32cCodec()], fill_value=0
    )
    array[...] = values


def load_model(path: str | Path) -> StoredModel:
    """Load a model from its folder or its run's folder, after checking every hash.

    Raises
    ------
    InputError
        No model there, a part that is missing or was changed, or a newer format; nothing of it is executed.
    """
    folder = model_folder(path)
    check_model(folder)
    with believing(f"model {address_of(folder)}: its hashes fit, but it is no model", "restore it or train again"):
        return _opened(folder)


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
        sigmoids=read("sigmoids") if "sigmoids" in group else None,
    )
    scaling = Scaling(metadata["scaling"], read("shift"), read("factor"))
    schema = _schema(read, group, metadata, len(scaling.factor))
    summary = _summary(read, group, metadata)
    _check_shapes(model, scaling, schema, summary)
    alpha = read("alpha") if "alpha" in group else None
    return StoredModel(model, scaling, schema, metadata, read("support"), address_of(folder), summary, alpha)


def _summary(read: Any, group: Any, metadata: Mapping[str, Any]) -> Summary | None:
    """What the training rows were like; an older model does not say."""
    found = metadata.get("summary")
    if found is None:
        return None
    rows = _rows_from_arrays(read, {**metadata, "shape": [found["rows"], metadata["shape"][1]]}, "sample", "sample")
    return Summary(rows, read("quantiles") if "quantiles" in group else None, found["shares"])


def _schema(read: Any, group: Any, metadata: Mapping[str, Any], p: int) -> Schema:
    """What the columns were; a model before format 4 does not say."""
    if metadata["format"] < 4:
        return Schema(p)
    return Schema.of(metadata["schema"], {name: read(name) for name in ("fill", "least", "largest") if name in group})


def _check_shapes(model: Model, scaling: Scaling, schema: Schema, summary: Summary | None) -> None:
    """Refuse parts that do not belong together: coefficients (k, m), rows (m, p), biases (k,), scaling (p,)."""
    k, m = model.coef.shape
    p = model.support_vectors.shape[1]
    found = {
        "support_vectors": (model.support_vectors.shape, (m, p)),
        "bias": (model.bias.shape, (k,)),
        **({} if model.sigmoids is None else {"sigmoids": (model.sigmoids.shape, (k, 2))}),
        "shift": (scaling.shift.shape, (p,)),
        "factor": (scaling.factor.shape, (p,)),
        "schema": ((schema.width,), (p,)),
        **{name: (values.shape, (schema.p,)) for name, values in schema.arrays().items()},
    }
    found |= {} if summary is None else {"sample": (summary.rows.shape[1:], (p,))}
    if summary is not None and summary.quantiles is not None:
        found["quantiles"] = (summary.quantiles.shape, (11, p))
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


def _rows_from_arrays(read: Any, metadata: Mapping[str, Any], name: str = "support_vectors", short: str = "sv") -> Any:
    if not metadata["sparse"]:
        return read(name)
    from scipy import sparse

    parts = tuple(read(f"{short}_{part}") for part in ("data", "indices", "indptr"))
    return sparse.csr_matrix(parts, shape=metadata["shape"])
