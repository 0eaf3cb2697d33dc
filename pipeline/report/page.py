"""One self-contained report.html for a run folder: no network, the same bytes for the same run.

Reads what the run left (config.yaml, metrics.json, evaluation.json, neighbours.json, results.csv) and arranges it;
computes no score of its own. What a run does not have leaves no trace on the page.
"""

import base64
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config import quantities
from pipeline.config.values import is_url
from pipeline.model.parts import check_model, model_folder, run_folder
from pipeline.report import changes, formats, tables
from pipeline.report.batch import Batch, batch_of, value_text
from pipeline.report.figures import curves, model, sweep, targets
from pipeline.report.record import SLACK, RunRecord, read_run
from pipeline.report.templates import template
from pipeline.report.tiles import tiles_of
from pipeline.storage.bucket import Bucket, address_of
from pipeline.storage.files import write_atomic
from pipeline.storage.manifest import MANIFEST, believing, renew

__all__ = ["render", "rewrite_report", "write_report"]

STAGES = ("start", "ingest", "kernel", "solve", "score")
LARGEST_TABLE = 40
NUMBERS = ("C", "nu", "epsilon")
SCHEMES = {"ovr": "one-vs-rest", "ovo": "one-vs-one"}
MOOD = {"converged": "good", "stalled": "bad", "infeasible": "bad", "failed": "bad"}


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
    from jinja2 import TemplateError

    folder = run_folder(run)
    if (folder / "model.zarr").exists():
        check_model(model_folder(folder))
    address = address_of(folder)
    what, remedy = f"{address} does not read as a run", "restore its files, or run the experiment again"
    with believing(what, remedy, TemplateError):
        page = write_report(folder)
    renew(folder, page.name)
    if is_url(address):
        for name in (page.name, MANIFEST):
            if (folder / name).is_file():  # runs of an older version have no manifest
                Bucket(address).put(name, folder / name)
    return f"{address}/{page.name}"


def render(run: RunRecord) -> str:
    """Return the whole page as one string of HTML."""
    return template("page.html").render(_context(run))


def _context(run: RunRecord) -> dict[str, Any]:
    batch = batch_of(run.metrics, run.rows)
    gaps = [g for entry in run.problems if (g := quantities.finite(entry.get("kkt_gap"))) is not None]
    return {
        "title": run.config.get("name") or run.name,
        "run_id": Path(str(run.metrics.get("run") or "")).name,
        "summary": _summary(run, batch),
        "status": str(run.metrics.get("status") or ""),
        "mood": MOOD.get(str(run.metrics.get("status")), "warn"),
        "certified": _certified(run, batch),
        "gate": run.metrics.get("gate"),
        "refused": changes.gate_text(run.metrics),
        "verdict": changes.verdict_of(run),
        "changes": changes.changes(run),
        "drift": run.metrics.get("drift"),
        "origin": _origin(run.metrics.get("provenance") or {}),
        "tol": run.tol,
        "tiles": tiles_of(run.metrics, len(run.classes) or None, batch),
        "tables": {
            "certificates": tables.certificates(run),
            "leaderboard": tables.leaderboard(batch, run.tol) if batch else None,
            "classes": tables.class_scores(run),
            "worst": tables.worst_rows(run),
            "planned": tables.planned(run.metrics),
            "moved": tables.moved(run.metrics.get("drift")),
        },
        "worst_gap": max(gaps, default=None),
        "batch_gap": tables.gap_cell(batch.worst_gap, run.tol) if batch and batch.worst_gap is not None else None,
        "exact_gap": quantities.finite(run.metrics.get("exact_gap")),
        "confusion": _confusion(run),
        "threshold": _threshold(run),
        "where": run.where,
        "figures": _figures(run, batch),
        "stages": _stages(run.metrics.get("seconds") or {}),
        "facts": _facts(run.metrics),
        "plan": _flat({key: value for key, value in (run.metrics.get("plan") or {}).items() if key != "seconds"}),
        "config_text": run.config_text,
        "versions": _versions(run.metrics),
        "download": _packed(run.metrics),
        "batch": batch,
        "choice": formats.choice_text(found) if (found := run.metrics.get("choice_of_C")) else None,
        "curves": batch.curves() if batch else None,
        "heat": batch.heat_map() if batch else None,
    }


def _origin(found: dict[str, Any]) -> list[tuple[str, str]]:
    """When, where and from what, in a line."""
    git, sources = found.get("git") or {}, found.get("sources") or {}
    known = {
        "published": str(found.get("at", "")).replace("T", " ").replace("+00:00", " UTC"),
        "host": found.get("host"),
        "marginflow": found.get("marginflow"),
        "commit": git.get("commit", "")[:10] + (" with changes" if git.get("dirty") else ""),
        "data sha256": str(sources.get("source", ""))[:16],
        "test data sha256": str(sources.get("test", ""))[:16],
    }
    return [(name, str(value)) for name, value in known.items() if value]


def _versions(metrics: dict[str, Any]) -> dict[str, str]:
    found = metrics.get("provenance") or {}
    own = {key: str(found[key]) for key in ("marginflow", "python", "platform", "seed") if key in found}
    return own | (found.get("libraries") or {}) | (metrics.get("versions") or {})


def _packed(metrics: dict[str, Any]) -> str:
    """Address of the metrics, compressed, within the page; points of a sweep are in their table."""
    kept = {key: value for key, value in metrics.items() if key != "points"}
    packed = gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), mtime=0)
    return f"data:application/gzip;base64,{base64.b64encode(packed).decode()}"


def _threshold(run: RunRecord) -> dict[str, Any] | None:
    """What the slider of two classes needs: the curve of the second, and both names."""
    found = run.evaluation.get("curves") or []
    if len(run.classes) != 2 or not found:
        return None
    keys = ("threshold", "tpr", "fpr", "positives", "negatives")
    names = [formats.label_text(label) for label in run.classes]
    return {"classes": names} | {key: found[0][key] for key in keys}


def _figures(run: RunRecord, batch: Batch | None) -> dict[str, str]:
    evaluation = run.evaluation
    confusion = evaluation.get("confusion") or []
    drawn = {
        "convergence": model.convergence(evaluation.get("history") or [], run.tol),
        "roc": curves.roc(evaluation.get("curves") or []),
        "pr": curves.precision_recall(evaluation.get("curves") or []),
        "calibration": curves.calibration(evaluation.get("calibration") or []),
        "regions": model.regions(evaluation.get("plane"), run.classes),
        "fit": targets.fit(evaluation.get("fit"), run.epsilon),
        "residuals": targets.residuals(evaluation.get("fit"), evaluation.get("residuals"), run.epsilon),
        "tube": targets.tube(evaluation.get("line"), run.epsilon),
        "scores": targets.scores(evaluation.get("histogram")),
        "confusion": model.confusion_map(confusion, run.classes) if len(confusion) > LARGEST_TABLE else "",
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
    gaps = [p.get("kkt_gap") for p in run.problems]
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
