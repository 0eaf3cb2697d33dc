r"""Conjugate gradients on all variables of a working set that may move: where it is flat, pairs end too early.

The KKT gap bounds slopes, and along an eigenvector with a small eigenvalue a small slope is a long way from the
optimum. Steps keep the sum of every group. A variable that meets a bound stays there, and the others begin anew.

References
----------
Hestenes, Stiefel (1952), Methods of conjugate gradients for solving linear systems.
"""

import numpy as np

from svmcore.runtime.compiled import njit, njit_sums

__all__ = ["free_steps"]

HELD = -2  # the code of a variable that has met a bound
DONE = 0.01  # of the gain so far: below it nobody else is let move
SMALL = 1e-6  # of the first step's gain: below it no further step is worth its product


@njit(makes_arrays=True)
def _slope(score, codes, n_groups):  # type: ignore[no-untyped-def]
    """The scores less their mean over each group, so that a step along them keeps the sums; 0 for who is HELD."""
    r = score.copy()
    for a in range(len(r)):
        if codes[a] == HELD:
            r[a] = 0.0
    for g in range(n_groups):
        total, count = 0.0, 0
        for a in range(len(r)):
            if codes[a] == g:
                total, count = total + r[a], count + 1
        for a in range(len(r)):
            if codes[a] == g:
                r[a] -= total / count
    return r


@njit(makes_arrays=True)
def _product(K, free, ridge, d):  # type: ignore[no-untyped-def]
    """(K + ridge) d of the free variables; what is not free is met with 0, so that rows are read in order."""
    out, every = np.empty(len(free)), np.zeros(len(ridge))
    every[free] = d
    for a in range(len(free)):
        out[a] = ridge[free[a]] * d[a] + _dot(K[free[a]], every)
    return out


@njit_sums
def _dot(row, d):  # type: ignore[no-untyped-def]
    """The sum of row[c] d[c], in several sums."""
    total = 0.0
    for c in range(len(d)):
        total += np.float64(row[c]) * d[c]
    return total


@njit
def _room(free, beta, lo, hi, d):  # type: ignore[no-untyped-def]
    """(the longest step along d within the box, who ends it)."""
    room, who = np.inf, -1
    for a in range(len(free)):
        v = free[a]
        far = (hi[v] - beta[v]) / d[a] if d[a] > 0.0 else (lo[v] - beta[v]) / d[a] if d[a] < 0.0 else np.inf
        if far < room:
            room, who = far, a
    return room, who


@njit
def _move(free, beta, lo, hi, d, t, ends):  # type: ignore[no-untyped-def]
    """Beta += t d; the variable `ends` is put on its bound exactly, and no rounding leads beyond one."""
    for a in range(len(free)):
        v = free[a]
        beta[v] = min(max(beta[v] + t * d[a], lo[v]), hi[v])
    if ends >= 0:
        v = free[ends]
        beta[v] = hi[v] if d[ends] > 0.0 else lo[v]


@njit(makes_arrays=True)
def _descend(K, free, s, beta, lo, hi, ridge, codes, n_groups, most):  # type: ignore[no-untyped-def]
    """Conjugate gradients on the variables `free`: (steps, gain)."""
    score, some = s[free], codes[free]
    r = _slope(score, some, n_groups)
    d, size, gain, first = r, np.sum(r * r), 0.0, 0.0
    for step in range(most):
        h = _product(K, free, ridge, d)
        curvature = np.sum(d * h)
        if size == 0.0 or curvature <= 0.0:
            return step, gain
        room, who = _room(free, beta, lo, hi, d)
        t = min(size / curvature, room)
        meets = t == room
        _move(free, beta, lo, hi, d, t, who if meets else -1)
        gained = t * (size - 0.5 * t * curvature)
        gain, first = gain + gained, max(first, gained)
        if gained <= SMALL * first and not meets:
            return step + 1, gain
        score -= t * h
        if meets:
            some[who] = HELD
        r = _slope(score, some, n_groups)
        before, size = size, np.sum(r * r)
        d = r if meets else r + (size / before) * d
    return most, gain


@njit(makes_arrays=True)
def _apply(K, s, change, ridge):  # type: ignore[no-untyped-def]
    """Scores of all members after `change` (q,) of theirs: K is symmetric."""
    for v in np.flatnonzero(change):
        row = K[v]
        for c in range(len(s)):
            s[c] -= change[v] * np.float64(row[c])
        s[v] -= change[v] * ridge[v]


@njit
def _centre(s, free, codes, n_groups):  # type: ignore[no-untyped-def]
    """Scores about the mean of those who are free, in every group."""
    for g in range(n_groups):
        total, count = 0.0, 0
        for v in free:
            if codes[v] == g:
                total, count = total + s[v], count + 1
        for c in range(len(s)):
            if codes[c] == g and count:
                s[c] -= total / count


@njit(makes_arrays=True)
def free_steps(K, s, beta, lo, hi, ridge, codes, n_groups, most):  # type: ignore[no-untyped-def]
    """At most `most` steps, which change scores `s` and `beta` (q,) float64: (steps, what the objective gained).

    Scores are about the middle of their group's: who is at a bound and has a score that leads away from it moves too.
    `K` may be larger than the set: its first q rows and columns are the square. `codes` (q,) are groups, -1 for none.
    """
    steps, gain = 0, 0.0
    while steps < most:
        free = np.flatnonzero(((beta > lo) & ((beta < hi) | (s < 0))) | ((beta < hi) & (s > 0)))
        before = beta.copy()
        taken, gained = _descend(K, free, s, beta, lo, hi, ridge, codes, n_groups, most - steps)
        steps, gain = steps + taken, gain + gained
        _apply(K, s, beta - before, ridge)
        _centre(s, np.flatnonzero((beta > lo) & (beta < hi)), codes, n_groups)
        if not gained > DONE * gain:  # nor where it is not a number
            break
    return steps, gain
