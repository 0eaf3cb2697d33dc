"""One point, solved: its model in the draft, and its scores."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.answers import low_rank
from pipeline.answers.problem import ProblemTask, target_of
from pipeline.answers.result import ProblemResult, doubled, read_answers
from pipeline.compute.progress import Progress, silent
from pipeline.compute.workers import VERSION, Workers
from pipeline.kinds import evaluation
from pipeline.kinds.base import Outputs
from pipeline.layout.parts import Ingested, Part
from pipeline.model import assemble as scoring
from pipeline.model import decisions
from pipeline.model.proved import proved_labels
from pipeline.model.stored import save_model
from pipeline.rows import dataset as datasets
from pipeline.rows.drift import Summary
from pipeline.running.batch import Batch, Counts, of_one, placed, solve
from pipeline.running.provenance import origin
from pipeline.running.session import Session
from pipeline.storage.files import write_json
from svmcore.model import Model, vote
from svmcore.solution import Status

__all__ = ["Trained", "assembled", "score", "solve_and_prove"]

SHRINK = 10.0  # of tol, where labels are to be proved: the square of a bound shrinks nearly as much
FINEST = 1e-7  # tol that is not gone below

MOST_ERRORS = 100_000  # test rows of which two runs are compared


@dataclasses.dataclass(frozen=True)
class Trained:
    """Scores of one point, `test` and `train`, on all rows; its model and evaluation.json are in the draft.

    `proved` test rows have a label that the exact optimum provably gives them too; None where that is not known.
    """

    part: Part
    scores: dict[str, dict[str, float | None] | None]
    n_support: int
    per_class: list[dict[str, Any]]
    proved: int | None = None


def _scorers(session: Session) -> Workers | None:
    """Who scores test rows if they are many: the session's workers, where they have other cores and see the dataset.

    Those of this host would start first, and read what is here already.
    """
    blind = session.exp.cluster.remote and not session.store.is_shared
    return session.workers if session.elsewhere and not blind else None


def names_of(batch: Batch) -> dict[str, str]:
    """Names of the problems of a batch of one point: the classes that they tell apart, or what they are of."""
    tasks = _tasks(batch.parts[0])
    labels = _labels(tasks, datasets.open_dataset(batch.parts[0].data.path))
    return {task.fingerprint: str(label) for task, label in zip(tasks, labels, strict=True)}


def _tasks(part: Part) -> list[ProblemTask]:
    """The problems of the one point."""
    ((tasks,),) = part.tasks.values()
    return tasks


def _labels(tasks: Sequence[ProblemTask], dataset: Any) -> list[Any]:
    return [dataset.kind.label(target_of(task), dataset.classes) for task in tasks]


def solve_and_prove(session: Session, batch: Batch) -> tuple[Batch, Counts]:
    """Solve a batch of one point, and on until the share of test labels that the config asks for is proved.

    Each time with a tenth of tol, on the same K and from the last answers; the session's experiment has the last tol.
    It ends earlier where an answer has not converged, has no duality gap, or would need a tol below 1e-7. Where an
    approximation is to be polished, the exact machine is solved from its answers, and is what the experiment is then.
    """
    counts = solve(session, batch, names_of(batch))
    approximation = session.exp.build_approximation()
    if approximation is not None and approximation.polish:
        batch = _exact(session, batch)
        counts += solve(session, batch, names_of(batch))
    while session.exp.prove and session.exp.tol > SHRINK * FINEST and _lacks_proof(session, batch):
        batch = _finer(session, batch)
        counts += solve(session, batch, names_of(batch))
    return batch, counts


def _exact(session: Session, batch: Batch) -> Batch:
    """The same problems on K itself, each from its answer on the factor."""
    session.exp = placed(session, session.exp.exact())
    (part,) = batch.parts
    one = of_one(session, part.data, session.exp)
    pairs = zip(_tasks(one.parts[0]), _tasks(part), strict=True)
    return _with_tasks(one, [dataclasses.replace(exact, warm=rough.fingerprint) for exact, rough in pairs])


def _with_tasks(batch: Batch, tasks: list[ProblemTask]) -> Batch:
    """A batch of one point with other tasks."""
    (part,) = batch.parts
    ((index, _),) = part.tasks.items()
    return dataclasses.replace(batch, parts=(dataclasses.replace(part, tasks={index: [tasks]}),))


def assembled(
    session: Session,
    dataset: Any,
    part: Part,
    tasks: Sequence[ProblemTask],
    results: Sequence[ProblemResult],
    progress: Progress = silent,
) -> tuple[Model, Any, Any]:
    """The model of answers, the merged rows (m,) that support it, and its decision values (n_test, k)."""
    model, support = scoring.assemble(dataset, part.plan.kernel, tasks, results)
    recipe = decisions.Recipe.of(dataset, part.plan.kernel, tasks, model, support)
    return model, support, decisions.decide_test_rows(dataset, model, progress, _scorers(session), recipe)


def _lacks_proof(session: Session, batch: Batch) -> bool:
    """Whether too few labels are proved, and a smaller tol would change that."""
    (part,) = batch.parts
    dataset, tasks = datasets.open_dataset(part.data.path), _tasks(part)
    results, _ = read_answers(tasks)
    if not dataset.n_test or any(result.status != Status.CONVERGED for result in results):
        return False
    with session.clock("score"):
        model, _, tested = assembled(session, dataset, part, tasks, results)
        proved = proved_labels(dataset, model, tasks, results, tested)
    return proved is not None and proved < session.exp.prove * dataset.n_test


def _finer(session: Session, batch: Batch) -> Batch:
    """The same problems with a smaller tol, each from its last answer."""
    changed = {"tol": session.exp.tol / SHRINK}
    session.exp = session.exp.model_copy(update={"solver": session.exp.solver | changed})
    before = _tasks(batch.parts[0])
    after = [dataclasses.replace(t, solver=t.solver | changed, warm=t.fingerprint) for t in before]
    points = tuple(dataclasses.replace(point, exp=session.exp) for point in batch.points)
    return _with_tasks(dataclasses.replace(batch, points=points), after)


def score(session: Session, batch: Batch) -> Trained:
    """Assemble the model into the draft and score it: on test rows, and on training rows by the solver's own values."""
    (part,) = batch.parts
    kernel = part.plan.kernel
    with session.clock("score"):
        dataset = datasets.open_dataset(part.data.path)
        tasks = _tasks(part)
        results, decision = read_answers(tasks)
        labels, bounds = _labels(tasks, dataset), []
        if part.plan.approximation is not None:
            judged = low_rank.proved(dataset, kernel, tasks, results)
            results, decision, bounds = judged.results, judged.decision, judged.bounds
        model, support, tested = assembled(session, dataset, part, tasks, results, session.progress)
        per_class = scoring.class_entries(labels, results, model)
        for entry, bound in zip(per_class, bounds, strict=False):
            entry["exact"] = dataclasses.asdict(bound)
        found = scoring.evaluation_of(dataset, model, decision, tested)
        found |= {"history": evaluation.curves(labels, [r.history for r in results]), "tol": session.exp.tol}
        found |= _row_by_row(dataset, model, tested)
        if dataset.n_test and dataset.kind.answers == "labels":
            found["proved"] = proved_labels(dataset, model, tasks, results, tested)
        write_json(session.folder / "evaluation.json", found)
        scores = _scores(session.exp.scores, dataset, model, decision, tested)
        trained = Trained(part, scores, int(dataset.counts()[support].sum()), per_class, found.get("proved"))
        metadata = _claims(session, part.data, tasks, trained)
        metadata["provenance"] = origin(session.exp, dataset)
        metadata["per_class"] = [
            entry | ({"doubled": both} if (both := doubled(result)) else {})
            for entry, result in zip(metadata["per_class"], results, strict=True)
        ]
        alpha = np.array([result.part.coefficients(support) for result in results]) if bounds else None
        parts = model, dataset.scaling, support, metadata, dataset.schema, Summary.of(dataset), alpha
        save_model(session.folder / "model.zarr", *parts)
    return trained


def _row_by_row(dataset: Any, model: Model, tested: Any) -> dict[str, Any]:
    """What `compare` tells two runs apart by: `right`, of each test row 1 or 0; of values `absolute_errors`."""
    truth = dataset.test_targets()
    if not dataset.n_test or dataset.kind.answers == "novelty":
        return {}
    if dataset.kind.answers == "values":
        some = np.linspace(0, len(truth) - 1, min(len(truth), MOST_ERRORS)).round().astype(int)
        return {"absolute_errors": [float(f"{error:.7g}") for error in np.abs(truth - tested[:, 0])[some].tolist()]}
    right = vote(tested, len(dataset.classes), model.scheme) == truth
    return {"right": "".join("01"[int(one)] for one in right)}


def _scores(
    names: Sequence[str], dataset: Any, model: Model, decision: Any, tested: Any
) -> dict[str, dict[str, float | None] | None]:
    """Of the test rows, if there are any, and of the training rows."""
    kind, about = dataset.kind, (dataset.classes, model.scheme)
    train = Outputs(dataset.targets(), decision, *about, dataset.counts(), model.sigmoids)
    there = Outputs(dataset.test_targets(), tested, *about, None, model.sigmoids) if dataset.n_test else None
    test = None if there is None else kind.scored(names, there)
    return {"test": test, "train": kind.scored(names, train)}


def _claims(session: Session, data: Ingested, tasks: Sequence[ProblemTask], trained: Trained) -> dict[str, Any]:
    """What `verify` compares with: the config and data trained on, and the certificates and scores found.

    Neither paths of this machine nor times, so that equal models are equal bytes.
    """
    config = session.exp.to_dict()
    elsewhere = ("store", "cluster", "cache", "gate", "promote")
    certificates = [{key: value for key, value in e.items() if key != "seconds"} for e in trained.per_class]
    return {
        "marginflow": VERSION,
        "config": {key: value for key, value in config.items() if key not in elsewhere},
        "data": data.fingerprint,
        "n_train": data.n_train,
        "n_features": data.n_features,
        "base": data.index_base,
        "dtype": trained.part.plan.dtype,
        "tasks": [task.identity for task in tasks],
        "per_class": certificates,
        "classes": data.classes,
        "scores": trained.scores,
    }
