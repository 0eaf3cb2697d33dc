"""What steps on one variable and on pairs of them share: what keeps a variable still, and a step without an end."""

from svmcore.runtime.compiled import njit

__all__ = ["FAR", "far_step"]

FAR = 1e30  # keeps a row out of a scan


@njit
def far_step(beta):  # type: ignore[no-untyped-def]
    """How far a step without an end goes: so far that beta shows that there is none."""
    length = 1.0
    for v in range(len(beta)):
        length += abs(beta[v])
    return 1e6 * length
