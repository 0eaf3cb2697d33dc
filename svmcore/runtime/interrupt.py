"""Ctrl-C as a stop flag: a solver ends at its next check, and what it has so far is kept."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["stop_on_interrupt"]


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether Ctrl-C was pressed meanwhile; pressed twice, it raises KeyboardInterrupt.

    Only the main thread can be asked, and only where Python's own handler is in place; elsewhere nothing changes.

    >>> with stop_on_interrupt() as interrupted:
    ...     interrupted()
    False
    """
    pressed: list[int] = []
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return

    def handler(number: int, frame: FrameType | None) -> None:
        if pressed:
            signal.default_int_handler(number, frame)
        pressed.append(number)

    signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
