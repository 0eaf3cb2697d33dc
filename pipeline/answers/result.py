"""Answers on storage: what a solved problem leaves as the file `ROOT/problems/FINGERPRINT`, whole or not at all.

An answer holds the support vectors' signed coefficients, the certificate, and what the next problem of a chain starts
from. Finished answers are found again, and other machines may get them. One that a time limit cut short has a name of
its own, for runs with that limit alone; one that was stopped is not kept. So neither ever stands where a finished one
was, or is taken for one.
"""

import contextlib
import dataclasses
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.answers.array_file import read_arrays, write_arrays
from pipeline.answers.calibrate import sigmoid_of
from pipeline.answers.problem import FORMAT, ProblemTask, held_out_counts, part_of, target_of, training_counts
from pipeline.rows.dataset import dataset_at
from pipeline.storage.cache import finished
from svmcore.certificate import Certificate
from svmcore.errors import InputError
from svmcore.model import Part
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.solution import Solution, Status
from svmcore.train.chains import Handover, restored
from svmcore.train.doubt import doubt

__all__ = [
    "COEFFICIENTS",
    "ProblemResult",
    "doubled",
    "find_result",
    "finite",
    "judged_result",
    "read_answer",
    "read_answers",
    "read_result",
    "scratch",
    "seems_answered",
    "share",
    "sigmoids_of",
    "store_result",
    "stored_decision",
]

FINISHED = frozenset(s.value for s in (Status.CONVERGED, Status.MAX_ITER, Status.STALLED, Status.INFEASIBLE))


@dataclasses.dataclass(frozen=True)
class ProblemResult:
    """The answer to one task.

    `support` are variables with their values `beta`, and `rows` the merged training rows that they are of; the counts
    are of original rows, `norm2` is ||w||^2, `slack` the sum of what the original rows trained on cost. The model is
    (K beta + bias) / scale; `epsilon` is half the width of a tube that was found. `residual` (m,) is p - u of all
    variables, which does not depend on C: where the next problem of a chain starts. `sigmoid` is Platt's A and B,
    `doubt` a `svmcore.train.doubt.Doubt` with None for infinite. `kernel_id` names the K that it is of; `program`
    is what was solved, where that was just now.
    """

    fingerprint: str
    kernel_id: str
    C: float | None
    machine: dict[str, Any]
    status: str
    support: Any
    rows: Any
    beta: Any
    residual: Any
    bias: float
    scale: float
    epsilon: float | None
    n_iter: int
    n_support: int
    n_bounded: int
    seconds: float
    norm2: float
    slack: float
    certificate: dict[str, float | None]
    history: list[list[float]]
    sigmoid: list[float] | None = None
    doubt: list[float | None] | None = None
    reused: bool = False
    program: SignedQP | None = None

    @property
    def handover(self) -> Handover:
        """What the next problem of its chain starts from."""
        error, held = self.certificate.get("error"), self.n_bounded / max(1, self.n_support)
        return Handover(self.support, self.rows, self.beta, self.residual, math.inf if error is None else error, held)

    def solution(self, qp: SignedQP) -> Solution | None:
        """That of its program `qp`, the same bits whether it was found just now or long ago; see `restored`."""
        numbers = {name: math.inf if value is None else value for name, value in self.certificate.items()}
        found = Certificate(**numbers | {"relative_gap": self.certificate["relative_gap"]})  # type: ignore[arg-type]
        return restored(qp, self.handover, found, self.norm2)

    @property
    def part(self) -> Part:
        """What a model takes from it."""
        return Part(self.rows, self.beta, self.bias, self.scale)


KIND = "answer"
SMALL = 8 << 20  # bytes
COEFFICIENTS = ("support", "rows", "beta")
ARRAYS = (*COEFFICIENTS, "residual")


# --- writing --------------------------------------------------------------------------------------------------------
def store_result(task: ProblemTask, qp: SignedQP, solution: Solution) -> ProblemResult:
    """Keep an answer unless it was stopped; of a fold's decision values, those of the rows it holds out."""
    record, arrays = _described(task, qp, solution)
    kept = dict(arrays)
    if task.fold is not None:
        kept["decision"] = arrays["decision"][held_out_counts(task.dataset, task.fold) > 0]
    if solution.status is not Status.STOPPED:
        write_arrays(_place(task, solution.status.value), KIND, FORMAT, record, kept)
    return dataclasses.replace(_result(task.fingerprint, record, arrays), program=qp)


def judged_result(task: ProblemTask, qp: SignedQP, solution: Solution, seconds: float) -> tuple[ProblemResult, Floats]:
    """An answer as somebody else has judged it, and its decision values (m,); nothing is stored."""
    record, arrays = _described(task, qp, solution)
    return _result(task.fingerprint, record | {"seconds": seconds}, arrays), arrays["decision"]


def _described(task: ProblemTask, qp: SignedQP, solution: Solution) -> tuple[dict[str, Any], dict[str, Any]]:
    """Record and arrays of an answer."""
    counts = training_counts(task)
    left = Handover.of(qp, solution)
    at_bound = left.rows[(left.beta >= qp.hi[left.support]) | (left.beta <= qp.lo[left.support])]
    answer = task.built.answer(qp, solution)
    decision = np.asarray((solution.decision + (answer.bias - solution.bias)) / answer.scale, np.float64)
    record = {
        "task": _fields(task),
        "machine": task.machine,
        "status": str(solution.status.value),
        "bias": float(answer.bias),
        "scale": float(answer.scale),
        "epsilon": answer.epsilon,
        "n_iter": int(solution.n_iter),
        "n_support": int(counts[np.unique(left.rows)].sum()),
        "n_bounded": int(counts[np.unique(at_bound)].sum()),
        "seconds": solution.history[-1].seconds if solution.history else 0.0,
        "norm2": float(solution.norm2),
        "slack": _slack(task, decision, answer.epsilon, counts),
        "certificate": _numbers(solution.certificate),
        "history": [[p.seconds, p.n_iter, float(p.kkt_gap)] for p in solution.history if math.isfinite(p.kkt_gap)],
        "sigmoid": sigmoid_of(task, qp, solution.beta, decision, answer.scale),
        "doubt": [finite(value) for value in doubt(task.built, qp, solution)],
    }
    return record, {name: getattr(left, name) for name in ARRAYS} | {"decision": decision}


def _place(task: ProblemTask, status: str) -> Path:
    """File of a finished answer, or of one that the task's time limit cut short."""
    return task.file if status in FINISHED else Path(f"{task.file}.limit-{task.solver['time_limit']:g}")


def _slack(task: ProblemTask, decision: Floats, epsilon: float | None, counts: Floats) -> float:
    """Sum of what the original rows trained on cost, before C."""
    y, kind = target_of(task).y, dataset_at(task.dataset).kind
    trained = np.where(y != 0, counts, 0.0) if kind.answers == "labels" else counts
    width = getattr(task.built, "epsilon", 0.0) if epsilon is None else epsilon
    return float(trained @ kind.losses(y, decision, width))


def doubled(result: ProblemResult) -> list[list[float]]:
    """[row, amount] of each row whose two variables are both not 0: what its coefficient does not tell."""
    rows, at, counts = np.unique(result.rows, return_inverse=True, return_counts=True)
    least = np.full(len(rows), np.inf)
    np.minimum.at(least, at, np.abs(result.beta))
    return [[int(row), float(amount)] for row, amount in zip(rows[counts > 1], least[counts > 1], strict=True)]


def sigmoids_of(results: Sequence[ProblemResult]) -> Floats | None:
    """(k, 2) A and B of each problem, where they were asked for."""
    found = [result.sigmoid for result in results]
    return np.array(found) if all(each is not None for each in found) else None


def _numbers(certificate: Certificate) -> dict[str, float | None]:
    values = _fields(certificate)
    return {key: finite(value) for key, value in values.items() if value is None or np.isscalar(value)}


def _fields(of: Any) -> dict[str, Any]:
    """As `dataclasses.asdict`, which copies all that they hold."""
    return {field.name: getattr(of, field.name) for field in dataclasses.fields(of)}


def finite(value: Any) -> float | None:
    """`value` as JSON knows numbers: None for an infinite or missing one."""
    return None if value is None or not math.isfinite(value) else float(value)


# --- reading --------------------------------------------------------------------------------------------------------
def _result(fingerprint: str, record: dict[str, Any], arrays: Any, reused: bool = False) -> ProblemResult:
    names = {field.name for field in dataclasses.fields(ProblemResult)} & set(record)
    values = {name: record[name] for name in names} | {name: arrays.get(name) for name in ARRAYS}
    task = record["task"]
    return ProblemResult(fingerprint, task["kernel_id"], task["C"], reused=reused, **values)


def find_result(task: ProblemTask, fingerprint: str | None = None) -> ProblemResult | None:
    """Return the finished answer of a task, or None if there is none or its bytes differ."""
    fingerprint = fingerprint or task.fingerprint
    file = Path(task.root) / part_of(fingerprint)
    record, arrays = _read(file, ARRAYS)
    if record is None:
        return None
    with contextlib.suppress(OSError):
        os.utime(file)  # the cache evicts the oldest
    return _result(fingerprint, record, arrays, reused=True)


def seems_answered(task: ProblemTask) -> bool:
    """Whether an answer lies where a finished one would; its bytes are not looked at."""
    return task.file.is_file()


def read_result(task: ProblemTask) -> ProblemResult:
    """Return the answer of a task that was solved: finished, or cut short by the task's own time limit."""
    return read_answer(task)[0]


def read_answer(task: ProblemTask, names: Sequence[str] = ARRAYS) -> tuple[ProblemResult, Any]:
    """As `read_result`, with the decision values: see `stored_decision`; arrays that are not named are None."""
    record, arrays = _read(task.file, (*names, "decision"))
    if record is None and task.solver.get("time_limit") is not None:
        record, arrays = _read(_place(task, Status.TIME_LIMIT), (*names, "decision"), whole=False)
    if record is None:
        raise FileNotFoundError(f"no answer at {task.file}")
    return _result(task.fingerprint, record, arrays), arrays["decision"]


def read_answers(tasks: Sequence[ProblemTask], names: Sequence[str] = COEFFICIENTS) -> tuple[list[ProblemResult], Any]:
    """Answers of several tasks on the same rows, with these of their arrays, and their decision values (m, k).

    These are classes times rows, so they are kept in a file of the cache, which ends with them; one answer is in memory
    at a time.
    """
    results, columns = [], None
    for k, task in enumerate(tasks):
        result, decision = read_answer(task, names)
        if columns is None:
            columns = scratch(Path(task.root), (len(tasks), len(decision)))
        columns[k] = decision
        results.append(result)
    assert columns is not None
    return results, columns.T


def scratch(folder: Path, shape: tuple[int, ...]) -> Any:
    """Room for float64 in a nameless file on the file system of `folder`; small ones are in memory."""
    if math.prod(shape) * 8 <= SMALL:
        return np.empty(shape)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, np.float64, "w+", shape=shape)


def _read(file: Path, names: Sequence[str], whole: bool = True) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Record and arrays of an answer, finished (`whole`) or cut short; (None, none) if there is no sound one."""
    try:
        record, arrays = read_arrays(file, KIND, FORMAT)
    except (FileNotFoundError, InputError):
        return None, {}
    if (record["status"] in FINISHED) != whole:
        return None, {}
    return record, {name: arrays[name].copy() for name in names}


def stored_decision(task: ProblemTask) -> Any:
    """Decision values (m,) over the merged training rows of an answered task; a fold's: over those it holds out."""
    return read_answer(task)[1]


# --- other machines -------------------------------------------------------------------------------------------------
def share(root: Path, found: Any) -> None:
    """Let other machines find an answer (with `fingerprint`, `status`, `reused`), if it is new and final."""
    if not found.reused and found.status in FINISHED:
        finished(root, part_of(found.fingerprint))
