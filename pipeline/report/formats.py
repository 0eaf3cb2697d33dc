"""Counts, shares, scores and labels as people read them; what has a unit is in `pipeline.config.quantities`."""

import math
from typing import Any

from pipeline.config.quantities import MISSING, finite

__all__ = ["choice_text", "count", "label_text", "percent", "score", "score_name", "wilson_interval"]


def count(value: Any) -> str:
    """Whole number with thousands separators.

    >>> count(1234567), count(None)
    ('1,234,567', '–')
    """
    whole = finite(value)
    return MISSING if whole is None else f"{round(whole):,}"


def percent(value: Any, decimals: int = 2) -> str:
    """Fraction as per cent.

    >>> percent(0.98611), percent(1), percent(None)
    ('98.61 %', '100.00 %', '–')
    """
    real = finite(value)
    return MISSING if real is None else f"{100 * real:.{decimals}f} %"


def score(value: Any) -> str:
    """Score in 0 ... 1 with four decimals, so that columns line up.

    >>> score(0.9)
    '0.9000'
    """
    real = finite(value)
    return MISSING if real is None else f"{real:.4f}"


SHORT = {"neg_mean_absolute_error": "mae", "neg_root_mean_squared_error": "rmse", "neg_max_error": "max error"}


def score_name(name: str) -> str:
    """A scorer of scikit-learn in a word or two.

    >>> score_name("neg_root_mean_squared_error"), score_name("roc_auc")
    ('rmse', 'roc auc')
    """
    return SHORT.get(name, name.removeprefix("neg_").replace("_", " "))


def label_text(label: Any) -> str:
    """Class label as shown; a one-vs-one pair becomes `a vs b`.

    >>> label_text("cat"), label_text(3), label_text([0, 1]), label_text(2.0)
    ('cat', '3', '0 vs 1', '2')
    """
    if isinstance(label, list | tuple):
        return " vs ".join(label_text(part) for part in label)
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """95 % interval of a proportion `share` seen in `n` rows (Wilson 1927), inside 0 ... 1.

    >>> low, high = wilson_interval(0.5, 100)
    >>> round(low, 4), round(high, 4)
    (0.4038, 0.5962)
    """
    z2 = 1.959963984540054**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    spread = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    return max(0.0, middle - spread), min(1.0, middle + spread)


def choice_text(found: dict[str, Any]) -> str:
    """What is proved of other values of C, `choice_of_C` of the metrics, in a sentence.

    >>> found = {"C": 4.0, "errors": 19, "rows": 1797, "within": 3, "solved": [[2.0, 22], [4.0, 19]], "least": [16]}
    >>> choice_text(found)
    'no C from 2 to 4 is better than 4 by more than 3 of 1,797 rows, of which 4 has 19 wrong'
    >>> choice_text(found | {"within": 19, "least": [0]})
    'C = 4 has 19 of 1,797 rows wrong; nothing is proved of C between 2 and 4: values there would tell more'
    >>> choice_text({"why": "the kernel is approximated"})
    'nothing is proved of other C: the kernel is approximated'
    """
    if "why" in found:
        return f"nothing is proved of other C: {found['why']}"
    chosen, rows, errors, within = f"{found['C']:g}", count(found["rows"]), found["errors"], found["within"]
    solved = [f"{C:g}" for C, _ in found["solved"]]
    if within < errors or not errors:
        return (
            f"no C from {solved[0]} to {solved[-1]} is better than {chosen} by more than {within:,} of {rows} rows, of "
            f"which {chosen} has {errors:,} wrong"
        )
    gaps = zip(solved, solved[1:], found["least"], strict=False)
    unknown = ", ".join(f"{low} and {high}" for low, high, left in gaps if not left)
    return (
        f"C = {chosen} has {errors:,} of {rows} rows wrong; nothing is proved of C between {unknown}: values "
        "there would tell more"
    )
