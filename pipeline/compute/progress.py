"""How far the work is: one callable that stages call and that a terminal, a log or a flow listens to.

Nothing is drawn here; see flows/console.py.
"""

from typing import Any, Protocol

__all__ = ["Progress", "silent"]


class Progress(Protocol):
    """`progress("kernel", 3, 20, reused=1)` tells that 3 of 20 parts of a stage are done; `info` says more."""

    def __call__(self, stage: str, done: int, total: int, **info: Any) -> None:
        """Tell that `done` of `total` parts of `stage` are finished."""


def silent(stage: str, done: int, total: int, **info: Any) -> None:
    """Tell nobody.

    >>> silent("kernel", 1, 2, reused=0)
    """
