"""index.html of a store: the trend of every score over the nights, failed gates, champions, links to reports."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from pipeline.registry.aliases import last_moves
from pipeline.registry.listing import date_of
from pipeline.report.formats import score_name
from pipeline.report.templates import template
from pipeline.storage.base import Store

__all__ = ["render_index", "write_index"]

WIDTH, HEIGHT, LEFT, TOP = 520, 130, 8, 10
TRENDS = {"accuracy": "accuracy", "train_accuracy": "training accuracy"}
COSTS = {"n_support": "support vectors", "kkt_gap": "KKT gap", "n_train": "training rows", "total": "seconds"}


@dataclasses.dataclass(frozen=True)
class Night:
    """One run on the page."""

    run: str
    date: str
    values: dict[str, float]
    status: str
    failed: str
    is_champion: bool
    score: float | None
    scored_by: str

    @property
    def mark(self) -> str:
        """Class of its dot."""
        return "champion" if self.is_champion else "failed" if self.failed else "run"


@dataclasses.dataclass(frozen=True)
class Dot:
    """A run in a trend, in units of the drawing."""

    x: float
    y: float
    text: str
    mark: str


@dataclasses.dataclass(frozen=True)
class Trend:
    """One value over the runs, oldest first."""

    name: str
    dots: tuple[Dot, ...]
    low: str
    high: str

    @property
    def line(self) -> str:
        """Points of the polyline."""
        return " ".join(f"{dot.x:g},{dot.y:g}" for dot in self.dots)


def write_index(store: Store) -> str:
    """Write index.html of a store; returns its address."""
    store.put_bytes("index.html", render_index(store).encode())
    return store.address("index.html")


def render_index(store: Store) -> str:
    """The page: for each name its champions, its trends, and its runs, the newest first."""
    lasts = last_moves(store)
    champions = {move.run for move in lasts.values()}
    by_name: dict[str, list[Night]] = {}
    for run in sorted(store.runs(), key=lambda run: str(run["key"]).rpartition("/")[2]):
        by_name.setdefault(run["key"].partition("/")[0], []).append(_night(run, run["key"] in champions))
    named = {name: [(a, move) for a, move in lasts.items() if a.rpartition("@")[0] == name] for name in by_name}
    sections = [(name, named[name], _trends(nights), nights[::-1]) for name, nights in sorted(by_name.items())]
    return str(template("index.html").render(store=store.url, sections=sections, width=WIDTH, height=HEIGHT))


def _night(run: dict[str, Any], is_champion: bool) -> Night:
    scores = {key: value for key, value in ((run.get("scores") or {}).get("test") or {}).items()}
    found = {key: run.get(key) for key in (*TRENDS, *COSTS)} | scores | {"total": run.get("seconds", {}).get("total")}
    values = {key: float(value) for key, value in found.items() if isinstance(value, int | float)}
    gate = run.get("gate") or {}
    failed = "; ".join(
        f"{one['rule']} {_short(one['found'])}, needed {_short(one['needed'])}" for one in gate.get("failed", ())
    )
    date, ranked = date_of(run)[:16].replace("T", " "), (run["score"], score_name(run.get("scored_by", "accuracy")))
    return Night(run["key"], date, values, str(run.get("status")), failed, is_champion, *ranked)


def _trends(nights: Sequence[Night]) -> list[Trend]:
    """Scores first, then what they cost; of what no run knows there is none."""
    keys = dict.fromkeys([*TRENDS, *(key for night in nights for key in night.values if key not in COSTS), *COSTS])
    return [_trend(key, having) for key in keys if (having := [night for night in nights if key in night.values])]


def _trend(key: str, nights: Sequence[Night]) -> Trend:
    values = [night.values[key] for night in nights]
    low, high = min(values), max(values)
    step, span = (WIDTH - 2 * LEFT) / max(1, len(values) - 1), (high - low) or 1.0
    dots = tuple(
        Dot(
            round(LEFT + k * step, 1),
            round(HEIGHT - TOP - (value - low) / span * (HEIGHT - 2 * TOP), 1),
            f"{night.date}: {_short(value)}" + (f"; {night.failed}" if night.failed else ""),
            night.mark,
        )
        for k, (night, value) in enumerate(zip(nights, values, strict=True))
    )
    return Trend({**TRENDS, **COSTS}.get(key) or score_name(key), dots, _short(low), _short(high))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
