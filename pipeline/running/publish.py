"""The last stage: metrics, config and report into the draft, which then becomes visible as a run."""

from collections.abc import Callable
from typing import Any

from pipeline.kernel.choose import KernelPlan
from pipeline.layout.parts import Ingested
from pipeline.model import metrics
from pipeline.report.page import write_report
from pipeline.running.clock import peak_memory_bytes
from pipeline.running.session import Session
from pipeline.running.stages import Scored, Solved
from pipeline.storage.files import sha256_of_json, write_json
from pipeline.storage.runs import run_id

__all__ = ["publish", "publish_as"]


def publish(session: Session, data: Ingested, plan: KernelPlan, solved: Solved, scored: Scored) -> dict[str, Any]:
    """Write metrics, config and report into the draft and make the run visible; returns the metrics."""
    return publish_as(session, data, lambda address: record_of(session, address, data, plan, solved, scored))


def publish_as(session: Session, data: Ingested, record_at: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Publish the draft with the record of a run at the address it is given."""
    fingerprint = sha256_of_json([session.exp.fingerprint(), data.fingerprint])
    base = f"{session.exp.name}/{run_id(fingerprint)}"
    (session.folder / "config.yaml").write_text(session.exp.to_yaml(), encoding="utf-8")
    while True:  # another run may take the name between the two
        key = session.store.free_key(base)
        record = record_at(session.store.address(key))
        write_json(session.folder / "metrics.json", record)
        write_report(session.folder)
        if session.store.publish(session.folder, key):
            return record


def record_of(
    session: Session, address: str, data: Ingested, plan: KernelPlan, solved: Solved, scored: Scored
) -> dict[str, Any]:
    """Keys of the contract first, then what the plan was and what was found ready."""
    entries = scored.per_class
    return {
        "run": address,
        "model": f"{address}/model.zarr",
        "status": metrics.worst_status([entry["status"] for entry in entries]),
        "n_train": data.n_train,
        "n_test": data.n_test,
        "n_features": data.n_features,
        "classes": data.classes,
        "accuracy": scored.accuracy,
        "train_accuracy": scored.train_accuracy,
        "n_support": scored.n_support,
        "relative_gap": metrics.worst([entry["relative_gap"] for entry in entries]),
        "kkt_gap": metrics.worst([entry["kkt_gap"] for entry in entries]),
        "seconds": session.clock.seconds(),
        "peak_memory_bytes": peak_memory_bytes(),
        "per_class": entries,
        "kernel": plan.kernel,
        "plan": {"kernel": plan.plan, "dtype": plan.dtype, "n_merged": data.n_merged} | session.forecast,
        "blocks": {"total": plan.n_blocks, "reused": plan.n_reused},
        "problems": {"total": len(solved.tasks), "reused": solved.n_reused},
    }
