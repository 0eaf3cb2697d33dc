"""The steps of a run: each told to whoever watches, and tried again after a fault of the machinery.

What watches is a callable that is told and is never asked: nothing that it does can end, repeat or publish anything.
"""

import time
from collections.abc import Callable
from typing import Any

from pipeline.compute.workers import ClusterLost
from pipeline.storage.files import FULL
from svmcore.errors import SVMError

__all__ = ["Steps", "silently"]

RETRIES = 2
PAUSE_SECONDS = 1.0
FINAL = ("publish",)  # once is enough


def silently(name: str, state: str, error: BaseException | None = None) -> None:
    """Tell nobody."""


class Steps:
    """Runs steps. `tell(name, state, error)` hears "running", "retrying", "completed" or "ended", with the error."""

    def __init__(self, tell: Callable[..., None] = silently) -> None:
        self.tell = tell

    def __call__(self, name: str, work: Callable[..., Any], *args: Any) -> Any:
        """Return what `work(*args)` does, after at most `RETRIES` faults of cluster or disk."""
        left = 0 if name in FINAL else RETRIES
        while True:
            self.tell(name, "running")
            try:
                result = work(*args)
            except BaseException as error:
                if not left or not worth_another_try(error):
                    self.tell(name, "ended", error)
                    raise
                self.tell(name, "retrying", error)
            else:
                self.tell(name, "completed")
                return result
            left -= 1
            time.sleep(PAUSE_SECONDS)


def worth_another_try(error: BaseException) -> bool:
    """Whether the machinery failed, and not the input, the code or the space on the disk."""
    if isinstance(error, SVMError) or not isinstance(error, ClusterLost | OSError):
        return False
    return getattr(error, "errno", None) not in FULL
