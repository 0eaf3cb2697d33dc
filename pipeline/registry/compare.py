"""Two runs side by side: what was asked, the data, the scores, the certificates, each class, the time."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.registry.aliases import current, run_at
from pipeline.storage.base import Store
from pipeline.storage.manifest import believing
from svmcore.errors import InputError

__all__ = ["compare", "mcnemar", "neighbours", "read_run", "sides", "wilcoxon"]

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
        and the sources what differs; `per_class`: [{label, key: [of a, of b]}]; `paired`: `mcnemar` or `wilcoxon`, None
        where the two were not tested on the same rows.

    Raises
    ------
    InputError
        If there is no such run.
    """
    with believing(f"{first} and {second} do not both read as runs", "restore their files, or run them again"):
        return sides(*(read_run(*run_at(place)) for place in (first, second)))


def sides(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Compare two runs as `read_run` gives them; see `compare`."""
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
        "paired": _tested(a, b),
    }


def read_run(store: Store, key: str) -> dict[str, Any]:
    """`address`, `metrics` and `evaluation` of a run of a store."""
    found: dict[str, Any] = {"address": store.address(key)}
    for part in ("metrics", "evaluation"):
        try:
            found[part] = json.loads(store.get_bytes(f"{key}/{part}.json"))
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(
                f"no run at {found['address']}: {part}.json is not there; `marginflow runs` lists the runs"
            ) from None
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


# --- the runs beside one ----------------------------------------------------------------------------------------------
def neighbours(store: Store, run: Mapping[str, Any], alias: str) -> dict[str, Any]:
    """`champion`, which an alias names, and `previous`, the newest run of the same name: each `a` against `run` as `b`.

    None where there is none, or it can no longer be read.
    """
    name = str(run["metrics"]["config"]["name"])
    move = current(store, name, alias)
    keys = {
        "champion": None if move is None else move.run,
        "previous": max((key for key in store.run_keys() if key.partition("/")[0] == name), default=None),
    }
    return {"alias": alias} | {which: _against(store, key, run) for which, key in keys.items()}


def _against(store: Store, key: str | None, run: Mapping[str, Any]) -> dict[str, Any] | None:
    if key is None:
        return None
    try:
        return sides(read_run(store, key), dict(run))
    except (InputError, ValueError, KeyError):  # removed by hand, or of another version
        return None


# --- the same test rows -----------------------------------------------------------------------------------------------
def _tested(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any] | None:
    """The paired test of two runs, where both were tested on the same rows and say how they did on each."""
    rows = [(run["metrics"].get("provenance") or {}).get("test_rows") for run in (a, b)]
    if None in rows or rows[0] != rows[1]:
        return None
    for key, test in (("right", _both_right), ("absolute_errors", wilcoxon)):
        found = [run["evaluation"].get(key) for run in (a, b)]
        if None not in found and len(found[0]) == len(found[1]):
            return test(*found)
    return None


def _both_right(a: str, b: str) -> dict[str, Any]:
    pairs = Counter(zip(a, b, strict=True))
    return mcnemar(pairs["1", "0"], pairs["0", "1"])


def mcnemar(only_a: int, only_b: int) -> dict[str, Any]:
    """McNemar's exact test of two classifiers on the same rows (McNemar 1947; Dietterich 1998).

    Parameters
    ----------
    only_a, only_b
        Rows that one of the two alone has right.

    Returns
    -------
    dict
        `test`, `only_a`, `only_b`, `p_value`: two-sided binomial with probability
        1/2; 1.0 where they agree on every row.

    >>> mcnemar(1, 9)
    {'test': 'mcnemar', 'only_a': 1, 'only_b': 9, 'p_value': 0.021484375}
    """
    from scipy.stats import binomtest

    n = only_a + only_b
    p_value = float(binomtest(only_a, n).pvalue) if n else 1.0
    return {"test": "mcnemar", "only_a": only_a, "only_b": only_b, "p_value": p_value}


def wilcoxon(a: Sequence[float], b: Sequence[float]) -> dict[str, Any]:
    """Wilcoxon's signed-rank test of the absolute errors (n,) of two regressions on the same rows (Wilcoxon 1945).

    Returns
    -------
    dict
        `test`, `closer_a`, `closer_b`: rows on which one of the two is closer; `p_value`: two-sided; 1.0 where the
        errors are equal on every row.

    >>> wilcoxon([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    {'test': 'wilcoxon', 'closer_a': 0, 'closer_b': 0, 'p_value': 1.0}
    """
    from scipy import stats

    differences = [x - y for x, y in zip(a, b, strict=True) if x != y]
    closer_a = sum(difference < 0 for difference in differences)
    p_value = float(stats.wilcoxon(differences).pvalue) if differences else 1.0
    return {"test": "wilcoxon", "closer_a": closer_a, "closer_b": len(differences) - closer_a, "p_value": p_value}
