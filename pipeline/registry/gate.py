"""What a run must reach to be promoted: the gate of its config, against the run that an alias names."""

import json
from typing import Any

from pipeline.config.schema import Experiment
from pipeline.config.sections import Gate
from pipeline.registry.aliases import current
from pipeline.storage.base import Store
from svmcore.solution import Status

__all__ = ["described", "judged"]

ROUNDING = 1e-12


def judged(exp: Experiment, strict: bool, record: dict[str, Any], store: Store) -> dict[str, Any] | None:
    """`gate` of the metrics, from the rest of them; None where nothing is asked of the run.

    Returns
    -------
    dict
        `passed`; `against`, the run that it is compared with, or None; `failed` [{rule, found, needed}].
    """
    if exp.gate is None and not strict:
        return None
    failed, against = [], None
    if exp.gate is not None:
        against, champion = _champion(store, exp.name, exp.gate.against)
        failed += _failures(exp.gate, record, champion)
    if strict and record["status"] != Status.CONVERGED:
        failed.append({"rule": "--strict", "found": record["status"], "needed": Status.CONVERGED.value})
    return {"passed": not failed, "against": against, "failed": failed}


def _champion(store: Store, name: str, alias: str) -> tuple[str | None, dict[str, Any]]:
    """Address and metrics of the run that an alias names; none before the first was promoted."""
    move = current(store, name, alias)
    if move is None:
        return None, {}
    try:
        return store.address(move.run), json.loads(store.get_bytes(f"{move.run}/metrics.json"))
    except FileNotFoundError:  # removed by hand
        return None, {}


def _failures(gate: Gate, record: dict[str, Any], champion: dict[str, Any]) -> list[dict[str, Any]]:
    needed = {f"min.{name}": (name, least) for name, least in gate.min.items()}
    for name, allowed in gate.drop.items():
        before = _score(champion, name)
        if before is not None:
            needed[f"drop.{name}"] = (name, before - allowed)
    failed = []
    for rule, (name, least) in needed.items():
        found = _score(record, name)
        if found is None or found < least - ROUNDING:
            failed.append({"rule": rule, "found": found, "needed": least})
    gap = record["kkt_gap"]
    if gate.max_kkt_gap is not None and (gap is None or gap > gate.max_kkt_gap):
        failed.append({"rule": "max_kkt_gap", "found": gap, "needed": gate.max_kkt_gap})
    drift = record.get("drift")
    if gate.drift_p is not None and drift is not None and drift["p_value"] < gate.drift_p:
        failed.append({"rule": "drift_p", "found": drift["p_value"], "needed": gate.drift_p})
    return failed


def _score(record: dict[str, Any], name: str) -> float | None:
    """A score of the test rows, `train_NAME` of the training rows, or `mean_score` of a sweep's best point."""
    if name == "mean_score":
        return (record.get("best") or {}).get("mean_score")
    where, bare = ("train", name.removeprefix("train_")) if name.startswith("train_") else ("test", name)
    scores = (record.get("scores") or {}).get(where) or {}
    return scores[bare] if bare in scores else record.get(name)


def described(gate: dict[str, Any]) -> str:
    """What a gate refused, in one line.

    >>> described({"failed": [{"rule": "min.accuracy", "found": 0.91, "needed": 0.95}]})
    'min.accuracy is 0.91, needed 0.95'
    """
    return "; ".join(
        f"{one['rule']} is {_shown(one['found'])}, needed {_shown(one['needed'])}" for one in gate["failed"]
    )


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
