"""What is new about a run: its scores against the champion's and those of the run before, and what differs."""

from collections.abc import Mapping
from typing import Any

from pipeline.config.quantities import MISSING, finite, number
from pipeline.registry.gate import described
from pipeline.report.batch import value_text
from pipeline.report.formats import count, score_name
from pipeline.report.record import RunRecord
from pipeline.report.tables import Cell, Column, Table, table

__all__ = ["Change", "changes", "differing", "gate_text", "score_table", "tested_text", "verdict_of", "verdict_text"]

TESTS = {
    "mcnemar": "McNemar's exact test, on the {n} test rows that one of the two alone has right: p = {p}",
    "wilcoxon": "Wilcoxon's signed-rank test, on the errors of the same {n} test rows: p = {p}",
}
NAMES = {"kkt_gap": "KKT gap", "n_support": "support vectors", "seconds": "seconds"}  # costs: neither better nor worse


class Change:
    """A run beside this one: `title`, its `link`, the table of both, the paired test and what differs, in words."""

    def __init__(self, title: str, found: Mapping[str, Any]) -> None:
        self.title, self.found = title, found
        self.run = str(found["a"]).rpartition("/")[2]
        self.link = f"../{self.run}/report.html"

    @property
    def table(self) -> Table:
        """Scores, certificate and time of both."""
        return score_table(self.found, self.title, "this run")

    @property
    def tested(self) -> str:
        """The paired test in words."""
        return tested_text(self.found["paired"])

    @property
    def differs(self) -> list[tuple[str, str, str]]:
        """(key, before, now) of configuration and data."""
        return differing(self.found)


def score_table(found: Mapping[str, Any], before: str, now: str) -> Table:
    """Scores, certificate and time of two runs, and by how much the second differs."""
    pairs = dict(found["scores"])
    pairs |= {key: found["certificate"][key] for key in ("kkt_gap", "n_support") if key in found["certificate"]}
    pairs |= {"seconds": found["seconds"]["total"]} if "total" in found["seconds"] else {}
    columns = [Column("what"), Column(before), Column(now), Column("change")]
    return table(columns, (_row(key, *values) for key, values in pairs.items() if finite(values[1]) is not None))


def tested_text(test: Mapping[str, Any] | None) -> str:
    """A paired test in words."""
    if test is None:
        return "Not tested on the same rows, so a difference may be by chance."
    n = sum(value for key, value in test.items() if key not in ("test", "p_value"))
    return TESTS[test["test"]].format(n=count(n), p=number(test["p_value"], 2)) + "."


def differing(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(key, before, now) of what differs in configuration and data."""
    data = {key: values for key, values in found["data"].items() if values[0] != values[1]}
    return [(key, *map(_shown, values)) for key, values in (found["config"] | data).items()]


def changes(run: RunRecord) -> list[Change]:
    """The champion and the run before, once where they are the same; none for a first run."""
    champion, previous = (run.neighbours.get(which) for which in ("champion", "previous"))
    found = [Change(str(run.neighbours.get("alias", "champion")), champion)] if champion else []
    if previous and (not champion or previous["a"] != champion["a"]):
        found.append(Change("run before", previous))
    return found


def _row(key: str, before: Any, now: Any) -> list[Cell]:
    where, _, name = key.rpartition(" ")
    error = name.startswith("neg_") and "error" in name  # as it is, and less of it is better
    sign = -1.0 if error else 1.0
    shown = Cell(f"{where} {NAMES.get(name) or score_name(name)}".strip())
    if finite(before) is None:
        return [shown, Cell(MISSING), Cell(number(sign * now), sign * now), Cell(MISSING)]
    better = None if now == before or name in NAMES else now > before
    by = sign * (now - before)
    change = Cell(f"{'+' if by > 0 else ''}{number(by, 3)}", by, better)
    return [shown, *(Cell(number(sign * value), sign * value) for value in (before, now)), change]


def _shown(value: Any) -> str:
    text = ", ".join(map(_shown, value)) if isinstance(value, list) else MISSING if value is None else value_text(value)
    return text if len(text) <= 60 else text[:20] + "…"


def gate_text(metrics: Mapping[str, Any]) -> str:
    """What a gate refused; "" where it agreed, or there was none."""
    gate = metrics.get("gate")
    return described(gate) if gate and not gate["passed"] else ""


def verdict_of(run: RunRecord) -> str:
    """One sentence that says what is new; "" for a first run."""
    beside = changes(run)
    if not beside:
        return ""
    words = verdict_text(beside[0].found, str(run.metrics.get("scored_by") or "accuracy"), f"the {beside[0].title}")
    return words[:1].upper() + words[1:]


def verdict_text(found: Mapping[str, Any], ranked_by: str, other: str) -> str:
    """`better than the champion in accuracy: 0.98 against 0.97.` of the second run; "" where a score is missing."""
    name, before, now = _ranked(found, ranked_by)
    if before is None or now is None:
        return ""
    verb = "as good as" if now == before else "better than" if now > before else "worse than"
    return f"{verb} {other} in {score_name(name)}: {number(now)} against {number(before)}."


def _ranked(found: Mapping[str, Any], name: str) -> tuple[str, float | None, float | None]:
    """The score that ranks runs: its name, before and now."""
    for key in (name, f"test {name}", f"train {name}", f"train_{name}"):
        if key in found["scores"]:
            before, now = map(finite, found["scores"][key])
            return key, before, now
    return name, None, None
