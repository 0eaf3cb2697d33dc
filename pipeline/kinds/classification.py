"""Classes: any labels, told apart by one program for each class or pair."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline.kinds import evaluation
from pipeline.kinds.base import Kind, Outputs, Tally, repeated
from pipeline.kinds.labels import Label, LabelCodes, missing_marker
from svmcore.errors import InputError
from svmcore.model import Model, Target, targets, vote
from svmcore.tasks.base import Answers

__all__ = ["Classification"]

SHOWN_LABELS = 20
BLOCK = 4096  # rows at once
MOST_ERRORS = 25  # listed in a report, the worst first
LEAST_POINTS = 24  # of a class's curve, if there are very many


class Classification(Kind):
    """Two classes or more."""

    answers: ClassVar[Answers] = "labels"
    keys: ClassVar[tuple[str, ...]] = ("class_weight", "multiclass", "probability", "prove")
    scores: ClassVar[tuple[str, ...]] = ("accuracy",)
    examples: ClassVar[tuple[str, ...]] = (
        *("accuracy", "balanced_accuracy", "f1_macro"),
        *("roc_auc", "average_precision"),  # of two classes
        "neg_log_loss",  # with probabilities
    )
    stratified: ClassVar[bool] = True

    def reader(self, url: str, text: bool, labelled: bool = True) -> LabelCodes:
        """Labels of any kind."""
        return LabelCodes(text)

    def check(self, url: str, classes: Sequence[Label]) -> None:
        """Refuse a single class, and a missing number that has become one."""
        if len(classes) < 2:
            raise InputError(f"{url}: a single class, {classes[0]!r}; two or more are needed (is data.label right?)")
        if missing := missing_marker(classes):
            raise InputError(f"{url}: the label {missing!r} among numbers; remove or fill the rows that have no label")

    def goals(self, targets_: NDArray[Any], n_classes: int, scheme: str) -> Sequence[Target]:
        """One for two classes, else one for each class or pair."""
        return targets(targets_, n_classes, scheme)

    def n_goals(self, n_classes: int, scheme: str) -> int:
        """How many programs tell the classes apart.

        >>> kind = Classification()
        >>> kind.n_goals(2, "ovo"), kind.n_goals(4, "ovr"), kind.n_goals(4, "ovo")
        (1, 4, 6)
        """
        if n_classes == 2:
            return 1
        return n_classes if scheme == "ovr" else n_classes * (n_classes - 1) // 2

    def label(self, goal: Target, classes: Sequence[Any]) -> Any:
        """Class told from the rest, or the pair of a one-vs-one problem: its second class is the positive one."""
        if goal.negative < 0 or len(classes) == 2:
            return classes[goal.positive]
        return [classes[goal.negative], classes[goal.positive]]

    def losses(self, y: NDArray[Any], decision: NDArray[Any], epsilon: float) -> NDArray[Any]:
        """max(0, 1 - y f)."""
        return np.maximum(0.0, 1.0 - y * decision)

    def predicted(self, model: Model, decision: NDArray[Any]) -> NDArray[Any]:
        """Labels as they were."""
        return np.asarray(model.classes)[vote(decision, len(model.classes), model.scheme)]

    def scored(self, names: Sequence[str], outputs: Outputs) -> dict[str, float | None]:
        """scikit-learn's, of codes; accuracy, which most runs have alone, without loading it."""
        targets, decision, classes, scheme, counts, sigmoids = outputs
        others = [name for name in names if name != "accuracy"]
        found: dict[str, float | None] = {}
        if others and len(targets):
            from pipeline.kinds.scorers import Classifier, scores_of

            rows = repeated(counts, len(targets))
            found = scores_of(others, Classifier(len(classes), scheme, sigmoids), decision[rows], targets[rows])
        if "accuracy" in names:
            k = len(classes)
            matrix = evaluation.confusion(targets, vote(decision, k, scheme), k, counts)
            found["accuracy"] = evaluation.accuracy_of(matrix)
        return {name: found.get(name) for name in names}

    def trial(self, n_classes: int, scheme: str, probability: bool = False) -> tuple[Any, NDArray[Any], NDArray[Any]]:
        """Each class four times, with decision values drawn by lot."""
        from pipeline.kinds.scorers import Classifier

        truth = np.tile(np.arange(n_classes), 4)
        decision = np.random.default_rng(0).normal(size=(len(truth), self.n_goals(n_classes, scheme)))
        sigmoids = np.tile([-1.0, 0.0], (decision.shape[1], 1)) if probability else None
        return Classifier(n_classes, scheme, sigmoids), decision, truth

    def evaluation(self, dataset: Any, model: Model, shown: tuple[Any, Any, Any]) -> dict[str, Any]:
        """Confusion, a curve for each class, the rows that are the most wrong, and the regions of two features."""
        codes, decision, counts = shown
        k = len(dataset.classes)
        said = vote(decision, k, model.scheme)
        return {
            "classes": list(dataset.classes),
            "confusion": evaluation.confusion(codes, said, k, counts).tolist(),
            "curves": _curves(dataset.classes, codes, decision, counts),
            "errors": _errors(dataset, codes, said, decision, model.scheme),
            "calibration": _calibration(dataset.classes, codes, model.probabilities(decision), counts),
            "plane": _plane(dataset, model) if dataset.n_features == 2 and not dataset.sparse else None,
        }

    def score_slack(
        self, targets: NDArray[Any], decision: NDArray[Any], doubts: NDArray[Any], counts: NDArray[Any]
    ) -> dict[str, float]:
        """The share of rows whose label hangs on less than its doubt: they may have fallen on either side."""
        blocks = (slice(start, start + BLOCK) for start in range(0, len(decision), BLOCK))
        near = np.concatenate([_hangs(decision[rows], doubts[rows]) for rows in blocks])
        return {"accuracy": float(counts[near].sum()) / float(counts.sum())}

    def tally(self, url: str, text: bool, classes: Sequence[Any], scheme: str) -> Tally:
        """Accuracy of the rows whose label the training data has, and the labels that it has not."""
        return _Hits(text, classes, scheme)


def _hangs(decision: NDArray[Any], doubts: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether the label of each row (n,) hangs on less than its doubt."""
    near = (np.abs(decision) <= doubts).any(axis=1)
    if decision.shape[1] > 1:
        top = np.sort(decision, axis=1)[:, -2:]
        near |= top[:, 1] - top[:, 0] <= 2.0 * doubts.max(axis=1)
    return np.asarray(near)


def _curves(classes: Sequence[Any], codes: Any, decision: Any, counts: Any) -> list[dict[str, Any]]:
    """A curve for each class that is told from the rest; of two classes for the second; none of pairs."""
    k = len(classes)
    if decision.shape[1] not in (1, k):
        return []
    columns = [(1, 0)] if k == 2 else [(code, code) for code in range(k)]
    most = max(LEAST_POINTS, evaluation.ROC_POINTS // len(columns))
    found = [(classes[c], evaluation.curve(codes == c, decision[:, j], counts, most)) for c, j in columns]
    return [{"label": label} | one for label, one in found if one is not None]


def _calibration(classes: Sequence[Any], codes: Any, chances: Any, counts: Any) -> list[dict[str, Any]]:
    """How often each class is met by its probability; of two classes the second; nothing without probabilities."""
    if chances is None or not len(codes):
        return []
    shown = [1] if len(classes) == 2 else range(len(classes))
    bins = [evaluation.calibration(codes == c, chances[:, c], counts) for c in shown]
    return [{"label": classes[c], "bins": found} for c, found in zip(shown, bins, strict=True)]


def _errors(dataset: Any, codes: Any, said: Any, decision: Any, scheme: str) -> list[dict[str, Any]]:
    """Rows that are taken for another class, the surest first: `by` is how far the decision values are for it."""
    wrong, k = np.flatnonzero(codes != said), len(dataset.classes)
    true, taken, values = codes[wrong], said[wrong], decision[wrong]
    if decision.shape[1] == 1:
        by = np.abs(values[:, 0])
    elif scheme == "ovr":
        by = values[np.arange(len(wrong)), taken] - values[np.arange(len(wrong)), true]
    else:
        i, j = np.minimum(true, taken), np.maximum(true, taken)
        by = np.abs(values[np.arange(len(wrong)), i * k - i * (i + 1) // 2 + j - i - 1])
    first = np.argsort(-by, kind="stable")[:MOST_ERRORS]
    found = zip(
        dataset.named(wrong[first]), true[first].tolist(), taken[first].tolist(), by[first].tolist(), strict=True
    )
    return [
        name | {"label": dataset.classes[t], "said": dataset.classes[s], "by": value} for name, t, s, value in found
    ]


def _plane(dataset: Any, model: Model) -> dict[str, Any]:
    scaling = dataset.scaling

    def decide(X: Any) -> Any:
        return model.decision_function(scaling.apply(X))

    def codes_of(X: Any) -> Any:
        return vote(decide(X), len(dataset.classes), model.scheme)

    raw = scaling.undo(np.asarray(dataset.X(), np.float64))
    return evaluation.plane(raw, np.asarray(dataset.targets()), decide, codes_of, len(dataset.classes))


class _Hits:
    """Right ones among the rows with a known label."""

    def __init__(self, text: bool, classes: Sequence[Any], scheme: str) -> None:
        self.text, self.classes, self.scheme = text, classes, scheme
        self.right = self.labelled = self.strange = 0
        self.unknown: dict[Any, None] = {}

    def add(self, y: NDArray[Any] | None, decision: NDArray[Any]) -> None:
        """Count a block."""
        if y is None:
            return
        labels = LabelCodes(self.text)
        labels.append(y)
        true, unknown = labels.resolve_known(self.classes)
        known = int((true >= 0).sum())
        self.labelled, self.strange = self.labelled + known, self.strange + len(true) - known
        self.unknown |= dict.fromkeys(unknown[: SHOWN_LABELS - len(self.unknown)])
        self.right += int((true == vote(decision, len(self.classes), self.scheme)).sum())

    def record(self) -> dict[str, Any]:
        """`accuracy` (None without a known label), `n_unknown` rows with another, which `unknown_labels` lists."""
        return {
            "accuracy": self.right / self.labelled if self.labelled else None,
            "n_unknown": self.strange,
            "unknown_labels": list(self.unknown),
            "classes": list(self.classes),
        }
