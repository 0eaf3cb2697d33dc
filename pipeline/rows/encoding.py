"""Fits a schema to training rows: what fills gaps, and which texts a category has."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.rows.schema import MOST_CATEGORIES, Schema, Vector, Vocabulary
from svmcore.errors import InputError

__all__ = ["Encoder", "fit"]

MEDIAN_BYTES = 256 << 20
Blocks = Callable[[], Iterable[NDArray[np.float64]]]


@dataclasses.dataclass(frozen=True, eq=False)
class Encoder:
    """A fitted schema, and the position of each code that a growing vocabulary gave, by feature."""

    schema: Schema
    positions: Mapping[int, Vector]

    def __call__(self, X: Any) -> Any:
        """Return encoded rows (n, width) of rows (n, p) as they were staged."""
        for at, position in self.positions.items():
            codes = X[:, at]
            X[:, at] = np.where(np.isnan(codes), np.nan, position[np.nan_to_num(codes).astype(np.int64)])
        return self.schema.encode(X)


def fit(schema: Schema, texts: Mapping[int, Vocabulary], missing: str, blocks: Blocks, url: str) -> Encoder:
    """Return the encoder of a schema fitted to training rows.

    Parameters
    ----------
    texts
        Vocabularies in which the rows are coded, by the position of the feature.
    missing
        refuse, mean or median.
    blocks
        Yields the training rows (m, p), each time from the start.

    Raises
    ------
    InputError
        A column without any value, or a category of too many texts.
    """
    names = schema.names or tuple(map(str, range(schema.p)))
    used = _used(texts, blocks)
    categories = {
        at: _kept([text for text, code in vocabulary.texts.items() if code in used[at]], url, names[at])
        for at, vocabulary in texts.items()
    }
    positions = {at: Vocabulary(categories[at]).codes([*vocabulary.texts]) for at, vocabulary in texts.items()}
    schema = dataclasses.replace(schema, categories=categories)
    if missing == "refuse":
        return Encoder(schema, positions)
    fill = _means(schema.p, blocks) if missing == "mean" else _medians(schema.p, blocks)
    fill[list(texts)] = np.nan
    empty = np.flatnonzero(np.isnan(fill) & schema.numbers)
    if empty.size:
        raise _without_values(url, names[empty[0]])
    return Encoder(dataclasses.replace(schema, fill=fill), positions)


def _kept(texts: Sequence[str], url: str, name: str) -> tuple[str, ...]:
    """Texts of a category in alphabetical order."""
    if not texts:
        raise _without_values(url, name)
    if len(texts) > MOST_CATEGORIES:
        raise InputError(
            f"{url}: the column '{name}' has {len(texts):,} different texts such as {min(texts)!r}, more than "
            f"{MOST_CATEGORIES:,}; leave it out (data.drop), or have predictions repeat it (data.id)"
        )
    return tuple(sorted(texts))


def _without_values(url: str, name: str) -> InputError:
    return InputError(f"{url}: the column '{name}' has no value in the training rows; leave it out (data.drop)")


def _used(texts: Mapping[int, Vocabulary], blocks: Blocks) -> dict[int, set[float]]:
    """Codes that occur in the training rows, by feature."""
    used: dict[int, set[float]] = {at: set() for at in texts}
    for X in blocks() if texts else ():
        for at, codes in used.items():
            codes.update(np.unique(X[:, at]).tolist())
    return used


def _means(p: int, blocks: Blocks) -> Vector:
    total, count = np.zeros(p), np.zeros(p)
    for X in blocks():
        there = ~np.isnan(X)
        total += np.where(there, X, 0.0).sum(axis=0)
        count += there.sum(axis=0)
    return np.divide(total, count, out=np.full(p, np.nan), where=count > 0)


def _medians(p: int, blocks: Blocks) -> Vector:
    """Exact medians, of so many columns at a time that they fit into memory."""
    n = sum(len(X) for X in blocks())
    step = max(1, MEDIAN_BYTES // (8 * n))
    found: list[Any] = []
    for start in range(0, p, step):
        columns = np.concatenate([X[:, start : start + step] for X in blocks()])
        found.append(
            [np.median(column[~np.isnan(column)]) if not np.isnan(column).all() else np.nan for column in columns.T]
        )
    return np.concatenate(found)
