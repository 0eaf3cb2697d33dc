"""The sections of a configuration: data, cache, cluster, sweep; each key with what it accepts as its description."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pipeline.config.values import (
    absolute,
    check_encrypted,
    check_factory,
    parse_bytes,
    valid_folds,
    valid_refit,
    valid_scale,
    valid_source,
    valid_test,
)
from svmcore.errors import InputError

__all__ = ["Adapt", "Alias", "Cache", "Cluster", "Data", "Gate", "Section", "Sweep", "Tls"]

Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0)]
_SIZE = "a positive size such as 4GiB, or a number of bytes"


class Section(BaseModel):
    """A part of the configuration: immutable, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Data(Section):
    """Where the rows come from, which are held out, and how columns are scaled."""

    source: Annotated[str, BeforeValidator(valid_source)] = Field(
        description="a path or URL of a LIBSVM, CSV, Parquet, npz or zarr source, or sklearn:NAME"
    )
    test: Annotated[float | str | None, BeforeValidator(valid_test)] = Field(
        default=None, description="a fraction between 0 and 1 of the rows, or a second source"
    )
    label: int | str | None = Field(
        default=-1, description="a column's name or its position counted from 0 (-1 is the last); null: there is none"
    )
    id: int | str | None = Field(
        default=None, description="a column's name or its position counted from 0, which predictions repeat"
    )
    features: list[int | str] | None = Field(
        default=None, min_length=1, description="a list of columns, by name or position counted from 0 (absent: all)"
    )
    drop: list[int | str] | None = Field(
        default=None, description="a list of columns that are no features, by name or position counted from 0"
    )
    missing: Literal["refuse", "mean", "median"] = Field(default="refuse", description="refuse, mean or median")
    categories: Literal["refuse", "onehot"] = Field(default="refuse", description="refuse or onehot")
    header: bool | None = Field(default=None, description="true or false (absent: detected)")
    delimiter: str | None = Field(
        default=None, min_length=1, max_length=1, description="one character (absent: detected)"
    )
    rows: int | None = Field(default=None, gt=1, description="a whole number of rows, 2 or more")
    scale: Annotated[str | float, BeforeValidator(valid_scale)] = Field(
        default="none", description="none, standard, minmax, maxabs or a positive number to divide by"
    )


class Cache(Section):
    """Byte budgets: columns or a resident K in memory, reusable blocks on the store."""

    limit: Bytes = Field(default=4 << 30, description=_SIZE)
    disk: Bytes = Field(default=50 << 30, description=_SIZE)


class Tls(Section):
    """Files of a TLS connection to the scheduler."""

    ca: Annotated[str, BeforeValidator(absolute)] = Field(description="path of the authority's certificate (PEM)")
    cert: Annotated[str, BeforeValidator(absolute)] = Field(description="path of this client's certificate (PEM)")
    key: Annotated[str, BeforeValidator(absolute)] = Field(description="path of this client's private key (PEM)")


class Adapt(Section):
    """As many workers as there is work for, within two bounds."""

    minimum: int = Field(default=1, gt=0, description="a positive number of worker processes")
    maximum: int = Field(gt=0, description="a positive number of worker processes")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.minimum > self.maximum:
            raise InputError(
                f"cluster.workers.minimum is {self.minimum} and cluster.workers.maximum {self.maximum}; "
                "give a minimum that is no larger"
            )
        return self


class Cluster(Section):
    """Which Dask workers compute: in process, local processes, or somebody else's cluster."""

    kind: Literal["inline", "local", "address", "scheduler_file", "factory"] = Field(
        default="local", description="inline, local, address, scheduler_file or factory"
    )
    workers: Annotated[int, Field(gt=0)] | Adapt | None = Field(
        default=None,
        description="a positive number of worker processes; with a factory also {minimum, maximum}",
    )
    memory: Bytes | None = Field(default=None, description=_SIZE + " per worker")
    address: str | None = Field(default=None, min_length=1, description="a scheduler's address such as tcp://host:8786")
    tls: Tls | None = Field(default=None, description="a mapping with the keys ca, cert, key")
    insecure: bool = Field(default=False, description="true to accept a scheduler without TLS, or false")
    path: Annotated[str | None, BeforeValidator(absolute)] = Field(
        default=None, description="the path of a Dask scheduler file"
    )
    factory: str | None = Field(
        default=None, pattern=r"^[\w.]+\.\w+$", description="a class to import, such as dask_jobqueue.SLURMCluster"
    )
    kwargs: dict[str, Any] = Field(default_factory=dict, description="a mapping of keyword arguments of the factory")

    @property
    def remote(self) -> bool:
        """Whether the workers are of a cluster that may have other hosts."""
        return self.kind not in ("inline", "local")

    @property
    def most_workers(self) -> int | None:
        """How many workers there may be, where that is told."""
        return self.workers.maximum if isinstance(self.workers, Adapt) else self.workers

    @model_validator(mode="after")
    def _keys_of_kind(self) -> Self:
        """Require the keys that this kind lives by and refuse those of another kind."""
        own = {
            "inline": (),
            "local": (),
            "address": ("address",),
            "scheduler_file": ("path",),
            "factory": ("factory",),
        }
        for key in own[self.kind]:
            if getattr(self, key) is None:
                raise InputError(f"cluster.kind {self.kind} needs the key 'cluster.{key}'")
        allowed = {*own[self.kind], *(("tls",) if self.kind in ("address", "scheduler_file") else ())}
        allowed |= {"kwargs"} if self.kind == "factory" else set()
        allowed |= {"insecure"} if self.remote else set()
        for key in ("address", "tls", "path", "factory", "kwargs", "insecure"):
            if getattr(self, key) and key not in allowed:
                kinds = ", ".join(k for k, v in own.items() if key in v) or "another kind"
                raise InputError(f"cluster.{key} belongs to cluster.kind {kinds}, given {self.kind}")
        if isinstance(self.workers, Adapt) and self.kind != "factory":
            raise InputError(
                f"cluster.workers: {{minimum, maximum}} belongs to cluster.kind factory, given {self.kind}; "
                "give a number"
            )
        if self.factory is not None:
            check_factory(self.factory)
        if self.address is not None:
            check_encrypted(self.address, self.insecure)
        return self


class Sweep(Section):
    """Points to try: a grid, a list, or both; cross-validation folds; which score picks the model to refit."""

    grid: dict[str, list[Any]] = Field(default_factory=dict, description="a mapping of dotted keys to lists of values")
    list_: list[dict[str, Any]] = Field(
        default_factory=list, alias="list", description="a list of mappings of dotted keys to values"
    )
    folds: Annotated[int | dict[str, str | int] | None, BeforeValidator(valid_folds)] = Field(
        default=None, description="a whole number of folds, 2 or more, or {column: NAME}"
    )
    refit: Annotated[str | None, BeforeValidator(valid_refit)] = Field(
        default=None, description="the name of a score (default: the first of scoring), or false for no model"
    )


_ALIAS = r"^[A-Za-z][A-Za-z0-9._-]*$"
Alias = Annotated[str, Field(pattern=_ALIAS)]


class Gate(Section):
    """What a run must reach before anything is promoted."""

    min: dict[str, float] = Field(default_factory=dict, description="a mapping of scores to the least that is accepted")
    drop: dict[str, float] = Field(
        default_factory=dict, description="a mapping of scores to how far below the champion they may be"
    )
    against: Alias = Field(default="champion", description="an alias, such as champion")
    max_kkt_gap: float | None = Field(default=None, gt=0, description="a positive number")
    drift_p: float | None = Field(default=None, gt=0, lt=1, description="a p-value between 0 and 1, such as 0.01")
