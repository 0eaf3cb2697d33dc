"""Binary problems on a shared kernel: what each needs, where its answer lies, and how many are solved at once.

A `ProblemTask` names its data and kernel by path and fingerprint, so it travels as a few hundred bytes; a
`ProblemResult` holds the support vectors' alpha and the certificate. Finished answers are kept under
`ROOT/problems/FINGERPRINT` and found again. Nothing here knows what a run is.
"""

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import math
import os
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.dataset import open_dataset
from pipeline.folds import stratified_folds
from pipeline.gram import open_gram
from pipeline.live import Line, watching
from pipeline.store import Store, write_atomic
from svmcore._threads import n_threads, one_blas_thread
from svmcore.certificate import Certificate
from svmcore.columns import KernelColumns, ResidentGram
from svmcore.losses import Loss
from svmcore.monitor import Monitor
from svmcore.multiclass import Target, targets
from svmcore.problem import Bias, Problem
from svmcore.solution import Solution, Status
from svmcore.solvers import Solver
from svmcore.solvers.base import ConvergenceWarning

__all__ = [
    "ProblemResult",
    "ProblemTask",
    "bounds",
    "find_result",
    "fold_codes",
    "held_out_counts",
    "part_of",
    "read_answer",
    "read_result",
    "resident_columns",
    "share",
    "solve_problem",
    "solve_problems",
    "store_result",
    "stored_decision",
]

FORMAT = 2
FINISHED = (Status.CONVERGED, Status.MAX_ITER, Status.STALLED, Status.INFEASIBLE)


@dataclasses.dataclass(frozen=True)
class ProblemTask:
    """One binary problem: a class (or pair), a C, a fold, on one kernel of one dataset.

    Attributes
    ----------
    root, dataset, gram
        Paths: the cache, the dataset, and K if it is on storage (None: columns are computed on demand).
    data, kernel_id
        Fingerprints of the data and of the kernel's values (kernel, precision, block partition).
    target
        Index into `svmcore.multiclass.targets`.
    C
        Before counts and class weights; None is a hard margin.
    class_weight
        "balanced", or one weight per class code, or None.
    fold
        (folds, seed, index): the rows of that fold have C_i = 0; 0 folds are those of the dataset's fold column.
    warm
        Fingerprint of the problem whose alpha is the start.
    """

    root: str
    dataset: str
    gram: str | None
    data: str
    kernel_id: str
    multiclass: str
    target: int
    C: float | None
    class_weight: Any
    loss: str
    bias: str
    solver: dict[str, Any]
    psd: bool = True
    fold: tuple[int, int, int] | None = None
    warm: str | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What the answer depends on: everything but paths, and a time limit, which no finished answer met."""
        facts = {k: v for k, v in dataclasses.asdict(self).items() if k not in ("root", "dataset", "gram")}
        return facts | {"solver": {k: v for k, v in self.solver.items() if k != "time_limit"}}

    @functools.cached_property
    def fingerprint(self) -> str:
        """Sha256 of the identity."""
        canonical = json.dumps({**self.identity, "format": FORMAT}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def folder(self) -> Path:
        """Where the answer lies."""
        return Path(self.root) / "problems" / self.fingerprint[:32]


@dataclasses.dataclass(frozen=True)
class ProblemResult:
    """The answer to one task.

    `support` are merged training rows with their `alpha`, the counts are of original rows, `norm2` is ||w||^2,
    `slack` the sum of max(0, 1 - y f(x)) over the original rows trained on.
    """

    fingerprint: str
    status: str
    support: Any
    alpha: Any
    bias: float
    n_iter: int
    n_support: int
    n_bounded: int
    seconds: float
    norm2: float
    slack: float
    certificate: dict[str, float | None]
    history: list[list[float]]
    reused: bool = False


# --- one problem ----------------------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=4)
def _dataset(path: str) -> Any:
    return open_dataset(path)


@functools.lru_cache(maxsize=4)
def _labels(path: str) -> tuple[Any, Any]:
    """Codes (m,) and counts (m,) of the merged rows."""
    dataset = _dataset(path)
    return np.asarray(dataset.codes()), np.asarray(dataset.counts(), np.float64)


def resident_columns(path: str) -> ResidentGram:
    """K on storage, mapped once per process: each mapping counts its pages as memory of its own."""
    with _opening:
        return _resident(path)


_opening = threading.Lock()  # a cache alone lets threads that come at once each make the same


@functools.lru_cache(maxsize=2)
def _resident(path: str) -> ResidentGram:
    return ResidentGram(open_gram(path))


@functools.lru_cache(maxsize=2)
def fold_codes(path: str, folds: int, seed: int) -> Any:
    """Fold (n_train,) of every original row: stratified, or with 0 folds, those of the dataset's fold column."""
    dataset = _dataset(path)
    if not folds:
        return dataset.folds()
    return stratified_folds(np.asarray(dataset.codes())[dataset.inverse()], folds, seed)


def target_of(task: ProblemTask) -> Target:
    """Labels of this task over the merged rows."""
    return _targets(task.dataset, task.multiclass)[task.target]


@functools.lru_cache(maxsize=1)
def _targets(path: str, multiclass: str) -> list[Target]:
    codes, _ = _labels(path)
    return targets(codes, len(_dataset(path).classes), multiclass)


def training_counts(task: ProblemTask) -> Any:
    """Copies (m,) of every merged row that are trained on: all, or those outside the fold."""
    _, counts = _labels(task.dataset)
    return counts if task.fold is None else counts - held_out_counts(task.dataset, task.fold)


@functools.lru_cache(maxsize=64)
def held_out_counts(path: str, fold: tuple[int, int, int]) -> Any:
    """Copies (m,) of every merged row that the fold holds out: a row may have copies on both sides."""
    folds, seed, index = fold
    dataset = _dataset(path)
    held_out = dataset.inverse()[fold_codes(path, folds, seed) == index]
    return np.bincount(held_out, minlength=dataset.n_merged).astype(np.float64)


def bounds(task: ProblemTask) -> Any:
    """C_i (m,) = C x trained copies of row i x weight of its class; 0 leaves a row out, also for C = inf."""
    codes, _ = _labels(task.dataset)
    counts = training_counts(task)
    weights = _weights(task.class_weight, codes, counts, len(_dataset(task.dataset).classes))
    share = counts * weights[codes] * (target_of(task).y != 0)
    C = math.inf if task.C is None else task.C
    return np.multiply(C, share, out=np.zeros(len(share)), where=share > 0)


def _weights(class_weight: Any, codes: Any, counts: Any, n_classes: int) -> Any:
    if class_weight is None:
        return np.ones(n_classes)
    if class_weight == "balanced":
        totals = np.bincount(codes, weights=counts, minlength=n_classes)
        return totals.sum() / (n_classes * np.maximum(totals, 1.0))
    return np.asarray(class_weight, np.float64)


def problem_of(task: ProblemTask, columns: KernelColumns) -> Problem:
    """Build the task's mathematics over the given columns."""
    y, C = target_of(task).y, bounds(task)
    return Problem(columns, y, C, Loss.create(task.loss), Bias(task.bias), psd=task.psd)


def solve_problem(task: ProblemTask, live: str | None = None, columns: KernelColumns | None = None) -> ProblemResult:
    """Solve one problem, or find its finished answer; runs in any process that sees the paths.

    Parameters
    ----------
    live
        Folder where progress is written; the solver stops when it has gone.
    columns
        Source of K; default the task's Gram, mapped.
    """
    found = find_result(task)
    if found is not None:
        return found
    source = columns if columns is not None else resident_columns(str(task.gram))
    line = Line(live, task.fingerprint)
    monitor = Monitor(stop=line.stopped, report=line.report)
    problem = problem_of(task, source)
    solution = Solver.create(task.solver).solve(problem, alpha=_start(task), monitor=monitor)
    return store_result(task, problem, solution)


def _solve_quietly(task: ProblemTask, live: str) -> ProblemResult:
    """As `solve_problem`, in a process of its own: the status says how it ended, no warning on a worker's stderr."""
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return solve_problem(task, live)


def _start(task: ProblemTask) -> Any:
    """Alpha (m,) of the finished problem this one starts from, or None."""
    if task.warm is None:
        return None
    start = find_result(dataclasses.replace(task, warm=None), fingerprint=task.warm)
    if start is None:
        return None
    alpha = np.zeros(len(_labels(task.dataset)[0]))
    alpha[start.support] = start.alpha
    return alpha


# --- answers on storage ---------------------------------------------------------------------------------------------
def store_result(task: ProblemTask, problem: Problem, solution: Solution) -> ProblemResult:
    """Keep an answer, whole or not at all; of a fold's decision values, those of the rows it holds out."""
    counts = training_counts(task)
    alpha = np.asarray(solution.alpha, np.float64)
    support = np.flatnonzero(alpha > 0)
    bounded = support[alpha[support] >= problem.upper[support]]
    history = [[p.seconds, p.n_iter, float(p.kkt_gap)] for p in solution.history]
    record = {
        "status": str(solution.status.value),
        "bias": float(solution.bias),
        "n_iter": int(solution.n_iter),
        "n_support": int(counts[support].sum()),
        "n_bounded": int(counts[bounded].sum()),
        "seconds": history[-1][0] if history else 0.0,
        "norm2": _norm2(problem, solution),
        "slack": _slack(problem, solution, counts),
        "certificate": _numbers(solution.certificate),
        "history": history,
    }
    decision = np.asarray(solution.decision, np.float64)
    if task.fold is not None:
        decision = decision[held_out_counts(task.dataset, task.fold) > 0]
    arrays = {"support": support, "alpha": alpha[support], "decision": decision}
    data = _npz(arrays)
    write_atomic(task.folder / "arrays.npz", data)
    record |= {"sha256": hashlib.sha256(data).hexdigest(), "task": dataclasses.asdict(task)}
    write_atomic(task.folder / "result.json", json.dumps(record).encode())
    return _result(task.fingerprint, record, arrays)


def _slack(problem: Problem, solution: Solution, counts: Any) -> float:
    """Sum of max(0, 1 - y f(x)) over the original rows trained on."""
    trained = np.where(problem.upper > 0, counts, 0.0)
    return float(trained @ np.maximum(0.0, 1.0 - problem.y * solution.decision))


def _norm2(problem: Problem, solution: Solution) -> float:
    """||w||^2 = 2 (e'alpha - dual) - sum_i ridge_i alpha_i^2, from the definition of the dual."""
    alpha = solution.alpha
    return float(2.0 * (alpha.sum() - solution.certificate.dual) - (problem.ridge * alpha) @ alpha)


def _numbers(certificate: Certificate) -> dict[str, float | None]:
    values = dataclasses.asdict(certificate)
    return {key: finite(value) for key, value in values.items() if value is None or np.isscalar(value)}


def finite(value: Any) -> float | None:
    """`value` as JSON knows numbers: None for an infinite or missing one."""
    return None if value is None or not math.isfinite(value) else float(value)


def _npz(arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _result(fingerprint: str, record: dict[str, Any], arrays: Any, reused: bool = False) -> ProblemResult:
    names = {field.name for field in dataclasses.fields(ProblemResult)} & set(record)
    values = {name: record[name] for name in names}
    return ProblemResult(fingerprint, support=arrays["support"], alpha=arrays["alpha"], reused=reused, **values)


def find_result(task: ProblemTask, fingerprint: str | None = None) -> ProblemResult | None:
    """Return the finished answer of a task, or None if there is none, it was stopped early, or its bytes differ."""
    fingerprint = fingerprint or task.fingerprint
    folder = Path(task.root) / "problems" / fingerprint[:32]
    record, data = _read(folder)
    if record is None or record["status"] not in [status.value for status in FINISHED]:
        return None
    with contextlib.suppress(OSError):
        os.utime(folder)  # the cache evicts the oldest
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return _result(fingerprint, record, {name: arrays[name] for name in ("support", "alpha")}, reused=True)


def read_result(task: ProblemTask) -> ProblemResult:
    """Return the answer of a task that was solved, finished or stopped early."""
    return read_answer(task)[0]


def read_answer(task: ProblemTask) -> tuple[ProblemResult, Any]:
    """As `read_result`, with the decision values: see `stored_decision`."""
    record, data = _read(task.folder)
    if record is None:
        raise FileNotFoundError(f"no answer under {task.folder}")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        values = {name: arrays[name] for name in ("support", "alpha", "decision")}
    return _result(task.fingerprint, record, values), values["decision"]


def _read(folder: Path) -> tuple[dict[str, Any] | None, bytes]:
    try:
        record = json.loads((folder / "result.json").read_bytes())
        data = (folder / "arrays.npz").read_bytes()
    except (FileNotFoundError, ValueError):
        return None, b""
    return (record, data) if hashlib.sha256(data).hexdigest() == record.get("sha256") else (None, b"")


def stored_decision(task: ProblemTask) -> Any:
    """Decision values (m,) over the merged training rows of an answered task; a fold's: over those it holds out."""
    return read_answer(task)[1]


def part_of(fingerprint: str) -> str:
    """Name of an answer among the parts of a cache."""
    return f"problems/{fingerprint[:32]}"


def share(mirror: Store | None, found: Any) -> None:
    """Let other machines find an answer (with `fingerprint`, `status`, `reused`), if it is new and final."""
    if mirror is not None and not found.reused and found.status in [status.value for status in FINISHED]:
        mirror.push(part_of(found.fingerprint))


# --- many problems --------------------------------------------------------------------------------------------------
def solve_problems(
    tasks: Sequence[ProblemTask],
    workers: Any = None,
    progress: Callable[..., None] | None = None,
    columns: KernelColumns | None = None,
    labels: Sequence[Any] = (),
    mirror: Store | None = None,
) -> list[ProblemResult]:
    """Solve all tasks: on the Dask workers if given, else on threads of this process (the solvers hold no lock).

    Parameters
    ----------
    columns
        One source shared by all tasks, in this process; they are then solved one after another.
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
        for index, result in _answers(tasks, workers, columns, str(watch.folder)):
            results[index] = result
            share(mirror, result)
            watch.finished(result.fingerprint, result.certificate["kkt_gap"], result.status)
    return [result for result in results if result is not None]


def _answers(
    tasks: Sequence[ProblemTask], workers: Any, columns: KernelColumns | None, live: str
) -> Iterator[tuple[int, ProblemResult]]:
    if workers is not None and columns is None:
        yield from workers.map(functools.partial(_solve_quietly, live=live), list(tasks))
        return
    threads = 1 if columns is not None else min(len(tasks), n_threads())
    quiet = warnings.catch_warnings(action="ignore", category=ConvergenceWarning)  # the status says it
    with quiet, one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        futures = {pool.submit(solve_problem, task, live, columns): i for i, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:  # Ctrl-C, SIGTERM or a failed problem: nobody waits for the rest
            shutil.rmtree(live, ignore_errors=True)
            for future in futures:
                future.cancel()
            raise
