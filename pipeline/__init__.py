"""Data, kernel blocks, batches and storage of SVM experiments: Dask, zarr and pydantic around `svmcore`."""

import sys
from typing import Any

__all__ = ["load_model", "run"]

if sys.platform == "win32":
    raise ImportError("Windows itself is not supported; use marginflow in WSL 2, on Linux or on macOS")


def __getattr__(name: str) -> Any:
    """Import `run` and `load_model` when first asked for: workers that compute a block need neither."""
    if name == "run":
        from pipeline.running.run import run

        return run
    if name == "load_model":
        from pipeline.model.stored import load_model

        return load_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
