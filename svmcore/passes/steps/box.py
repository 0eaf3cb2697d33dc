"""What steps on one variable and on pairs of them share: where the box lets a variable move, and how far."""

from svmcore.runtime.compiled import njit

__all__ = ["FAR", "far_step", "set_penalties"]

FAR = 1e30  # keeps a row out of a scan


@njit
def far_step(beta):  # type: ignore[no-untyped-def]
    """How far a step without an end goes: so far that beta shows that there is none."""
    length = 1.0
    for v in range(len(beta)):
        length += abs(beta[v])
    return 1e6 * length


@njit(inside=True)
def set_penalties(i, g, beta, lo, hi, up_penalty, low_penalty):  # type: ignore[no-untyped-def]
    """Keep row i of group g out of scans for what may grow, or shrink, where it is at that bound."""
    up_penalty[g, i] = 0.0 if beta[i] < hi[i] else FAR
    low_penalty[g, i] = 0.0 if beta[i] > lo[i] else FAR
