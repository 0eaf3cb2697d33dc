"""JSON lines: one record per solver and case, appended case by case; a case's newest run counts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = dict[str, Any]
DEFAULT = Path(__file__).parent / "results"
TRIALS = DEFAULT / "trial.tmp"  # of tables cut short: never in the report


@dataclass(frozen=True)
class Results:
    """One file of records, for one suite; `run` names this run in every record."""

    folder: Path
    suite: str
    run: str

    @property
    def path(self) -> Path:
        """The suite's file."""
        return self.folder / f"{self.suite}.jsonl"

    def append(self, case: str, records: list[Record]) -> None:
        """Write a finished case at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            for record in records:
                file.write(json.dumps({"run": self.run, "case": case, **record}, default=float) + "\n")

    def has(self, case: str) -> bool:
        """Whether this run has already finished the case."""
        return any(record["case"] == case and record["run"] == self.run for record in read(self.path))


def read(path: Path) -> list[Record]:
    """All records of a file, oldest first; none when it is absent."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def latest(folder: Path, suite: str) -> dict[str, list[Record]]:
    """Per case, the records of its newest run, cases in order of first appearance."""
    cases: dict[str, list[Record]] = {}
    for record in read(folder / f"{suite}.jsonl"):
        group = cases.setdefault(record["case"], [])
        if group and group[0]["run"] != record["run"]:
            group.clear()
        group.append(record)
    return cases


def last_run(folder: Path) -> str | None:
    """Name the newest run, to be taken up again: every run begins with a record of the machine."""
    runs = read(folder / "machine.jsonl")
    return runs[-1]["run"] if runs else None
