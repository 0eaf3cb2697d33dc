"""Recompute what a model claims, from the raw data, in float64, by code that did not make it.

Hashes first; then the source is read again, and every certificate and score follows from alpha, the labels and the
kernel's definition. Nothing of the cache is used.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from pipeline import dataset as datasets
from pipeline import evaluation
from pipeline.artifacts import ChangedPart, StoredModel, load_model, model_folder
from pipeline.config import load_experiment
from pipeline.copies import address_of
from pipeline.progress import Progress, silent
from pipeline.scoring import train_confusion
from pipeline.solve import ProblemTask, finite, problem_of, target_of
from svmcore.certificate import Evaluation, evaluate
from svmcore.columns import CachedColumns, ComputedColumns
from svmcore.multiclass import vote
from svmcore.problem import Problem
from svmcore.solution import Status

__all__ = ["Difference", "verify"]

SLACK = 1.05  # certified means kkt_gap <= 1.05 tol
DOUBT = 1e-3  # decision values closer than this may fall on either side
COLUMN_BYTES = 2 << 30


@dataclasses.dataclass(frozen=True)
class Difference:
    """One part that is not what the model claims."""

    part: str
    stored: Any
    recomputed: Any

    def __str__(self) -> str:
        return f"{self.part}: stored {self.stored}, recomputed {self.recomputed}"


def verify(path: str | Path, progress: Progress | None = None) -> dict[str, Any]:
    """Compare a model with its recomputation.

    Returns
    -------
    dict
        `model`, `agrees`, `differences` [{part, stored, recomputed}], `per_class` [{label, primal, dual, kkt_gap,
        relative_gap}], `accuracy`, `train_accuracy`: all recomputed.

    Raises
    ------
    InputError
        No model there, a newer format, or a source that cannot be read.
    """
    folder = model_folder(path)
    report: dict[str, Any] = {"model": address_of(folder), "agrees": False}
    try:
        stored = load_model(folder)
    except ChangedPart as error:
        return report | {"differences": [{"part": error.part, "stored": "its sha256", "recomputed": str(error)}]}
    with tempfile.TemporaryDirectory(prefix="marginflow-verify-") as root:
        found, differences = _recompute(stored, Path(root), progress or silent)
    listed = [dataclasses.asdict(difference) for difference in differences]
    return report | {"agrees": not differences, "differences": listed} | found


def _recompute(stored: StoredModel, root: Path, progress: Progress) -> tuple[dict[str, Any], list[Difference]]:
    meta = stored.metadata
    dataset = datasets.ingest(load_experiment(meta["config"]), root, progress)
    differences = _data_differences(stored, dataset)
    if differences:  # other rows: nothing below would mean anything
        return {"per_class": []}, differences
    evaluations = _evaluations(stored, dataset, root, progress)
    entries, doubts = [], []
    for k, (problem, alpha, found) in enumerate(evaluations):
        claim = meta["per_class"][k]
        tol = float(meta["tasks"][k]["solver"]["tol"])
        slack = Rounding.of(problem, alpha, found, meta["dtype"])
        differences += _certificate_differences(claim, found, tol, slack)
        differences += _bias_difference(claim, float(stored.model.bias[k]), found, tol, slack)
        entries.append(_entry(claim["label"], found))
        doubts.append(DOUBT + slack.output)
    scores, changed = _score_differences(stored, dataset, [e for _, _, e in evaluations], np.array(doubts))
    return {"per_class": entries, **scores}, differences + changed


def _entry(label: Any, found: Evaluation) -> dict[str, Any]:
    certificate = dataclasses.asdict(found.certificate)
    keys = ("primal", "dual", "relative_gap", "kkt_gap")
    return {"label": label} | {key: finite(certificate[key]) for key in keys}


def _data_differences(stored: StoredModel, dataset: Any) -> list[Difference]:
    meta, model = stored.metadata, stored.model
    if dataset.fingerprint != meta["data"]:
        return [Difference("data", meta["data"], dataset.fingerprint)]
    checks = {
        "classes": (meta["classes"], list(dataset.classes)),
        "scaling": (_listed(stored.scaling), _listed(dataset.scaling)),
    }
    found = [Difference(part, *values) for part, values in checks.items() if values[0] != values[1]]
    if not _equal_rows(dataset.X()[stored.support], model.support_vectors):
        found.append(Difference("support_vectors", "rows of the model", "other rows in the data"))
    return found


def _listed(scaling: Any) -> list[Any]:
    return [scaling.kind, np.asarray(scaling.shift).tolist(), np.asarray(scaling.factor).tolist()]


def _equal_rows(a: Any, b: Any) -> bool:
    if a.shape != b.shape:
        return False
    if sparse.issparse(a) or sparse.issparse(b):
        return (sparse.csr_matrix(a) != sparse.csr_matrix(b)).nnz == 0
    return bool(np.array_equal(a, b))


def _evaluations(
    stored: StoredModel, dataset: Any, root: Path, progress: Progress
) -> list[tuple[Problem, Any, Evaluation]]:
    """Each problem, its alpha (n,), and what follows from it over float64 columns of the kernel."""
    model, tasks = stored.model, stored.metadata["tasks"]
    source = ComputedColumns(model.kernel, dataset.points(np.float64), np.float64)
    columns = CachedColumns(source, max(COLUMN_BYTES, 16 * source.n))
    found = []
    for k, identity in enumerate(tasks):
        task = ProblemTask(root=str(root), dataset=str(dataset.path), gram=None, **_tupled(identity))
        problem = problem_of(task, columns)
        alpha = np.zeros(columns.n)
        alpha[stored.support] = model.coef[k] * target_of(task).y[stored.support]
        found.append((problem, alpha, evaluate(problem, alpha)))
        progress("verify", k + 1, len(tasks))
    return found


def _tupled(identity: dict[str, Any]) -> dict[str, Any]:
    fold = identity.get("fold")
    return identity | {"fold": tuple(fold) if fold else None}


@dataclasses.dataclass(frozen=True)
class Rounding:
    """What the precision of K while training explains.

    An entry of K is off by about eps K_max, so an output v_i = sum_j K_ij coef_j by eps K_max ||alpha||_2 (errors of
    random sign), the dual by at most eps K_max (sum alpha)^2 / 2, and the primal by that and sum_i C_i output errors.
    """

    output: float
    dual: float
    primal: float

    @classmethod
    def of(cls, problem: Problem, alpha: Any, found: Evaluation, dtype: str) -> "Rounding":
        """Slacks of one problem at its alpha (n,)."""
        eps = 8.0 * float(np.finfo(dtype).eps) * float(problem.diagonal.max(initial=1.0))
        output = eps * float(np.linalg.norm(alpha))
        dual = 0.5 * eps * float(alpha.sum()) ** 2 + 1e-9 * abs(found.certificate.dual)
        C = np.asarray(problem.C)
        return cls(output, dual, dual + output * float(C[np.isfinite(C)].sum()))


def _certificate_differences(claim: dict[str, Any], found: Evaluation, tol: float, slack: Rounding) -> list[Difference]:
    label, certificate = claim["label"], found.certificate
    wrong = []
    for key, allowed in (("dual", slack.dual), ("primal", slack.primal)):
        value = finite(getattr(certificate, key))
        if not _close(claim[key], value, allowed):
            wrong.append(Difference(f"{key} of class {label}", claim[key], value))
    largest = SLACK * tol if claim["status"] == Status.CONVERGED else claim["kkt_gap"]
    if not certificate.kkt_gap <= largest + slack.output:
        wrong.append(Difference(f"kkt_gap of class {label}", claim["kkt_gap"], certificate.kkt_gap))
    return wrong


def _close(stored: float | None, recomputed: float | None, allowed: float) -> bool:
    if stored is None or recomputed is None:
        return stored is recomputed
    return abs(stored - recomputed) <= allowed


def _bias_difference(
    claim: dict[str, Any], bias: float, found: Evaluation, tol: float, slack: Rounding
) -> list[Difference]:
    allowed = max(DOUBT, 2.0 * tol, 2.0 * claim["kkt_gap"]) + slack.output
    if abs(bias - found.bias) <= allowed and bias == claim["bias"]:
        return []
    return [Difference(f"bias of class {claim['label']}", bias, found.bias)]


def _score_differences(
    stored: StoredModel, dataset: Any, evaluations: Sequence[Evaluation], doubts: Any
) -> tuple[dict[str, Any], list[Difference]]:
    """Accuracies again; rows whose label hangs on less than `doubts` (k,) may have fallen on either side."""
    meta, model = stored.metadata, stored.model
    decision = np.stack([found.decision for found in evaluations], axis=1)
    train = evaluation.accuracy_of(train_confusion(dataset, model, decision))
    doubtful = float(dataset.counts()[_doubtful(decision, doubts)].sum()) / dataset.n_train
    test, test_doubtful = _test_accuracy(dataset, model, doubts)
    found = []
    for part, value, slack in (("train_accuracy", train, doubtful), ("accuracy", test, test_doubtful)):
        if not _close(meta[part], value, slack + 1e-12):
            found.append(Difference(part, meta[part], value))
    return {"accuracy": test, "train_accuracy": train}, found


def _doubtful(decision: Any, doubts: Any) -> Any:
    """Rows (n,) bool with a decision value, or a lead of the largest, that could be of the other sign."""
    near = (np.abs(decision) < doubts).any(axis=1)
    if decision.shape[1] == 1:
        return near
    top = np.sort(decision, axis=1)[:, -2:]
    return near | (top[:, 1] - top[:, 0] < 2.0 * doubts.max())


def _test_accuracy(dataset: Any, model: Any, doubts: Any) -> tuple[float | None, float]:
    right = doubtful = 0
    for X, codes in dataset.test_blocks():
        decision = model.decision_function(X)
        right += int((vote(decision, len(dataset.classes), model.scheme) == codes).sum())
        doubtful += int(_doubtful(decision, doubts).sum())
    n = dataset.n_test
    return (right / n, doubtful / n) if n else (None, 0.0)
