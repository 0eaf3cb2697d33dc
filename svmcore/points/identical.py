"""Identical rows are one variable: find them, in an order that depends on their content alone.

The order is by a 128-bit hash of the row, then by its label code. It is the same for dense and CSR rows, for any
order of the input and for a row given twice or with a weight of two; and since a hash scatters, any prefix of it is a
random subsample.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse

from svmcore.points.prepared import Floats, Rows
from svmcore.runtime.compiled import njit
from svmcore.runtime.threads import split_range

__all__ = ["ENTRIES", "Merged", "entries_hash", "merge_rows", "row_hash"]

ENTRIES = 1 << 19  # of the rows that are hashed at a time
LONGEST_RUN = 32  # of copies that are put in order one by one


class Merged(NamedTuple):
    """m distinct (x, code) rows among n."""

    first: Floats  # (m,) index of one original row for each distinct one, in canonical order
    counts: Floats  # (m,) how many original rows each stands for
    inverse: Floats  # (n,) position of each original row among the distinct ones


def row_hash(X: Rows) -> Floats:
    """128-bit content hash of each row, shape (n, 2) uint64; equal rows, dense or CSR, hash alike (-0 as 0).

    >>> X = np.array([[0.0, 1.0], [2.0, 0.0], [-0.0, 1.0]])
    >>> h = row_hash(X)
    >>> bool((h[0] == h[2]).all()), bool((h == row_hash(sparse.csr_matrix(X))).all())
    (True, True)
    """
    if sparse.issparse(X):
        X = _canonical(X)
        bits = X.data.astype(np.float64).view(np.uint64)
        return _hash_csr(bits, X.indices, X.indptr)
    out = np.empty((X.shape[0], 2), np.uint64)

    def of_bits(some: slice, bits: Floats) -> None:
        out[some] = _hash_dense(bits)

    _over_bits(X, of_bits)
    return out


def entries_hash(X: Rows, counted: Floats) -> Floats:
    """Hash (n,) uint64 of the entries of each row of dense `X` (n, p) at the columns that are `counted` (p,), as a set.

    The order of the columns does not change it.

    >>> X = np.array([[1.0, 2.0, 5.0], [2.0, 1.0, 7.0], [2.0, 2.0, 5.0]])
    >>> h = entries_hash(X, np.array([True, True, False]))
    >>> bool(h[0] == h[1]), bool(h[0] == h[2])
    (True, False)
    """
    out = np.empty(X.shape[0], np.uint64)
    mask = np.where(counted, ~np.uint64(0), np.uint64(0))

    def of_bits(some: slice, bits: Floats) -> None:
        out[some] = _hash_entries(bits, mask)

    _over_bits(X, of_bits)
    return out


def _over_bits(X: Rows, work: Callable[[slice, Floats], None]) -> None:
    """Call work(rows, bits) with the bits of some rows of dense `X` in float64 at a time, on all threads."""
    step = max(1, ENTRIES // max(1, X.shape[1]))

    def part(lo: int, hi: int) -> None:
        for start in range(lo, hi, step):
            some = slice(start, min(start + step, hi))
            work(some, np.ascontiguousarray(X[some], dtype=np.float64).view(np.uint64))

    split_range(X.shape[0], part, least=step)


def merge_rows(X: Rows, codes: Floats) -> Merged:
    """Merge identical (x, code) rows of `X` (n, p) with label `codes` (n,).

    >>> merged = merge_rows(np.array([[1.0], [2.0], [1.0], [1.0]]), np.array([0, 0, 0, 1]))
    >>> sorted(merged.counts.tolist()), len(merged.first)
    ([1, 1, 2], 3)
    """
    X = _canonical(X) if sparse.issparse(X) else np.ascontiguousarray(X)
    codes, h = np.asarray(codes), row_hash(X)
    order = _ranked(h, codes)
    same = _as_before(h, codes, order)
    if sparse.issparse(X):
        _keep_equal_csr(X.data, X.indices, X.indptr, order, same)
    else:
        _keep_equal_dense(X, order, same)
    return Merged(*_grouped(order, same))


def _ranked(h: Floats, codes: Floats) -> Floats:
    """Order (n,) by hash, then code, then index: one sort by half of the hash, which nearly always tells rows apart."""
    order = np.argsort(h[:, 0])
    return order if _sort_runs(h, codes, order) else np.lexsort((codes, h[:, 1], h[:, 0]))


def _canonical(X: Rows) -> Rows:
    """CSR with sorted indices, no duplicates and no stored zeros, so that equal rows have equal entries."""
    X = sparse.csr_matrix(X)
    if not X.has_canonical_format or (X.data == 0).any():
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return X


@njit
def _mix(h, word, index, prime):  # type: ignore[no-untyped-def]
    """One round of a multiply-rotate hash over (index, value bits)."""
    h = (h ^ (word + (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))) * prime
    return (h << np.uint64(29)) | (h >> np.uint64(35))


@njit
def _finish(h):  # type: ignore[no-untyped-def]
    """Spread every bit over the word (the finaliser of MurmurHash3)."""
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(33))


@njit(makes_arrays=True)
def _hash_dense(bits):  # type: ignore[no-untyped-def]
    n, p = bits.shape
    out = np.empty((n, 2), np.uint64)
    for i in range(n):
        a, b = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)
        for j in range(p):
            word = bits[i, j]
            if word << np.uint64(1) != 0:  # skips 0.0 and -0.0
                a = _mix(a, word, np.uint64(j), np.uint64(0x87C37B91114253D5))
                b = _mix(b, word, np.uint64(j), np.uint64(0x4CF5AD432745937F))
        out[i, 0], out[i, 1] = _finish(a), _finish(b)
    return out


@njit(makes_arrays=True)
def _hash_entries(bits, mask):  # type: ignore[no-untyped-def]
    """Sums of hashes of the entries, where `mask` has all bits set."""
    n, p = bits.shape
    out = np.empty(n, np.uint64)
    for i in range(n):
        total = np.uint64(0)
        for j in range(p):
            word = bits[i, j] if bits[i, j] << np.uint64(1) != 0 else np.uint64(0)  # -0.0 as 0.0
            word = (word ^ (word >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
            word = (word ^ (word >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            total += (word ^ (word >> np.uint64(32))) & mask[j]
        out[i] = total
    return out


@njit(makes_arrays=True)
def _hash_csr(bits, indices, indptr):  # type: ignore[no-untyped-def]
    n = len(indptr) - 1
    out = np.empty((n, 2), np.uint64)
    for i in range(n):
        a, b = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)
        for k in range(indptr[i], indptr[i + 1]):
            a = _mix(a, bits[k], np.uint64(indices[k]), np.uint64(0x87C37B91114253D5))
            b = _mix(b, bits[k], np.uint64(indices[k]), np.uint64(0x4CF5AD432745937F))
        out[i, 0], out[i, 1] = _finish(a), _finish(b)
    return out


@njit
def _sort_runs(h, codes, order):  # type: ignore[no-untyped-def]
    """Sort what has the same first half of the hash; False, with `order` half done, where that is too many at once."""
    start = 0
    for r in range(1, len(order)):
        at = order[r]
        start = start if h[at, 0] == h[order[r - 1], 0] else r
        if r - start >= LONGEST_RUN:
            return False
        place = r
        while place > start and _comes_before(h, codes, at, order[place - 1]):
            order[place], place = order[place - 1], place - 1
        order[place] = at
    return True


@njit
def _comes_before(h, codes, i, j):  # type: ignore[no-untyped-def]
    """Whether row i, with the same first half of the hash, is before row j in the order."""
    if h[i, 1] != h[j, 1]:
        return h[i, 1] < h[j, 1]
    return codes[i] < codes[j] or (codes[i] == codes[j] and i < j)


@njit(makes_arrays=True)
def _as_before(h, codes, order):  # type: ignore[no-untyped-def]
    """(n,) whether a row has hash and code of the one before it in the order."""
    same = np.zeros(len(order), np.bool_)
    for r in range(1, len(order)):
        i, j = order[r], order[r - 1]
        same[r] = h[i, 0] == h[j, 0] and h[i, 1] == h[j, 1] and codes[i] == codes[j]
    return same


@njit(makes_arrays=True)
def _grouped(order, same):  # type: ignore[no-untyped-def]
    """The fields of `Merged`, of rows in this order that are the `same` as the one before them or not."""
    n, m = len(order), -1
    first, counts, inverse = np.empty(n, np.int64), np.zeros(n, np.int64), np.empty(n, np.int64)
    for r in range(n):
        if not same[r]:
            m += 1
            first[m] = order[r]
        counts[m] += 1
        inverse[order[r]] = m
    return first[: m + 1], counts[: m + 1], inverse


@njit
def _keep_equal_dense(X, order, same):  # type: ignore[no-untyped-def]
    """Clear `same` where equal hashes hide different rows: merging must be exact, never probable."""
    for r in range(1, len(order)):
        if same[r]:
            for j in range(X.shape[1]):
                if X[order[r], j] != X[order[r - 1], j]:
                    same[r] = False
                    break


@njit
def _keep_equal_csr(data, indices, indptr, order, same):  # type: ignore[no-untyped-def]
    """As `_keep_equal_dense`, for canonical CSR."""
    for r in range(1, len(order)):
        a, b = indptr[order[r]], indptr[order[r - 1]]
        length = indptr[order[r] + 1] - a
        if not same[r]:
            continue
        if length != indptr[order[r - 1] + 1] - b:
            same[r] = False
            continue
        for k in range(length):
            if data[a + k] != data[b + k] or indices[a + k] != indices[b + k]:
                same[r] = False
                break
