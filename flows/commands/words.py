"""Numbers and scores of a record in words."""

from typing import Any

__all__ = ["RUN_COLUMNS", "drift_lines", "number", "plan_rows", "run_cells", "run_scores", "scores_text"]


def number(value: Any, style: str) -> str:
    """In the style of `format`; none where there is none."""
    return "none" if value is None else format(value, style)


def run_scores(record: dict[str, Any]) -> list[str]:
    """Scores of a run in words: of test rows, where there are any, then those of training rows."""
    test, train = record["scores"]["test"] or {}, record["scores"]["train"]
    return scores_text(test | {f"training {name}": value for name, value in train.items()})


RUN_COLUMNS = ("published (UTC)", "score", "status", "gate", "gap", "seconds")


def run_cells(entry: dict[str, Any]) -> tuple[str, ...]:
    """A run of a listing under `RUN_COLUMNS`."""
    passed = {None: "", True: "passed", False: "FAILED"}[(entry.get("gate") or {}).get("passed")]
    return (
        entry["date"][:16].replace("T", " "),
        number(entry.get("score"), ".4f"),
        entry.get("status") or "",
        passed,
        number(entry.get("relative_gap"), ".1e"),
        number(entry.get("seconds", {}).get("total"), ".1f"),
    )


def plan_rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, text) of every number of a forecast."""
    from pipeline.config.quantities import seconds, size

    def text(key: str, value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{name} {seconds(part)}" for name, part in value.items())
        if key.endswith("_bytes"):
            return size(value)
        return f"{value:,}" if isinstance(value, int) else str(value)

    return [(key.replace("_", " "), text(key, value)) for key, value in record.items()]


def drift_lines(drift: dict[str, Any] | None) -> list[str]:
    """How far rows are from those of training, the features that differ most first."""
    if drift is None:
        return []
    verdict = "unlike" if drift["p_value"] < 0.01 else "like"
    lines = [f"drift: the rows are {verdict} those of training (MMD test on the kernel, p = {drift['p_value']:.3g})"]
    if drift["n_features"]:
        lines.append(f"drift: {drift['shifted']} of {drift['n_features']} features shifted")
    for feature in [one for one in drift["features"] if one["shifted"]][:10]:
        before, now = feature["median"]
        lines.append(f"  {feature['name']}: median {before:.4g} -> {now:.4g}, stability index {feature['psi']:.2f}")
    return lines


def scores_text(record: dict[str, Any]) -> list[str]:
    """What of a record is a score and known, in words; errors as they are, not negated."""
    found = []
    for key, value in record.items():
        word = key.removeprefix("training ")
        name, sign, style = _SCORES.get(word, (word, 1, ".4f"))
        if isinstance(value, float) and (word in _SCORES or "training" not in key):
            found.append(f"{key.replace(word, name)} {sign * value:{style}}")
    return found


_SCORES = {  # name, sign and style of those that are printed of training rows too
    "accuracy": ("accuracy", 1, ".4f"),
    "r2": ("r2", 1, ".4f"),
    "rejected": ("rejected", 1, ".4f"),
    "mae": ("mae", 1, ".4g"),
    "rmse": ("rmse", 1, ".4g"),
    "max_error": ("max error", 1, ".4g"),
    "neg_mean_absolute_error": ("mae", -1, ".4g"),
    "neg_root_mean_squared_error": ("rmse", -1, ".4g"),
    "neg_max_error": ("max error", -1, ".4g"),
}
