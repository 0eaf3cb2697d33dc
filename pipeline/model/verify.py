"""Recompute what a model claims, from the raw data, in float64, by code that did not make it.

Hashes first; then the source is read again, and every certificate and score follows from the coefficients, the labels
and the kernel's definition. Nothing of the cache is used. How a claim is compared is in `pipeline.model.claims`.

A model names the files that it was trained on, and may fill in `${ENV}`. Of a model that this account did not write, no
such name is followed unless the caller says so: a folder from elsewhere could ask this host for any file, any address
and any variable of the environment.
"""

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from pipeline.answers.calibrate import sigmoid_of
from pipeline.answers.problem import ProblemTask, problem_of, training_counts
from pipeline.answers.result import scratch
from pipeline.compute.progress import Progress, silent
from pipeline.config.keys import copied
from pipeline.config.load import load_experiment
from pipeline.config.schema import Experiment
from pipeline.config.values import BUNDLED
from pipeline.kernel.choose import KernelPlan
from pipeline.kinds.base import Outputs
from pipeline.layout.parts import Ingested, task_for
from pipeline.model import decisions
from pipeline.model.claims import Difference, Found, LowRankFound, bound_differences, differences_of, variables_of
from pipeline.model.parts import ChangedPart, is_own_model, model_folder
from pipeline.model.signature import signature_fault
from pipeline.model.stored import StoredModel, load_model
from pipeline.rows import dataset as datasets
from pipeline.rows.schema import Schema
from pipeline.storage.bucket import address_of
from pipeline.storage.manifest import MANIFEST, Damaged, believing
from pipeline.storage.runs import check_run
from svmcore.approximation import FeatureMap, Proof
from svmcore.certificate import evaluate
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.kernels.exact import ExactKernel
from svmcore.model.left_out import rule_holds
from svmcore.model.probability import sigmoid
from svmcore.points import Floats
from svmcore.solution import Status
from svmcore.solvers import Outcome, Solver
from svmcore.solvers.base import judged
from svmcore.sources import CachedColumns, ComputedColumns
from svmcore.tasks import Task
from svmcore.train.posing.plan import served_kernel

__all__ = ["verify"]

COLUMN_BYTES = 2 << 30
OF_A_RUN = ("data", "kernel_id", "warm", "approximation")  # how an answer was come by: of the model nothing follows
FOLDS_DIFFER = 0.005  # of a probability: 0.0015 was met between K in float32 and columns in float64
INDEPENDENT = 1e-15  # of stored landmarks all are kept


def verify(
    path: str | Path,
    progress: Progress | None = None,
    *,
    source: str | None = None,
    test: str | None = None,
    trust: bool = False,
    key: str | None = None,
) -> dict[str, Any]:
    """Compare a model with its recomputation.

    Parameters
    ----------
    source, test
        Where the training and test rows are, instead of where the model says.
    trust
        Whether to follow the names in a model that this account did not write.
    key
        Public key (PEM) of whoever must have signed the model.

    Returns
    -------
    dict
        `model`, `agrees`, `differences` [{part, stored, recomputed}], `per_class` [{label, primal, dual, kkt_gap,
        relative_gap, infeasibility, uncertainty, bar}], `accuracy`, `train_accuracy`: all recomputed.

    Raises
    ------
    InputError
        No model there, a newer format, a source that cannot be read, or one that only a stranger's model names.
    """
    folder = model_folder(path)
    found: dict[str, Any] = {}
    differences = _changed_files(path, folder)
    try:
        stored = load_model(folder)
        if key is not None and (fault := signature_fault(folder, key)):
            differences.append(Difference("signature", "of the given key", fault))
        else:
            exp = load_experiment(_with_sources(stored, source, test, trust or is_own_model(folder)))
            with tempfile.TemporaryDirectory(prefix="marginflow-verify-") as root:
                found, recomputed = _recompute(stored, exp, Path(root), progress or silent)
            differences += recomputed
    except ChangedPart as error:
        differences.append(_changed(error))
    listed = [dataclasses.asdict(difference) for difference in differences]
    return {"model": address_of(folder), "agrees": not differences, "differences": listed} | found


def _changed(error: Damaged) -> Difference:
    return Difference(error.part, "its sha256", str(error))


def _changed_files(path: str | Path, model: Path) -> list[Difference]:
    """What of a run is not what its manifest says; nothing where a model alone was given, or the run has none."""
    if Path(path).name == model.name or not (model.parent / MANIFEST).is_file():
        return []
    try:
        check_run(model.parent)
    except Damaged as error:
        return [_changed(error)]
    return []


def _with_sources(stored: StoredModel, source: str | None, test: str | None, trusted: bool) -> dict[str, Any]:
    """Config of a model with the sources given; InputError for one that is not given and not to be trusted."""
    config = copied(stored.metadata["config"])
    given = {key: value for key, value in (("source", source), ("test", test)) if value is not None}
    for key, named in config["data"].items():
        if key not in ("source", "test") or key in given or not isinstance(named, str) or trusted:
            continue
        if named.removeprefix("sklearn:") not in BUNDLED:
            raise InputError(
                f"model {stored.path}: this account did not write it, so its data.{key} {named!r} is not opened; give "
                f"--{key} URL of the same rows, or --trust to follow what the model names"
            )
    config["data"] |= given
    return config


def _recompute(
    stored: StoredModel, exp: Experiment, root: Path, progress: Progress
) -> tuple[dict[str, Any], list[Difference]]:
    dataset = datasets.ingest(exp, root, progress)
    tasks = _problems_asked(exp, dataset, root)
    differences = _data_differences(stored, dataset) or _problem_differences(stored, tasks)
    if differences:  # other rows: nothing below would mean anything
        return {"per_class": []}, differences
    entries: list[dict[str, Any]] = []
    served = None if stored.alpha is not None else _served_rounding(stored, dataset, tasks[0].built)
    shape = len(stored.metadata["per_class"]), dataset.n_merged
    decision, doubts = scratch(root, shape), scratch(root, shape)  # classes times rows: not held in memory
    for k, (claim, bias, found, fitted) in enumerate(_found(stored, dataset, tasks, progress)):
        differences += differences_of(claim, bias, found)
        stated = None if stored.model.sigmoids is None else stored.model.sigmoids[k].tolist()
        told = isinstance(found, LowRankFound) or rule_holds(found.qp, found.beta)
        slack = exp.tol if told else max(exp.tol, FOLDS_DIFFER)
        differences += _sigmoid_difference(f"sigmoid of {claim['label']}", stated, fitted, slack)
        if isinstance(found, LowRankFound):
            differences += bound_differences(claim, found)
        entries.append({"label": claim["label"]} | found.record)
        decision[k], doubts[k] = found.decision, found.doubts(served, claim)
    scores, changed = _score_differences(stored, exp.scores, dataset, decision.T, doubts.T)
    return {"per_class": entries, **scores}, differences + changed


# --- the rows -------------------------------------------------------------------------------------------------------
def _data_differences(stored: StoredModel, dataset: Any) -> list[Difference]:
    meta, model = stored.metadata, stored.model
    if dataset.fingerprint != meta["data"]:
        return [Difference("data", meta["data"], dataset.fingerprint)]
    n_goals = stored.kind.n_goals(len(dataset.classes), model.scheme)
    checks = {
        "classes": (meta["classes"], list(dataset.classes)),
        "problems": ([len(meta["tasks"]), len(meta["per_class"])], [n_goals, n_goals]),
        "scaling": (_listed(stored.scaling), _listed(dataset.scaling)),
    }
    if meta["format"] >= 4:
        checks["schema"] = (_described(stored.schema), _described(dataset.schema))
    found = [Difference(part, *values) for part, values in checks.items() if values[0] != values[1]]
    if stored.alpha is None and not _equal_rows(dataset.take(stored.support), model.support_vectors):
        found.append(Difference("support_vectors", "rows of the model", "other rows in the data"))
    return found


def _problems_asked(exp: Experiment, dataset: Any, root: Path) -> list[ProblemTask]:
    """The problems on all rows that the config asks for, one a goal: these are judged, whatever the model states."""
    kernel = exp.build_kernel().resolved(dataset.n_features, dataset.variance)
    plan = KernelPlan("columns", kernel.spec(), "float64", kernel_id="", gram=None)
    goals = range(dataset.kind.n_goals(len(dataset.classes), exp.multiclass))
    return [task_for(exp, root, Ingested.of(dataset), plan, goal) for goal in goals]


def _problem_differences(stored: StoredModel, asked: Sequence[ProblemTask]) -> list[Difference]:
    """What the model states of its kernel and its problems that its config does not ask for."""
    kernel = asked[0].kernel
    same = stored.model.kernel == Kernel.create(kernel)
    found = [] if same else [Difference("kernel", stored.model.kernel.spec(), kernel)]
    with believing(f"model {stored.path}: its hashes fit, but it states no problems", "restore it or train again"):
        for k, (task, problem) in enumerate(zip(stored.metadata["tasks"], asked, strict=True)):
            said, wanted = _stated(task), problem.identity
            parts = [name for name in wanted if name in said and name not in OF_A_RUN and said[name] != wanted[name]]
            found += [Difference(f"{name} of problem {k}", said[name], wanted[name]) for name in parts]
    return found


def _stated(task: dict[str, Any]) -> dict[str, Any]:
    """What a model says of a problem; one of an older format is of the one machine that there was."""
    if "machine" in task:
        return dict(task)
    own = {name: task[name] for name in ("loss", "bias") if name in task}
    return {**task, "machine": Task.create({"name": "svc"} | own).spec()}


def _listed(scaling: Any) -> list[Any]:
    return [scaling.kind, np.asarray(scaling.shift).tolist(), np.asarray(scaling.factor).tolist()]


def _described(schema: Schema) -> list[Any]:
    return [schema.record(), {name: [repr(value) for value in array] for name, array in schema.arrays().items()}]


def _equal_rows(a: Any, b: Any) -> bool:
    if a.shape != b.shape:
        return False
    if sparse.issparse(a) or sparse.issparse(b):
        return (sparse.csr_matrix(a) != sparse.csr_matrix(b)).nnz == 0
    return bool(np.array_equal(a, b))


# --- the certificates -----------------------------------------------------------------------------------------------
def _found(
    stored: StoredModel, dataset: Any, tasks: Sequence[ProblemTask], progress: Progress
) -> Iterator[tuple[dict[str, Any], float, Found, list[float] | None]]:
    """Of each problem: what is claimed, the model's bias, what follows from its coefficients in float64, a sigmoid."""
    model, claims = stored.model, stored.metadata["per_class"]
    if stored.alpha is not None:
        again = _recomputed(model, stored.alpha, stored.support, dataset, tasks, claims)
        for k, (claim, low) in enumerate(zip(claims, again, strict=True)):
            yield claim, float(model.bias[k]), low, None
            progress("verify", k + 1, len(tasks))
        return
    computed = _columns(stored, dataset, tasks[0].built)
    anchor = computed.kernel.at_centre(computed.points)
    source = CachedColumns(computed, max(COLUMN_BYTES, 16 * computed.n))
    for k, (claim, task) in enumerate(zip(claims, tasks, strict=True)):
        qp, scale = problem_of(task, source), float(claim.get("rho", 1.0))
        coef = np.zeros(qp.source.n)
        coef[stored.support] = model.coef[k] * scale
        beta = variables_of(qp, task.built.variables(qp, coef), claim.get("doubled", []))
        solver, counts = Solver.create(task.solver), training_counts(task)
        found = Found(qp, beta, evaluate(qp, beta), solver, counts, anchor, task.built, scale)
        yield claim, float(model.bias[k]), found, sigmoid_of(task, qp, beta, found.decision, scale)
        progress("verify", k + 1, len(tasks))


def _sigmoid_difference(
    part: str, stated: list[float] | None, fitted: list[float] | None, tol: float
) -> list[Difference]:
    """Sigmoids whose probabilities are apart by more than `tol` somewhere between the margins.

    Decision values that are told by one solution are the same to 1e-5; folds are solved roughly, and anew.
    """
    if stated is None or fitted is None:
        return [] if stated is fitted else [Difference(part, stated, fitted)]
    f = np.linspace(-1.0, 1.0, 21)
    off = float(np.abs(sigmoid(f, *stated) - sigmoid(f, *fitted)).max())
    return [] if off <= tol else [Difference(part, stated, fitted)]


def _recomputed(
    model: Any, alpha: Floats, support: Floats, dataset: Any, tasks: Sequence[ProblemTask], claims: Sequence[Any]
) -> Iterator[LowRankFound]:
    """Each problem from the landmarks of a stored model and coefficients `alpha` (k, s) of the rows `support`."""
    map_ = FeatureMap.of(model.kernel, model.support_vectors, INDEPENDENT)
    X, scales = dataset.X(), np.array([float(claim.get("rho", 1.0)) for claim in claims])
    coef = np.zeros((len(tasks), dataset.n_merged))
    coef[:, support] = alpha * scales[:, None]
    proof = Proof(map_, X, map_.sides(X, np.float64)[0], coef)
    quadratic, outline = proof.quadratic(), proof.outline
    for k, task in enumerate(tasks):
        qp = problem_of(task, outline)
        beta = variables_of(qp, task.built.variables(qp, coef[k]), claims[k].get("doubled", []))
        evaluation = proof.evaluation(k, qp, beta, slice(None))
        solver, counts = Solver.create(task.solver), training_counts(task)
        known = qp, beta, evaluation, solver, counts, np.zeros(qp.source.n), task.built, float(scales[k])
        found = LowRankFound(*known, errors=proof.errors(k))
        solution = judged(qp, Outcome(Status.CONVERGED, 0, beta), evaluation, ())
        yield dataclasses.replace(found, exact=proof.bound(k, qp, solution, float(quadratic[k])))


def _columns(stored: StoredModel, dataset: Any, machine: Task) -> ComputedColumns:
    """Columns in float64, from the rows as they came."""
    exact = ExactKernel(served_kernel(stored.model.kernel, machine), dataset.X())
    return ComputedColumns(exact.kernel, exact.points(), np.float64, exact)


def _served_rounding(stored: StoredModel, dataset: Any, machine: Task) -> Any:
    """Of the kernel values that the solver was served: what the scores of training rows were counted from."""
    dtype, kernel = np.dtype(stored.metadata["dtype"]), served_kernel(stored.model.kernel, machine)
    return kernel.rounding(kernel.prepare_gram(dataset.X(), dtype), dtype=dtype)


# --- the scores -----------------------------------------------------------------------------------------------------
def _score_differences(
    stored: StoredModel, names: Sequence[str], dataset: Any, decision: Any, doubts: Any
) -> tuple[dict[str, Any], list[Difference]]:
    """Scores again: those of training rows within what the doubts (m, k) of their decision values leave open.

    Of test rows, all that a model of this config has to state.
    """
    meta, kind, scheme = stored.metadata, stored.kind, stored.model.scheme
    targets, counts = dataset.targets(), dataset.counts()
    stated = meta.get("scores") or {
        "train": {"accuracy": meta["train_accuracy"]},
        "test": {"accuracy": meta["accuracy"]},
    }
    slack = kind.score_slack(targets, decision, doubts, counts.astype(np.float64))
    train = kind.scored(list(slack), Outputs(targets, decision, dataset.classes, scheme, counts, stored.model.sigmoids))
    tested = decisions.decide_test_rows(dataset, stored.model, silent)
    claimed = dict.fromkeys(names if dataset.n_test else ()) | (stated["test"] or {})
    there = Outputs(dataset.test_targets(), tested, dataset.classes, scheme, None, stored.model.sigmoids)
    test = kind.scored(list(claimed), there)
    found = [
        Difference(f"train_{name}", stated["train"][name], train[name])
        for name in slack
        if name in stated["train"] and not _same(stated["train"][name], train[name], slack[name])
    ]
    found += [
        Difference(name, value, test[name]) for name, value in claimed.items() if not _same(value, test[name], 0.0)
    ]
    scores = {"scores": {"test": test, "train": train}}
    return {"accuracy": test.get("accuracy"), "train_accuracy": train.get("accuracy"), **scores}, found


def _same(stated: float | None, here: float | None, slack: float) -> bool:
    if stated is None or here is None:
        return stated is here
    return abs(stated - here) <= slack + 1e-12 * max(1.0, abs(here))
