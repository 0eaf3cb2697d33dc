"""The side that holds rows: some rows of a table, their part of the columns, and the vectors of programs on them.

A shard may go at any time. It has a generation, and a program on it an epoch: a message that names others is answered
with nothing, and whoever asked says all that is needed. A step that was taken is not taken twice.
"""

import dataclasses
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from svmcore.kernels.base import Kernel
from svmcore.kernels.exact import ExactKernel
from svmcore.kernels.rounding import Rounding
from svmcore.points import Extent, Floats, Points, Rows
from svmcore.runtime.threads import one_blas_thread
from svmcore.shards.met import Met
from svmcore.shards.packed import Packed
from svmcore.sources import CachedColumns, ComputedColumns
from svmcore.sources.base import add_weighted
from svmcore.sources.running import COLUMNS
from svmcore.state import Ends, Part, ends_of, worst_of

__all__ = ["ByPairs", "Envelope", "Given", "Host", "Opening", "Reply", "Step", "Told"]

IDLE_SECONDS = 900.0


@dataclasses.dataclass(frozen=True)
class Opening:
    """All that makes a shard.

    Attributes
    ----------
    key
        Its name, of no other shard.
    address
        What `Host.fetch` finds the table by.
    start, stop, n
        Its rows are start ... stop - 1 of n.
    kernel, pattern, dtype
        How all rows are prepared and served; `pattern.whole` says how far they all reach.
    limit_bytes
        Of its columns.
    """

    key: str
    address: Any
    start: int
    stop: int
    n: int
    kernel: Kernel
    pattern: Points
    dtype: str
    limit_bytes: int


class Envelope(NamedTuple):
    """One message: rows that the shard has not met, and calls of its methods, (name, arguments)."""

    key: str
    generation: str | None  # None comes with an opening
    opening: Opening | None
    numbers: Floats
    rows: Rows
    calls: Sequence[tuple[str, tuple[Any, ...]]]


class Reply(NamedTuple):
    """Its generation and the answers; without a generation the shard is not there."""

    generation: str | None
    answers: list[Any]


class Given(NamedTuple):
    """The vectors of a program that a shard is given, (v,) of the variables on its rows.

    `bounds` are p, lo, hi and ridge, then the codes of groups if there are several; `rows` (v,) its own rows that the
    variables live on, None where variable i lives on row i; `groups` how many there are.
    """

    bounds: Packed
    rows: Floats | None
    groups: int
    shift: float


class Step(NamedTuple):
    """A change: of coefficients at rows `numbers`, which add up to `total`, and of own variables; what to tell then."""

    epoch: int  # before the change
    numbers: Floats
    coef: Floats
    total: float
    idx: Floats
    beta: Floats
    members: Floats  # own variables whose scores are told, and which are no candidates
    q: int


class Told(NamedTuple):
    """Ends over the variables of a shard, the scores of `members`, and candidates with their scores."""

    ends: Ends
    scores: Floats
    idx: Floats
    candidates: Floats


class ByPairs(ExactKernel):
    """Exact values of rows that are in several places: sums over pairs also for a linear kernel."""

    is_direct = False  # type: ignore[assignment]


class _Columns(ComputedColumns):
    """Columns of all n rows of K at the rows of one shard."""

    def __init__(self, kernel: Kernel, points: Points, dtype: str, met: Met) -> None:
        super().__init__(kernel, points, dtype)
        self.met = met

    @property
    def n_columns(self) -> int:
        """Of all rows."""
        return len(self.met.place)

    def of_columns(self, idx: Floats) -> Points:
        """Rows that were met."""
        return self.met.points(idx)


class _Program:
    """The vectors of one program on the rows of a shard."""

    def __init__(self, given: Given, step: Step, score: Floats | None) -> None:
        self.rows, self.groups, self.shift = given.rows, given.groups, given.shift
        self.p, self.lo, self.hi, self.ridge, *codes = given.bounds.vectors()
        self.codes = codes[0] if codes else None
        self.epoch, self.beta = step.epoch, np.zeros(len(self.p))
        self.beta[step.idx] = step.beta
        self.score = self.p.copy() if score is None else score.copy()

    def told(self, members: Floats, q: int) -> Told:
        part = Part(self.score, self.beta, self.lo, self.hi, self.ridge, self.codes)  # type: ignore[arg-type]
        outside = np.ones(len(self.beta), dtype=bool)
        outside[members] = False
        widest = [(np.inf, -np.inf)] * self.groups + [(0.0, 0.0)]  # the ends of all are not known here
        idx = worst_of(part, q, outside, widest)
        return Told(ends_of(part, self.groups), self.score[members], idx, self.score[idx])


class Shard:
    """Rows `X` (stop - start, p) of a table, as they came."""

    def __init__(self, opening: Opening, X: Rows) -> None:
        self.opening, self.X, self.generation = opening, X, uuid.uuid4().hex
        self.points = opening.pattern.alike(X)
        self.programs: dict[str, _Program] = {}
        self.asked, self.closed = time.monotonic(), False
        self._settled()

    def _settled(self) -> None:
        opening, points = self.opening, self.points
        if points is None:
            return
        self.met = Met(opening.n, opening.pattern)
        self.exact = ByPairs(opening.kernel, self.X, like=points)
        columns = _Columns(opening.kernel, points, opening.dtype, self.met)
        least = 2 * max(1, columns.n) * columns.dtype.itemsize
        self.columns = CachedColumns(columns, max(least, opening.limit_bytes))

    def close(self) -> None:
        """Not needed any more."""
        self.closed = True

    # ---- of the rows
    def extent(self) -> Extent | None:
        """How far the rows reach; None if they are not on the lattice of the others."""
        return None if self.points is None else self.points.extent

    def settle(self, opening: Opening) -> tuple[Rounding, Rounding]:
        """Learn how far the rows of all shards reach: bounds of the errors of served and of float64 values."""
        assert self.points is not None
        self.opening, self.points = opening, dataclasses.replace(self.points, whole=opening.pattern.whole)
        self._settled()
        return self.columns.rounding, self.exact.unit

    def diagonal(self) -> Packed:
        """k(x_i, x_i) of the rows, float64: of many kernels one number."""
        return Packed.of([self.columns.diagonal()])

    def rows(self, idx: Floats) -> Rows:
        """Own rows `idx`, as they came."""
        return self.X[idx]

    # ---- of programs
    def begin(self, name: str, given: Given, step: Step, score: Floats | None) -> Told:
        """Hold a program at a beta that a `step` from 0 leads to; `score` where it is known."""
        program = _Program(given, step, score)
        if score is None:
            self._add(program, step, step.beta)
        self.programs[name] = program
        return program.told(step.members, step.q)

    def step(self, name: str, step: Step) -> Told | None:
        """Take a step, unless it was taken; None where the program is not known as it was before."""
        program = self.programs.get(name)
        if program is None or program.epoch not in (step.epoch, step.epoch + 1):
            return None
        if program.epoch == step.epoch:
            delta = step.beta - program.beta[step.idx]
            program.beta[step.idx] = step.beta
            self._add(program, step, delta)
            program.epoch += 1
        return program.told(step.members, step.q)

    def look(self, name: str, epoch: int, members: Floats, q: int) -> Told | None:
        """What a step would tell, without one."""
        program = self.programs.get(name)
        return None if program is None or program.epoch != epoch else program.told(members, q)

    def end(self, name: str) -> None:
        """Forget a program."""
        self.programs.pop(name, None)

    def _add(self, program: _Program, step: Step, delta: Floats) -> None:
        """Bring the scores up to date: K and shift by all changes, the ridge by those of own variables."""
        change = np.zeros(self.columns.n)
        add_weighted(self.columns, step.numbers, -step.coef, change, COLUMNS)
        program.score += change if program.rows is None else change[program.rows]
        program.score[step.idx] -= program.ridge[step.idx] * delta
        if program.shift:
            program.score -= program.shift * step.total

    # ---- of proofs
    def outputs(self, numbers: Floats, coef: Floats) -> tuple[Floats, Floats]:
        """Sums of served values over rows `numbers`, and a bound of those of absolute values, at the own rows."""
        whole = np.zeros(self.columns.n_columns)
        whole[numbers] = coef
        values, sizes = self.columns.outputs(whole)
        with np.errstate(over="ignore"):  # infinite is a bound too
            return values, np.nextafter(sizes.astype(np.float32), np.float32(np.inf))  # no digits need to travel

    def product(self, idx: Floats, numbers: Floats, coef: Floats) -> Floats:
        """Sums of float64 values over rows `numbers` at the own rows `idx`."""
        others = ByPairs(self.opening.kernel, self.met.rows(numbers), like=self.met.points(numbers))
        return self.exact.product(idx, others.columns(slice(None)), coef)


class Host:
    """The shards of one process; `fetch(address, start, stop)` reads rows of a table.

    One that nobody has asked for `IDLE_SECONDS` goes when another comes: its driver has gone without a word.
    """

    def __init__(self, fetch: Callable[[Any, int, int], Rows]) -> None:
        self.fetch = fetch
        self.shards: dict[str, Shard] = {}
        self._lock = threading.RLock()

    def answer(self, envelope: Envelope) -> Reply:
        """Do what a message asks for, or say that the shard is not there."""
        with self._lock, one_blas_thread():
            shard = self._found(envelope)
            if shard is None:
                return Reply(None, [])
            shard.asked = time.monotonic()
            if len(envelope.numbers):
                shard.met.add(envelope.numbers, envelope.rows)
            answers = [getattr(shard, name)(*given) for name, given in envelope.calls]
            if shard.closed:
                self.drop(envelope.key)
            return Reply(shard.generation, answers)

    def _found(self, envelope: Envelope) -> Shard | None:
        shard = self.shards.get(envelope.key)
        if shard is None or shard.generation != envelope.generation:
            shard = None
        if shard is None and envelope.opening is not None:
            opening, idle = envelope.opening, time.monotonic() - IDLE_SECONDS
            for key in [key for key, other in self.shards.items() if other.asked < idle or key == envelope.key]:
                self.drop(key)
            shard = Shard(opening, self.fetch(opening.address, opening.start, opening.stop))
            self.shards[envelope.key] = shard
        return shard

    def drop(self, key: str) -> None:
        """Forget a shard."""
        self.shards.pop(key, None)
