"""What the command line prints of a batch: its points, best first, and the model of the best."""

from typing import Any

from flows.commands.words import number, run_scores
from pipeline.report.batch import value_text
from pipeline.report.formats import choice_text

__all__ = ["batch_lines"]

SHOWN = 10


def batch_lines(record: dict[str, Any]) -> list[str]:
    """Lines of a batch's metrics: how it ended, the leaderboard, the refitted model."""
    points, problems = record["points"], record["problems"]
    folds = len(points[0]["fold_scores"])
    where = {"folds": f"{folds} folds each", "test": "scored on the test rows", "train": "scored on the training rows"}
    gap = record["kkt_gap"]
    return [
        f"{record['status']}: {len(points):,} points, {where[record['scored_on']]}; {problems['total']:,} problems, "
        f"{problems['reused']:,} found finished, worst KKT gap {'none' if gap is None else format(gap, '.1e')}",
        f"{'score':>8} {'+-':>7} {'support':>9}  parameters; the score is {record.get('scored_by', 'accuracy')}",
        *map(_line, points[:SHOWN]),
        *([f"{'...':>8} {len(points) - SHOWN:,} more in results.csv"] if len(points) > SHOWN else []),
        *([choice_text(record["choice_of_C"])] if "choice_of_C" in record else []),
        *_refitted(record),
    ]


def _line(point: dict[str, Any]) -> str:
    params = ", ".join(f"{key} {value_text(value)}" for key, value in point["params"].items())
    mean, std = (number(point[key], ".4f") for key in ("mean_score", "std_score"))
    return f"{mean:>8} {std:>7} {point['n_support']:9,.0f}  {params or 'as configured'}"


def _refitted(record: dict[str, Any]) -> list[str]:
    if record["model"] is None:
        return []
    support = f"{record['n_support']:,} support vectors of {record['n_train']:,}"
    return [f"the first on all rows: {', '.join([*run_scores(record), support])}"]
