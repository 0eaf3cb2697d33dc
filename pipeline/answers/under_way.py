"""The variables of a problem that takes long, kept beside its answer to be: who comes after a kill goes on from there.

The certificate is the same then, not the bits, so they are kept only where bits do not repeat anyway.
"""

import contextlib
from pathlib import Path

import numpy as np

from pipeline.answers.array_file import read_arrays, write_arrays
from pipeline.answers.problem import FORMAT, ProblemTask, part_of
from pipeline.storage.cache import UNDER_WAY, finished
from svmcore.errors import InputError
from svmcore.points import Floats

__all__ = ["forget", "keep", "kept", "place"]

KIND = "answer under way"


def keep(task: ProblemTask, beta: Floats) -> None:
    """Write the variables (m,) that are not 0, for other machines too."""
    support = np.flatnonzero(beta)
    write_arrays(place(task), KIND, FORMAT, {"m": len(beta)}, {"support": support, "beta": beta[support]})
    finished(Path(task.root), part_of(task.fingerprint) + UNDER_WAY)


def kept(task: ProblemTask, m: int) -> Floats | None:
    """The m variables that were kept; None if none were, or they cannot be read."""
    with contextlib.suppress(FileNotFoundError, InputError):
        facts, found = read_arrays(place(task), KIND, FORMAT)
        if facts["m"] == m:
            beta = np.zeros(m)
            beta[found["support"]] = found["beta"]
            return beta
    return None


def forget(task: ProblemTask) -> None:
    """The answer is there."""
    place(task).unlink(missing_ok=True)


def place(task: ProblemTask) -> Path:
    """File of the variables."""
    return Path(f"{task.file}{UNDER_WAY}")
