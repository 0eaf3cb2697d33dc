"""What answers along C prove of every C between them: how many of the rows that judge them any optimum has wrong.

All that is needed lies in the answers: their variables, and p - u at all merged rows, held out or not. Of rows that K
does not have, as of a test set, the decision values are given. The bounds are those of `svmcore.train.choice`.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from pipeline.answers.problem import ProblemTask, held_out_counts, problem_of, target_of, targets_of
from pipeline.answers.result import read_answer
from pipeline.kernel.columns import computed_columns
from pipeline.rows.dataset import dataset_at
from svmcore.kernels import Kernel
from svmcore.points import Floats
from svmcore.qp import SignedQP
from svmcore.sources import ComputedColumns
from svmcore.train.choice import End, Fewest, Rows, output_error
from svmcore.train.posing.plan import served_kernel

__all__ = ["Judges", "columns_of", "fewest_errors", "held_out", "tested"]

ROUNDING = 1e-12  # of decision values that a model has computed


@dataclasses.dataclass(frozen=True, eq=False)
class Judges:
    """Rows on which errors are counted.

    Attributes
    ----------
    codes, copies, norm
        (h,) their classes, how often each is there, and its sqrt(k(x, x)).
    at
        (h,) which merged rows they are, or None for others.
    decisions
        Of others, (h, k) for each C.
    """

    codes: Floats
    copies: Floats
    norm: Floats
    at: Floats | None = None
    decisions: Sequence[Floats] = ()


def columns_of(task: ProblemTask, dtype: str) -> ComputedColumns:
    """What is known of the K of a task, whose values are of type `dtype`, without any of them."""
    return computed_columns(task.dataset, served_kernel(Kernel.create(task.kernel), task.built), dtype)


def held_out(task: ProblemTask, columns: ComputedColumns) -> Judges:
    """The rows that the fold of a task holds out."""
    assert task.fold is not None
    copies = held_out_counts(task.dataset, task.fold)
    at = np.flatnonzero(copies)
    return Judges(targets_of(task.dataset)[0][at], copies[at], _norms(columns.diagonal()[at]), at)


def tested(columns: ComputedColumns, blocks: Iterable[tuple[Any, Any]], decisions: Sequence[Floats]) -> Judges:
    """Other rows, in blocks (X, codes), with decision values (h, k) for each C."""
    kernel = columns.kernel
    centre = columns.points.centre if kernel.is_centred else None
    parts = [(codes, kernel.diagonal_of(kernel.prepare(X, centre, np.float64))) for X, codes in blocks]
    codes, diagonal = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Judges(codes, np.ones(len(codes)), _norms(diagonal), None, decisions)


def _norms(diagonal: Floats) -> Floats:
    return np.asarray(np.sqrt(np.maximum(diagonal, 0.0)))


def fewest_errors(along: Sequence[Sequence[ProblemTask]], columns: ComputedColumns, judges: Judges) -> Floats:
    """The fewest errors (n_C - 1, parts) that an optimum with a C between neighbours can have, part by part.

    `along` are the solved problems of one fold, [C][target], C ascending.
    """
    first, norm = along[0][0], _norms(columns.diagonal())
    n_classes = len(dataset_at(first.dataset).classes)
    found = Fewest(len(along), judges.codes, judges.copies, n_classes, first.multiclass)
    for k, task in enumerate(along[0]):
        qp = problem_of(dataclasses.replace(task, C=1.0), columns)
        weight = qp.hi - qp.lo
        at = np.flatnonzero(weight)
        rows = Rows(target_of(task).y[at], weight[at], norm[at], judges.norm, columns.is_positive)
        found.add(k, rows, _ends([tasks[k] for tasks in along], k, qp, at, rows, judges))
    return found.counts()


def _ends(tasks: Sequence[ProblemTask], k: int, qp: SignedQP, at: Floats, rows: Rows, judges: Judges) -> Iterator[End]:
    """Answers of target `k` along C, at the merged rows `at` that they are trained on and at the judges."""
    for number, task in enumerate(tasks):
        result, decision = read_answer(task, ("rows", "beta", "residual"))
        outputs = qp.p - result.residual
        beta = np.bincount(result.rows, weights=result.beta, minlength=qp.m)[at]
        error = output_error(qp.source.rounding, rows, beta)
        if judges.at is None:
            values = np.asarray(judges.decisions[number][:, k])
            asked = values - (decision[0] - outputs[0])  # the bias of this K
            error += ROUNDING * float(np.abs(values).max(initial=1.0))
        else:
            asked = outputs[judges.at]
        assert task.C is not None
        yield End(task.C, beta, outputs[at], asked, error)
