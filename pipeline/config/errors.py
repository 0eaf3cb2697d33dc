"""Turn pydantic's list of errors into one sentence: what was given, what is accepted, what to do.

What a key accepts is said once, in its `Field(description=...)`; this file only finds the key an error is about.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from svmcore.errors import InputError, SVMError, did_you_mean

__all__ = ["explain", "known_keys"]


def known_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted key of a model and of its sections, e.g. `data.source`."""
    for name, field in _fields(model).items():
        yield prefix + name
        section = _section(field.annotation)
        if section is not None:
            yield from known_keys(section, f"{prefix}{name}.")


def explain(error: ValidationError, model: type[BaseModel], where: str) -> SVMError:
    """Return the first thing wrong with a configuration as one InputError (or the plug-in's own error)."""
    first = _telling(error.errors(include_url=False))
    path, description = _locate(model, first["loc"])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, SVMError):
        return type(cause)(f"{where}: {cause}")
    if first["type"] == "extra_forbidden":
        return InputError(f"{where}: {_unknown_key(model, first['loc'])}")
    if first["type"] == "missing":
        return InputError(f"{where}: the key '{path}' is missing; it needs {description}")
    detail = f" ({cause})" if cause is not None else ""
    return InputError(f"{where}: {path} is {_shown(first['input'])}{detail}; accepted: {description}")


def _telling(errors: Sequence[Any]) -> Any:
    """Return the first error that says most: one of ours, else of a missing key the unknown one beside it.

    That is how it was misspelt; and of a key with several forms, pydantic lists what is wrong with each.
    """
    ours = (error for error in errors if isinstance(error.get("ctx", {}).get("error"), SVMError))
    first = next(ours, errors[0])
    if first["type"] != "missing":
        return first
    beside = (e for e in errors if e["type"] == "extra_forbidden" and e["loc"][:-1] == first["loc"][:-1])
    return next(beside, first)


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Fields by the names they have in a file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the model that an annotation such as `Cache | None` holds, if it holds one."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _locate(model: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[str, str]:
    """Return the dotted key of an error and what it accepts; pydantic's own steps (`float`, `str`) are left out."""
    keys: list[str] = []
    description = ""
    here: type[BaseModel] | None = model
    open_keys = False
    for step in loc:
        if here is None or step not in _fields(here):
            if open_keys or (here is not None and not keys):
                keys.append(str(step))
            break
        field = _fields(here)[str(step)]
        keys.append(str(step))
        here, open_keys = _section(field.annotation), get_origin(field.annotation) is dict
        description = field.description or _section_description(here)
    return ".".join(keys), description or "a mapping of the known keys"


def _section_description(section: type[BaseModel] | None) -> str:
    return f"a mapping with the keys {', '.join(_fields(section))}" if section is not None else ""


def _unknown_key(model: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    """Say which key is unknown, and the nearest one: in its own section first, then anywhere."""
    *parents, key = [str(step) for step in loc]
    section: type[BaseModel] | None = model
    for parent in parents:
        section = _section(_fields(section)[parent].annotation) if section else None
    known = list(_fields(section)) if section is not None else []
    place = f"in '{'.'.join(parents)}'" if parents else "at the top"
    elsewhere = {dotted.rsplit(".", 1)[-1]: dotted for dotted in (*known_keys(model), "solver.tol", "kernel.gamma")}
    nearest = did_you_mean(key, known)
    if not nearest and key in elsewhere:
        nearest = f" - did you mean {elsewhere[key]!r}?"
    return f"unknown key {key!r} {place}; known: {', '.join(known)}{nearest}"


def _shown(value: Any) -> str:
    """Show a value in an error, short."""
    if isinstance(value, Mapping):
        return "a mapping"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
