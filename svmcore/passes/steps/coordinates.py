"""Steps on one variable, and the loops around them: programs with the box alone (a penalised or no bias)."""

import numpy as np

from svmcore.passes.steps.box import FAR, far_step
from svmcore.runtime.compiled import njit, njit_sums

__all__ = ["coordinate_pass", "csr_pass", "dense_pass", "solve_box"]

BLOCK = 128
TAU = 1e-12  # curvature below this counts as none in the choice of a variable


@njit(inside=True)
def coordinate_step(i, curvature, score, beta, lo, hi):  # type: ignore[no-untyped-def]
    """Move beta_i alone to its best value; returns the step, infinite, after a far one, where nothing ends it.

    Without curvature, or with a negative one, the best is the end of the box towards which the score points.
    """
    ahead, behind = hi[i] - beta[i], beta[i] - lo[i]
    step = ahead if score > 0.0 else -behind
    if curvature > 0.0:
        step = min(max(score / curvature, -behind), ahead)
    if np.isinf(step):
        beta[i] += far_step(beta) if step > 0.0 else -far_step(beta)
    if np.isinf(step) or step == 0.0:
        return step
    beta[i] = hi[i] if step >= ahead else (lo[i] if -step >= behind else beta[i] + step)
    return step


@njit(inside=True)
def _set_penalties(i, beta, lo, hi, up, low):  # type: ignore[no-untyped-def]
    """Keep row i out of scans for what may grow, or shrink, where it is at that bound."""
    up[i] = 0.0 if beta[i] < hi[i] else FAR
    low[i] = 0.0 if beta[i] > lo[i] else FAR


@njit(inside=True)
def _step_and_gain(s, t, K, i, diagonal, up, low, best):  # type: ignore[no-untyped-def]
    """S -= t K_i; per block the key of the largest gain violation^2 / K_cc of a step; returns the worst violation."""
    zero, worst = s.dtype.type(0), np.int32(0)
    for block in range(len(best)):
        largest, first = np.int32(0), np.uintp(block * BLOCK)
        for b in range(min(BLOCK, len(s) - block * BLOCK)):
            c = first + np.uintp(b)
            x = s[c] - t * K[i, c]
            s[c] = x
            violation = max(max(x - up[c], -x - low[c]), zero)
            worst = max(worst, np.float32(violation).view(np.int32))
            largest = max(largest, np.float32(violation * violation / diagonal[c]).view(np.int32))
        best[block] = largest
    return np.float64(np.int32(worst).view(np.float32))


@njit(makes_arrays=True)
def solve_box(K, ridge, s, beta, lo, hi, tol, max_iter):  # type: ignore[no-untyped-def]
    """Greedy coordinate steps on one working set with the box alone (variables in no group); as `solve_pairs`."""
    q = len(s)
    kind = s.dtype.type
    best = np.empty((q + BLOCK - 1) // BLOCK, np.int32)
    up, low, diagonal = np.empty_like(s), np.empty_like(s), np.empty_like(s)
    for t in range(q):
        diagonal[t] = max(K[t, t] + ridge[t], TAU)
        _set_penalties(t, beta, lo, hi, up, low)
    gap = _step_and_gain(s, kind(0), K, 0, diagonal, up, low, best)
    n_iter = 0
    while gap > tol and n_iter < max_iter:
        block = np.argmax(best)
        i = block * BLOCK
        for c in range(block * BLOCK, min((block + 1) * BLOCK, q)):
            violation = max(max(s[c] - up[c], -s[c] - low[c]), kind(0))
            if np.float32(violation * violation / diagonal[c]).view(np.int32) == best[block]:
                i = c
                break
        step = coordinate_step(i, np.float64(K[i, i]) + ridge[i], np.float64(s[i]), beta, lo, hi)
        if np.isinf(step):
            return n_iter, gap, True
        s[i] -= kind(step * ridge[i])
        _set_penalties(i, beta, lo, hi, up, low)
        gap = _step_and_gain(s, kind(step), K, i, diagonal, up, low, best)
        n_iter += 1
    return n_iter, gap, False


@njit
def coordinate_pass(K, rows, order, diagonal, shift, ridge, lo, hi, beta, s, worst):  # type: ignore[no-untyped-def]
    """Steps on the variables `order`, column order[r] being K[rows[r]]; returns (worst violation met, steps taken).

    The worst is inf where a step had no end.
    """
    steps = 0
    for r in range(len(order)):
        k, column = order[r], K[rows[r]]
        score = s[k]
        t = coordinate_step(k, diagonal[k] + ridge[k], score, beta, lo, hi)
        if np.isinf(t):
            return np.inf, steps
        if t != 0.0:
            steps += 1
            worst = max(worst, abs(score))
            for i in range(len(s)):
                s[i] -= t * (np.float64(column[i]) + shift)
            s[k] -= t * ridge[k]
    return worst, steps


# --- with w = G'beta kept in place of the scores ----------------------------------------------------------------------
# Rows g_i are about a centre c that is never subtracted from them: with S = sum beta, A = sum beta_j a_j, a_i = g_i'c,
# (g_i - c)'(w - c S) = g_i'w - a_i S - A + c'c S. `sums` is S, A and the multiplier b; `level` is c'c + shift.
@njit(inside=True)
def _held_step(  # type: ignore[no-untyped-def]
    i, output, along, level, diagonal, p, ridge, lo, hi, beta, sums, bar
):
    """Step on variable i, whose g_i'w is `output`: (step, violation before, whether a bound holds it by over `bar`)."""
    score = p[i] - sums[2] - output + along[i] * sums[0] + sums[1] - level * sums[0] - ridge[i] * beta[i]
    if (score < 0.0 and beta[i] == lo[i]) or (score > 0.0 and beta[i] == hi[i]):
        return 0.0, 0.0, abs(score) > bar
    before = beta[i]
    if np.isinf(coordinate_step(i, diagonal[i] + ridge[i], score, beta, lo, hi)):
        return np.inf, np.inf, False
    t = beta[i] - before
    sums[0] += t
    sums[1] += t * along[i]
    return t, abs(score), False


@njit_sums
def dense_pass(  # type: ignore[no-untyped-def]
    G, at, part, along, level, diagonal, p, ridge, lo, hi, beta, w, sums, bar, stays
):
    """Steps on the variables `part`, whose rows are G[at[part]]; returns (worst violation met, steps taken).

    `stays[r]` tells whether variable part[r] is not held at its bound. The worst is inf where a step had no end.
    """
    worst, steps = 0.0, 0
    for r in range(len(part)):
        row, output = G[at[part[r]]], 0.0
        for c in range(len(w)):
            output += row[c] * w[c]
        t, violation, held = _held_step(part[r], output, along, level, diagonal, p, ridge, lo, hi, beta, sums, bar)
        worst, stays[r] = max(worst, violation), not held
        if np.isinf(t):
            return np.inf, steps
        if t != 0.0:
            steps += 1
            for c in range(len(w)):
                w[c] += t * row[c]
    return worst, steps


@njit_sums
def csr_pass(  # type: ignore[no-untyped-def]
    data, indices, indptr, at, part, along, level, diagonal, p, ridge, lo, hi, beta, w, sums, bar, stays
):
    """As `dense_pass`, of CSR rows."""
    worst, steps = 0.0, 0
    for r in range(len(part)):
        first, last, output = indptr[at[part[r]]], indptr[at[part[r]] + 1], 0.0
        values, columns = data[first:last], indices[first:last]
        for k in range(len(columns)):
            output += values[k] * w[columns[k]]
        t, violation, held = _held_step(part[r], output, along, level, diagonal, p, ridge, lo, hi, beta, sums, bar)
        worst, stays[r] = max(worst, violation), not held
        if np.isinf(t):
            return np.inf, steps
        if t != 0.0:
            steps += 1
            for k in range(len(columns)):
                w[columns[k]] += t * values[k]
    return worst, steps
