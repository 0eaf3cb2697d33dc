"""Numbers as people read them: significant digits, thousands, human seconds and bytes. No markup."""

import math
from typing import Any

__all__ = ["count", "label_text", "number", "percent", "score", "seconds", "size", "wilson_interval"]

MISSING = "–"


def finite(value: Any) -> float | None:
    """`value` as a finite float, or None: YAML 1.1 leaves `1e-3` a string, JSON may hold null or Infinity.

    >>> finite("1e-3"), finite(None), finite(float("inf")), finite(True)
    (0.001, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except ValueError:
        return None
    return result if math.isfinite(result) else None


def count(value: Any) -> str:
    """Whole number with thousands separators.

    >>> count(1234567), count(None)
    ('1,234,567', '–')
    """
    whole = finite(value)
    return MISSING if whole is None else f"{round(whole):,}"


def number(value: Any, digits: int = 4) -> str:
    """`digits` significant digits; powers of ten outside 1e-3 ... 1e6.

    >>> number(0.000096123), number(1234.5678), number(-0.5), number(1e-3), number(25000000.0)
    ('9.612e-5', '1,235', '-0.5', '0.001', '2.5e7')
    """
    real = finite(value)
    if real is None:
        return {"inf": "∞", "-inf": "-∞"}.get(str(value), MISSING)
    if real == 0:
        return "0"
    if not 1e-3 <= abs(real) < 1e6:
        mantissa, exponent = f"{real:.{digits - 1}e}".split("e")
        return f"{_trimmed(mantissa)}e{int(exponent)}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(real))))
    return _trimmed(f"{real:,.{decimals}f}")


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


def seconds(value: Any) -> str:
    """Duration in the unit a person would choose.

    >>> [seconds(s) for s in (0, 0.000012, 0.0421, 3.14159, 59.97, 125.2, 7384)]
    ['0 s', '12 µs', '42.1 ms', '3.14 s', '1 min 00 s', '2 min 05 s', '2 h 03 min']
    """
    real = finite(value)
    if real is None:
        return MISSING
    if real < 59.95:
        return _short_seconds(real)
    minutes, rest = divmod(round(real), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(real / 60), 60)
    return f"{hours:,} h {minutes:02d} min"


def _short_seconds(real: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if real * factor >= 0.9995:
            return f"{number(real * factor, 3)} {unit}"
    return f"{number(real * 1e6, 3)} µs" if real else "0 s"


def size(value: Any) -> str:
    """Bytes in binary units.

    >>> size(999), size(16519936), size(3 * 2**30)
    ('999 B', '15.8 MiB', '3 GiB')
    """
    real = finite(value)
    if real is None:
        return MISSING
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while abs(real) >= 1023.5 and len(units) > 1:
        real /= 1024
        units.pop(0)
    return f"{number(real, 3)} {units[0]}"


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


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
