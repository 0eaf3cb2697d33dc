"""The variables of a problem that takes long, kept beside its answer to be: who comes after a kill goes on from there.

The certificate is the same then, not the bits, so they are kept only where bits do not repeat anyway.
"""

import contextlib
import io
import zipfile
from pathlib import Path

import numpy as np

from pipeline.answers.problem import ProblemTask
from pipeline.answers.result import part_of
from pipeline.storage.cache import finished
from pipeline.storage.files import write_atomic
from svmcore.points import Floats

__all__ = ["forget", "keep", "kept"]

FILE = "under-way.npz"


def keep(task: ProblemTask, beta: Floats) -> None:
    """Write the variables (m,) that are not 0, for other machines too."""
    support, buffer = np.flatnonzero(beta), io.BytesIO()
    np.savez(buffer, m=len(beta), support=support, beta=beta[support])
    write_atomic(task.folder / FILE, buffer.getvalue(), durable=False)
    finished(Path(task.root), part_of(task.fingerprint))


def kept(task: ProblemTask, m: int) -> Floats | None:
    """The m variables that were kept; None if none were, or they cannot be read."""
    with contextlib.suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
        found = np.load(io.BytesIO((task.folder / FILE).read_bytes()), allow_pickle=False)
        if int(found["m"]) == m:
            beta = np.zeros(m)
            beta[found["support"]] = found["beta"]
            return beta
    return None


def forget(task: ProblemTask) -> None:
    """The answer is there."""
    (task.folder / FILE).unlink(missing_ok=True)
