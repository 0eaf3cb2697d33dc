"""The tables of a report: what is in their cells, as text and as exact values. No markup."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config.quantities import MISSING, finite, number, seconds, size
from pipeline.report.batch import Batch, Point, value_text
from pipeline.report.formats import count, label_text, score
from pipeline.report.record import SLACK, RunRecord, known

__all__ = ["Cell", "Column", "Table", "certificates", "class_scores", "leaderboard", "moved", "planned", "worst_rows"]

FIRST = 15  # rows of a long table that are shown until one asks for all


@dataclass(frozen=True)
class Cell:
    """A text, the exact value behind it, and whether that is within its limit, where it has one."""

    text: str
    value: Any = None
    within: bool | None = None


@dataclass(frozen=True)
class Column:
    """The head of a column; words are aligned to the left."""

    name: str
    word: bool = False


@dataclass(frozen=True)
class Table:
    """Columns and rows of cells; `best` is the row that is marked, `first` how many are shown at first (0: all)."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    best: int = -1
    first: int = 0


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], best: int = -1) -> Table:
    """A table of which the first rows are shown if it is long."""
    found = tuple(map(tuple, rows))
    return Table(tuple(columns), found, best, FIRST if len(found) > FIRST + 5 else 0)


def _number(value: Any, digits: int = 4) -> Cell:
    return Cell(number(value, digits), value)


def _count(value: Any) -> Cell:
    return Cell(count(value), value)


def _seconds(value: Any) -> Cell:
    return Cell(seconds(value), value)


def _score(value: Any) -> Cell:
    return Cell(score(value), value)


def _word(value: Any) -> Cell:
    return Cell(str(value or MISSING).replace("_", " "))


def gap_cell(gap: Any, tol: float | None) -> Cell:
    """A KKT gap, and whether it is within its tolerance."""
    return Cell(number(gap), gap, gap <= SLACK * tol if gap is not None and tol else None)


# --- certificates -----------------------------------------------------------------------------------------------------
ALWAYS = ("n_support", "n_bounded", "n_iter", "status", "kkt_gap")
PROOF: dict[str, tuple[str, Callable[[Any], Cell]]] = {
    "n_support": ("support vectors", _count),
    "n_bounded": ("at the bound", _count),
    "n_iter": ("steps", _count),
    "status": ("status", _word),
    "primal": ("primal", lambda value: _number(value, 6)),
    "dual": ("dual", lambda value: _number(value, 6)),
    "relative_gap": ("relative gap", lambda value: _number(value, 3)),
    "kkt_gap": ("KKT gap", _number),
    "bias": ("bias", _number),
    "rho": ("rho", _number),
    "epsilon": ("epsilon", _number),
    "margin": ("margin", lambda value: _number(value, 3)),
    "seconds": ("time", _seconds),
}


def certificates(run: RunRecord) -> Table | None:
    """A row for each program of the model."""
    if not run.problems:
        return None
    keys = [key for key in PROOF if key in ALWAYS or known(run.problems, key)]
    columns = [Column("class" if run.classes else "program"), *(Column(PROOF[k][0], k == "status") for k in keys)]
    return table(columns, ([_label(entry.get("label")), *_proof(entry, keys, run.tol)] for entry in run.problems))


def _label(label: Any) -> Cell:
    return Cell(label_text(label))


def _proof(entry: dict[str, Any], keys: Sequence[str], tol: float | None) -> list[Cell]:
    return [gap_cell(entry.get(k), tol) if k == "kkt_gap" else PROOF[k][1](entry.get(k)) for k in keys]


# --- points of a sweep ------------------------------------------------------------------------------------------------
POINT: dict[str, tuple[str, Callable[[Any], Cell]]] = {
    "std_score": ("std", _score),
    "n_support": ("support vectors", _count),
    "kkt_gap": ("KKT gap", _number),
    "status": ("status", _word),
    "seconds": ("time", _seconds),
}


def leaderboard(batch: Batch, tol: float | None) -> Table:
    """A row for each point, best first."""
    keys = [key for key in POINT if batch.has(key)]
    columns = [Column("#"), *map(Column, batch.names), Column("mean score")]
    columns += [Column(POINT[key][0], key == "status") for key in keys]
    rows = [_point(k, point, batch.names, keys, tol) for k, point in enumerate(batch.points, start=1)]
    return table(columns, rows, next((k for k, point in enumerate(batch.points) if point.is_best), -1))


def _point(rank: int, point: Point, names: Sequence[str], keys: Sequence[str], tol: float | None) -> list[Cell]:
    params = [Cell(value_text(point.params[name]) if name in point.params else MISSING) for name in names]
    found = [(key, getattr(point, key)) for key in keys]
    rest = [gap_cell(value, tol) if key == "kkt_gap" else POINT[key][1](value) for key, value in found]
    return [Cell(str(rank)), *params, _score(point.mean_score), *rest]


# --- classes and rows -------------------------------------------------------------------------------------------------
def class_scores(run: RunRecord) -> Table | None:
    """Areas under the curves of each class that is told from the rest, the worst first."""
    curves = run.evaluation.get("curves") or []
    if not curves:
        return None
    columns = [Column("class"), Column("rows"), Column("ROC AUC"), Column("average precision")]
    rows = [
        [_label(c["label"]), _count(c["positives"]), _score(c["auc"]), _score(c["average_precision"])]
        for c in sorted(curves, key=lambda c: c["average_precision"])
    ]
    return table(columns, rows)


def worst_rows(run: RunRecord) -> Table | None:
    """The rows that are the most wrong, or the furthest outside."""
    errors, furthest = run.evaluation.get("errors") or [], run.evaluation.get("furthest") or []
    if not errors and not furthest:
        return None
    entries = errors or furthest
    names = [key for key in ("id", "copies") if any(entry.get(key) not in (None, 1) for entry in entries)]
    columns = [
        Column("row"),
        *map(Column, names),
        Column("label"),
        *map(Column, ("said", "by") if errors else ("decision value",)),
    ]
    return table(columns, ([*_names(entry, names), *_fault(entry)] for entry in entries))


def _names(entry: dict[str, Any], names: Sequence[str]) -> list[Cell]:
    return [_count(entry["row"]), *(Cell(str(entry.get(name, MISSING))) for name in names)]


def _fault(entry: dict[str, Any]) -> list[Cell]:
    label = Cell(MISSING) if entry["label"] is None else _said(entry["label"])
    return [label, _said(entry["said"]), _number(entry["by"])] if "said" in entry else [label, _number(entry["score"])]


def _said(value: Any) -> Cell:
    return _number(value) if isinstance(value, float) and not value.is_integer() else _label(value)


def moved(drift: dict[str, Any] | None) -> Table | None:
    """The features that have shifted since the champion was trained."""
    shifted = [one for one in (drift or {}).get("features", []) if one["shifted"]]
    if not shifted:
        return None
    names = ("feature", "median then", "median now", "stability index", "p-value")
    rows = [
        [Cell(one["name"]), *map(_number, one["median"]), _number(one["psi"], 2), _number(one["p_value"], 2)]
        for one in shifted
    ]
    return table([*map(Column, names)], rows)


# --- the forecast -----------------------------------------------------------------------------------------------------
def planned(metrics: dict[str, Any]) -> Table | None:
    """Seconds and memory as they were foretold, and as they were."""
    plan, spent = metrics.get("plan") or {}, metrics.get("seconds") or {}
    asked = plan.get("seconds") or {}
    rows = [[Cell(name), *_pair(asked[name], spent[name], _seconds)] for name in asked if name in spent]
    if plan.get("memory_bytes") and metrics.get("peak_memory_bytes"):
        bytes_ = _pair(plan["memory_bytes"], metrics["peak_memory_bytes"], lambda value: Cell(size(value), value))
        rows.append([Cell("memory"), *bytes_])
    columns = [Column("what"), Column("planned"), Column("measured"), Column("measured / planned")]
    return table(columns, rows) if rows else None


def _pair(foretold: Any, found: Any, cell: Callable[[Any], Cell]) -> list[Cell]:
    ratio = found / foretold if finite(foretold) and finite(found) is not None else None
    return [cell(foretold), cell(found), _number(ratio, 2)]
