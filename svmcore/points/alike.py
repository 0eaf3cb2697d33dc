"""Which rows of bytes share a tile: those that are 0 in the same features, as products leave out what is 0 in all.

Of pictures in any order 52 % of the words are left out of tiles of four rows; 59 % where these are chosen among WINDOW
neighbours (`alike`), and 63 % where neighbours are of a kind (`ranked`).
"""

from typing import Any

import numpy as np

from svmcore.points.word_products import ROWS, WINDOW, ones
from svmcore.runtime.compiled import njit
from svmcore.runtime.threads import one_blas_thread, split_range

__all__ = ["alike", "ranked"]

FEWEST = 16  # words of a row, below which hardly any is left out
MOSTLY = 0.75  # of the words are not 0: where more are, there is little to leave out
BITS = 64  # of words that are compared at a time
SAMPLE, WORDS = 1024, 256  # rows and words that tell in which directions rows differ
DIRECTIONS = 6  # 64 kinds
SCALE = 1024  # directions are whole numbers, so that sums of them are exact in any order


def alike(words: Any, zero: Any) -> Any:
    """The places (tiles ROWS,) uint8 within their window of the rows of each tile of `words` (n, steps).

    A word that is `zero` is left out. What fills up the last tile is taken for rows of zeros. A tile's next row is the
    one that differs least from what it holds so far.
    """
    n, steps = words.shape
    places = (np.arange(-(-n // ROWS) * ROWS) % WINDOW).astype(np.uint8)
    if n > ROWS and steps >= FEWEST:
        there = words != zero
        if np.count_nonzero(there) <= MOSTLY * there.size:
            patterns = np.zeros((len(places), -(-steps // BITS)), np.uint64)
            packed = np.packbits(there, axis=1)
            patterns.view(np.uint8)[:n, : packed.shape[1]] = packed
            _group(patterns, places)
    return places


@one_blas_thread()
def ranked(words: Any) -> Any | None:
    """Ranks (n,) of `words` (n, steps), near each other where the same words are 0; None where nothing is won.

    Rows are of a kind where they are on the same sides of the medians along the directions in which the patterns of
    what is 0 differ most.
    """
    n, steps = words.shape
    some = (words[:: max(1, n // SAMPLE)] != 0).astype(np.float64)
    if steps < FEWEST or some.mean() > MOSTLY:
        return None
    along, directions = np.empty((n, DIRECTIONS), np.float32), _directions(some)

    def part(start: int, stop: int) -> None:
        np.matmul((words[start:stop] != 0).astype(np.float32), directions, out=along[start:stop])

    split_range(n, part, least=SAMPLE)
    kinds = (along > np.median(along, axis=0)) @ (1 << np.arange(DIRECTIONS))
    rank = np.empty(n, np.int64)
    rank[np.lexsort((along[:, -1], kinds))] = np.arange(n)
    return rank


def _directions(some: Any) -> Any:
    """Those (steps, DIRECTIONS) in which the rows of `some` (m, steps) differ most, the first one last."""
    varying = np.argsort(some.var(axis=0))[-WORDS:]
    centred = some[:, varying] - some[:, varying].mean(axis=0)
    found = np.zeros((some.shape[1], DIRECTIONS), np.float32)
    found[varying] = np.rint(SCALE * np.linalg.eigh(centred.T @ centred)[1][:, -DIRECTIONS:])
    return found


@njit(makes_arrays=True)
def _group(patterns, places):  # type: ignore[no-untyped-def]
    held = np.empty(patterns.shape[1], np.uint64)
    for start in range(0, len(places), WINDOW):
        stop = min(start + WINDOW, len(places))
        for slot in range(start, stop):
            if slot % ROWS:
                chosen = _nearest(patterns[start:stop], places[slot:stop], held)
                places[slot], places[slot + chosen] = places[slot + chosen], places[slot]
            else:
                held[:] = np.uint64(0)
            held |= patterns[start + places[slot]]


@njit
def _nearest(patterns, places, held):  # type: ignore[no-untyped-def]
    """Which of the `places` has the pattern that differs least from what is `held`."""
    best, least = 0, np.int64(BITS * len(held) + 1)
    for k in range(len(places)):
        row, differs = patterns[places[k]], np.int64(0)
        for b in range(len(held)):
            differs += ones(held[b] ^ row[b])
        if differs < least:
            best, least = k, differs
    return best
