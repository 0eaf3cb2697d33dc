"""Chains of problems along C, solved on workers: one task is one chain on a mapped K, and small answers come back.

Every finished problem is stored at once, so a chain that was cut goes on from its last stored beta and gives the same
bytes. Nothing here knows what a sweep or a run is.
"""

import functools
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.answers.live import Line, watching
from pipeline.answers.problem import ProblemTask, problem_of, resident_gram
from pipeline.answers.result import ProblemResult, find_result, share, store_result
from pipeline.answers.solve import start_of
from pipeline.storage.base import Store
from svmcore._threads import n_threads, one_blas_thread
from svmcore.monitor import Monitor, Progress
from svmcore.solution import Status
from svmcore.solvers import Solver
from svmcore.sources import Source

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


def solve_chain(chain: Sequence[ProblemTask], live: str | None = None, source: Source | None = None) -> list[Step]:
    """Solve problems of ascending C, each from the beta before it; runs in any process that sees the paths.

    Parameters
    ----------
    live
        Folder where progress is written; the chain stops when it has gone.
    source
        Of K; default the tasks' Gram, mapped.
    """
    steps: list[Step] = []
    before: ProblemResult | None = None
    for task in chain:
        found = find_result(task)
        if found is None:
            found = _solved(task, source, before if task.warm else None, live)
        before = found
        steps.append(Step(task.fingerprint, found.status, found.certificate["kkt_gap"], found.reused))
        if found.status == Status.STOPPED:
            break
    return steps


def _solved(task: ProblemTask, source: Source | None, before: ProblemResult | None, live: str | None) -> ProblemResult:
    qp = problem_of(task, source if source is not None else resident_gram(task))
    beta, score = start_of(before, qp)
    solution = Solver.create(task.solver).solve(qp, beta, _monitor(live, task), score)
    return store_result(task, qp, solution)


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
    source: Source | None = None,
    done: int = 0,
    total: int | None = None,
    mirror: Store | None = None,
) -> list[Step]:
    """Solve all chains: on Dask workers if given, else on threads of this process.

    Parameters
    ----------
    source
        Of K, shared by all, in this process; the chains are then solved one after another.
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
        for found in _answers(chains, workers, source, str(watch.folder)):
            steps += found
            for step in found:
                share(mirror, step)
                watch.finished(step.fingerprint, step.kkt_gap, step.status)
    return steps


def _answers(
    chains: Sequence[Sequence[ProblemTask]], workers: Any, source: Source | None, live: str
) -> Iterator[list[Step]]:
    if source is not None:
        for chain in chains:
            yield solve_chain(chain, live, source)
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
