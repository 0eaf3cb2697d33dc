"""Problems solved: chains along C, epsilon and nu, each found again where its answer is finished, else kept at once.

A single problem is a chain of one. A chain that was cut goes on from its last stored beta and gives the same bytes.
Nothing here knows what a sweep or a run is.
"""

import functools
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.answers import under_way
from pipeline.answers.live import Line, Watch, watching
from pipeline.answers.problem import ProblemTask, problem_of, resident_gram
from pipeline.answers.result import ProblemResult, find_result, share, store_result
from pipeline.storage.cache import in_turn
from pipeline.storage.leases import LeaseLost
from svmcore.monitor import Monitor, Progress
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.runtime.threads import n_threads, one_blas_thread
from svmcore.solution import Status
from svmcore.solvers import Solver
from svmcore.sources import Source
from svmcore.tasks import Task

__all__ = ["Ended", "finished", "solve_chain", "solve_chains", "solve_problem", "start_of"]

MANY, SHARES = 16, 16  # chains in one Dask task at most, and tasks that each worker has left after any of them
QUIET_SECONDS = 0.5  # a problem that takes less needs no progress of its own


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
def solve_problem(
    task: ProblemTask, live: str | None = None, source: Source | None = None, before: ProblemResult | None = None
) -> ProblemResult:
    """Solve one problem, or find its finished answer; runs in any process that sees the paths.

    Parameters
    ----------
    live
        Folder where progress is written; the solver stops when it has gone.
    source
        Of K; default the task's Gram, mapped.
    before
        Answer of the problem that it starts from, if it starts from one; default the one on storage.
    """
    found = find_result(task)
    if found is not None:
        return found
    if task.warm is None:
        before = None
    elif before is None:
        before = find_result(task, task.warm)
    qp = problem_of(task, source if source is not None else resident_gram(task))
    beta, score = start_of(before, qp, task.machine)
    monitor = _monitor(live, task)
    if not qp.source.repeats:
        monitor.keep = lambda found: under_way.keep(task, found) if len(found) == qp.m else None
        if (last := under_way.kept(task, qp.m)) is not None:
            beta, score = last, None
    solution = Solver.create(task.solver).solve(qp, beta, monitor, score)
    found = find_result(task) or store_result(task, qp, solution)  # who finished it meanwhile wins
    under_way.forget(task)
    return found


def start_of(
    before: ProblemResult | None, qp: SignedQP, machine: dict[str, Any]
) -> tuple[Floats | None, Floats | None]:
    """Beta (m,) of the answer before, and the scores of `qp`, of a `machine`, there; None where they are not known.

    Both follow from what is stored, so that they are the same bytes whether it was solved just now or found.
    """
    if before is None:
        return None, None
    beta = np.zeros(qp.m)
    if len(before.residual) != qp.m:  # a tube without width has one variable a row
        coef = np.bincount(before.rows, weights=before.beta, minlength=qp.source.n)
        return Task.create(machine).variables(qp, coef), None
    beta[before.support] = before.beta
    for g, total in enumerate(qp.groups.sums):  # of a nu machine they change with nu and C, and beta in proportion
        at = qp.groups.members(g, qp.m)
        held = float(beta[at].sum())
        if total != 0.0 and held != 0.0:
            beta[at] *= total / held
    same = before.machine == machine and not any(qp.groups.sums)
    return beta, before.residual - qp.ridge * beta if same else None


def _monitor(live: str | None, task: ProblemTask) -> Monitor:
    """Progress of long problems alone, and no warning: the status says how a problem ended."""
    line = Line(live, task.fingerprint)

    def report(progress: Progress) -> None:
        if progress.seconds > QUIET_SECONDS:
            line.report(progress)

    return Monitor(stop=line.stopped, report=report, warn=False)


def solve_chain(chain: Sequence[ProblemTask], live: str | None = None, source: Source | None = None) -> list[Ended]:
    """Solve neighbouring problems, each from the beta before it; see `solve_problem`."""
    ended: list[Ended] = []
    before: ProblemResult | None = None
    for task in chain:
        before = solve_problem(task, live, source, before)
        ended.append(Ended(task.fingerprint, before.status, before.certificate["kkt_gap"], before.reused))
        if before.status == Status.STOPPED:
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
    """Chains in tasks for `n` workers: several in one while there are very many, a millisecond of the scheduler each.

    Tasks get smaller towards the end, so that all workers end together.

    >>> sizes = [len(task) for task in _shared_out([()] * 100, 2)]
    >>> sizes[:5], sizes[-1], sum(sizes)
    ([3, 3, 2, 2, 2], 1, 100)
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
        Of K, shared by all, in this process; the chains are then solved one after another.
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
    with watching(root / "live", named, total or sum(map(len, chains)), progress) as watch:
        watch.done = done
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
    if workers is not None and source is None:
        solve = functools.partial(_solve_some, live=live)
        for _, some in workers.map(solve, _shared_out(chains, workers.n), sign=lambda: watch.seen):
            yield from some
        return
    threads = min(len(chains), n_threads() if source is None else source.at_once)
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(solve_chain, chain, live, source) for chain in chains]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:  # Ctrl-C, SIGTERM or a failed problem: nobody waits for the rest
            shutil.rmtree(live, ignore_errors=True)
            for future in futures:
                future.cancel()
            raise
