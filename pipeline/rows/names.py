"""What rows are called: their place in the source, and their id where the data has a column of ids.

Reports name single rows by it. Ids are staged in a file, so that memory does not grow with the data.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.sealed import ArrayWriter, Sealed

__all__ = ["Names", "named_rows", "write_names"]

STEP = 1 << 16  # rows read at a time
PLACES, IDS, ENDS = "shown/places", "shown/ids", "shown/ends"


class Names:
    """Ids of a source's rows in a file, as UTF-8 one after the other."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / f"{name}.ids"
        self._lengths: list[NDArray[np.int64]] = []

    def append(self, ids: NDArray[Any]) -> None:
        """Take the next ids (n,), of any kind."""
        texts = [str(one).encode() for one in ids.tolist()]
        self._lengths.append(np.array([len(text) for text in texts], np.int64))
        with self._file.open("ab") as file:
            file.write(b"".join(texts))

    def chosen(self, mask: NDArray[np.bool_]) -> Iterator[list[bytes]]:
        """Yield the ids of the rows of a mask (n,), in order."""
        ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *self._lengths]))
        for low in range(0, len(mask), STEP):
            edges = ends[low : low + STEP + 1]
            data = np.fromfile(self._file, np.uint8, edges[-1] - edges[0], offset=edges[0]).tobytes()
            spans = zip((edges[:-1] - edges[0]).tolist(), (edges[1:] - edges[0]).tolist(), strict=True)
            yield [data[a:b] for (a, b), take in zip(spans, mask[low : low + STEP].tolist(), strict=True) if take]


def write_names(folder: Path, names: Names | None, mask: NDArray[np.bool_]) -> None:
    """Write the places of the rows of a mask (n,) into a dataset, and their ids where there are any."""
    places = ArrayWriter(folder / PLACES, (), np.int64)
    places.append(np.flatnonzero(mask))
    places.close()
    if names is None:
        return
    ids, ends = ArrayWriter(folder / IDS, (), np.uint8), ArrayWriter(folder / ENDS, (), np.int64)
    ends.append(np.zeros(1, np.int64))
    total = 0
    for texts in names.chosen(mask):
        lengths = np.array([len(text) for text in texts], np.int64)
        ids.append(np.frombuffer(b"".join(texts), np.uint8))
        ends.append(total + np.cumsum(lengths))
        total += int(lengths.sum())
    ids.close()
    ends.close()


def named_rows(sealed: Sealed, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
    """`row`, counted from 0 in the source, and `id` or None, of test rows; of training rows where there are none."""
    places = sealed.read(PLACES)[rows].tolist()
    if not (sealed.path / IDS).exists():
        return [{"row": place, "id": None} for place in places]
    ends = sealed.read(ENDS)
    ids = [sealed.read(IDS, *ends[at : at + 2].tolist()).tobytes().decode() for at in rows.tolist()]
    return [{"row": place, "id": one} for place, one in zip(places, ids, strict=True)]
