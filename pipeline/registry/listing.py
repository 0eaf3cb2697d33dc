"""Which runs a store has, chosen and sorted by what they say of themselves; and which may go."""

import contextlib
import dataclasses
import datetime
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config.keys import copied, set_key
from pipeline.registry.aliases import last_moves
from pipeline.storage.base import Store
from svmcore.errors import InputError

__all__ = ["Query", "date_of", "listed", "lookup", "parameters", "to_prune"]

OPERATORS = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
CONDITION = re.compile(r"\s*([\w.]+)\s*(>=|<=|!=|==|>|<|=)\s*(.+?)\s*")
RUN_ID = re.compile(r"(\d{8}T\d{6}Z)-")
SHOWN = ("kernel", "C", "loss", "solver", "class_weight", "multiclass", "bias", "task", "nu", "epsilon")


@dataclasses.dataclass(frozen=True)
class Query:
    """What is asked of the runs.

    Attributes
    ----------
    name
        Of the experiment; None: any.
    since, until
        Days (`2026-11-22`) or times (`2026-11-22T10:00`) in UTC, both included.
    where
        Conditions such as `accuracy>0.9`, `status=converged`, `kernel.gamma<=0.1`; all must hold.
    sort
        A key, the largest first, or `-KEY`, the smallest first; default `score`, that which ranks.
    limit
        At most so many.
    """

    name: str | None = None
    since: str | None = None
    until: str | None = None
    where: Sequence[str] = ()
    sort: str = "score"
    limit: int | None = None


def listed(store: Store, query: Query) -> list[dict[str, Any]]:
    """Metrics of the runs that a query asks for, each with its `date` (UTC) and `params`.

    Raises
    ------
    InputError
        A date or a condition that cannot be read, or a key that no run has.
    """
    since, until = _time(query.since, "--since"), _time(query.until, "--until", end=True)
    conditions = [_condition(text) for text in query.where]
    runs = [run | {"date": date_of(run), "params": parameters(run)} for run in store.runs()]
    _check_keys(runs, [key for key, _, _ in conditions] + [query.sort.lstrip("-")])
    found = [
        run
        for run in runs
        if query.name in (None, run["key"].partition("/")[0])
        and (since is None or since <= run["date"])
        and (until is None or run["date"] <= until)
        and all(_holds(lookup(run, key), compare, value) for key, compare, value in conditions)
    ]
    return _sorted(found, query.sort)[: query.limit]


def date_of(run: Mapping[str, Any]) -> str:
    """When a run was published, by its id: `2026-11-22T07:19:03+00:00`; "" of an id without a time."""
    match = RUN_ID.match(str(run["key"]).rpartition("/")[2])
    if match is None:
        return ""
    return datetime.datetime.strptime(match[1], "%Y%m%dT%H%M%S%z").isoformat()


def parameters(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a run was told to do: `{"kernel": "rbf", "kernel.gamma": 0.1, "C": 10, ...}`; of a sweep, its best point."""
    config, flat = copied(run.get("config") or {}), {}
    for key, value in ((run.get("best") or {}).get("params") or {}).items():
        set_key(config, key, value, "metrics.json")
    for key in (key for key in SHOWN if key in config):
        value = config[key]
        if not isinstance(value, Mapping) or key == "class_weight":
            flat[key] = value
            continue
        flat[key] = value.get("name")
        flat |= {f"{key}.{part}": inner for part, inner in value.items() if part != "name" and inner is not None}
    return flat


def lookup(run: Mapping[str, Any], key: str) -> Any:
    """Value of a dotted key: of the metrics, else a score of the test rows, else of the config; None without one."""
    test = (run.get("scores") or {}).get("test") or {}
    for root in (run, test, run.get("params") or {}, run.get("config") or {}):
        if key in root:
            return root[key]
        found: Any = root
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    return None


def _check_keys(runs: Sequence[dict[str, Any]], keys: Sequence[str]) -> None:
    for key in keys:
        if runs and all(lookup(run, key) is None for run in runs) and not any(key in run for run in runs):
            raise InputError(f"no run has {key!r}; keys are those of metrics.json and config.yaml, such as accuracy, C")


def _condition(text: str) -> tuple[str, Any, Any]:
    match = CONDITION.fullmatch(text)
    if match is None:
        raise InputError(f"--where {text!r}: give KEY, one of {', '.join(OPERATORS)}, and a value: accuracy>0.9")
    return match[1], OPERATORS[match[2]], _value(match[3])


def _value(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def _holds(found: Any, compare: Any, value: Any) -> bool:
    """Numbers are compared as such, all else as text; what is not there holds nothing."""
    if found is None:
        return False
    if isinstance(value, float) and isinstance(found, int | float):
        return bool(compare(found, value))
    return bool(compare(str(found).lower(), str(value).lower()))


def _sorted(runs: Sequence[dict[str, Any]], sort: str) -> list[dict[str, Any]]:
    """Runs without the key come last; equal ones the newest first."""
    key, first = sort.lstrip("-"), not sort.startswith("-")
    newest = sorted(runs, key=lambda run: run["date"], reverse=True)
    having = [run for run in newest if lookup(run, key) is not None]
    numbers = all(isinstance(lookup(run, key), int | float) for run in having)
    having.sort(key=lambda run: lookup(run, key) if numbers else str(lookup(run, key)), reverse=first)
    return having + [run for run in newest if lookup(run, key) is None]


def _time(text: str | None, option: str, end: bool = False) -> str | None:
    """A day or a time as `date_of` writes it; the end of the day for `end`."""
    if text is None:
        return None
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"{option} {text!r}: give a day such as 2026-11-22, or a time such as 2026-11-22T10:00"
        ) from None
    if end and len(text) <= len("2026-11-22"):
        time = time.replace(hour=23, minute=59, second=59)
    time = time.replace(tzinfo=datetime.UTC) if time.tzinfo is None else time.astimezone(datetime.UTC)
    return time.isoformat(timespec="seconds")


def to_prune(store: Store, keep: int, name: str | None = None) -> list[str]:
    """Keys of the runs beyond the newest `keep` of each name; never one that an alias names, or named before.

    Raises
    ------
    InputError
        If `keep` is below 1.
    """
    if keep < 1:
        raise InputError(f"--keep {keep}: at least 1 run of each name must be kept")
    kept = {run for move in last_moves(store).values() for run in (move.run, move.before)}
    by_name: dict[str, list[str]] = {}
    for key in sorted(store.run_keys(), reverse=True):
        by_name.setdefault(key.partition("/")[0], []).append(key)
    chosen = by_name.values() if name is None else [by_name.get(name, [])]
    return [key for keys in chosen for key in keys[keep:] if key not in kept]
