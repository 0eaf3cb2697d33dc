"""One self-contained report.html for a run folder: no network, the same bytes for the same run.

Reads what the run left (config.yaml, metrics.json, evaluation.json, results.csv) and arranges it; computes no
score of its own. What a run does not have leaves no trace on the page.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.config import quantities
from pipeline.config.values import is_url
from pipeline.config.yaml12 import parse
from pipeline.kinds import kind_of
from pipeline.model.parts import check_model, model_folder, run_folder
from pipeline.report import formats
from pipeline.report.batch import Batch, batch_of, value_text
from pipeline.report.figures import model, sweep, targets
from pipeline.report.templates import template
from pipeline.report.tiles import tiles_of
from pipeline.storage.bucket import Bucket, address_of
from pipeline.storage.files import write_atomic
from svmcore.errors import InputError

__all__ = ["RunRecord", "read_run", "render", "rewrite_report", "write_report"]

STAGES = ("start", "ingest", "kernel", "solve", "score")
OPTIONAL = ("primal", "dual", "relative_gap", "bias", "rho", "epsilon", "margin", "seconds")
LARGEST_TABLE = 40
SLACK = 1.05  # DESIGN section 3: certified means kkt_gap <= 1.05 tol
NUMBERS = ("C", "nu", "epsilon")
SCHEMES = {"ovr": "one-vs-rest", "ovo": "one-vs-one"}
MOOD = {"converged": "good", "stalled": "bad", "infeasible": "bad", "failed": "bad"}


@dataclass(frozen=True)
class RunRecord:
    """What a run folder holds, as read."""

    name: str
    config_text: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    evaluation: dict[str, Any] = field(default_factory=dict)
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
        found = [quantities.finite(entry.get("epsilon")) for entry in self.metrics.get("per_class") or []]
        return found[0] if found and found[0] is not None else quantities.finite(self.config.get("epsilon"))

    @property
    def classes(self) -> list[Any]:
        """Class labels in the order of the confusion matrix."""
        if kind_of(self.task).answers != "labels":
            return []
        return list(self.evaluation.get("classes") or self.metrics.get("classes") or [])


@dataclass(frozen=True)
class Confusion:
    """Counts, shares of each true class, and the pairs most often taken for each other."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    shares: tuple[tuple[float, ...], ...]
    precision: tuple[float | None, ...]
    pairs: tuple[tuple[str, str, int], ...]

    @property
    def as_table(self) -> bool:
        """Whether a table of all cells can still be read."""
        return len(self.labels) <= LARGEST_TABLE


def write_report(run_folder: str | Path) -> Path:
    """Write `run_folder`/report.html in one step and return its path."""
    folder = Path(run_folder)
    page = render(read_run(folder))
    target = folder / "report.html"
    write_atomic(target, page.encode())
    return target


def rewrite_report(run: str | Path) -> str:
    """Write a run's report.html again where the run is, a path or a URL; returns its address."""
    folder = run_folder(run)
    if (folder / "model.zarr").exists():
        check_model(model_folder(folder))
    page, address = write_report(folder), address_of(folder)
    if is_url(address):
        Bucket(address).put(page.name, page)
    return f"{address}/{page.name}"


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


def render(run: RunRecord) -> str:
    """Return the whole page as one string of HTML."""
    return template("page.html").render(_context(run))


def _context(run: RunRecord) -> dict[str, Any]:
    batch = batch_of(run.metrics, run.rows)
    problems = run.metrics.get("per_class") or []
    return {
        "title": run.config.get("name") or run.name,
        "run_id": Path(str(run.metrics.get("run") or "")).name,
        "summary": _summary(run, batch),
        "status": str(run.metrics.get("status") or ""),
        "mood": MOOD.get(str(run.metrics.get("status")), "warn"),
        "certified": _certified(run, batch),
        "tol": run.tol,
        "slack": SLACK,
        "tiles": tiles_of(run.metrics, len(run.classes) or None, batch),
        "problems": problems,
        "problem": "class" if run.classes else "program",
        "furthest": run.evaluation.get("furthest") or [],
        "shown": {column for column in OPTIONAL if _known(problems, column)},
        "worst": max((g for p in problems if (g := quantities.finite(p.get("kkt_gap"))) is not None), default=None),
        "exact_gap": quantities.finite(run.metrics.get("exact_gap")),
        "confusion": _confusion(run),
        "evaluated_on": run.evaluation.get("evaluated_on") or "",
        "figures": _figures(run, batch),
        "stages": _stages(run.metrics.get("seconds") or {}),
        "facts": _facts(run.metrics),
        "plan": _flat(run.metrics.get("plan") or {}),
        "config_text": run.config_text,
        "versions": run.metrics.get("versions") or {},
        "batch": batch,
        "curves": batch.curves() if batch else None,
        "heat": batch.heat_map() if batch else None,
    }


def _known(problems: Sequence[dict[str, Any]], column: str) -> bool:
    return any(quantities.finite(p.get(column)) is not None for p in problems)


def _figures(run: RunRecord, batch: Batch | None) -> dict[str, str]:
    evaluation = run.evaluation
    confusion = evaluation.get("confusion") or []
    drawn = {
        "convergence": model.convergence(evaluation.get("history") or [], run.tol),
        "roc": model.roc(evaluation.get("roc")),
        "regions": model.regions(evaluation.get("plane"), run.classes),
        "fit": targets.fit(evaluation.get("fit"), run.epsilon),
        "residuals": targets.residuals(evaluation.get("fit"), evaluation.get("residuals"), run.epsilon),
        "tube": targets.tube(evaluation.get("line"), run.epsilon),
        "scores": targets.scores(evaluation.get("histogram")),
        "confusion": model.confusion_map(confusion) if len(confusion) > LARGEST_TABLE else "",
    }
    if batch:
        drawn["curves"] = sweep.score_curves(batch.curves())
        drawn["folds"] = sweep.fold_strip(batch)
        drawn["costs"] = sweep.cost_bars(batch)
    return drawn


def _summary(run: RunRecord, batch: Batch | None) -> list[str]:
    """Return the experiment in a few words: data, kernel, C, loss, scheme, solver."""
    config, swept = run.config, set(batch.swept()) if batch else set()
    solver, kernel = config.get("solver") or {}, config.get("kernel") or {}
    if not batch:  # with the numbers that `gamma: scale` stands for
        kernel = run.metrics.get("kernel") or kernel
    fixed = {key: value for key, value in kernel.items() if f"kernel.{key}" not in swept}
    words = [
        Path(str((config.get("data") or {}).get("source") or "")).name,
        run.task if run.task != "svc" else "",
        "" if "kernel" in swept or not kernel else f"kernel {value_text(fixed)}",
        *(f"{key} {value_text(config[key])}" for key in NUMBERS if key not in swept and config.get(key) is not None),
        "" if "loss" in swept else str(config.get("loss") or "").replace("_", " "),
        SCHEMES.get(str(config.get("multiclass")), "") if len(run.classes) > 2 else "",
        f"solver {value_text(solver)}" if "name" in solver and len(solver) == 1 else str(solver.get("name", "")),
        f"tol {quantities.number(solver['tol'])}" if "tol" in solver else "",
        f"sweep over {', '.join(sorted(swept))}" if swept else "",
    ]
    return [word for word in words if word]


def _certified(run: RunRecord, batch: Batch | None) -> bool | None:
    """Whether every answer has a KKT gap within the tolerance; None when that is not known."""
    gaps = [p.get("kkt_gap") for p in run.metrics.get("per_class") or []]
    gaps += [p.kkt_gap for p in batch.points] if batch and batch.has("kkt_gap") else []
    if run.tol is None or not gaps:
        return None
    return all((g := quantities.finite(gap)) is not None and g <= SLACK * run.tol for gap in gaps)


def _confusion(run: RunRecord) -> Confusion | None:
    counts = run.evaluation.get("confusion") or []
    if not counts or len(counts) != len(run.classes):
        return None
    labels = tuple(formats.label_text(label) for label in run.classes)
    columns = [sum(column) for column in zip(*counts, strict=True)]
    wrong = [(labels[i], labels[j], n) for i, row in enumerate(counts) for j, n in enumerate(row) if i != j and n]
    return Confusion(
        labels=labels,
        counts=tuple(map(tuple, counts)),
        shares=tuple(tuple(n / max(1, sum(row)) for n in row) for row in counts),
        precision=tuple(counts[k][k] / total if total else None for k, total in enumerate(columns)),
        pairs=tuple(sorted(wrong, key=lambda pair: -pair[2])[:5]) if len(labels) > 2 else (),
    )


def _stages(seconds: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Return (stage, seconds, share of all); what no stage accounts for is `other`."""
    known = [(name, quantities.finite(seconds.get(name))) for name in STAGES]
    stages = [(name, s) for name, s in known if s is not None]
    rest = (quantities.finite(seconds.get("total")) or 0.0) - sum(s for _, s in stages)
    if stages and rest > 0.01 * sum(s for _, s in stages):
        stages.append(("other", rest))
    whole = sum(s for _, s in stages)
    return [(name, s, s / whole) for name, s in stages] if whole > 0 else []


def _facts(metrics: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Return (name, text, value) of what the run used and what it found already done."""
    facts = [("peak memory", quantities.size(metrics.get("peak_memory_bytes")), metrics.get("peak_memory_bytes"))]
    for key, name in (("blocks", "kernel blocks"), ("problems", "problems")):
        done = metrics.get(key) or {}
        facts.append((name, formats.count(done.get("total")), done.get("total")))
        facts.append((f"{name} reused", formats.count(done.get("reused")), done.get("reused")))
    return [fact for fact in facts if fact[2] is not None]


def _flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, str, Any]]:
    """Return (name, text, value) of every leaf; names ending in _bytes or seconds get their unit."""
    rows: list[tuple[str, str, Any]] = []
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            rows += _flat(value, f"{name}.")
        elif value is not None:
            rows.append((name.replace("_bytes", "").replace("_", " ").replace(".", " · "), _leaf(name, value), value))
    return rows


def _leaf(name: str, value: Any) -> str:
    if "bytes" in name:
        return quantities.size(value)
    if "seconds" in name:
        return quantities.seconds(value)
    return formats.count(value) if isinstance(value, int) and not isinstance(value, bool) else value_text(value)
