"""Where a run comes from: program, libraries, data, seed; host, time, and the state of the user's own repository."""

import contextlib
import datetime
import importlib.metadata
import os
import platform
import socket
import subprocess
from typing import Any

from threadpoolctl import threadpool_info

from pipeline.compute.workers import VERSION
from pipeline.config.schema import Experiment
from pipeline.rows.dataset import Dataset
from svmcore.points.tile_products import has_tiles
from svmcore.points.word_products import instruction

__all__ = ["circumstances", "origin", "products"]

LIBRARIES = ("numpy", "numba", "scipy", "scikit-learn", "dask", "zarr")
GIT_SECONDS = 5.0


def origin(exp: Experiment, dataset: Dataset) -> dict[str, Any]:
    """What the answer is a function of: the same in every run of the same config, data and environment.

    Returns
    -------
    dict
        `marginflow`, `python`, `libraries`: versions; `seed`; `sources`: sha256 of the training and the test source;
        `test_rows`: equal where two runs are tested on the same rows.
    """
    return {
        "marginflow": VERSION,
        "python": platform.python_version(),
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "seed": exp.seed,
        "sources": {key: value for key, value in dataset.sources.items() if key != "test_rows" and value is not None},
        "test_rows": dataset.sources["test_rows"] if dataset.n_test else None,
    }


def circumstances() -> dict[str, Any]:
    """What may differ from run to run: `at` (UTC), `host`, `platform`, `products`, `git` of the folder or None."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "products": products(),
        "git": _git(),
    }


def products() -> str:
    """What multiplies rows in this process: the kernels that BLAS chose for the processor, and those for bytes.

    Last digits may differ where these do.
    """
    blas = sorted(
        {f"{i['internal_api']} {i.get('architecture', '')}".strip() for i in threadpool_info() if _is_blas(i)}
    )
    return ", ".join([*blas, _bytes()])


def _bytes() -> str:
    used = instruction()
    if used is None:
        return "bytes as floats"
    return f"bytes by {'AMX' if has_tiles() else used.title}"


def _is_blas(library: dict[str, Any]) -> bool:
    return library["user_api"] == "blas"


def _git() -> dict[str, Any] | None:
    """Commit of the current folder's repository, and whether tracked files differ from it."""
    commit, status = _told("rev-parse", "HEAD"), _told("status", "--porcelain", "--untracked-files=no")
    return None if commit is None else {"commit": commit, "dirty": None if status is None else bool(status)}


def _told(*argv: str) -> str | None:
    """What git says, without running what the repository's own settings name; None if it says nothing."""
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *argv]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=GIT_SECONDS, check=True)
        return done.stdout.strip()
    return None
