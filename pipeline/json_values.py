"""JSON as an identity and as a file."""

import hashlib
import json
from pathlib import Path
from typing import Any

__all__ = ["sha256_of_json", "write_json"]


def sha256_of_json(value: Any) -> str:
    """Sha256 of `value` as JSON with sorted keys: equal values have equal ones.

    >>> sha256_of_json({"a": 1, "b": 2}) == sha256_of_json({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON that every reader takes: no NaN, no Infinity."""
    path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")
