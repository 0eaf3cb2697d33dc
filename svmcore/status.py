"""How a solve ends."""

from enum import StrEnum

__all__ = ["Status"]


class Status(StrEnum):
    """How a solve ended; only CONVERGED promises a KKT gap of at most tol, proved in float64 on all rows."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    TIME_LIMIT = "time_limit"
    STOPPED = "stopped"
    STALLED = "stalled"  # nothing left to do by the solver's own rule, or float64 cannot tell: scale the data
    INFEASIBLE = "infeasible"  # a variable without bound and ridge grows for ever: a hard margin, not separable

    @property
    def severity(self) -> int:
        """0 for CONVERGED, larger is worse: the status of several problems is their worst."""
        return list(Status).index(self)
