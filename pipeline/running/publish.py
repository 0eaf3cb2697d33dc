"""The last stage: metrics, config and report into the draft, which then becomes visible as a run."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.config.keys import as_json
from pipeline.config.schema import Experiment
from pipeline.config.sections import Gate
from pipeline.layout.parts import Ingested
from pipeline.model import metrics
from pipeline.model.leaderboard import Entry
from pipeline.model.stored import StoredModel, load_model
from pipeline.registry.aliases import current, promote
from pipeline.registry.compare import neighbours
from pipeline.registry.gate import judged
from pipeline.report.card import model_card
from pipeline.report.page import write_report
from pipeline.rows.dataset import Dataset, open_dataset
from pipeline.rows.drift import Summary, drift_of
from pipeline.running.batch import Batch, Counts
from pipeline.running.clock import peak_memory_bytes
from pipeline.running.provenance import circumstances, origin
from pipeline.running.score import Trained
from pipeline.running.session import Session
from pipeline.running.sweep import scored_on
from pipeline.storage.files import sha256_of_json, write_json
from pipeline.storage.runs import run_id, seal_run
from svmcore.errors import InputError

__all__ = ["publish"]


def publish(
    session: Session,
    batch: Batch,
    counts: Counts,
    trained: Trained | None,
    entries: Sequence[Entry] = (),
    chosen: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write metrics, config and report into the draft and make the run visible; returns the metrics.

    Where its gate agrees, the alias that the config promotes to names it then.

    Parameters
    ----------
    trained
        The point on all rows whose model is in the draft; None for a sweep without a refit.
    entries
        The points of a sweep, best first.
    chosen
        What is proved of its C.
    """
    data = trained.part.data if trained else batch.parts[0].data
    if trained is None:
        write_json(
            session.folder / "evaluation.json",
            {"task": session.exp.task, "classes": data.classes, "tol": session.exp.tol},
        )
    fingerprint = sha256_of_json([session.exp.fingerprint(), data.fingerprint])
    base = f"{session.exp.name}/{run_id(fingerprint)}"
    (session.folder / "config.yaml").write_text(session.exp.to_yaml(), encoding="utf-8")
    while True:  # another run may take the name between the two
        key = session.store.free_key(base)
        record = _record(session, session.store.address(key), data, counts, trained, entries)
        record |= {} if chosen is None else {"choice_of_C": chosen}
        write_json(session.folder / "metrics.json", record)
        write_json(session.folder / "neighbours.json", _neighbours(session, record))
        write_report(session.folder)
        if trained is not None:
            card = model_card(record, open_dataset(data.path).schema)
            (session.folder / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        seal_run(session.folder)
        if session.store.publish(session.folder, key):
            break
    if session.exp.promote and (record["gate"] is None or record["gate"]["passed"]):
        promote(
            session.store, key, session.exp.promote, "its run passed the gate" if record["gate"] else "its run ended"
        )
    return record


def _neighbours(session: Session, record: dict[str, Any]) -> dict[str, Any]:
    """What the report compares the run with."""
    evaluation = json.loads((session.folder / "evaluation.json").read_text())
    run = {"address": record["run"], "metrics": record, "evaluation": evaluation}
    return neighbours(session.store, run, _alias(session.exp))


def _alias(exp: Experiment) -> str:
    """What the champion is called."""
    return exp.gate.against if exp.gate else exp.promote or Gate().against


def _record(
    session: Session, address: str, data: Ingested, counts: Counts, trained: Trained | None, entries: Sequence[Entry]
) -> dict[str, Any]:
    """Keys of the contract: of the trained model where there is one, of all problems where it says worst."""
    points = [entry.record() for entry in entries]
    per_class = trained.per_class if trained else []
    every: list[dict[str, Any]] = [*points, *per_class]
    record = {
        "run": address,
        "config": as_json(session.exp.to_dict()),
        "model": f"{address}/model.zarr" if trained else None,
        "status": metrics.worst_status([one["status"] for one in every]),
        "n_train": data.n_train,
        "n_test": data.n_test,
        "n_features": data.n_features,
        "classes": data.classes,
        **_scored(session, trained),
        "n_support": trained.n_support if trained else None,
        "proved_labels": trained.proved if trained else None,
        "relative_gap": metrics.worst([one["relative_gap"] for one in every]),
        "kkt_gap": metrics.worst([one["kkt_gap"] for one in every]),
        **_exact(per_class),
        "seconds": session.clock.seconds(),
        "peak_memory_bytes": peak_memory_bytes(),
        "per_class": per_class,
        **({"kernel": trained.part.plan.kernel} if trained else {}),
        **(_of_sweep(session, data, points) if points else {}),
        "plan": _plan(session, trained, points),
        "blocks": {"total": counts.blocks, "reused": counts.blocks_reused},
        "problems": {"total": counts.problems, "reused": counts.problems_reused},
    }
    dataset = open_dataset(data.path)
    record["provenance"] = origin(session.exp, dataset) | circumstances()
    record["drift"] = _drift(session, dataset)
    return record | {"gate": judged(session.exp, session.strict, record, session.store)}


def _exact(per_class: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Of an approximation: how far apart its bounds of the exact optimum are, as a share of the larger one."""
    gaps = [one["exact"]["relative_gap"] for one in per_class if "exact" in one]
    return {"exact_gap": metrics.worst(gaps)} if gaps else {}


def _scored(session: Session, trained: Trained | None) -> dict[str, Any]:
    """The scores that were asked for, and accuracy by itself."""
    scores = trained.scores if trained else {}
    test, train = scores.get("test") or {}, scores.get("train") or {}
    return {
        "task": session.exp.task,
        "accuracy": test.get("accuracy"),
        "train_accuracy": train.get("accuracy"),
        "scored_by": session.exp.scores[0],
        "scores": scores or None,
    }


def _of_sweep(session: Session, data: Ingested, points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"points": points, "best": points[0], "scored_on": scored_on(session.exp, data.n_test)}


def _plan(session: Session, trained: Trained | None, points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The forecast; of one point also how its K was held."""
    if trained is None or points:
        return session.forecast
    part = trained.part
    return {"kernel": part.plan.plan, "dtype": part.plan.dtype, "n_merged": part.data.n_merged} | session.forecast


def _drift(session: Session, dataset: Dataset) -> dict[str, Any] | None:
    """How far the training rows are from the champion's, see `drift_of`.

    None where there is no champion, it can no longer be read, keeps no summary, or has other columns or classes.
    """
    store, exp = session.store, session.exp
    move = current(store, exp.name, _alias(exp))
    if move is None:
        return None
    with contextlib.suppress(InputError):
        champion = load_model(f"{store.address(move.run)}/model.zarr")
        if champion.summary is not None and _alike(champion, dataset):
            here = Summary.of(dataset)
            scaled = champion.scaling.apply(dataset.scaling.undo(here.rows))
            return drift_of(champion, scaled, here.shares)
    return None


def _alike(champion: StoredModel, dataset: Dataset) -> bool:
    """Whether both have the same columns and classes."""
    same = np.array_equal(champion.schema.columns(), dataset.schema.columns())
    return same and champion.classes == list(dataset.classes) and champion.metadata["sparse"] == dataset.sparse
