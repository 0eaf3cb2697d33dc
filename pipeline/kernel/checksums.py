r"""Checksums of parts of K: what makes a strip finished.

.. math::  s(A) = \sum_{ij} w_i w_j \, bits(A_{ij}) \bmod 2^{64}, \qquad w \text{ odd}

They are bilinear, so that a block and its transpose, written elsewhere in the file, have the same one.
"""

import functools
from typing import Any

import numpy as np

from svmcore.points import Floats
from svmcore.runtime.compiled import njit

__all__ = ["of_mirror", "of_rows", "of_strip", "sum_of_rows"]


def sum_of_rows(rows: Floats, start: int) -> int:
    """Checksum of whole rows (h, n) of K, the first of which is row `start`; those of their parts add up to it."""
    w = _weights(rows.shape[1])
    return int(_checksum(_bits(rows), 0, w[start : start + len(rows)], w))


def of_rows(total: int) -> str:
    """Text of the marker of whole rows, by their checksum."""
    return f"{_hex(total % 2**64)}\n"


def of_strip(rows: Floats, first: int, start: int, stop: int) -> str:
    """Text of the marker of a strip that begins at the diagonal: its checksum, and that of all right of its square.

    The strip begins at column `first` of `rows`.
    """
    w = _weights(start + rows.shape[1] - first)
    bits, w_rows = _bits(rows), w[start:stop]
    square = int(_checksum(bits, first, w_rows, w_rows))
    beyond = int(_checksum(bits, first + stop - start, w_rows, w[stop:]))
    return f"{_hex((square + beyond) % 2**64)} {_hex(beyond)}\n"


def of_mirror(below: Floats, start: int, stop: int) -> str:
    """What the second number of `of_strip` is, of the transpose: columns start ... stop - 1 of rows `stop` and on."""
    w = _weights(below.shape[1])
    return _hex(_checksum(_bits(below), start, w[stop:], w[start:stop]))


def _hex(value: int) -> str:
    return f"{int(value):016x}"


def _bits(block: Floats) -> Any:
    return block.view(np.uint32 if block.itemsize == 4 else np.uint64)


@functools.lru_cache(maxsize=4)
def _weights(n: int) -> Any:
    """Odd weights (n,) from splitmix64 of the index: a change of one value always changes the sum."""
    z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


@njit
def _checksum(bits, first, row_weights, column_weights):  # type: ignore[no-untyped-def]
    """sum_ij w_i w_j bits_ij modulo 2^64 over the columns from `first` on; `bits` is contiguous, for vector loads."""
    total = np.uint64(0)
    for i in range(bits.shape[0]):
        row = bits[i, first : first + len(column_weights)]
        part = np.uint64(0)
        for j in range(len(row)):
            part += np.uint64(row[j]) * column_weights[j]
        total += part * row_weights[i]
    return total
