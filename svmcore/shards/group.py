"""All shards of a table: whom a row belongs to, what all are asked, and the rows that were met on this side."""

import dataclasses
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from svmcore.points import Floats, Points
from svmcore.shards.line import NONE, Line, Transport
from svmcore.shards.met import Met
from svmcore.shards.shard import Opening

__all__ = ["Group"]

THREADS = 64  # shards that are spoken with at a time


class Group:
    """Shard i has the rows edges[i] ... edges[i + 1] - 1, and is made by `openings[i]`."""

    def __init__(self, edges: Sequence[int], openings: Sequence[Opening], transport: Transport) -> None:
        self.edges = np.asarray(edges)
        pool = ThreadPoolExecutor(min(THREADS, len(openings)), thread_name_prefix="shards")
        weakref.finalize(self, pool.shutdown, wait=False)
        self.kernel, self.met = openings[0].kernel, Met(openings[0].n, openings[0].pattern)
        self.lines = [Line(i, opening, transport, self.met, pool) for i, opening in enumerate(openings)]

    def settle(self, pattern: Points) -> list[Any]:
        """Tell all shards how all rows are prepared."""
        self.met.pattern = pattern
        for line in self.lines:
            line.opening = dataclasses.replace(line.opening, pattern=pattern)
        return self.each("settle", [(line.opening,) for line in self.lines])

    def every(self, name: str, *given: Any, needs: Floats = NONE) -> list[Any]:
        """Answers of all shards to one call; `needs` are rows that they must have met."""
        return self.each(name, [given] * len(self.lines), needs)

    def each(self, name: str, given: Sequence[tuple[Any, ...] | None], needs: Floats = NONE) -> list[Any]:
        """Answers of the shards to a call each; None of one that is asked nothing."""
        asked = [
            None if one is None else line.ask(name, *one, needs=needs)
            for line, one in zip(self.lines, given, strict=True)
        ]
        return [None if future is None else future.result() for future in asked]

    def owners(self, rows: Floats) -> Floats:
        """The shard of each row."""
        return np.searchsorted(self.edges, rows, side="right") - 1

    def meet(self, rows: Floats) -> None:
        """Fetch the rows that were not met from the shards that hold them."""
        missing = self.met.missing(rows)
        owner = self.owners(missing)
        asked: list[tuple[Floats, Future[Any]]] = []
        for i in np.unique(owner):
            numbers = missing[owner == i]
            asked.append((numbers, self.lines[i].ask("rows", numbers - self.edges[i])))
        for numbers, future in asked:
            self.met.add(numbers, future.result())

    def values(self, rows: Floats, columns: Floats, out: Floats) -> None:
        """Write K of some rows against some, computed here."""
        self.meet(np.concatenate([rows, columns]))
        self.kernel.block(self.met.points(rows), self.met.points(columns), out)
