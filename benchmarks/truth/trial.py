"""One problem after the other through our solver, LIBSVM and the judge, each in a process that outlives the problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.contest.remote import Remote, WorkerEnded
from benchmarks.truth.judging.verdicts import FALSE_CONVERGED, FALSE_GAP, OFF_ITS_BAR, verdicts_of
from benchmarks.truth.problems.design import LIMIT_SECONDS, Problem
from benchmarks.truth.workers import Judge, Libsvm, Ours

Record = dict[str, Any]
GRACE_SECONDS = 2.0  # to read the table; the solver's own clock is judged by `verdicts.solved`
HUNG_SECONDS = 60.0  # our time limit is the solver's to keep; a minute of the processor is no answer
STRETCH = 20.0  # wall seconds per second of the processor after which a process is taken for asleep
START_SECONDS = 600.0  # compiling everything afresh


class Served:
    """A worker that is started when needed, and again when it had to be ended."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._remote: Remote | None = None

    def call(self, method: str, *arguments: Any, cpu_timeout: float | None = None) -> Record:
        """Call the worker; loading and compiling are on nobody's clock."""
        if self._remote is None or not self._remote.alive:
            self._remote = Remote(self._make)
            self._remote.call("ready", timeout=START_SECONDS)
        timeout = None if cpu_timeout is None else STRETCH * cpu_timeout
        return self._remote.call(method, *arguments, timeout=timeout, cpu_timeout=cpu_timeout)

    def close(self) -> None:
        """End the process."""
        if self._remote is not None:
            self._remote.close()


class Lane:
    """The three processes of a lane; `peers` holds LIBSVM's records of earlier runs by problem."""

    def __init__(self, peers: Mapping[str, Record], ours: Callable[[], Any] = Ours) -> None:
        self._ours, self._libsvm, self._judge = Served(ours), Served(Libsvm), Served(Judge)
        self._peers = peers

    def close(self) -> None:
        """End the processes."""
        for served in (self._ours, self._libsvm, self._judge):
            served.close()

    def run(self, problem: Problem) -> Record:
        """The record of one problem, with its verdicts; `peer` says whether it is `fresh`."""
        ours = _answer(self._ours, problem, HUNG_SECONDS)
        beta = ours.pop("beta", None)
        record: Record = {"case": problem.key, "ours": ours, "truth": self._truth(problem, beta)}
        record |= self.libsvm(problem)
        return self._judged(record, lambda: self._truth(problem, beta, finest=True))

    def _judged(self, record: Record, finest: Callable[[], Record | None]) -> Record:
        """Add the verdicts; nobody is accused of a falsehood but by the finest judge."""
        verdicts = verdicts_of(record)
        if record["truth"] and {FALSE_GAP, FALSE_CONVERGED, OFF_ITS_BAR} & set(verdicts):
            record |= {"truth": finest()}
            verdicts = verdicts_of(record)
        return record | {"verdicts": verdicts}

    def _truth(self, problem: Problem, beta: Any, finest: bool = False) -> Record | None:
        return None if beta is None else self._judge.call("truth", problem, beta, finest)

    def libsvm(self, problem: Problem) -> Record:
        """What is known of the problem, and LIBSVM's time and truth as `peer`.

        Those of an earlier run are taken where the numbers of the problem were the same.
        """
        facts = self._judge.call("facts", problem)
        known = self._peers.get(problem.key)
        if known and known["digest"] == facts["digest"]:
            return facts | {"peer": known | {"fresh": False}}
        peer = _answer(self._libsvm, problem, LIMIT_SECONDS + GRACE_SECONDS)
        truth = self._truth(problem, peer.pop("beta", None))
        return facts | {"peer": peer | {"truth": truth, "digest": facts["digest"], "fresh": True}}


def _answer(served: Served, problem: Problem, limit: float) -> Record:
    try:
        return served.call("fit", problem, cpu_timeout=limit)
    except WorkerEnded as ended:
        return {"status": str(ended), "seconds": limit, "cpu_seconds": limit}
