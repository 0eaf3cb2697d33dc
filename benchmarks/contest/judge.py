"""Dual objective and KKT gap of any solver's answer, in float64, from its coefficients alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Float = NDArray[np.float64]
KernelFunction = Callable[[Float, Float], Float]

BLOCK_BYTES = 128 * 2**20
BOUND_RTOL = 2e-7  # a float32 coefficient this close to a bound is at it


@dataclass(frozen=True)
class Answer:
    """A trained machine: f_c(x) = sum_s coef[c, s] k(x_support[s], x) + bias[c].

    `support` (s,) rows of the training set, `coef` (k, s) signed, `bias` (k,); k = 1 for two classes.
    """

    support: NDArray[np.intp]
    coef: Float
    bias: Float


@dataclass(frozen=True)
class Verdict:
    """What one problem's alpha is worth: `dual` is maximised, `infeasibility` the worst broken constraint."""

    dual: float
    kkt_gap: float
    infeasibility: float
    n_support: int


def rbf(gamma: float) -> KernelFunction:
    """K_ij = exp(-gamma ||a_i - b_j||^2) for blocks (m, p), (s, p) -> (m, s)."""

    def kernel(A: Float, B: Float) -> Float:
        K = A @ B.T
        K *= 2.0 * gamma
        K -= gamma * np.einsum("ij,ij->i", A, A)[:, None]
        K -= gamma * np.einsum("ij,ij->i", B, B)[None, :]
        np.minimum(K, 0.0, out=K)
        return np.exp(K, out=K)

    return kernel


def linear() -> KernelFunction:
    """K_ij = a_i'b_j for blocks (m, p), (s, p) -> (m, s)."""
    return lambda A, B: A @ B.T


def _dense(X: NDArray | sparse.csr_matrix) -> Float:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def inner_values(X: NDArray | sparse.csr_matrix, support_vectors: Float, coef: Float, kernel: KernelFunction) -> Float:
    """Values sum_s coef[c, s] k(sv_s, x_i), without the bias: (k, n) for rows X (n, p) taken in blocks."""
    n, s = X.shape[0], len(support_vectors)
    values = np.zeros((len(coef), n))
    rows = max(1, BLOCK_BYTES // (8 * max(s, 1)))
    for lo in range(0, n, rows):
        block = kernel(_dense(X[lo : lo + rows]), support_vectors)
        values[:, lo : lo + rows] = coef @ block.T
    return values


def judge(X: NDArray | sparse.csr_matrix, Y: Float, answer: Answer, C: float, kernel: KernelFunction) -> list[Verdict]:
    """One verdict per machine; Y (k, n) holds each machine's targets in {-1, +1}.

    Examples
    --------
    >>> X, y = np.array([[0.0, 0.0], [2.0, 2.0]]), np.array([[-1.0, 1.0]])
    >>> answer = Answer(np.arange(2), np.array([[-0.25, 0.25]]), np.array([-1.0]))
    >>> [verdict] = judge(X, y, answer, np.inf, linear())
    >>> verdict.dual, verdict.kkt_gap
    (0.25, 0.0)
    """
    first, inverse = distinct_rows(X)
    support, coef = _merged(inverse[answer.support], answer.coef)
    values = inner_values(X[first], _dense(X[first[support]]), coef, kernel)[:, inverse]
    return [_verdict(y, coef, f, answer.support, C) for y, coef, f in zip(Y, answer.coef, values, strict=True)]


def _verdict(y: Float, coef: Float, f: Float, support: NDArray[np.intp], C: float) -> Verdict:
    """D = e'a - 1/2 a'Qa and m(a) - M(a), where -y_i g_i = y_i - f_i."""
    alpha = np.zeros(len(y))
    alpha[support] = coef * y[support]
    largest = alpha.max(initial=0.0)
    at_zero = BOUND_RTOL * min(C, largest)
    rising, falling = alpha < C * (1.0 - BOUND_RTOL), alpha > at_zero
    score, positive = y - f, y > 0
    up, low = np.where(positive, rising, falling), np.where(positive, falling, rising)
    kkt_gap = score[up].max(initial=-np.inf) - score[low].min(initial=np.inf)
    broken = max(0.0, -alpha.min(initial=0.0), largest - C, abs(coef.sum()))
    dual = alpha.sum() - 0.5 * float(coef @ f[support])
    return Verdict(float(dual), float(kkt_gap), float(broken), int(np.count_nonzero(coef)))


def distinct_rows(X: NDArray | sparse.csr_matrix) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row numbers `first` (m,) of the distinct rows of X (n, p) and `inverse` (n,): X[first[inverse]] == X.

    Copies share their kernel values, so a table of many copies is judged at the price of its distinct rows.
    """
    if sparse.issparse(X):
        return np.arange(X.shape[0]), np.arange(X.shape[0])
    seen: dict[bytes, int] = {}
    inverse = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in np.ascontiguousarray(X)])
    first = np.empty(len(seen), dtype=np.intp)
    first[inverse[::-1]] = np.arange(len(inverse))[::-1]
    return first, inverse


def _merged(support: NDArray[np.intp], coef: Float) -> tuple[NDArray[np.intp], Float]:
    """Coefficients of equal points added up."""
    unique, place = np.unique(support, return_inverse=True)
    total = np.zeros((len(coef), len(unique)))
    np.add.at(total, (slice(None), place), coef)
    return unique, total


def decision_values(X: NDArray, X_test: NDArray, answer: Answer, kernel: KernelFunction) -> Float:
    """Decision values (k, m) of the machine on X_test (m, p)."""
    return inner_values(X_test, _dense(X[answer.support]), answer.coef, kernel) + answer.bias[:, None]


def one_against_rest(codes: NDArray[np.integer], n_classes: int) -> Float:
    """Targets (k, n): one row for two classes (code 1 is +1), one row per class otherwise."""
    positive = [1] if n_classes == 2 else range(n_classes)
    return np.array([np.where(codes == c, 1.0, -1.0) for c in positive])


def accuracy(decision: Float, codes: NDArray[np.integer]) -> float:
    """Share of rows whose sign (k = 1) or largest machine (k > 1) is the code's."""
    predicted = (decision[0] > 0).astype(int) if len(decision) == 1 else decision.argmax(axis=0)
    return float(np.mean(predicted == codes))
