"""What a run left behind, as a report reads it."""

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.config import quantities
from pipeline.config.yaml12 import parse
from pipeline.kinds import kind_of
from svmcore.errors import InputError

__all__ = ["SLACK", "RunRecord", "known", "read_run"]

SLACK = 1.05  # DESIGN section 3: certified means kkt_gap <= 1.05 tol


@dataclass(frozen=True)
class RunRecord:
    """What a run folder holds, as read."""

    name: str
    config_text: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    evaluation: dict[str, Any] = field(default_factory=dict)
    neighbours: dict[str, Any] = field(default_factory=dict)
    rows: tuple[dict[str, str], ...] = ()

    @property
    def tol(self) -> float | None:
        """Tolerance that the KKT gap was to reach."""
        asked = (self.config.get("solver") or {}).get("tol")
        return quantities.finite(self.evaluation.get("tol", asked))

    @property
    def task(self) -> str:
        """Name of the machine."""
        return str(self.metrics.get("task") or "svc")

    @property
    def epsilon(self) -> float | None:
        """Half the width of the tube: found, or as configured."""
        found = [quantities.finite(entry.get("epsilon")) for entry in self.problems]
        return found[0] if found and found[0] is not None else quantities.finite(self.config.get("epsilon"))

    @property
    def problems(self) -> list[dict[str, Any]]:
        """One entry for each program that was solved for the model."""
        return self.metrics.get("per_class") or []

    @property
    def classes(self) -> list[Any]:
        """Class labels in the order of the confusion matrix."""
        if kind_of(self.task).answers != "labels":
            return []
        return list(self.evaluation.get("classes") or self.metrics.get("classes") or [])

    @property
    def where(self) -> str:
        """Which rows the figures are of."""
        return {"test": "test rows", "train": "training rows"}.get(str(self.evaluation.get("evaluated_on")), "")


def read_run(folder: Path) -> RunRecord:
    """Read a run folder; only metrics.json has to be there."""
    if not (folder / "metrics.json").is_file():
        raise InputError(f"no metrics.json in {folder}; give the folder of a run, STORE/NAME/RUN_ID")
    config_text = _text(folder / "config.yaml")
    return RunRecord(
        name=folder.resolve().parent.name,
        config_text=config_text,
        config=(parse(config_text, str(folder / "config.yaml")) if config_text else None) or {},
        metrics=_json(folder / "metrics.json"),
        evaluation=_json(folder / "evaluation.json"),
        neighbours=_json(folder / "neighbours.json"),
        rows=tuple(csv.DictReader(_text(folder / "results.csv").splitlines())),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8; run the experiment again") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_text(path) or "{}")
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON ({error}); run the experiment again") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object; run the experiment again")
    return content


def known(entries: list[dict[str, Any]], column: str) -> bool:
    """Whether any of the entries has a number in a column."""
    return any(quantities.finite(entry.get(column)) is not None for entry in entries)
