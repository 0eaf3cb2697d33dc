"""What the columns of a table mean: names, kinds and training ranges of the features, and how they become numbers.

A model keeps the schema of the rows that it was trained on. Later tables are matched with it by name, in any order.
Rows come as float64 (n, p): a number, or the position of a category's text, or NaN where a value is missing.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svmcore.errors import InputError

__all__ = ["Feature", "Schema", "Vocabulary"]

MOST_CATEGORIES = 1000
NEW = -1.0  # code of a text that the training rows do not have
Vector = NDArray[np.float64]


class Vocabulary:
    """Codes of the texts of a column: a growing one numbers what is new, a fixed one calls it `NEW`.

    >>> Vocabulary(["blue", "red"]).codes(["red", "green", None]).tolist()
    [1.0, -1.0, nan]
    """

    def __init__(self, texts: Sequence[str] | None = None) -> None:
        self.grows = texts is None
        self.texts = {text: code for code, text in enumerate(texts or ())}

    def codes(self, texts: Sequence[str | None]) -> Vector:
        """Return codes (n,); NaN for None and for empty texts."""
        stripped = [(text or "").strip() for text in texts]
        return np.array([self._code(text) if text else np.nan for text in stripped], np.float64)

    def _code(self, text: str) -> float:
        if self.grows:
            return self.texts.setdefault(text, len(self.texts))
        return self.texts.get(text, NEW)


@dataclasses.dataclass(frozen=True)
class Feature:
    """A column as a user knows it: `kind` number or category, training range or texts, what fills a gap."""

    name: str
    kind: str
    least: float | None
    largest: float | None
    fill: float | None
    categories: tuple[str, ...] | None


@dataclasses.dataclass(frozen=True, eq=False)
class Schema:
    """Features of a table in the order of training, and what its other columns are.

    Attributes
    ----------
    p
        Number of features as they are read; a category is one.
    names
        Of the features; None where the training data had none (LIBSVM, npz, zarr, a CSV without header).
    roles
        Names of the columns `label`, `fold` and `id`, where there are such.
    others
        All columns of the training data that are no features: later tables may have them too.
    extra
        Whether later tables may have any other column, because the features were listed.
    categories
        Texts of each category in alphabetical order, by the position of its feature.
    fill
        (p,) what takes the place of a missing number; None: missing values are refused.
    least, largest
        (p,) range of each number in the training rows; NaN of a category. None before they are known.
    """

    p: int
    names: tuple[str, ...] | None = None
    roles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    others: tuple[str, ...] = ()
    extra: bool = False
    categories: Mapping[int, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    fill: Vector | None = None
    least: Vector | None = None
    largest: Vector | None = None

    @property
    def is_plain(self) -> bool:
        """Whether rows are taken as they are read."""
        return not self.categories and self.fill is None

    @property
    def width(self) -> int:
        """Number of columns that a kernel sees."""
        return self.p + sum(len(texts) - 1 for texts in self.categories.values())

    @property
    def numbers(self) -> NDArray[np.bool_]:
        """Which features (p,) are numbers."""
        mask = np.ones(self.p, bool)
        mask[list(self.categories)] = False
        return mask

    def encode(self, X: Any) -> Any:
        """Return rows (n, width): gaps filled, each category a column of 0 and 1 for each of its texts.

        A text that the training rows do not have, and a missing one, is 0 in all of them.

        >>> schema = Schema(2, categories={1: ("blue", "red")}, fill=np.array([5.0, np.nan]))
        >>> schema.encode(np.array([[1.0, 0.0], [np.nan, 1.0], [2.0, -1.0]])).tolist()
        [[1.0, 1.0, 0.0], [5.0, 0.0, 1.0], [2.0, 0.0, 0.0]]
        """
        if self.is_plain:
            return X
        if X.shape[1] != self.p:
            raise InputError(f"rows with {X.shape[1]} features were given, the training data has {self.p}")
        if self.fill is not None:
            X = np.where(np.isnan(X), self.fill, X)
        parts, start = [], 0
        for at, texts in sorted(self.categories.items()):
            parts += [X[:, start:at], (X[:, at : at + 1] == np.arange(len(texts))).astype(np.float64)]
            start = at + 1
        return np.hstack([*parts, X[:, start:]])

    def ignoring_extra(self) -> "Schema":
        """The same, with columns allowed that the training data did not have."""
        return dataclasses.replace(self, extra=True)

    def with_ranges(self, least: Vector, largest: Vector) -> "Schema":
        """Add ranges, given those of the encoded columns (width,)."""
        widths = np.ones(self.p, np.int64)
        widths[list(self.categories)] = [len(texts) for texts in self.categories.values()]
        first = np.cumsum(widths) - widths
        ends = [np.where(self.numbers, end[first], np.nan) for end in (least, largest)]
        return dataclasses.replace(self, least=ends[0], largest=ends[1])

    def features(self) -> Iterator[Feature]:
        """Yield each feature; nameless ones are called by their position, counted from 0."""
        for j in range(self.p):
            name, texts = str(j) if self.names is None else self.names[j], self.categories.get(j)
            least, largest, fill = (_number(values, j) for values in (self.least, self.largest, self.fill))
            yield Feature(name, "category" if texts else "number", least, largest, fill, texts)

    def columns(self) -> list[str]:
        """Names of the columns that a kernel sees (width,).

        >>> Schema(2, ("size", "colour"), categories={1: ("blue", "red")}).columns()
        ['size', 'colour=blue', 'colour=red']
        """
        names = ([f"{f.name}={text}" for text in f.categories] if f.categories else [f.name] for f in self.features())
        return [name for of_feature in names for name in of_feature]

    def vocabularies(self) -> dict[int, Vocabulary]:
        """Fixed vocabularies of the categories, by the position of their feature."""
        return {at: Vocabulary(texts) for at, texts in self.categories.items()}

    # --- on storage
    def record(self) -> dict[str, Any]:
        """What JSON holds of it; `arrays` has the rest."""
        return {
            "p": self.p,
            "names": None if self.names is None else list(self.names),
            "roles": dict(self.roles),
            "others": list(self.others),
            "extra": self.extra,
            "categories": [[at, list(texts)] for at, texts in sorted(self.categories.items())],
        }

    def arrays(self) -> dict[str, Vector]:
        """Vectors (p,) by name."""
        found = {"fill": self.fill, "least": self.least, "largest": self.largest}
        return {name: values for name, values in found.items() if values is not None}

    @classmethod
    def of(cls, record: Mapping[str, Any], arrays: Mapping[str, Vector]) -> "Schema":
        """The schema that `record` and `arrays` are of."""
        return cls(
            p=record["p"],
            names=None if record["names"] is None else tuple(record["names"]),
            roles=dict(record["roles"]),
            others=tuple(record["others"]),
            extra=record["extra"],
            categories={at: tuple(texts) for at, texts in record["categories"]},
            **arrays,
        )


def _number(values: Vector | None, j: int) -> float | None:
    return None if values is None or np.isnan(values[j]) else float(values[j])
