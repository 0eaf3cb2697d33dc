"""Chains of problems along C, solved on workers: one task is one chain on a mapped K, and small answers come back.

Every finished problem is stored at once, so a chain that was cut goes on from its last stored alpha and gives the same
bytes. Nothing here knows what a sweep or a run is.
"""

import dataclasses
import functools
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.live import Line, watching
from pipeline.solve import ProblemResult, ProblemTask, find_result, problem_of, resident_columns, share, store_result
from pipeline.store import Store
from svmcore._threads import n_threads, one_blas_thread
from svmcore.columns import KernelColumns
from svmcore.monitor import Monitor, Progress
from svmcore.points import Floats
from svmcore.problem import Problem
from svmcore.solution import Status
from svmcore.solvers import Solver
from svmcore.solvers.base import gradient_at

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
    before: _Start | None = None
    for task in chain:
        found = find_result(task)
        if found is None:
            source = columns if columns is not None else resident_columns(str(task.gram))
            before = _solved(task, problem_of(task, source), before if task.warm else None, live)
            found = before.result
        else:
            before = _Start(task, found)
        steps.append(Step(task.fingerprint, found.status, found.certificate["kkt_gap"], found.reused))
        if found.status == Status.STOPPED:
            break
    return steps


@dataclasses.dataclass(frozen=True, eq=False)
class _Start:
    """An answered problem that the next one starts from; its gradient (n,) where it was just solved."""

    task: ProblemTask
    result: ProblemResult
    gradient: Floats | None = None

    def start(self, problem: Problem) -> tuple[Floats, Floats]:
        """Alpha (n,) and the gradient of `problem` there: the same bytes whether solved just now or found."""
        alpha = np.zeros(problem.n)
        alpha[self.result.support] = self.result.alpha
        before = problem_of(self.task, problem.columns)
        gradient = self.gradient if self.gradient is not None else gradient_at(before, alpha)
        return alpha, gradient + (problem.ridge - before.ridge) * alpha


def _solved(task: ProblemTask, problem: Problem, before: _Start | None, live: str | None) -> _Start:
    alpha, gradient = before.start(problem) if before else (None, None)
    solver = Solver.create(task.solver)
    solution = solver.solve(problem, alpha=alpha, monitor=_monitor(live, task), gradient=gradient)
    return _Start(task, store_result(task, problem, solution), solution.gradient)


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
    mirror: Store | None = None,
) -> list[Step]:
    """Solve all chains: on Dask workers if given, else on threads of this process.

    Parameters
    ----------
    columns
        One source shared by all, in this process; the chains are then solved one after another.
    done, total
        Problems that were finished before, and of all, for progress reports.
    mirror
        Store elsewhere that gets the answers.
    """
    if not chains:
        return []
    steps: list[Step] = []
    with watching(Path(chains[0][0].root) / "live", {}, total or sum(map(len, chains)), progress) as watch:
        watch.done = done
        for found in _answers(chains, workers, columns, str(watch.folder)):
            steps += found
            for step in found:
                share(mirror, step)
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
    with one_blas_thread(), ThreadPoolExecutor(min(len(chains), n_threads())) as pool:
        futures = [pool.submit(solve_chain, chain, live) for chain in chains]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:  # Ctrl-C, SIGTERM or a failed problem: nobody waits for the rest
            shutil.rmtree(live, ignore_errors=True)
            for future in futures:
                future.cancel()
            raise
