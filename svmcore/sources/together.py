"""Programs on one K that are solved at the same time, each in a cache of its own; their passes over all rows are one.

A program that leaves rows out needs columns of few rows, which no other has, and now and then K coef at all rows. Where
several want that at once, a column that more than one of them wants is computed once: the support vectors of ten
classes are a third of what they are one by one. A program waits until the others want a pass too, have ended, or work
on all rows.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, TypeVar

from svmcore.errors import Unsupported
from svmcore.points import Floats
from svmcore.runtime.threads import Turns, side_by_side
from svmcore.sources.base import CHUNK, Source
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

    As many compute at a time as there are threads, and shares. No answer depends on the number of threads: which
    programs share a pass is told by what they ask for, not by when they do, so a column is computed among the same
    others, and has the bits that a matrix product gives it there.

    Raises
    ------
    Unsupported
        If the source has no shares.
    """
    columns = source.source
    if not isinstance(columns, ComputedColumns):
        raise Unsupported(f"{type(columns).__name__} serves one program at a time: its columns have no shares")
    for start in range(0, len(solves), LOT):
        lot, turns = solves[start : start + LOT], Turns(max(1, min(threads, source.shares)))
        passes = _Passes(columns, turns, len(lot))
        work = [functools.partial(_on_a_share, solve, source, passes) for solve in lot]
        yield from side_by_side(work, len(lot), functools.partial(_give_up, passes, give_up), turns)


def _on_a_share(solve: Callable[[Source], Made], source: CachedColumns, passes: "_Passes") -> Made:
    try:
        passes.check()
        share = _Share(source, passes)
    except BaseException:
        passes.leave()
        raise
    try:
        return solve(share)
    finally:
        share.end()


def _give_up(passes: "_Passes", others: Callable[[], object] | None) -> None:
    passes.end()
    if others is not None:
        others()


class _GivenUp(RuntimeError):
    """A solve that nobody wants any more; nobody hears of it."""


class _Passes:
    """Passes over all rows for `count` programs, each of which is with the others until it leaves.

    Attributes
    ----------
    spare
        Memory for columns that nobody uses: of those who wait.
    """

    def __init__(self, columns: ComputedColumns, turns: Turns, count: int) -> None:
        self.columns, self.turns, self._count = columns, turns, count
        self.spare: list[Floats] = []
        self._changed = threading.Condition()
        self._wanted: dict[_Share, Floats] = {}
        self._found: dict[_Share, tuple[Floats, Floats] | BaseException] = {}
        self._ended = False

    def check(self) -> None:
        """Raise, once nobody wants the answers any more."""
        if self._ended:
            raise _GivenUp("nobody waits for this solve any more: another one failed, or the caller stopped")

    def outputs(self, share: "_Share", coef: Floats) -> tuple[Floats, Floats]:
        """K coef and its sizes, when all want a pass."""
        with self.turns.lent(), self._changed:
            self._wanted[share] = coef
            self._pass()
            self._changed.wait_for(lambda: share in self._found or self._ended)
            if share not in self._found:
                self.check()
            found = self._found.pop(share)
        if isinstance(found, BaseException):
            raise found
        return found

    def leave(self) -> None:
        """One program less to wait for."""
        with self._changed:
            self._count -= 1
            self._pass()

    def end(self) -> None:
        """All solves end when they ask for columns or a pass the next time."""
        self._ended = True
        with self._changed:
            self._changed.notify_all()

    def _pass(self) -> None:
        """One pass for all that wait, once nobody else is waited for."""
        if len(self._wanted) < self._count or not self._wanted or self._ended:
            return
        shares, coefs = list(self._wanted), list(self._wanted.values())
        self._wanted.clear()
        try:
            self._found.update(zip(shares, self.columns.outputs_of(coefs), strict=True))
        except BaseException as error:  # each of them has failed, and says so on its own thread
            self._found.update(dict.fromkeys(shares, error))
        self._changed.notify_all()


class _Share(CachedColumns):
    """The cache of one program among others; once it holds a column of all rows, it is not waited for any more."""

    shares_passes: ClassVar[bool] = True

    def __init__(self, whole: CachedColumns, passes: _Passes) -> None:
        limit = whole.limit_bytes // whole.shares
        scratch = None if whole.scratch_bytes is None else min(whole.scratch_bytes, limit // 4)
        super().__init__(whole.source, limit, _popped(passes.spare), scratch)
        self._passes, self._is_alone = passes, False

    def outputs(self, coef: Floats) -> tuple[Floats, Floats]:
        """As the source's; others use the memory for columns meanwhile."""
        passes = self._passes
        passes.check()
        if self._is_alone or self.exact is None:
            return super().outputs(coef)
        self._lay_down()
        try:
            return passes.outputs(self, coef)
        finally:
            self._memory = _popped(passes.spare)

    def by_sign(self, idx: Floats, weights: Floats, most: int = CHUNK) -> tuple[Floats, Floats]:
        """As the source's, for itself."""
        self._passes.check()
        self._leave()
        return super().by_sign(idx, weights, most)

    def finer(self) -> Source | None:
        """As the source's, for itself."""
        self._leave()
        return super().finer()

    def end(self) -> None:
        """No column is asked for any more."""
        self._leave()
        if not self.n_held:
            self._lay_down()

    def _leave(self) -> None:
        """Go on alone."""
        if not self._is_alone:
            self._is_alone = True
            self._passes.leave()

    def _fetch(self, missing: Floats) -> None:
        self._passes.check()
        self._leave()
        super()._fetch(missing)

    def _lay_down(self) -> None:
        self._reclaim()
        if self._memory is not None:
            self._passes.spare.append(self._memory)
            self._memory = None


def _popped(spare: list[Floats]) -> Floats | None:
    try:
        return spare.pop()
    except IndexError:
        return None
