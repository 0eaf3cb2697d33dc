"""Problems solved: chains along C, epsilon and nu, each found again where its answer is finished, else kept at once.

A single problem is a chain of one. A chain that was cut goes on from its last stored beta and gives the same bytes.
Nothing here knows what a sweep or a run is.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.answers import under_way
from pipeline.answers.live import Line, Watch, watching
from pipeline.answers.problem import ProblemTask, problem_of, stored_source
from pipeline.answers.result import ProblemResult, find_result, share, store_result
from pipeline.storage.cache import in_turn
from pipeline.storage.leases import LeaseLost, remove_folder
from svmcore.monitor import Monitor, Progress
from svmcore.qp import SignedQP
from svmcore.runtime.threads import n_threads, one_blas_thread, side_by_side
from svmcore.solution import Solution, Status
from svmcore.solvers import Solver
from svmcore.sources import CachedColumns, Source
from svmcore.sources.together import solved_together
from svmcore.train.chains import NOWHERE, Problem, Start, answers, same_optimum

__all__ = ["Ended", "finished", "solve_chain", "solve_chains", "solve_problem"]

MANY, SHARES = 16, 2  # chains in one Dask task at most, and tasks that each worker has left after any of them
QUIET_SECONDS = 0.5  # a problem that takes less is told with its task


class Ended(NamedTuple):
    """How one problem of a chain ended: all that travels back, the answer lies on storage."""

    fingerprint: str
    status: str
    kkt_gap: float | None
    reused: bool


def finished(chain: Sequence[ProblemTask]) -> bool:
    """Whether every problem has its answer."""
    return all(find_result(task) is not None for task in chain)


# --- one problem ----------------------------------------------------------------------------------------------------
class _Stored(Problem[ProblemResult]):
    """A problem whose answer is on storage: found there where it is finished, else put there."""

    def __init__(self, task: ProblemTask, live: str | None, source: Source | None) -> None:
        self.task, self.line, self.source = task, Line(live, task.fingerprint), source
        self.solver = Solver.create(task.solver)

    def found(self) -> ProblemResult | None:
        return find_result(self.task)

    def program(self) -> SignedQP:
        return problem_of(self.task, self.source if self.source is not None else stored_source(self.task))

    def after(self, before: ProblemResult | None) -> ProblemResult | None:
        """The answer that its task names: the one before, or on storage."""
        if self.task.warm is None:
            return None
        return before or find_result(self.task, self.task.warm)

    def known(self, qp: SignedQP, before: ProblemResult | None) -> Solution | None:
        if before is None or before.n_bounded or not self._is_like(before):  # bounds move with C, and all on them
            return None
        last = before.program or problem_of(dataclasses.replace(self.task, C=before.C), qp.source)
        solution = before.solution(last) if before.status == Status.CONVERGED else None
        return None if solution is None else same_optimum((last, solution), qp, self.solver.tol)

    def start(self, qp: SignedQP, before: ProblemResult | None) -> Start:
        """From variables that were kept under way, or the answer before."""
        if not qp.source.repeats and (last := under_way.kept(self.task, qp.m)) is not None:
            return Start(last)
        if before is None:
            return NOWHERE
        return before.handover.start(qp, self.task.built, qp.p if self._is_like(before) else None)

    def _is_like(self, before: ProblemResult) -> bool:
        return (before.machine, before.kernel_id) == (self.task.machine, self.task.kernel_id)

    def monitor(self, qp: SignedQP) -> Monitor:
        """Progress of long problems alone, and no warning: the status says how a problem ended."""
        monitor = Monitor(stop=self.line.stopped, report=self._report, warn=False)
        if not qp.source.repeats:
            monitor.keep = lambda found: under_way.keep(self.task, found) if len(found) == qp.m else None
        return monitor

    def _report(self, progress: Progress) -> None:
        if progress.seconds > QUIET_SECONDS:
            self.line.report(progress)

    def keep(self, qp: SignedQP, solution: Solution) -> ProblemResult:
        """Who finished it meanwhile wins."""
        found = find_result(self.task) or store_result(self.task, qp, solution)
        under_way.forget(self.task)
        if found.seconds > QUIET_SECONDS:
            self.line.ended(found.seconds, found.n_iter, found.certificate["kkt_gap"], found.status)
        return found


def solve_problem(task: ProblemTask, live: str | None = None, source: Source | None = None) -> ProblemResult:
    """Solve one problem, or find its finished answer; runs in any process that sees the paths.

    Parameters
    ----------
    live
        Folder where progress is written; the solver stops when it has gone.
    source
        Of K; default what is on storage, mapped.
    """
    return _Stored(task, live, source).answer()


def solve_chain(chain: Sequence[ProblemTask], live: str | None = None, source: Source | None = None) -> list[Ended]:
    """Solve neighbouring problems, each from the beta before it; see `solve_problem`."""
    ended: list[Ended] = []
    for found in answers(_Stored(task, live, source) for task in chain):
        ended.append(Ended(found.fingerprint, found.status, found.certificate["kkt_gap"], found.reused))
        if found.status == Status.STOPPED:
            break
    return ended


def _solve_some(chains: Sequence[Sequence[ProblemTask]], live: str) -> list[list[Ended]]:
    """Solve the chains of one Dask task; where one was stopped, no other is begun."""
    every: list[list[Ended]] = []
    for chain in chains:
        every.append(solve_chain(chain, live))
        if every[-1][-1].status == Status.STOPPED:
            break
    return every


def _shared_out(chains: Sequence[Sequence[ProblemTask]], n: int) -> list[Sequence[Sequence[ProblemTask]]]:
    """Chains in tasks for `n` workers: several in one while there are many, each costs Dask 9 ms of somebody's core.

    Tasks get smaller towards the end, so that all workers end together.

    >>> sizes = [len(task) for task in _shared_out([()] * 50, 2)]
    >>> sizes[:5], sizes[-5:], sum(sizes)
    ([12, 9, 7, 5, 4], [1, 1, 1, 1, 1], 50)
    """
    tasks: list[Sequence[Sequence[ProblemTask]]] = []
    start = 0
    while start < len(chains):
        size = max(1, min(MANY, (len(chains) - start) // (SHARES * n)))
        tasks.append(chains[start : start + size])
        start += size
    return tasks


# --- many chains ----------------------------------------------------------------------------------------------------
def solve_chains(
    chains: Sequence[Sequence[ProblemTask]],
    workers: Any = None,
    progress: Callable[..., None] | None = None,
    source: Source | None = None,
    done: int = 0,
    total: int | None = None,
    names: dict[str, str] | None = None,
) -> list[Ended]:
    """Solve all chains: on Dask workers if given, else on threads of this process (the solvers hold no lock).

    Parameters
    ----------
    source
        Of K, shared by all, in this process; as many chains are then solved at a time as it serves at once.
    done, total
        Problems that were finished before, and of all, for progress reports.
    names
        What progress reports call a problem, by its fingerprint.

    Raises
    ------
    LeaseLost
        If problems stopped though nobody here told them to: others removed the folder whose end is the stop.
    """
    if not chains:
        return []
    every: list[Ended] = []
    named = {fingerprint[:32]: name for fingerprint, name in (names or {}).items()}
    root = Path(chains[0][0].root)
    chains = in_turn(root, chains)
    with watching(root / "live", named, total or sum(map(len, chains)), progress, done) as watch:
        for found in _answers(chains, workers, source, watch):
            every += found
            for one in found:
                share(root, one)
                watch.finished(one.fingerprint, one.kkt_gap, one.status)
            if found[-1].status == Status.STOPPED:
                raise LeaseLost(f"problems were stopped, as if {watch.folder} had been removed; run the command again")
    return every


def _answers(
    chains: Sequence[Sequence[ProblemTask]], workers: Any, source: Source | None, watch: Watch
) -> Iterator[list[Ended]]:
    live = str(watch.folder)
    give_up = functools.partial(remove_folder, watch.folder)
    if workers is not None and source is None:
        solve = functools.partial(_solve_some, live=live)
        for _, some in workers.map(solve, _shared_out(chains, workers.n), sign=lambda: watch.seen):
            yield from some
        return
    with one_blas_thread():
        if len(chains) > 1 and isinstance(source, CachedColumns) and _apart(chains[0][0], source):
            solves = [functools.partial(solve_chain, chain, live) for chain in chains]
            yield from solved_together(source, solves, n_threads(), give_up)
            return
        threads = min(len(chains), n_threads() if source is None else source.at_once)
        yield from side_by_side(
            [functools.partial(solve_chain, chain, live, source) for chain in chains], threads, give_up
        )


def _apart(task: ProblemTask, source: CachedColumns) -> bool:
    """Whether problems like this one are best solved each in a cache of its own."""
    return Solver.create(task.solver).shares(problem_of(task, source)) > 0
