"""Quantities as people read them: significant digits, human seconds and bytes. No markup."""

import math
from typing import Any

__all__ = ["MISSING", "finite", "number", "seconds", "size"]


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


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
