"""The points of a sweep as parameters, and configurations as text that is equal where they are."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["NOT_SWEPT", "canonical_json", "combinations"]

NOT_SWEPT = ("name", "store", "cluster", "cache", "sweep", "seed", "task", "scoring", "gate", "promote")


def combinations(grid: Mapping[str, Sequence[Any]], listed: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each point's parameters."""
    if grid or not listed:
        keys = sorted(grid)
        for values in itertools.product(*(grid[key] for key in keys)):
            yield dict(zip(keys, values, strict=True))
    yield from listed


def canonical_json(value: Any) -> str:
    """Return JSON in which equal configurations are equal text: sorted keys, every number a float."""

    def plain(item: Any) -> Any:
        if isinstance(item, Mapping):
            return sorted(([_tagged(key), plain(part)] for key, part in item.items()), key=json.dumps)
        if isinstance(item, list | tuple):
            return [plain(part) for part in item]
        return float(item) if isinstance(item, int) and not isinstance(item, bool) else item

    return json.dumps(plain(value))


def _tagged(key: Any) -> Any:
    """Tell the label 1 from the label '1'."""
    return key if isinstance(key, str) else [type(key).__name__, key]
