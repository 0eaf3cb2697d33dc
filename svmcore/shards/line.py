"""The conversation with one shard: what it has been told, and what it is told again after it was lost.

What several programs ask of a shard while a message is under way goes together in the next one.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

import numpy as np

from svmcore.errors import SVMError
from svmcore.points import Floats
from svmcore.shards.met import Met
from svmcore.shards.shard import Envelope, Opening, Reply

__all__ = ["NONE", "Line", "Transport"]

Transport = Callable[[int, Envelope], Reply]  # of a shard's number and a message; may be called on several threads

TRIES = 100  # how often in a row a shard may be lost before its loss is told
PIECE_BYTES = 8 << 20  # of rows in one message
NONE = np.empty(0, np.int64)


class _Call(NamedTuple):
    needs: Floats  # numbers of rows that the shard must have met
    name: str
    given: tuple[Any, ...]
    future: "Future[Any]"


class Line:
    """Asks one shard; `met` are the rows that this side has met, from which the shard is told those that it needs."""

    def __init__(self, index: int, opening: Opening, transport: Transport, met: Met, pool: Executor) -> None:
        self.index, self.opening, self.transport, self.met, self.pool = index, opening, transport, met, pool
        self.generation: str | None = None
        self.sent = np.zeros(opening.n, dtype=bool)
        self.losses = 0  # how often the shard was found lost
        self._waiting: list[_Call] = []
        self._lock, self._busy = threading.Lock(), False

    def ask(self, name: str, *given: Any, needs: Floats = NONE) -> "Future[Any]":
        """Call a method of the shard; its answer comes as a future."""
        call = _Call(needs, name, given, Future())
        with self._lock:
            self._waiting.append(call)
            begins, self._busy = not self._busy, True
        if begins:
            self.pool.submit(self._send)
        return call.future

    def tell(self, name: str, *given: Any) -> None:
        """Call a method that nobody waits for: it goes along with the next message."""
        with self._lock:
            self._waiting.append(_Call(NONE, name, given, Future()))

    def _send(self) -> None:
        """Send what waits, until nothing does."""
        while True:
            with self._lock:
                calls, self._waiting = self._waiting, []
                if not calls:
                    self._busy = False
                    return
            try:
                answers = self._answers(calls)
            except BaseException as error:
                for call in calls:
                    call.future.set_exception(error)
            else:
                for call, answer in zip(calls, answers, strict=True):
                    call.future.set_result(answer)

    def _answers(self, calls: Sequence[_Call]) -> list[Any]:
        asked = [(call.name, call.given) for call in calls]
        needs = np.unique(np.concatenate([call.needs for call in calls]))
        for _ in range(TRIES):
            reply = self._told(needs, asked)
            if reply is not None:
                return reply.answers
            self.generation, self.losses = None, self.losses + 1
            self.sent[:] = False
        raise SVMError(f"shard {self.index} was lost {TRIES} times in a row; look at its workers and their memory")

    def _told(self, needs: Floats, asked: Sequence[tuple[str, tuple[Any, ...]]]) -> Reply | None:
        """Send the rows that the shard has not met, in pieces, the last one with the calls; None if it was lost."""
        fresh = needs[~self.sent[needs]]
        width = max(1, self.met.pattern.n_features * 8)
        piece = max(1, PIECE_BYTES // width)
        starts = range(0, max(1, len(fresh)), piece)
        for start in starts:
            numbers = fresh[start : start + piece]
            opening = self.opening if self.generation is None else None
            rows = self.met.rows(numbers) if len(numbers) else None
            calls = asked if start == starts[-1] else ()
            reply = self.transport(
                self.index, Envelope(self.opening.key, self.generation, opening, numbers, rows, calls)
            )
            if reply.generation is None:
                return None
            self.generation = reply.generation
            self.sent[numbers] = True
        return reply

    def close(self) -> None:
        """Tell the shard, if it is there, that it is not needed any more."""
        if self.generation is not None:
            envelope = Envelope(self.opening.key, self.generation, None, NONE, None, [("close", ())])
            self.pool.submit(self.transport, self.index, envelope)
