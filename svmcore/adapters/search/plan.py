"""What a search shared: told in numbers, and kept until the fits that ask for it."""

import dataclasses
from collections import Counter

from svmcore.adapters.prepared import Prepared
from svmcore.train.shared import Tally

__all__ = ["Ready", "SearchPlan"]

FAILED = "no training was ready: it failed, or its rows were others when the steps were fitted again"


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """What a search shared, and what that saved.

    Attributes
    ----------
    fits
        Candidates times folds.
    shared
        Fits whose training was found ready.
    alone
        Why others were fitted one by one: reason -> fits.
    tables
        Sets of rows that kernel matrices were made of: one, or one for each fold of a pipeline.
    products, kernels
        Passes of inner products over a table, and kernel matrices made of them; one by one each fit has one of each.
    problems, chains
        Programs solved, and chains of them in which each starts from the solution before.
    seconds
        Of all that is shared; `mean_fit_time` has it in equal parts.
    """

    fits: int = 0
    shared: int = 0
    alone: dict[str, int] = dataclasses.field(default_factory=dict)
    tables: int = 0
    products: int = 0
    kernels: int = 0
    problems: int = 0
    chains: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = [f"{self.shared} of {self.fits} fits shared their kernel matrices, {self.seconds:.1f} s together"]
        if self.shared:
            lines.append(
                f"{self.kernels} kernel matrices from {self.products} passes of products, in place of {self.shared}; "
                f"{self.problems} problems in {self.chains} chains"
            )
        return "\n".join([*lines, *(f"{count} fits one by one: {why}" for why, count in self.alone.items())])


@dataclasses.dataclass
class Ready:
    """Trainings that are ready in the order of their fits, and the places of these among all fits."""

    fits: int = 0
    trainings: list[Prepared] = dataclasses.field(default_factory=list)
    places: list[int] = dataclasses.field(default_factory=list)
    alone: Counter[str] = dataclasses.field(default_factory=Counter)
    tallies: list[Tally] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def plan(self) -> SearchPlan:
        """What became of it."""
        shared = sum(each.taken for each in self.trainings)
        alone = self.alone + Counter({FAILED: self.fits - shared - self.alone.total()})
        sums = {
            name: sum(getattr(each, name) for each in self.tallies)
            for name in ("products", "kernels", "chains", "problems")
        }
        return SearchPlan(self.fits, shared, dict(alone), len(self.tallies), seconds=self.seconds, **sums)
