"""Labels of any kind to codes 0 ... k - 1, and back as they were: numbers, strings, truth values.

Codes follow the sorted order of the classes, as in scikit-learn. Text that holds only numbers (CSV) is read as numbers,
and floats that are whole numbers (LIBSVM) are ints; `1` and `1.0` are one class.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svmcore.errors import InputError

__all__ = ["MARKERS", "Label", "LabelCodes", "class_weights", "label_array", "missing_marker"]

Label = bool | int | float | str
MARKERS = ("nan", "na", "n/a", "<na>", "null", "none", "nil", "?", "-", ".")  # of a missing number, in any case
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
MANY_REALS = 100  # more distinct fractional labels than this are a regression target


class LabelCodes:
    """Codes of labels as they stream by; `classes` and final codes are known when all have passed.

    Parameters
    ----------
    text
        Whether labels come from a text format, in which the number 1 is written "1".
    """

    def __init__(self, text: bool) -> None:
        self.text = text
        self._order: dict[Any, int] = {}
        self._codes: list[NDArray[np.int32]] = []

    def append(self, y: NDArray[Any]) -> None:
        """Take the next labels (n,)."""
        if y.dtype.kind in "biuf":
            distinct, inverse = np.unique(y, return_inverse=True)
            codes = np.array([self._code(value) for value in distinct.tolist()], np.int32)
            self._codes.append(codes[inverse])
        else:
            self._codes.append(np.array([self._code(value) for value in y.tolist()], np.int32))

    def _code(self, value: Any) -> int:
        return self._order.setdefault(value, len(self._order))

    def resolve(self) -> tuple[list[Label], NDArray[np.int32]]:
        """Return the sorted classes and the codes (n,) into them.

        >>> labels = LabelCodes(text=True)
        >>> labels.append(np.array(["+1", "-1", "1.0"], dtype=object))
        >>> labels.resolve()
        ([-1, 1], array([1, 0, 1], dtype=int32))
        """
        values = _common_kind(list(self._order), self.text)
        classes = sorted(set(values))
        position = {value: code for code, value in enumerate(classes)}
        return classes, self._mapped([position[value] for value in values])

    def resolve_as(self, classes: Sequence[Label], url: str) -> NDArray[np.int32]:
        """Return codes (n,) into the classes of the training data; another label is an InputError naming it."""
        codes, unknown = self.resolve_known(classes)
        if unknown:
            known = ", ".join(repr(label) for label in classes[:10]) + (", ..." if len(classes) > 10 else "")
            raise InputError(f"{url}: the label {unknown[0]!r} is not in the training data; labels there: {known}")
        return codes

    def resolve_known(self, classes: Sequence[Label]) -> tuple[NDArray[np.int32], list[Any]]:
        """Return codes (n,) into the classes of the training data, -1 for another label, and those others.

        >>> labels = LabelCodes(text=True)
        >>> labels.append(np.array(["2", "7", "1"], dtype=object))
        >>> labels.resolve_known([1, 2])
        (array([ 1, -1,  0], dtype=int32), ['7'])
        """
        position: Mapping[Label, int] = {value: code for code, value in enumerate(classes)}
        codes = [
            next((position[v] for v in _readings(raw, self.text) if _same_kind(v, classes[0]) and v in position), -1)
            for raw in self._order
        ]
        return self._mapped(codes), [raw for raw, code in zip(self._order, codes, strict=True) if code < 0]

    def _mapped(self, codes: Sequence[int]) -> NDArray[np.int32]:
        table = np.array(codes, np.int32)
        return table[np.concatenate(self._codes)] if self._codes else table[:0]


def _common_kind(values: Sequence[Any], text: bool) -> list[Label]:
    """Bring labels to one kind: all truth values, all numbers, or all strings."""
    if all(isinstance(value, bool) for value in values):
        return list(values)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return _whole(values)
    strings = [str(value) for value in values]
    if text and all(_is_number(value) for value in strings):
        return _whole([float(value) if not _INTEGER.fullmatch(value) else int(value) for value in strings])
    return list(strings)


def missing_marker(classes: Sequence[Label]) -> str:
    """Return the class that other programs write where a number is missing, if all the rest are numbers; else "".

    >>> missing_marker(["0", "1", "NA"]), missing_marker(["0", "1", "A"]), missing_marker(["DE", "NA"])
    ('NA', '', '')
    """
    strange = [value for value in classes if not _is_number(str(value))]
    return str(strange[0]) if len(strange) == 1 < len(classes) and str(strange[0]).lower() in MARKERS else ""


def _is_number(value: str) -> bool:
    try:
        return bool(np.isfinite(float(value))) and "_" not in value and not re.match(r"[+-]?0[0-9]", value)
    except ValueError:
        return False


def _whole(values: Sequence[int | float]) -> list[Label]:
    """Floats that are whole numbers become ints if all of them are."""
    if all(float(value).is_integer() for value in values):
        return [int(value) for value in values]
    if len(set(values)) > MANY_REALS:
        raise InputError(
            f"the labels are {len(set(values))} different real numbers such as {values[0]!r}, which are no classes; "
            "choose another label column (data.label)"
        )
    return [float(value) for value in values]


def _readings(raw: Any, text: bool) -> list[Label]:
    """What a raw label may mean, beginning with itself."""
    meanings: list[Label] = [raw, str(raw)]
    if text and isinstance(raw, str) and _is_number(raw):
        meanings.append(float(raw))
    return meanings


def _same_kind(value: Any, other: Any) -> bool:
    """Truth values, numbers and strings never equal each other as labels (True == 1 in Python)."""
    kinds = [bool if isinstance(v, bool) else str if isinstance(v, str) else float for v in (value, other)]
    return kinds[0] is kinds[1]


def class_weights(given: Any, classes: Sequence[Any]) -> Any:
    """`class_weight` of the config as one number per class code; "balanced" and None stay."""
    if not isinstance(given, Mapping):
        return given
    unknown = [label for label in given if label not in classes and str(label) not in map(str, classes)]
    if unknown:
        raise InputError(f"class_weight names {unknown[0]!r}, which is no label; labels: {_listed(classes)}")
    by_text = {str(label): weight for label, weight in given.items()}
    return [float(given.get(label, by_text.get(str(label), 1.0))) for label in classes]


def _listed(classes: Sequence[Any]) -> str:
    shown = ", ".join(map(str, classes[:10]))
    return f"{shown}, ..." if len(classes) > 10 else shown


def label_array(classes: Any) -> Any:
    """Labels as an array of one type where they have one: integers, floats, booleans or strings.

    >>> label_array([0, 1]).dtype.kind, label_array(["a", "b"]).dtype.kind, label_array([1, "b"]).dtype.kind
    ('i', 'U', 'O')
    """
    kinds = {type(value) for value in classes}
    return np.asarray(classes) if len(kinds) <= 1 else np.array(list(classes), dtype=object)
