"""What is claimed of a choice of C: its errors, and how many fewer any other C in the range may have."""

import dataclasses
from collections.abc import Sequence

__all__ = ["Choice"]


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen, and what is proved of it.

    Attributes
    ----------
    C, errors
        What was chosen, and its errors, of `rows` validation rows: the smallest solved C with the fewest, or the one
        with the best mean over folds.
    within
        No exact optimum with a C from `low` to `high` has fewer than `errors - within` errors.
    solved
        (C, errors) of all that were solved, by C.
    least
        Of each gap between these the fewest errors that are possible there.
    """

    C: float
    errors: int
    rows: int
    within: int
    solved: tuple[tuple[float, int], ...]
    least: tuple[int, ...]

    @classmethod
    def of(cls, C: float, solved: Sequence[tuple[float, int]], least: Sequence[int], rows: int) -> "Choice":
        """The choice of `C` among those solved, between which so many errors are left at `least`."""
        errors = dict(solved)[C]
        return cls(C, errors, rows, max(0, errors - min(least)), tuple(solved), tuple(least))

    @property
    def open(self) -> tuple[float, float]:
        """The neighbours between which the fewest errors are possible."""
        at = min(range(len(self.least)), key=lambda gap: self.least[gap])
        return self.solved[at][0], self.solved[at + 1][0]

    @property
    def low(self) -> float:
        """The smallest C."""
        return self.solved[0][0]

    @property
    def high(self) -> float:
        """The largest C."""
        return self.solved[-1][0]

    def __str__(self) -> str:
        return (
            f"C = {self.C:g}: {self.errors} errors in {self.rows} rows; no C from {self.low:g} to {self.high:g} is "
            f"better by more than {self.within}; {len(self.solved)} values of C were solved"
        )
