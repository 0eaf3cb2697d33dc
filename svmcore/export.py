"""The users' address of exports: a model as LIBSVM's text or as ONNX, chosen by the name of the file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from svmcore.adapters.libsvm import from_libsvm, scale_range, support_codes, to_libsvm
from svmcore.adapters.onnx import Column, to_onnx
from svmcore.errors import InputError
from svmcore.model import Model
from svmcore.points import Floats

__all__ = ["export_model", "from_libsvm", "scale_range", "support_codes", "to_libsvm", "to_onnx"]


def export_model(
    model: Model,
    path: str | Path,
    shift: Floats | None = None,
    factor: Floats | None = None,
    columns: Sequence[Column] | None = None,
) -> list[Path]:
    """Write `model` of rows x' = (x - shift) * factor to PATH.libsvm or PATH.onnx; returns the files written.

    The scaling becomes part of an ONNX graph. LIBSVM's text cannot hold it: it goes to PATH.libsvm.range, for
    `svm-scale -r`. `columns` are those of a table whose gaps are filled or whose texts are coded: ONNX alone does that.

    Raises
    ------
    InputError
        For another suffix, a kernel or labels that the format cannot hold, or a missing onnx package.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist: make it, or name another file")
    if path.suffix == ".onnx":
        path.write_bytes(to_onnx(model, shift, factor, columns))
        return [path]
    if path.suffix != ".libsvm":
        raise InputError(f"models are exported to .libsvm or .onnx; given {path.name!r}")
    if columns:
        raise InputError(
            f"{path}: LIBSVM's text cannot fill gaps or code texts, which this model does; give a .onnx file"
        )
    path.write_text(to_libsvm(model))
    shift, factor = (np.array([0.0]) if shift is None else shift), (np.array([1.0]) if factor is None else factor)
    if not np.any(shift) and np.all(np.asarray(factor) == 1):
        return [path]
    limits = path.with_name(path.name + ".range")
    width = np.zeros(model.support_vectors.shape[1])
    limits.write_text(scale_range(width + shift, width + factor))
    return [path, limits]
