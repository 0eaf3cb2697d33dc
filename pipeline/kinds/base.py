"""The base of the kinds of tasks: all that the pipeline asks about targets."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from svmcore.errors import InputError
from svmcore.model import Model, Target
from svmcore.tasks.base import Answers

__all__ = ["Kind", "Outputs", "Tally", "Targets"]


class Targets(Protocol):
    """Targets of a source as they stream by."""

    def append(self, y: NDArray[Any]) -> None:
        """Take the next ones (n,)."""

    def resolve(self) -> tuple[list[Any], NDArray[Any]]:
        """The classes and the targets (n,): codes into the classes, or values where there are none."""

    def resolve_as(self, classes: Sequence[Any], url: str) -> NDArray[Any]:
        """The targets (n,) in terms of the classes of the training data."""


class Outputs(NamedTuple):
    """What programs say of rows and what is true: targets (n,), decision values (n, k), copies (n,), sigmoids (k, 2).

    Copies and sigmoids may be None.
    """

    targets: NDArray[Any]
    decision: NDArray[Any]
    classes: Sequence[Any] = ()
    scheme: str = "ovr"
    counts: NDArray[Any] | None = None
    sigmoids: NDArray[Any] | None = None


class Tally(Protocol):
    """Scores of predictions that come block by block."""

    def add(self, y: NDArray[Any] | None, decision: NDArray[Any]) -> None:
        """Take a block: its targets (n,) as they were read, or None, and its decision values (n, k)."""

    def record(self) -> dict[str, Any]:
        """What `predict` tells of all of them."""


class Kind(ABC):
    """What a task means to the pipeline.

    Attributes
    ----------
    answers
        What its machines are trained on and tell: "labels", "values" or "novelty".
    keys
        Keys of the config that all its machines have.
    scores
        Names of the scores of a config that names none.
    examples
        Some that may be named, for error messages.
    stratified
        Whether samples, test rows and folds keep the shares of the classes.
    optional
        Whether a source may have no targets (`data.label: null`).
    column
        What a prediction is called where it is written.
    """

    answers: ClassVar[Answers]
    keys: ClassVar[tuple[str, ...]] = ()
    scores: ClassVar[tuple[str, ...]]
    examples: ClassVar[tuple[str, ...]]
    stratified: ClassVar[bool] = False
    optional: ClassVar[bool] = False
    column: ClassVar[str] = "label"

    # ---- targets

    @abstractmethod
    def reader(self, url: str, text: bool, labelled: bool = True) -> Targets:
        """Collects the targets of a source: whether numbers come as text, and whether there are any."""

    def check(self, url: str, classes: Sequence[Any]) -> None:  # noqa: B027 -- most kinds have none
        """Refuse classes that nothing can be learnt of."""

    # ---- programs

    @abstractmethod
    def goals(self, targets: NDArray[Any], n_classes: int, scheme: str) -> Sequence[Target]:
        """Target of each program over rows with the targets (m,)."""

    def n_goals(self, n_classes: int, scheme: str) -> int:
        """How many programs these are."""
        return 1

    @abstractmethod
    def label(self, goal: Target, classes: Sequence[Any]) -> Any:
        """What the program of a goal is called."""

    @abstractmethod
    def losses(self, y: NDArray[Any], decision: NDArray[Any], epsilon: float) -> NDArray[Any]:
        """What each row costs (n,) before its weight, for the y of a goal and decision values (n,)."""

    # ---- scores

    @abstractmethod
    def predicted(self, model: Model, decision: NDArray[Any]) -> NDArray[Any]:
        """What the model says (n,) where its decision values are (n, k)."""

    @abstractmethod
    def scored(self, names: Sequence[str], outputs: Outputs) -> dict[str, float | None]:
        """Scores by name; None where one is undefined."""

    @abstractmethod
    def trial(self, n_classes: int, scheme: str, probability: bool = False) -> tuple[Any, NDArray[Any], NDArray[Any]]:
        """(estimator, decision values, truth) of a few rows, for which every admitted score has a value."""

    def check_scores(
        self, names: Sequence[str], task: str, n_classes: int = 2, scheme: str = "ovr", probability: bool = False
    ) -> None:
        """Refuse scores that such a task cannot have; those that every one of them has are not tried.

        Raises
        ------
        InputError
            Naming the score, why, and some that are accepted.
        """
        for name in names:
            if name not in self.scores and (fault := self._fault(name, n_classes, scheme, probability)):
                of = f" of {n_classes} classes" if n_classes > 2 else ""
                about = n_classes, scheme, probability
                known = [one for one in self.examples if one in self.scores or not self._fault(one, *about)]
                raise InputError(
                    f"scoring {name!r} is not for task {task}{of} ({fault}); accepted: {', '.join(known)} and "
                    "others of sklearn.metrics.get_scorer_names()"
                )

    def _fault(self, name: str, n_classes: int, scheme: str, probability: bool) -> str:
        from pipeline.kinds.scorers import fault  # a second of scikit-learn, for those who name a score of it

        return fault(name, *self.trial(n_classes, scheme, probability))

    @abstractmethod
    def evaluation(self, dataset: Any, model: Model, shown: "tuple[Any, Any, Any]") -> dict[str, Any]:
        """What a report shows of the rows `shown`: targets, decision values (n, k) and copies (or None)."""

    @abstractmethod
    def score_slack(
        self, targets: NDArray[Any], decision: NDArray[Any], doubts: NDArray[Any], counts: NDArray[Any]
    ) -> dict[str, float]:
        """How far each of its scores may be from one of decision values that are off by `doubts` (n, k)."""

    # ---- predictions

    @abstractmethod
    def tally(self, url: str, text: bool, classes: Sequence[Any], scheme: str) -> Tally:
        """Scores what `predict` says of a source."""


def repeated(counts: NDArray[Any] | None, n: int) -> NDArray[np.int64]:
    """Rows (sum of the counts,) with each as often as it has copies: not every score of scikit-learn knows weights."""
    return np.arange(n) if counts is None else np.repeat(np.arange(n), np.asarray(counts).astype(np.int64))
