"""How far running problems are, and how they are told to stop: small files in a folder.

Files, because they cross threads, processes and hosts alike and cost a solver nothing. The folder's end is the stop.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.storage.files import remove_empty, writing
from pipeline.storage.leases import owned_folder
from svmcore.monitor import Progress
from svmcore.solution import Status

__all__ = ["Line", "Watch", "watching"]

POLL_SECONDS = 0.2
SECONDS = 7 * 24 * 3600.0  # its end is the stop, so that a host that slept must find it; it is a few bytes


class Line:
    """A problem's line to whoever watches: the last progress in a file; a folder that has gone means stop.

    Files, because they cross threads, processes and hosts alike and cost the solver nothing.
    """

    def __init__(self, live: str | None, fingerprint: str) -> None:
        self.folder = Path(live) if live else None
        self.name = fingerprint[:32]

    def stopped(self) -> bool:
        """Whether the solver is to stop."""
        return self.folder is not None and not self.folder.is_dir()

    def report(self, progress: Progress) -> None:
        """Write where the solver is."""
        self._write([progress.seconds, progress.n_iter, float(progress.kkt_gap), "running"])

    def ended(self, seconds: float, n_iter: int, kkt_gap: float | None, status: str) -> None:
        """Write that the problem has ended: its task may have many more, and tells of none before the last."""
        self._write([seconds, n_iter, kkt_gap, status])

    def _write(self, values: list[Any]) -> None:
        if self.folder is not None:
            target = self.folder / self.name  # never makes the folder, whose end is the stop
            with contextlib.suppress(OSError), writing(target, durable=False) as partial:  # nobody left to tell
                partial.write_text(json.dumps(values))


class Watch:
    """Reads the problems' progress files on a thread of its own and passes them on."""

    def __init__(
        self, folder: Path, names: dict[str, str], total: int, progress: Callable[..., None] | None, before: int = 0
    ) -> None:
        self.folder, self.names, self.total, self.progress, self.before = folder, names, total, progress, before
        self._counted: set[str] = set()  # by name: a long problem is told of by its own line and by its task
        self.ended = threading.Event()
        self.seen = time.monotonic()  # when a problem last told anything

    @property
    def done(self) -> int:
        """Problems that have ended, those `before` this watch with them."""
        return self.before + len(self._counted)

    def finished(self, fingerprint: str, kkt_gap: float | None, status: str) -> None:
        """Tell that a problem has ended, unless it said so itself."""
        name = fingerprint[:32]
        if name not in self._counted:
            self._counted.add(name)
            self._tell(name, kkt_gap, status)

    def _tell(self, name: str, kkt_gap: float | None, status: str) -> None:
        self.seen = time.monotonic()
        if self.progress is not None:
            label = self.names.get(name, name[:8])
            self.progress("solve", self.done, self.total, label=label, kkt_gap=kkt_gap, status=status)

    def poll(self) -> None:
        """Pass on what changed, until the end."""
        seen: dict[str, str] = {}
        while not self.ended.wait(POLL_SECONDS):
            with contextlib.suppress(FileNotFoundError):  # the folder goes first where all problems are to stop
                for file in self.folder.glob("[0-9a-f]*"):
                    self._read(file, seen)

    def _read(self, file: Path, seen: dict[str, str]) -> None:
        with contextlib.suppress(OSError, ValueError):
            text = file.read_text()
            if seen.get(file.name) != text:
                seen[file.name] = text
                self._pass_on(file.name, *json.loads(text)[2:])

    def _pass_on(self, name: str, kkt_gap: float | None, status: str) -> None:
        if status == "running":
            self._tell(name, kkt_gap, status)
        elif status != Status.STOPPED:
            self.finished(name, kkt_gap, status)


@contextlib.contextmanager
def watching(
    parent: Path, names: dict[str, str], total: int, progress: Callable[..., None] | None, before: int = 0
) -> Iterator[Watch]:
    """A folder for progress, gone at the end, also by an error or a signal, which stops every problem."""
    try:
        with owned_folder(parent, SECONDS) as folder:
            watch = Watch(folder, names, total, progress, before)
            thread = threading.Thread(target=watch.poll, daemon=True)
            thread.start()
            try:
                yield watch
            finally:
                watch.ended.set()
                thread.join()
    finally:
        remove_empty(parent)
