"""Programs on one K that are solved at the same time, each in a cache of its own; their passes over all rows are one.

A program that leaves rows out needs columns of few rows, which no other has, and now and then K coef at all rows. Where
several want that at once, a column that more than one of them wants is computed once: the support vectors of ten
classes are a third of what they are one by one. A program waits until the others want a pass too, have ended, or work
on all rows.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from svmcore.errors import Unsupported
from svmcore.points import Floats
from svmcore.runtime.threads import Turns, side_by_side
from svmcore.sources.base import Source
from svmcore.sources.cached import CachedColumns
from svmcore.sources.computed import ComputedColumns

__all__ = ["solved_together"]

Made = TypeVar("Made")

LOT = 16  # programs under way at once: what each keeps is some vectors of all rows


def solved_together(
    source: CachedColumns,
    solves: Sequence[Callable[[Source], Made]],
    threads: int,
    give_up: Callable[[], object] | None = None,
) -> Iterator[Made]:
    """Yield what each of `solves` returns of a source as `source`, in a share of its memory; see `side_by_side`.

    As many compute at a time as there are threads, and shares. No answer depends on the number of threads.

    Raises
    ------
    Unsupported
        If the source has no shares.
    """
    columns = source.source
    if not isinstance(columns, ComputedColumns):
        raise Unsupported(f"{type(columns).__name__} serves one program at a time: its columns have no shares")
    step = LOT if threads else 1
    for start in range(0, len(solves), step):
        lot, turns = solves[start : start + step], Turns(max(1, min(threads, source.shares)))
        passes = _Passes(turns, len(lot))
        work = [functools.partial(_on_a_share, solve, source, columns, passes) for solve in lot]
        yield from side_by_side(work, len(lot) if threads else 0, give_up, turns)


def _on_a_share(
    solve: Callable[[Source], Made], source: CachedColumns, columns: ComputedColumns, passes: "_Passes"
) -> Made:
    member = _Member(columns, passes)
    try:
        return solve(source.share(member))
    finally:
        member.leave()


class _Passes:
    """Passes over all rows for `count` programs, each of which is with the others until it leaves."""

    def __init__(self, turns: Turns, count: int) -> None:
        self.turns, self._count = turns, count
        self._changed = threading.Condition()
        self._wanted: dict[_Member, Floats] = {}
        self._found: dict[_Member, tuple[Floats, Floats] | BaseException] = {}

    def outputs(self, member: "_Member", coef: Floats) -> tuple[Floats, Floats]:
        """K coef and its sizes, when all want a pass."""
        with self.turns.lent(), self._changed:
            self._wanted[member] = coef
            self._pass()
            self._changed.wait_for(lambda: member in self._found)
            found = self._found.pop(member)
        if isinstance(found, BaseException):
            raise found
        return found

    def leave(self) -> None:
        """One program less to wait for."""
        with self._changed:
            self._count -= 1
            self._pass()

    def _pass(self) -> None:
        """One pass for all that wait, once nobody else is waited for."""
        if len(self._wanted) < self._count or not self._wanted:
            return
        members, coefs = list(self._wanted), list(self._wanted.values())
        self._wanted.clear()
        try:
            self._found.update(zip(members, members[0].outputs_of(coefs), strict=True))
        except BaseException as error:  # each of them has failed, and says so on its own thread
            self._found.update(dict.fromkeys(members, error))
        self._changed.notify_all()


class _Member(ComputedColumns):
    """The columns of one program among others; whoever asks for columns of all rows is not waited for any more."""

    def __init__(self, of: ComputedColumns, passes: _Passes) -> None:
        super().__init__(of.kernel, of.points, of.dtype, of.exact)
        self._passes: _Passes | None = passes

    def outputs(self, coef: Floats) -> tuple[Floats, Floats]:
        if self._passes is None or self.exact is None:
            return super().outputs(coef)
        return self._passes.outputs(self, coef)

    def fill(self, idx: Floats, out: Floats) -> Floats:
        self.leave()
        return super().fill(idx, out)

    def finer(self) -> ComputedColumns | None:
        self.leave()
        return super().finer()

    def leave(self) -> None:
        """Go on alone."""
        passes, self._passes = self._passes, None
        if passes is not None:
            passes.leave()
