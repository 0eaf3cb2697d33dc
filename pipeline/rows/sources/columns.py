"""Which columns of a table are features, label, fold and id: by name where both sides have names, else by position."""

import dataclasses
from collections.abc import Sequence

from pipeline.rows.schema import Schema
from pipeline.rows.sources.blocks import Source
from svmcore.errors import did_you_mean

__all__ = ["Columns", "Wanted", "columns_of"]

Column = int | str
SHOWN = 20


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What is asked of a table.

    Attributes
    ----------
    label, fold, id, drop, features
        Names or positions, as in the config, None where there is none; without `features`, all columns that are
        nothing else.
    n_features
        Of rows to predict or to test on: how many features there must be; they may have no label.
    schema
        Of the training data, whose names the table must have.
    """

    label: Column | None = -1
    fold: Column | None = None
    id: Column | None = None
    drop: Sequence[Column] = ()
    features: Sequence[Column] | None = None
    n_features: int | None = None
    schema: Schema | None = None

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names that the features must have."""
        return None if self.schema is None else self.schema.names


@dataclasses.dataclass(frozen=True)
class Columns:
    """Positions of the features in the order of training, and of the other columns; None where there is none."""

    features: list[int]
    names: list[str]
    label: int | None = None
    fold: int | None = None
    id: int | None = None


def columns_of(source: Source, names: Sequence[str], wanted: Wanted, named: bool) -> tuple[Columns, Schema]:
    """Columns of a table called `names`, and their schema; InputError saying which column is missing or too many.

    `named` tells whether these are names of its own, or positions.
    """
    if wanted.schema is not None and wanted.names is not None and named:
        return _by_name(source, names, wanted.schema), wanted.schema
    find = _Finder(source, names)
    if wanted.n_features is not None:
        columns = _by_position(find, wanted, wanted.n_features)
        return columns, wanted.schema or Schema(wanted.n_features)
    return _in_training(find, wanted, named)


def _by_name(source: Source, names: Sequence[str], schema: Schema) -> Columns:
    assert schema.names is not None
    known = {*schema.names, *schema.others}
    missing = [name for name in schema.names if name not in names]
    extra = [name for name in names if name not in known]
    if missing:
        hint = did_you_mean(missing[0], extra) or f"; its columns: {_listed(names)}"
        raise source.fail(f"no column {_listed(missing)}, which the training data has{hint}")
    if extra and not schema.extra:
        raise source.fail(
            f"the training data has no column {_listed(extra)}; remove it, or have such columns ignored: "
            "data.drop in the config, --ignore-extra of predict"
        )
    twice = [name for name in schema.names if list(names).count(name) > 1]
    if twice:
        raise source.fail(f"the column {twice[0]!r} is there twice; give each column a name of its own")
    at = {name: position for position, name in enumerate(names)}
    roles = {role: at[name] for role, name in schema.roles.items() if name in at}
    return Columns([at[name] for name in schema.names], list(schema.names), **roles)


class _Finder:
    """Columns of a table by name, or by position, negative from the end."""

    def __init__(self, source: Source, names: Sequence[str]) -> None:
        self.source, self.names = source, list(names)

    def __call__(self, given: Column, what: str) -> int:
        if isinstance(given, str):
            if given in self.names:
                return self.names.index(given)
            raise self.source.fail(
                f"no {what} column {given!r}; columns: {_listed(self.names, str)}{did_you_mean(given, self.names)}"
            )
        if not -len(self.names) <= given < len(self.names):
            raise self.source.fail(f"no {what} column {given}: the file has {len(self.names)} columns, counted from 0")
        return given % len(self.names)

    def has(self, given: Column) -> bool:
        """Whether there is such a column."""
        return given in self.names if isinstance(given, str) else -len(self.names) <= given < len(self.names)

    def columns(self, features: Sequence[int], **roles: int | None) -> Columns:
        """These columns, with their names."""
        return Columns(list(features), [self.names[j] for j in features], **roles)


def _by_position(find: _Finder, wanted: Wanted, n: int) -> Columns:
    """So many features in the order of training, with or without the label and the other columns."""
    width = len(find.names)
    given = {"fold": wanted.fold, "id": wanted.id}
    roles = {role: find(c, role) for role, c in given.items() if c is not None and find.has(c)}
    taken = {*roles.values(), *(find(c, "data.drop") for c in wanted.drop if find.has(c))}
    if wanted.features is not None and width > n:
        taken |= set(range(width)) - {find(c, "data.features") for c in wanted.features}
    if width - len(taken) == n and not (wanted.features and width > n):  # without labels
        return find.columns([j for j in range(width) if j not in taken], **roles)
    if width == n:
        return find.columns(range(n))
    label = None if wanted.label is None else find(wanted.label, "label")
    features = [j for j in range(width) if j not in taken | {label}]
    if len(features) != n:
        raise find.source.fail(
            f"{width} columns, but {n} features are expected; give {n} columns, or {n + 1} with the label"
        )
    return find.columns(features, label=label, **roles)


def _in_training(find: _Finder, wanted: Wanted, named: bool) -> tuple[Columns, Schema]:
    given = {"fold": wanted.fold, "label": wanted.label, "id": wanted.id}
    roles = {role: find(column, role) for role, column in given.items() if column is not None}
    uses = [*roles.items(), *(("data.drop", find(column, "data.drop")) for column in wanted.drop)]
    if wanted.features is not None:
        uses += [("data.features", find(column, "data.features")) for column in wanted.features]
    _check_single_use(find, uses)
    if wanted.features is None:
        features = [j for j in range(len(find.names)) if j not in [at for _, at in uses]]
    else:
        features = [at for use, at in uses if use == "data.features"]
    if not features:
        raise find.source.fail("one column only; a table needs a label column and at least one feature column")
    columns = find.columns(features, **roles)
    if not named:
        return columns, Schema(len(features))
    twice = [name for name in columns.names if find.names.count(name) > 1]
    if twice:
        raise find.source.fail(f"the column {twice[0]!r} is there twice; give each column a name of its own")
    schema = Schema(
        len(features),
        tuple(columns.names),
        {role: find.names[at] for role, at in roles.items()},
        tuple(name for j, name in enumerate(find.names) if j not in features),
        wanted.features is not None,
    )
    return columns, schema


def _check_single_use(find: _Finder, uses: Sequence[tuple[str, int]]) -> None:
    """Refuse a column that is to be two things."""
    used: dict[int, str] = {}
    for use, at in uses:
        if at in used:
            both = sorted((use, used[at]), key=["label", "fold", "id", "data.drop", "data.features"].index)
            raise find.source.fail(f"the column {find.names[at]!r} cannot be both {both[0]} and {both[1]}")
        used[at] = use


def _listed(names: Sequence[str], form: type = repr) -> str:  # type: ignore[assignment]
    return ", ".join(map(form, names[:SHOWN])) + (", ..." if len(names) > SHOWN else "")
