"""An object in a process of its own: its memory and threads are its own, and it can be ended at a limit."""

from __future__ import annotations

import math
import multiprocessing
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import psutil

POLL_SECONDS = 0.2


class WorkerEnded(Exception):
    """The object was not made, failed, or was ended at its time limit; the text says which."""


def _cpu_seconds(process: psutil.Process) -> float:
    """Processor time of a process so far; one that is gone uses none, and its connection says so."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


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

    def call(
        self, method: str, *arguments: Any, timeout: float | None = None, cpu_timeout: float | None = None
    ) -> dict[str, Any]:
        """Run a method there; WorkerEnded when it fails, dies or is busy after so many seconds, or of its processor."""
        try:
            self._connection.send((method, arguments))
            if not (self._connection.poll(timeout) if cpu_timeout is None else self._poll_cpu(timeout, cpu_timeout)):
                self.kill()
                raise WorkerEnded(f"ended after {timeout if cpu_timeout is None else cpu_timeout:.0f} s")
            done, result = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            raise WorkerEnded("the process died") from error
        if not done:
            raise WorkerEnded(result)
        return result

    def _poll_cpu(self, timeout: float | None, cpu_timeout: float) -> bool:
        """Whether there is an answer before the process has used up its processor time."""
        process = psutil.Process(self._process.pid)
        start, deadline = _cpu_seconds(process), time.monotonic() + (timeout or math.inf)
        while not self._connection.poll(POLL_SECONDS):
            if time.monotonic() > deadline or _cpu_seconds(process) - start > cpu_timeout:
                return False
        return True

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


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run in a fresh process, whose memory ends with it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()
