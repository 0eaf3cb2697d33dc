"""Counts, shares, scores and labels as people read them, and pages from their templates.

What has a unit is in `pipeline.config.quantities`.
"""

import functools
import math
from pathlib import Path
from typing import Any

from pipeline.config.quantities import MISSING, finite, number, seconds, size

__all__ = ["count", "label_text", "percent", "score", "score_name", "template", "value_text", "wilson_interval"]


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


def value_text(value: Any) -> str:
    """Write a parameter's value in a few letters; a kernel is its name and its numbers.

    >>> value_text({"name": "rbf", "gamma": 0.1}), value_text(1e-05), value_text("scale")
    ('rbf(gamma=0.1)', '1e-5', 'scale')
    """
    if isinstance(value, dict):
        inner = ", ".join(f"{k}={value_text(v)}" for k, v in value.items() if k != "name")
        return f"{value.get('name', '')}({inner})" if inner else str(value.get("name", ""))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value, 6).replace(",", "")
    return label_text(value)


@functools.cache
def template(name: str) -> Any:
    """Return the template in the file `name` of this folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (count, label_text, percent, score, value_text, number, seconds, size)
    environment.filters |= {one.__name__: one for one in filters}
    return environment.get_template(name)
