"""SIGTERM reaches the main thread as an exception, whatever it does at that instant.

Python drops an exception that is raised while an object is destroyed, and with it the wish to stop; and an object that
a signal left half made complains when it is destroyed in its turn.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

__all__ = ["on_dropped", "sigterm_raised"]

AGAIN_SECONDS = 0.01
LOG = logging.getLogger("marginflow")


@contextlib.contextmanager
def sigterm_raised() -> Iterator[None]:
    """Raise SystemExit(143) at the first SIGTERM; handler and hook are as found afterwards."""
    hook, previous = sys.unraisablehook, signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
        sys.unraisablehook = hook


def _terminate(number: int, frame: Any) -> NoReturn:
    """Leave through every `finally`, undisturbed: what is finished is kept and no process stays."""
    sys.unraisablehook = on_dropped
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def on_dropped(unraisable: Any) -> None:
    """Hook of `sys`: send the signal again whose exception Python has dropped; what else it cannot raise is logged."""
    if issubclass(unraisable.exc_type, Exception):
        LOG.info("%s %r", unraisable.err_msg or "dropped in", unraisable.object, exc_info=unraisable.exc_value)
        return
    number = signal.SIGINT if issubclass(unraisable.exc_type, KeyboardInterrupt) else signal.SIGTERM
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, _terminate)
    threading.Thread(target=_send_again, args=(number,), daemon=True).start()


def _send_again(number: int) -> None:
    """A SIGTERM until it is heard: one that comes in the instant before a call that waits does not wake it."""
    time.sleep(AGAIN_SECONDS)
    os.kill(os.getpid(), number)
    while number == signal.SIGTERM:
        time.sleep(AGAIN_SECONDS)
        if signal.getsignal(number) is not _terminate:
            break
        os.kill(os.getpid(), number)
