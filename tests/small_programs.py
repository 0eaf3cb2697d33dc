"""Small programs for direct tests of the core, and judges of them that share no code with it."""

import dataclasses
from fractions import Fraction

import numpy as np

from svmcore import Precomputed, ResidentGram, SignedQP
from svmcore.kernels.exact import ExactKernel
from svmcore.kernels.rounding import Rounding
from svmcore.qp import NO_GROUPS, Groups
from svmcore.sources.base import Lookup

INF = np.inf


# ---- numbers that float64 rounds
def a_program(q, groups, seed, shift=0.0, dtype=np.float64, twice=False):
    """K, ridge, p, beta, lo, hi, codes of q variables; `twice`: the second half is the first again."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(q, 6))
    ridge = rng.uniform(0.0, 0.5, q) * (rng.random(q) < 0.5)
    p = rng.normal(size=q) + shift
    lo, hi = -rng.integers(0, 3, q) / 2.0, rng.integers(1, 3, q) / 2.0
    beta = np.choose(rng.integers(0, 3, q), [lo, hi, 0.5 * (lo + hi)])
    codes = rng.integers(0, groups, q).astype(np.int8)
    if twice:
        for v in (G, ridge, p, lo, hi, beta, codes):
            v[q // 2 :] = v[: q // 2]
    return (G @ G.T).astype(dtype), ridge, p, beta, lo, hi, codes


def scores(K, ridge, p, beta):
    return p - K @ beta - ridge * beta


def gap_of(s, beta, lo, hi, codes):
    gaps = []
    for g in np.unique(codes):
        up, low = (codes == g) & (beta < hi), (codes == g) & (beta > lo)
        gaps.append(s[up].max() - s[low].min() if up.any() and low.any() else 0.0)
    return max(0.0, *gaps)


# ---- numbers that it does not round
class AFewAtOnce(ResidentGram):
    """At most three columns at once."""

    @property
    def capacity(self):
        return 3


class FewColumns(AFewAtOnce):
    """In an order of their own too."""

    whole = None

    def lookup(self, idx):
        assert 0 < len(idx) <= 3
        order = np.argsort(idx)[::-1]
        matrix = np.ascontiguousarray(self.matrix[np.asarray(idx)[order]])
        return Lookup(matrix, np.argsort(order))


def of_integers(kind, seed=0, m=10, source=ResidentGram, dtype=np.float64):
    """A program of integers, and a beta of its box with some variables at their bounds."""
    rng = np.random.default_rng(seed)
    n = m // 2 if "rows" in kind else m
    G = rng.integers(-2, 3, (n, 4))
    lo, hi = -rng.integers(0, 3, m).astype(float), rng.integers(1, 3, m).astype(float)
    beta = np.choose(rng.integers(0, 4, m), [lo, hi, 0.5 * (lo + hi), 0.0])
    codes = {"two": rng.integers(0, 2, m), "two and none": rng.integers(-1, 2, m)}.get(kind)
    groups = NO_GROUPS
    if kind == "one":
        groups = Groups((float(beta.sum()),))
    elif codes is not None:
        groups = Groups(tuple(float(beta[codes == g].sum()) for g in range(2)), codes.astype(np.int8))
    more = {"rows": np.concatenate([np.arange(n), rng.permutation(n)])} if "rows" in kind else {}
    p, ridge = rng.integers(-8, 9, m) / 4.0, rng.integers(0, 3, m) / 2.0
    shift = 1.0 if "shift" in kind else 0.0
    K = source((G @ G.T).astype(dtype))
    K.rows = G.astype(float)
    return SignedQP(K, p, lo, hi, ridge, groups, shift=shift, **more), beta


# ---- of certificates
def program(K, p, lo, hi, groups=NO_GROUPS, source=None, **more):
    p, lo, hi = (np.array(v, dtype=np.float64) for v in (p, lo, hi))
    return SignedQP(
        ResidentGram(np.array(K, dtype=np.float64)) if source is None else source, p, lo, hi, groups=groups, **more
    )


def small(kind, seed, m=10, scale=4.0, source=ResidentGram):
    """A program of small fractions and a beta of its box."""
    rng = np.random.default_rng(seed)
    n = m // 2 if kind == "rows" else m
    G = rng.integers(-3, 4, (n, 3)) / 2.0
    lo, hi = -rng.integers(0, 3, m).astype(float), rng.integers(1, 3, m).astype(float)
    beta = np.choose(rng.integers(0, 4, m), [lo, hi, 0.5 * (lo + hi), 0.0])
    codes = {"two": rng.integers(0, 2, m), "two and none": rng.integers(-1, 2, m)}.get(kind)
    groups = Groups((float(beta.sum()),)) if kind in ("one", "rows") else NO_GROUPS
    if codes is not None:
        groups = Groups(tuple(float(beta[codes == g].sum()) for g in range(2)), codes.astype(np.int8))
    more = {"rows": np.concatenate([np.arange(n), rng.permutation(n)])} if kind == "rows" else {}
    ridge = rng.integers(0, 3, m) / 2.0
    p = rng.integers(-8, 9, m) / scale
    return program(None, p, lo, hi, groups, source(G @ G.T), ridge=ridge, shift=float(kind == "shift"), **more), beta


@dataclasses.dataclass
class Truth:
    """What the module docstring of `svmcore.qp` says, in fractions."""

    outputs: list  # at the rows of K
    score: list
    norm2: Fraction
    dual: Fraction
    gap: Fraction


def truth(qp, beta, K=None):
    K = qp.source.matrix if K is None else K
    rows = range(qp.m) if qp.rows is None else qp.rows.tolist()
    b = [Fraction(v) for v in beta.tolist()]
    u = [sum((Fraction(float(k[r])) + Fraction(qp.shift)) * v for r, v in zip(rows, b, strict=True)) for k in K]
    ridge, p = ([Fraction(v) for v in values.tolist()] for values in (qp.ridge, qp.p))
    score = [p[v] - u[rows[v]] - ridge[v] * b[v] for v in range(qp.m)]
    norm2 = sum(b[v] * u[rows[v]] for v in range(qp.m))
    dual = sum(p[v] * b[v] - ridge[v] * b[v] ** 2 / 2 for v in range(qp.m)) - norm2 / 2
    gaps = [Fraction(0)]
    for g in {*qp.codes.tolist()}:
        up = [score[v] for v in range(qp.m) if qp.codes[v] == g and beta[v] < qp.hi[v]]
        low = [score[v] for v in range(qp.m) if qp.codes[v] == g and beta[v] > qp.lo[v]]
        if g < 0:
            gaps += [*up, *(-s for s in low)]
        elif up and low:
            gaps.append(max(up) - min(low))
    return Truth(u, score, norm2, dual, max(gaps))


class Served(ResidentGram):
    """K with planted errors, a promise of how large they are, and the exact values."""

    def __init__(self, K, errors, promise):
        super().__init__(K + errors)
        self.promise, self.exact = Rounding(*promise), ExactKernel(Precomputed(), K)

    @property
    def rounding(self):
        return self.promise
