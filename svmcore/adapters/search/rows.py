"""The rows of a search, whose training parts are taken once: scikit-learn takes them anew for every candidate."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from svmcore.points import Floats

__all__ = ["SearchRows", "search_rows"]


class SearchRows(np.ndarray):
    """Rows (n, p), an array in all; the parts that `keep` names are copied once, for fits that only read them."""

    _parts: dict[int, list[Any]]

    def keep(self, every: Sequence[Floats], n_bytes: int) -> None:
        """Keep the parts with these numbers of rows, told by their identity, if all take up to so many bytes."""
        taken = sum(len(numbers) for numbers in every) * self.strides[0]
        self._parts = {id(numbers): [numbers, None] for numbers in every} if taken <= n_bytes else {}

    def __getitem__(self, key: Any) -> Any:
        whole = np.asarray(self)
        numbers = key[0] if type(key) is tuple and len(key) == 2 and key[1] is Ellipsis else key
        kept = self.__dict__.get("_parts", {}).get(id(numbers))
        if kept is None:
            return whole[key]
        if kept[1] is None:
            kept[1] = whole[numbers]
        return kept[1]


def search_rows(X: Any) -> Any:
    """The same rows, as `SearchRows` where they are an array in the memory of this process."""
    plain = type(X) is np.ndarray and X.ndim == 2 and X.flags.c_contiguous and X.dtype.kind == "f"
    return X.view(SearchRows) if plain else X
