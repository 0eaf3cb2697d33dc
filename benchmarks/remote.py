"""An object in a process of its own: its memory and threads are its own, and it can be ended at a limit."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


class WorkerEnded(Exception):
    """The object was not made, failed, or was ended at its time limit; the text says which."""


def _serve(connection: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Answer calls until the other side closes."""
    served: Any = None
    while (call := connection.recv()) is not None:
        method, given = call
        try:
            served = served or make(*arguments)
            connection.send((True, getattr(served, method)(*given)))
        except Exception as error:
            # the boundary of a foreign library: whatever it raises is its result
            connection.send((False, "".join(traceback.format_exception_only(error)).strip()))


class Remote:
    """The parent's side of `make(*arguments)` in a fresh process, where it is made at the first call."""

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def call(self, method: str, *arguments: Any, timeout: float | None = None) -> dict[str, Any]:
        """Run a method there; WorkerEnded when it fails, dies or is busy after `timeout` seconds."""
        try:
            self._connection.send((method, arguments))
            if not self._connection.poll(timeout):
                self.kill()
                raise WorkerEnded(f"ended after {timeout:.0f} s")
            done, result = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            raise WorkerEnded("the process died") from error
        if not done:
            raise WorkerEnded(result)
        return result

    @property
    def alive(self) -> bool:
        """Whether the process can still answer."""
        return self._process.is_alive()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        """End the process; it holds nothing worth waiting for."""
        if self._process.is_alive():
            self.kill()
        self._connection.close()
