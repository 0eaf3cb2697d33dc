"""The errors a user can cause, each one sentence: what was given, what is accepted, what to do.

Not converging is never an error: it is a `Status` and a warning.
"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "InputError",
    "InvalidProblem",
    "MemoryLimit",
    "SVMError",
    "UnknownPlugin",
    "Unsupported",
    "did_you_mean",
]


class SVMError(ValueError):
    """Base of every error that the input, and not the program, is to blame for."""


class InvalidProblem(SVMError):
    """Labels, bounds or shapes that do not describe an SVM training problem."""


class Unsupported(SVMError):
    """A solver was paired with a loss, bias or source that it does not admit."""


class UnknownPlugin(SVMError):
    """No kernel, loss or solver has this name."""


class MemoryLimit(SVMError):
    """A byte budget too small for the work, with both numbers."""


class InputError(SVMError):
    """Data, configuration or an artefact that cannot be used as given."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return `" - did you mean 'rbf'?"` for the nearest known name, or an empty string.

    >>> did_you_mean("rfb", ["linear", "rbf"])
    " - did you mean 'rbf'?"
    >>> did_you_mean("wavelet", ["linear", "rbf"])
    ''
    """
    close = get_close_matches(str(given), list(known), n=1, cutoff=0.6)
    return f" - did you mean {close[0]!r}?" if close else ""
