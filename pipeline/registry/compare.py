"""Two runs side by side: what was asked, the data, the scores, the certificates, each class, the time."""

import json
from collections.abc import Mapping
from typing import Any

from pipeline.registry.aliases import run_at
from svmcore.errors import InputError

__all__ = ["compare", "mcnemar"]

DATA = ("n_train", "n_test", "n_features")
CERTIFICATE = ("status", "kkt_gap", "relative_gap", "n_support")
CLASS = ("n_support", "n_iter", "status", "kkt_gap")
PLACES = ("name", "store", "cluster", "cache", "gate", "promote")  # of a config: they change no answer


def compare(first: str, second: str) -> dict[str, Any]:
    """Compare the runs at two addresses or aliases.

    Returns
    -------
    dict
        `a`, `b`: addresses; `config`, `data`, `scores`, `certificate`, `seconds`: {key: [of a, of b]}, of the config
        and the sources what differs; `per_class`: [{label, key: [of a, of b]}]; `mcnemar`: see `mcnemar`, None where
        the two were not tested on the same rows.

    Raises
    ------
    InputError
        If there is no such run.
    """
    a, b = _read(first), _read(second)
    pairs = {key: [_flat(run["metrics"].get(key)) for run in (a, b)] for key in ("config", "provenance", "seconds")}
    data = {key: [run["metrics"].get(key) for run in (a, b)] for key in DATA}
    data |= _differing(*({k: v for k, v in side.items() if k.startswith("sources.")} for side in pairs["provenance"]))
    config = _differing(*pairs["config"])
    return {
        "a": a["address"],
        "b": b["address"],
        "config": {key: value for key, value in config.items() if key.split(".")[0] not in PLACES},
        "data": data,
        "scores": _both(_scores(a["metrics"]), _scores(b["metrics"])),
        "certificate": {key: [run["metrics"].get(key) for run in (a, b)] for key in CERTIFICATE},
        "per_class": _classes(a["metrics"], b["metrics"]),
        "seconds": _both(*pairs["seconds"]),
        "mcnemar": _tested(a, b),
    }


def _read(place: str) -> dict[str, Any]:
    store, key = run_at(place)
    found: dict[str, Any] = {"address": store.address(key)}
    for part in ("metrics", "evaluation"):
        try:
            found[part] = json.loads(store.get_bytes(f"{key}/{part}.json"))
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(f"no run at {place}: {part}.json is not there; `marginflow runs` lists the runs") from None
    return found


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted keys of nested mappings."""
    if not isinstance(value, Mapping):
        return {prefix: value} if prefix else {}
    parts = (_flat(inner, f"{prefix}.{key}" if prefix else str(key)) for key, inner in value.items())
    return {key: inner for part in parts for key, inner in part.items()}


def _both(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {key: [a.get(key), b.get(key)] for key in dict.fromkeys([*a, *b])}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {key: values for key, values in _both(a, b).items() if values[0] != values[1]}


def _scores(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Of the test rows, then of the training rows."""
    found = {key: metrics.get(key) for key in ("accuracy", "train_accuracy")}
    for where, scores in (metrics.get("scores") or {}).items():
        found |= {f"{where} {key}": value for key, value in (scores or {}).items() if key != "accuracy"}
    return {key: value for key, value in found.items() if value is not None}


def _classes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    sides = [{json.dumps(entry["label"]): entry for entry in run["per_class"]} for run in (a, b)]
    return [
        {"label": json.loads(label)} | {key: [side.get(label, {}).get(key) for side in sides] for key in CLASS}
        for label in dict.fromkeys([*sides[0], *sides[1]])
    ]


# --- the same test rows -----------------------------------------------------------------------------------------------
def _tested(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any] | None:
    """McNemar's test, where both runs were tested on the same rows and say which of them were right."""
    sides = [run["evaluation"].get("right") for run in (a, b)]
    rows = [(run["metrics"].get("provenance") or {}).get("test_rows") for run in (a, b)]
    if None in (*sides, *rows) or rows[0] != rows[1] or len(sides[0]) != len(sides[1]):
        return None
    only_a = sum(x == "1" and y == "0" for x, y in zip(*sides, strict=True))
    only_b = sum(x == "0" and y == "1" for x, y in zip(*sides, strict=True))
    return mcnemar(only_a, only_b)


def mcnemar(only_a: int, only_b: int) -> dict[str, Any]:
    """McNemar's exact test of two classifiers on the same rows (McNemar 1947; Dietterich 1998).

    Parameters
    ----------
    only_a, only_b
        Rows that one of the two alone has right.

    Returns
    -------
    dict
        `only_a`, `only_b`, `p_value`: two-sided binomial with probability 1/2; 1.0 where they agree on every row.

    >>> mcnemar(1, 9)
    {'only_a': 1, 'only_b': 9, 'p_value': 0.021484375}
    """
    from scipy.stats import binomtest

    n = only_a + only_b
    p_value = float(binomtest(only_a, n).pvalue) if n else 1.0
    return {"only_a": only_a, "only_b": only_b, "p_value": p_value}
