"""The state of a working-set solve whose scores are in shards: changes go there, ends and candidates come back.

This process keeps beta and the bounds, which are as many numbers but never travel: from them a shard that was lost is
made again. A round costs the rows of its newcomers, the changes of the set, and what every shard tells.
"""

import itertools
import uuid
from typing import Any, ClassVar

import numpy as np

from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.shards.group import Group
from svmcore.shards.line import NONE
from svmcore.shards.packed import Packed
from svmcore.shards.shard import Given, Step, Told
from svmcore.state import Ends, Part, WorkingSetState, joined, worst_of

__all__ = ["ShardedState"]

FIRST = 1024  # candidates that a shard tells before it is known how many a round takes: 16 bytes each
MORE = 4  # a growing set takes up to a quarter more in each round, and is told them unasked


class ShardedState(WorkingSetState):
    """The variables of one program over a `ShardedSource`; parameters as those of `MemoryState`."""

    is_near: ClassVar[bool] = False

    def __init__(self, group: Group, qp: SignedQP, beta: Floats, score: Floats | None = None) -> None:
        self.group, self.qp, self.m, self.beta = group, qp, qp.m, beta.copy()
        self.name, self.epoch, self.n_rounds = uuid.uuid4().hex, 0, 0
        owner = group.owners(qp.rows_of(np.arange(qp.m)))
        self._owner, order = owner, np.argsort(owner, kind="stable")
        edges = np.searchsorted(owner[order], np.arange(len(group.lines) + 1))
        self._variables = [order[a:b] for a, b in itertools.pairwise(edges)]
        self._place = np.empty(qp.m, np.int64)
        self._place[order] = np.arange(qp.m) - edges[owner[order]]
        self._members, self._asked, self._next = NONE, FIRST, FIRST
        self._known, self._heard = np.full(qp.m, np.nan), list[Floats]()
        self._hear(self._begin(range(len(group.lines)), score))

    # ---- what is kept here
    def _forget(self) -> None:
        """No score is known any more."""
        for idx in self._heard:
            self._known[idx] = np.nan
        self._heard.clear()

    def _hear(self, told: list[Told]) -> None:
        self._told = told
        self._ends = joined([one.ends for one in told])
        for own, one in zip(self._split(self._members), told, strict=True):
            self._keep(self._members[own], one.scores)
        for variables, one in zip(self._variables, told, strict=True):
            self._keep(variables[one.idx], one.candidates)

    def _keep(self, idx: Floats, scores: Floats) -> None:
        self._known[idx] = scores
        self._heard.append(idx)

    def ends(self) -> Ends:
        """Those of all shards together."""
        return self._ends

    def support(self) -> Floats:
        """Indices of the variables that are not 0."""
        return np.flatnonzero(self.beta)

    def snapshot(self) -> Floats:
        """A copy of beta."""
        return self.beta.copy()

    def part(self, idx: Floats) -> Part:
        """Copies at `idx`; scores that no shard has told are asked for."""
        if np.isnan(self._known[idx]).any():
            self._look(np.unique(np.concatenate([self._members, idx])))
        qp = self.qp
        return Part(self._known[idx], self.beta[idx], qp.lo[idx], qp.hi[idx], qp.ridge[idx], qp.codes[idx])

    def candidates(self, q: int, outside: Floats) -> Floats:
        """Up to q / 2 of the worst violators from each end, shared by the groups: those of every shard, sifted."""
        inside, self._next = np.flatnonzero(~outside), max(q, min(FIRST, q + q // MORE + 1))
        if q > self._asked or not np.array_equal(inside, np.sort(self._members)):
            self._look(inside, q)
        idx = np.concatenate([own[one.idx] for own, one in zip(self._variables, self._told, strict=True)])
        idx = np.sort(idx)
        part = self.part(idx)
        if self.qp.groups.codes is None:
            part = part._replace(codes=None)  # type: ignore[arg-type]
        return idx[worst_of(part, q, np.ones(len(idx), dtype=bool), self._ends)]

    # ---- what is asked
    def _split(self, idx: Floats) -> list[Floats]:
        """Places in `idx` of the variables of each shard."""
        owner = self._owner[idx]
        return [np.flatnonzero(owner == i) for i in range(len(self.group.lines))]

    def _look(self, members: Floats, q: int = 0) -> None:
        """Ask for the scores of `members`, and for candidates that are none of them."""
        self._members, self._asked = members, max(q, self._asked)
        own = [self._place[members[at]] for at in self._split(members)]
        self._hear(self._answered("look", [(self.name, self.epoch, mine, self._asked) for mine in own]))

    def _answered(self, name: str, given: list[tuple[Any, ...]], needs: Floats = NONE) -> list[Told]:
        """Answers of all shards; those that have lost the program are given it anew."""
        told = self.group.each(name, given, needs)
        lost = [i for i, one in enumerate(told) if one is None]
        for i, one in zip(lost, self._begin(lost, None), strict=True):
            told[i] = one
        return told

    def _begin(self, shards: Any, score: Floats | None) -> list[Told]:
        """Give the program to some shards, at beta as it is now."""
        support = self.support() if score is None else NONE
        numbers, coef = self._changes(support, self.beta[support])
        self.group.meet(numbers)
        given: list[Any] = [None] * len(self.group.lines)
        own = self._split(self._members)
        for i in shards:
            step = self._step(i, self.support(), numbers, coef, self._members[own[i]])
            given[i] = (self.name, self._given(i), step, None if score is None else score[self._variables[i]])
        told = self.group.each("begin", given, numbers)
        return [told[i] for i in shards]

    def _given(self, i: int) -> Given:
        """The vectors of shard i."""
        qp, at = self.qp, self._variables[i]
        bounds = [values[at] for values in (qp.p, qp.lo, qp.hi, qp.ridge)]
        if qp.groups.codes is not None:
            bounds.append(qp.groups.codes[at])
        rows = None if qp.rows is None else qp.rows[at] - self.group.edges[i]
        return Given(Packed.of(bounds), rows, len(qp.groups.sums), qp.shift)

    def _changes(self, idx: Floats, delta: Floats) -> tuple[Floats, Floats]:
        """Rows of K whose coefficients change, and by how much."""
        if self.qp.rows is None:
            return idx, delta
        numbers, inverse = np.unique(self.qp.rows[idx], return_inverse=True)
        return numbers, np.bincount(inverse, weights=delta, minlength=len(numbers))

    def _step(self, i: int, idx: Floats, numbers: Floats, coef: Floats, members: Floats) -> Step:
        """Step of shard i, to beta as it is now: `idx` are the variables that change."""
        own = idx[self._owner[idx] == i]
        places = self._place[own], self.beta[own], self._place[members]
        return Step(self.epoch, numbers, coef, float(coef.sum()), *places, self._asked)

    def square(self, idx: Floats, members: Floats, out: Floats, at: Floats) -> None:
        """Computed here, from the rows."""
        strip = np.empty((len(idx), len(members)), out.dtype)
        self.group.values(self.qp.rows_of(idx), self.qp.rows_of(members), strip)
        out[at, : len(members)] = strip + out.dtype.type(self.qp.shift)

    def apply(self, idx: Floats, beta: Floats) -> None:
        """One message to every shard and one back."""
        delta = beta - self.beta[idx]
        moved = delta != 0
        changed, delta = idx[moved], delta[moved]
        self.beta[changed] = beta[moved]
        numbers, coef = self._changes(changed, delta)
        self.group.meet(numbers)
        self._forget()
        self._members, self._asked = np.asarray(idx), self._next
        members = [self._members[at] for at in self._split(self._members)]
        steps = [(self.name, self._step(i, changed, numbers, coef, own)) for i, own in enumerate(members)]
        self.epoch, self.n_rounds = self.epoch + 1, self.n_rounds + 1
        self._hear(self._answered("step", steps, numbers))

    def end(self) -> None:
        """Let the shards forget the program; nobody waits for it."""
        for line in self.group.lines:
            line.tell("end", self.name)
