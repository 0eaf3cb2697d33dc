"""Chains of problems along C, solved on workers: one task is one chain on a mapped K, and small answers come back.

Every finished problem is stored at once, so a chain that was cut goes on from its last stored alpha and gives the same
bytes. Nothing here knows what a sweep or a run is.
"""

import functools
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.live import Line, watching
from pipeline.solve import ProblemResult, ProblemTask, find_result, problem_of, resident_columns, store_result
from svmcore._threads import n_threads
from svmcore.columns import KernelColumns
from svmcore.monitor import Monitor, Progress
from svmcore.solution import Status
from svmcore.solvers import Solver

__all__ = ["Step", "finished", "solve_chain", "solve_chains"]

QUIET_SECONDS = 0.5  # a problem that takes less needs no progress of its own


class Step(NamedTuple):
    """How one problem of a chain ended: all that travels back, the answer lies on storage."""

    fingerprint: str
    status: str
    kkt_gap: float | None
    reused: bool


def finished(chain: Sequence[ProblemTask]) -> bool:
    """Whether every problem has its answer."""
    return all(find_result(task) is not None for task in chain)


def solve_chain(
    chain: Sequence[ProblemTask], live: str | None = None, columns: KernelColumns | None = None
) -> list[Step]:
    """Solve problems of ascending C, each from the alpha before it; runs in any process that sees the paths.

    Parameters
    ----------
    live
        Folder where progress is written; the chain stops when it has gone.
    columns
        Source of K; default the tasks' Gram, mapped.
    """
    steps: list[Step] = []
    before: ProblemResult | None = None
    for task in chain:
        before = find_result(task) or _solve(task, columns, before if task.warm else None, live)
        steps.append(Step(task.fingerprint, before.status, before.certificate["kkt_gap"], before.reused))
        if before.status == Status.STOPPED:
            break
    return steps


def _solve(
    task: ProblemTask, columns: KernelColumns | None, before: ProblemResult | None, live: str | None
) -> ProblemResult:
    problem = problem_of(task, columns if columns is not None else resident_columns(str(task.gram)))
    alpha = None
    if before is not None:
        alpha = np.zeros(problem.n)
        alpha[before.support] = before.alpha
    solution = Solver.create(task.solver).solve(problem, alpha=alpha, monitor=_monitor(live, task))
    return store_result(task, problem, solution)


def _monitor(live: str | None, task: ProblemTask) -> Monitor:
    """Progress of long problems alone, and no warning: the status says how a problem ended."""
    line = Line(live, task.fingerprint)

    def report(progress: Progress) -> None:
        if progress.seconds > QUIET_SECONDS:
            line.report(progress)

    return Monitor(stop=line.stopped, report=report, warn=False)


# --- many chains ----------------------------------------------------------------------------------------------------
def solve_chains(
    chains: Sequence[Sequence[ProblemTask]],
    workers: Any = None,
    progress: Callable[..., None] | None = None,
    columns: KernelColumns | None = None,
    done: int = 0,
    total: int | None = None,
) -> list[Step]:
    """Solve all chains: on Dask workers if given, else on threads of this process.

    Parameters
    ----------
    columns
        One source shared by all, in this process; the chains are then solved one after another.
    done, total
        Problems that were finished before, and of all, for progress reports.
    """
    if not chains:
        return []
    steps: list[Step] = []
    with watching(Path(chains[0][0].root) / "live", {}, total or sum(map(len, chains)), progress) as watch:
        watch.done = done
        for found in _answers(chains, workers, columns, str(watch.folder)):
            steps += found
            for step in found:
                watch.finished(step.fingerprint, step.kkt_gap, step.status)
    return steps


def _answers(
    chains: Sequence[Sequence[ProblemTask]], workers: Any, columns: KernelColumns | None, live: str
) -> Iterator[list[Step]]:
    if columns is not None:
        for chain in chains:
            yield solve_chain(chain, live, columns)
    elif workers is not None:
        for _, steps in workers.map(functools.partial(solve_chain, live=live), list(chains)):
            yield steps
    else:
        yield from _on_threads(chains, live)


def _on_threads(chains: Sequence[Sequence[ProblemTask]], live: str) -> Iterator[list[Step]]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), ThreadPoolExecutor(min(len(chains), n_threads())) as pool:
        futures = [pool.submit(solve_chain, chain, live) for chain in chains]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:  # Ctrl-C, SIGTERM or a failed problem: nobody waits for the rest
            shutil.rmtree(live, ignore_errors=True)
            for future in futures:
                future.cancel()
            raise
