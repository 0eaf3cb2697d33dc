"""The points of a sweep arranged for the report: ranked, tabulated over two parameters, cut into curves.

A point is one entry of `metrics["points"]`, joined with the counts of its row in results.csv.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pipeline.config.quantities import finite
from pipeline.report.formats import value_text

__all__ = ["Batch", "Curves", "HeatMap", "Point", "batch_of"]

COUNTS = ("n_support", "kkt_gap", "relative_gap", "status", "n_fits")


@dataclass(frozen=True)
class Point:
    """One setting of the swept parameters and its scores over the folds."""

    params: dict[str, Any]
    mean_score: float | None
    std_score: float | None = None
    fold_scores: tuple[float, ...] = ()
    seconds: float | None = None
    n_support: float | None = None
    kkt_gap: float | None = None
    relative_gap: float | None = None
    status: str | None = None
    n_fits: float | None = None
    is_best: bool = False

    @property
    def text(self) -> str:
        """The parameters in one line."""
        return ", ".join(f"{_tail(key)} {value_text(value)}" for key, value in self.params.items())


@dataclass(frozen=True)
class HeatMap:
    """Mean score for each value of two parameters; `cells[row][column]` is a point or None."""

    row_name: str
    column_name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Point | None, ...], ...]
    low: float
    high: float
    fixed: str

    def shade(self, score: float) -> float:
        """Return where `score` stands in 0.08 ... 1, the worst (and all below `low`) to the best."""
        span = (self.high - self.low) or 1.0
        return 0.08 + 0.92 * max(0.0, score - self.low) / span


@dataclass(frozen=True)
class Curves:
    """Points along one numeric parameter, a curve for each value of another."""

    name: str
    series_name: str
    series: tuple[tuple[str, tuple[Point, ...]], ...]
    fixed: str
    hidden: int = 0


@dataclass(frozen=True)
class Batch:
    """All points of a sweep, best first."""

    points: tuple[Point, ...]
    names: tuple[str, ...] = field(default=())

    def has(self, attribute: str) -> bool:
        """Whether any point knows `attribute`."""
        return any(getattr(p, attribute) not in (None, ()) for p in self.points)

    @property
    def best(self) -> Point:
        """The point marked best, else the first."""
        return next((p for p in self.points if p.is_best), self.points[0])

    @property
    def worst_gap(self) -> float | None:
        """Largest KKT gap of any fit in the batch."""
        return max((p.kkt_gap for p in self.points if p.kkt_gap is not None), default=None)

    def within(self, tol: float | None, slack: float = 1.05) -> int:
        """Count the points whose worst fit has a KKT gap of at most `slack` times `tol`."""
        limit = slack * (tol or 0.0)
        return sum(p.kkt_gap is not None and p.kkt_gap <= limit for p in self.points)

    def statuses(self) -> list[tuple[str, int]]:
        """Return each status with the number of points that ended in it."""
        return sorted(Counter(p.status for p in self.points if p.status).items())

    def swept(self) -> list[str]:
        """Parameters with at least two values, `C` and numeric ones first."""
        names = [n for n in self.names if len(_values(self.points, n)) > 1]
        return sorted(names, key=lambda n: (n != "C", not _is_numeric(self.points, n)))

    def heat_map(self) -> HeatMap | None:
        """Mean score over the first two swept parameters, the others as in the best point."""
        swept = self.swept()
        if len(swept) < 2:
            return None
        column, row = swept[:2]
        slice_ = _slice_at_best(self, free=(row, column))
        known = {(_key(p.params.get(row)), _key(p.params.get(column))): p for p in slice_}
        rows, columns = _values(slice_, row), _values(slice_, column)
        cells = tuple(tuple(known.get((_key(r), _key(c))) for c in columns) for r in rows)
        scores = [p.mean_score for p in slice_ if p.mean_score is not None]
        if len(rows) < 2 or len(columns) < 2 or not scores:
            return None
        texts = [tuple(value_text(v) for v in values) for values in (rows, columns)]
        # one hopeless point must not paint all others the same: the scale stops at four times median to best
        low = max(min(scores), max(scores) - 4 * (max(scores) - median(scores)))
        fixed = _fixed_text(self, (row, column))
        return HeatMap(_tail(row), _tail(column), texts[0], texts[1], cells, low, max(scores), fixed)

    def curves(self, most: int = 8) -> Curves | None:
        """Score along the first numeric parameter, one curve for each value of the next; at most `most`."""
        swept = self.swept()
        if not swept or not _is_numeric(self.points, swept[0]):
            return None
        name, series_name = swept[0], swept[1] if len(swept) > 1 else ""
        slice_ = _slice_at_best(self, free=(name, series_name))
        values = _values(slice_, series_name) if series_name else [None]
        chosen = _spread(values, most, self.best.params.get(series_name))
        series = tuple(
            (
                f"{_tail(series_name)} {value_text(v)}" if series_name else "",
                _along(slice_, name, series_name, v),
            )
            for v in chosen
        )
        if max((len(points) for _, points in series), default=0) < 2:  # none where the best has no such parameter
            return None
        return Curves(name, series_name, series, _fixed_text(self, (name, series_name)), len(values) - len(chosen))


def batch_of(metrics: dict[str, Any], rows: Sequence[dict[str, str]]) -> Batch | None:
    """Join `metrics["points"]` with results.csv, best first, ties broken by fewer support vectors."""
    entries = metrics.get("points") or []
    if not entries:
        return None
    names = tuple(dict.fromkeys(name for entry in entries for name in entry.get("params", {})))
    best = metrics.get("best") or {}
    best_params = best.get("params", best)
    by_params = {_row_key(row, names): row for row in rows}
    points = [_point(entry, by_params.get(_entry_key(entry, names), {}), best_params) for entry in entries]
    ranks = metrics.get("scored_by") != "rejected"  # a share of rejected rows is no merit
    return Batch(tuple(sorted(points, key=_rank) if ranks else points), names)


def _point(entry: dict[str, Any], row: dict[str, str], best_params: dict[str, Any]) -> Point:
    extra = {name: entry.get(name, row.get(name)) for name in COUNTS}
    status = extra.pop("status") or None
    params = entry.get("params", {})
    return Point(
        params=params,
        mean_score=finite(entry.get("mean_score")),
        std_score=finite(entry.get("std_score")),
        fold_scores=tuple(s for s in map(finite, entry.get("fold_scores") or ()) if s is not None),
        seconds=finite(entry.get("seconds")),
        status=status,
        is_best=bool(best_params) and all(_key(best_params.get(k)) == _key(v) for k, v in params.items()),
        **{name: finite(value) for name, value in extra.items()},
    )


def _rank(point: Point) -> tuple[float, float]:
    mean = -1e300 if point.mean_score is None else point.mean_score
    return -mean, float("inf") if point.n_support is None else point.n_support


def _key(value: Any) -> Any:
    real = finite(value)
    return str(value) if real is None else real


def _entry_key(entry: dict[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_key(entry.get("params", {}).get(name)) for name in names)


def _row_key(row: dict[str, str], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_key(row.get(name, row.get(f"params.{name}"))) for name in names)


def _values(points: Sequence[Point], name: str) -> list[Any]:
    """Return the distinct values of a parameter, numbers in order, then the rest as met."""
    distinct = {_key(p.params[name]): p.params[name] for p in points if name in p.params}
    return sorted(distinct.values(), key=lambda v: (finite(v) is None, finite(v) or 0.0))


def _is_numeric(points: Sequence[Point], name: str) -> bool:
    return all(finite(value) is not None for value in _values(points, name))


def _slice_at_best(batch: Batch, free: Sequence[str]) -> list[Point]:
    held = [name for name in batch.names if name not in free]
    best = batch.best.params
    return [p for p in batch.points if all(_key(p.params.get(n)) == _key(best.get(n)) for n in held)]


def _fixed_text(batch: Batch, free: Sequence[str]) -> str:
    held = [n for n in batch.swept() if n not in free]
    return ", ".join(f"{n} = {value_text(batch.best.params.get(n))}" for n in held)


def _spread(values: list[Any], most: int, best: Any) -> list[Any]:
    """Pick `most` of the values, evenly, the best always among them."""
    if len(values) <= most:
        return values
    picked = {round(k * (len(values) - 1) / (most - 1)) for k in range(most)}
    keys = [_key(v) for v in values]
    if _key(best) in keys and (at := keys.index(_key(best))) not in picked:
        picked.remove(min(picked, key=lambda k: abs(k - at)))
        picked.add(at)
    return [values[k] for k in sorted(picked)]


def _along(points: Sequence[Point], name: str, series_name: str, value: Any) -> tuple[Point, ...]:
    chosen = [p for p in points if not series_name or _key(p.params.get(series_name)) == _key(value)]
    chosen = [p for p in chosen if finite(p.params.get(name)) is not None and p.mean_score is not None]
    return tuple(sorted(chosen, key=lambda p: finite(p.params[name]) or 0.0))


def _tail(name: str) -> str:
    return name.rsplit(".", 1)[-1]
