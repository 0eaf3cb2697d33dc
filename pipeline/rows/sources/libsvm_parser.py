"""One block of LIBSVM text to CSR arrays, compiled: `label index:value index:value ... # comment`, a row a line.

Numbers whose decimal digits do not convert exactly in one operation are handed back as spans of the text, for
Python's correctly rounded `float`; so every value equals `float(token)`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from svmcore.runtime.compiled import njit

__all__ = ["LineError", "Parsed", "parse_block"]

OK, LABEL, PAIR, INDEX, VALUE, ORDER = range(6)
REASONS = {
    LABEL: "the label {token!r} is not a finite number",
    PAIR: "{token!r} is not of the form index:value",
    INDEX: "the index in {token!r} is not a whole number from 0 to 2147483646",
    VALUE: "the value in {token!r} is not a finite number",
    ORDER: "the index in {token!r} is not larger than the one before it; indices of a line must ascend",
}
MAX_INDEX = 2**31 - 2
TEN = 10.0 ** np.arange(23)


class LineError(Exception):
    """A malformed line: offset of the token in the block, and why."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


@dataclass(frozen=True)
class Parsed:
    """`labels` (n,), `indptr` (n + 1,), `indices` (nnz,) as written, `values` (nnz,); row starts `offsets` (n,)."""

    labels: NDArray[np.float64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float64]
    offsets: NDArray[np.int64]


def parse_block(text: bytes) -> Parsed:
    """Parse whole lines; blank and comment lines give no row. Raises LineError at the first malformed token."""
    n, nnz = text.count(b"\n") + 1, text.count(b":")
    labels, indptr, offsets = np.empty(n), np.zeros(n + 1, np.int64), np.empty(n, np.int64)
    indices, values = np.empty(nnz, np.int32), np.empty(nnz)
    slow = np.empty((n + nnz, 3), np.int64)  # start, end, entry (rows' labels as -1 - row)
    buffer = np.frombuffer(text + b"\n", np.uint8)
    rows, n_slow, code, at = _scan(buffer, labels, indptr, indices, values, offsets, slow, TEN)
    _convert_slowly(text, slow[:n_slow], labels, values)
    if code != OK:
        raise LineError(at, REASONS[code].format(token=_token(text, at)))
    used = indptr[rows]
    return Parsed(labels[:rows], indptr[: rows + 1], indices[:used], values[:used], offsets[:rows])


def _convert_slowly(
    text: bytes, slow: NDArray[np.int64], labels: NDArray[np.float64], values: NDArray[np.float64]
) -> None:
    """Fill in the numbers that `_scan` left, with Python's float."""
    for start, end, entry in slow.tolist():
        try:
            number = float(text[start:end])
        except ValueError:
            number = np.nan
        if not np.isfinite(number) or b"_" in text[start:end]:
            code = VALUE if entry >= 0 else LABEL
            raise LineError(start, REASONS[code].format(token=_token(text, start)))
        if entry >= 0:
            values[entry] = number
        else:
            labels[-1 - entry] = number


def _token(text: bytes, at: int) -> str:
    """The whole token around an offset, as text."""
    start = max(text.rfind(blank, 0, at) for blank in (b" ", b"\t", b"\n", b"\r")) + 1
    words = text[start : start + 80].split()
    return words[0].decode("utf-8", "replace") if words else ""


@njit
def _mantissa(buffer, at):  # type: ignore[no-untyped-def]
    """Read `12.5` as 125 and a power of -1: (mantissa, significant digits, power, end, whether any digit was there)."""
    mantissa, digits, power = np.uint64(0), 0, 0
    seen, point = False, False
    while True:
        c = buffer[at]
        if 48 <= c <= 57:
            seen = True
            digits += digits > 0 or c != 48
            if digits <= 19:
                mantissa = mantissa * np.uint64(10) + np.uint64(c - 48)
            power -= point
        elif c == 46 and not point:
            point = True
        else:
            return mantissa, digits, power, at, seen
        at += 1


@njit
def _exponent(buffer, at):  # type: ignore[no-untyped-def]
    """Read `e-5` if it is there: (exponent, end, whether it is well formed)."""
    if buffer[at] != 101 and buffer[at] != 69:
        return 0, at, True
    at += 1
    sign = -1 if buffer[at] == 45 else 1
    at += buffer[at] == 43 or buffer[at] == 45
    start, exponent = at, 0
    while 48 <= buffer[at] <= 57:
        exponent = min(exponent * 10 + (buffer[at] - 48), 100000)
        at += 1
    return sign * exponent, at, at > start


@njit
def _ends_token(c):  # type: ignore[no-untyped-def]
    """Whether a byte ends a number: a blank, ':' or '#'."""
    return c <= 32 or c == 58 or c == 35


@njit
def _number(buffer, at, ten):  # type: ignore[no-untyped-def]
    """Read a number at `at`: (value, end, exact). Not exact: `end` is the token's end or ':' and value is 0."""
    start = at
    sign = -1.0 if buffer[at] == 45 else 1.0
    at += buffer[at] == 43 or buffer[at] == 45
    mantissa, digits, power, at, seen = _mantissa(buffer, at)
    exponent, at, well_formed = _exponent(buffer, at)
    power += exponent
    exact = seen and well_formed and digits <= 19 and mantissa <= np.uint64(9007199254740992) and -22 <= power <= 22
    if exact and _ends_token(buffer[at]):
        value = float(mantissa)
        return sign * (value * ten[power] if power >= 0 else value / ten[-power]), at, True
    at = start
    while not _ends_token(buffer[at]):
        at += 1
    return 0.0, at, False


@njit
def _scan(buffer, labels, indptr, indices, values, offsets, slow, ten):  # type: ignore[no-untyped-def]
    """Fill the arrays from `buffer`, which ends in a newline; returns (rows, slow numbers, error code, its offset)."""
    at, row, entry, n_slow, size = 0, 0, 0, 0, buffer.size
    while at < size:
        while at < size and buffer[at] <= 32:
            at += 1
        if at >= size:
            break
        if buffer[at] == 35:
            while buffer[at] != 10:
                at += 1
            continue
        offsets[row] = at
        value, end, exact = _number(buffer, at, ten)
        if end == at or buffer[end] == 58:
            return row, n_slow, LABEL, at
        if not exact:
            slow[n_slow, 0], slow[n_slow, 1], slow[n_slow, 2] = at, end, -1 - row
            n_slow += 1
        labels[row] = value
        at, entry, n_slow, code = _pairs(buffer, end, entry, indices, values, slow, n_slow, ten)
        if code != OK:
            return row, n_slow, code, at
        row += 1
        indptr[row] = entry
    return row, n_slow, OK, at


@njit
def _next_token(buffer, at):  # type: ignore[no-untyped-def]
    """Offset of the line's next token, or of its newline; a comment reaches to the newline."""
    while buffer[at] <= 32 and buffer[at] != 10:
        at += 1
    if buffer[at] == 35:
        while buffer[at] != 10:
            at += 1
    return at


@njit
def _index(buffer, at, previous):  # type: ignore[no-untyped-def]
    """Read `index:` at `at`: (index, offset behind the colon, error code)."""
    start, index = at, 0
    while 48 <= buffer[at] <= 57:
        index = min(index * 10 + (buffer[at] - 48), MAX_INDEX + 1)
        at += 1
    if buffer[at] != 58:
        while not _ends_token(buffer[at]):
            at += 1
        return index, at, INDEX if buffer[at] == 58 else PAIR
    if at == start or index > MAX_INDEX:
        return index, at, INDEX
    return index, at + 1, OK if index > previous else ORDER


@njit
def _pairs(buffer, at, entry, indices, values, slow, n_slow, ten):  # type: ignore[no-untyped-def]
    """Read the index:value pairs up to the line's end; returns (offset, entries, slow numbers, error code)."""
    previous = -1
    while True:
        start = _next_token(buffer, at)
        if buffer[start] == 10:
            return start + 1, entry, n_slow, OK
        previous, at, code = _index(buffer, start, previous)
        if code != OK:
            return start, entry, n_slow, code
        value, end, exact = _number(buffer, at, ten)
        if end == at or buffer[end] == 58:
            return start, entry, n_slow, VALUE
        if not exact:
            slow[n_slow, 0], slow[n_slow, 1], slow[n_slow, 2] = at, end, entry
            n_slow += 1
        indices[entry] = previous
        values[entry] = value
        entry += 1
        at = end
