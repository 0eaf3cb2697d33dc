"""The headline numbers of a report."""

from dataclasses import dataclass
from typing import Any

from pipeline.config import quantities
from pipeline.report import formats
from pipeline.report.batch import Batch

__all__ = ["Tile", "tiles_of"]


@dataclass(frozen=True)
class Tile:
    """One headline number: the name, the text shown, the exact value, a small remark."""

    name: str
    text: str
    value: Any
    note: str = ""


def tiles_of(metrics: dict[str, Any], n_classes: int | None, batch: Batch | None) -> list[Tile]:
    """Headline numbers of a run: its scores, then its sizes."""
    tiles = [*_score_tiles(metrics, batch)]
    n_train, n_test, n_support = (metrics.get(key) for key in ("n_train", "n_test", "n_support"))
    tiles.append(Tile("training rows", formats.count(n_train), n_train, _more(n_test, "test rows")))
    tiles.append(Tile("features", formats.count(metrics.get("n_features")), metrics.get("n_features")))
    tiles.append(Tile("classes", formats.count(n_classes), n_classes))
    if batch:
        tiles.append(Tile("points", formats.count(len(batch.points)), len(batch.points)))
    share = f"{formats.percent(n_support / n_train, 1)} of the rows" if n_support and n_train else ""
    tiles.append(Tile("support vectors", formats.count(n_support), n_support, share))
    proved = metrics.get("proved_labels")
    if proved is not None and n_test:
        tiles.append(Tile("labels proved", formats.percent(proved / n_test), proved / n_test, "as the exact optimum's"))
    total = (metrics.get("seconds") or {}).get("total")
    tiles.append(Tile("total time", quantities.seconds(total), total))
    return [tile for tile in tiles if tile.value is not None]


def _more(n: Any, what: str) -> str:
    return f"and {formats.count(n)} {what}" if n else ""


def _score_tiles(metrics: dict[str, Any], batch: Batch | None) -> list[Tile]:
    accuracy, n_test = quantities.finite(metrics.get("accuracy")), metrics.get("n_test")
    train = metrics.get("train_accuracy")
    tiles = []
    if batch and batch.best.mean_score is not None:
        best, by = batch.best, str(metrics.get("scored_by") or "accuracy")
        text = formats.percent if by == "accuracy" else quantities.number
        note = "" if best.std_score is None else f"± {text(best.std_score)} over folds"
        name = "best score" if by == "accuracy" else f"best {formats.score_name(by)}"
        tiles.append(Tile(name, text(best.mean_score), best.mean_score, note))
    if accuracy is not None:
        note = "on the test rows"
        if n_test:
            low, high = formats.wilson_interval(accuracy, n_test)
            note = f"95 % CI {100 * low:.1f}–{100 * high:.1f}"
        tiles.append(Tile("test accuracy", formats.percent(accuracy), accuracy, note))
    tiles.append(Tile("train accuracy", formats.percent(train), train))
    return [*tiles, *_other_scores(metrics.get("scores") or {})]


def _other_scores(scores: dict[str, Any]) -> list[Tile]:
    """A tile for each score but accuracy: of the test rows where there are any, with that of the training rows."""
    test, train = scores.get("test") or {}, scores.get("train") or {}
    tiles = []
    for name in (name for name in train if name != "accuracy"):
        sign = -1.0 if name.startswith("neg_") and "error" in name else 1.0  # an error as it is
        here, there = (quantities.finite(found.get(name)) for found in (test, train))
        shown = there if here is None else here
        note = "on the training rows" if here is None else f"training {quantities.number(sign * (there or 0.0))}"
        if shown is not None:
            tiles.append(Tile(formats.score_name(name), quantities.number(sign * shown), sign * shown, note))
    return tiles
