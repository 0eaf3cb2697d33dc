"""Problems solved, each found again where its answer is finished, and many at once on threads or workers."""

import functools
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.answers.live import Line, watching
from pipeline.answers.problem import ProblemTask, problem_of, resident_gram
from pipeline.answers.result import ProblemResult, find_result, part_of, share, store_result
from pipeline.storage.base import Store
from svmcore._threads import n_threads, one_blas_thread
from svmcore.monitor import Monitor
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solvers import Solver
from svmcore.solvers.base import ConvergenceWarning
from svmcore.sources import Source

__all__ = ["solve_problem", "solve_problems", "start_of"]


# --- one problem ----------------------------------------------------------------------------------------------------
def solve_problem(task: ProblemTask, live: str | None = None, source: Source | None = None) -> ProblemResult:
    """Solve one problem, or find its finished answer; runs in any process that sees the paths.

    Parameters
    ----------
    live
        Folder where progress is written; the solver stops when it has gone.
    source
        Of K; default the task's Gram, mapped.
    """
    found = find_result(task)
    if found is not None:
        return found
    qp = problem_of(task, source if source is not None else resident_gram(task))
    line = Line(live, task.fingerprint)
    monitor = Monitor(stop=line.stopped, report=line.report)
    beta, score = start_of(find_result(task, task.warm) if task.warm else None, qp)
    solution = Solver.create(task.solver).solve(qp, beta, monitor, score)
    return store_result(task, qp, solution)


def start_of(before: ProblemResult | None, qp: SignedQP) -> tuple[Floats | None, Floats | None]:
    """Beta (m,) of the answer before, and the scores of `qp` there; nothing to start from without one.

    Both follow from what is stored, so that they are the same bytes whether it was solved just now or found.
    """
    if before is None:
        return None, None
    beta = np.zeros(qp.m)
    beta[before.support] = before.beta
    return beta, before.residual - qp.ridge * beta


def _solve_quietly(task: ProblemTask, live: str) -> ProblemResult:
    """As `solve_problem`, in a process of its own: the status says how it ended, no warning on a worker's stderr."""
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return solve_problem(task, live)


# --- many problems --------------------------------------------------------------------------------------------------
def solve_problems(
    tasks: Sequence[ProblemTask],
    workers: Any = None,
    progress: Callable[..., None] | None = None,
    source: Source | None = None,
    labels: Sequence[Any] = (),
    mirror: Store | None = None,
) -> list[ProblemResult]:
    """Solve all tasks: on the Dask workers if given, else on threads of this process (the solvers hold no lock).

    Parameters
    ----------
    source
        Of K, shared by all tasks, in this process; they are then solved one after another.
    labels
        Names of the tasks in progress reports.
    mirror
        Store elsewhere, whose answers are used here and that gets ours.
    """
    if mirror is not None:
        mirror.sync(part_of(task.fingerprint) for task in tasks)
    results: list[ProblemResult | None] = [None] * len(tasks)
    names = {task.fingerprint[:32]: str(label) for task, label in zip(tasks, labels, strict=False)}
    with watching(Path(tasks[0].root) / "live", names, len(tasks), progress) as watch:
        for index, result in _answers(tasks, workers, source, str(watch.folder)):
            results[index] = result
            share(mirror, result)
            watch.finished(result.fingerprint, result.certificate["kkt_gap"], result.status)
    return [result for result in results if result is not None]


def _answers(
    tasks: Sequence[ProblemTask], workers: Any, source: Source | None, live: str
) -> Iterator[tuple[int, ProblemResult]]:
    if workers is not None and source is None:
        yield from workers.map(functools.partial(_solve_quietly, live=live), list(tasks))
        return
    threads = 1 if source is not None else min(len(tasks), n_threads())
    quiet = warnings.catch_warnings(action="ignore", category=ConvergenceWarning)  # the status says it
    with quiet, one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        futures = {pool.submit(solve_problem, task, live, source): i for i, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:  # Ctrl-C, SIGTERM or a failed problem: nobody waits for the rest
            shutil.rmtree(live, ignore_errors=True)
            for future in futures:
                future.cancel()
            raise
