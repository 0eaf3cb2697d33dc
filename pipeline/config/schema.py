"""Experiment: everything one YAML file declares, checked whole before any work starts.

Every key of the contract is a field here, with what it accepts as its description; kernels and solvers are checked by
their own registries. Paths are stored absolute and `${ENV}` is stored as written: `expand` fills it in at the moment a
URL is used, so no secret ever reaches a file that is written back.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from pipeline.config import yaml12
from pipeline.config.errors import explain
from pipeline.config.keys import set_key
from pipeline.config.redact import redacted, redacted_text
from pipeline.config.sections import Alias, Cache, Cluster, Data, Gate, Section, Sweep
from pipeline.config.values import (
    absolute,
    expand,
    format_bytes,
    valid_class_weight,
    valid_kernel,
    valid_solver,
)
from svmcore.errors import InputError, did_you_mean
from svmcore.kernels import Kernel
from svmcore.qp import Bias
from svmcore.solvers import Auto, Solver
from svmcore.tasks.losses import Hinge, SquaredHinge

ELSEWHERE = ("name", "store", "cluster", "cache", "gate", "promote")  # what does not change the answer
SCORES = ("accuracy", "train_accuracy", "mean_score")

__all__ = ["ELSEWHERE", "NOT_SWEPT", "Experiment", "canonical_json"]


class Experiment(Section):
    """One experiment, as the YAML file declares it; frozen, and complete with every default."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="letters, digits, '.', '_' and '-', no folder"
    )
    seed: int = Field(default=0, ge=0, lt=2**32, description="a whole number, 0 or more, below 2**32")
    data: Data = Field(description="a mapping with at least the key 'source'")
    kernel: Annotated[dict[str, Any], BeforeValidator(valid_kernel)] = Field(
        default_factory=lambda: valid_kernel("rbf"), description="a kernel, such as {name: rbf, gamma: scale}"
    )
    loss: Literal["hinge", "squared_hinge"] = Field(default="hinge", description="hinge or squared_hinge")
    C: float = Field(default=1.0, gt=0, description="a positive number, or .inf for a hard margin")
    bias: Literal["free", "penalised", "none"] = Field(default="free", description="free, penalised or none")
    class_weight: Annotated[Literal["balanced"] | dict[Any, float] | None, BeforeValidator(valid_class_weight)] = Field(
        default=None, description="balanced, or a mapping of labels to positive weights"
    )
    multiclass: Literal["ovr", "ovo"] = Field(default="ovr", description="ovr or ovo")
    solver: Annotated[dict[str, Any], BeforeValidator(valid_solver)] = Field(
        default_factory=lambda: valid_solver("auto"), description="a solver, such as {name: smo, tol: 1e-3}"
    )
    cache: Cache = Field(default_factory=lambda: Cache())
    cluster: Cluster = Field(default_factory=lambda: Cluster())
    store: Annotated[str, BeforeValidator(absolute)] = Field(
        default="runs", validate_default=True, min_length=1, description="a path or s3://bucket/prefix"
    )
    gate: Gate | None = Field(default=None)
    promote: Alias | None = Field(default=None, description="an alias, such as champion")
    sweep: Sweep | None = Field(default=None)

    @model_validator(mode="after")
    def _pairing(self) -> Self:
        """Refuse a solver that does not admit this loss, bias and kernel."""
        self.build_solver().admits(self.build_loss(), Bias(self.bias), self.build_kernel(), math.isinf(self.C))
        return self

    @model_validator(mode="after")
    def _judged(self) -> Self:
        """Refuse a gate whose scores no run of this config has."""
        if (self.gate or self.promote) and self.sweep is not None and not self.sweep.refit:
            raise InputError("gate and promote need a model; remove sweep.refit: false")
        for key in {**self.gate.min, **self.gate.drop} if self.gate else ():
            if key not in SCORES:
                raise InputError(f"gate: unknown score {key!r}; known: {', '.join(SCORES)}{did_you_mean(key, SCORES)}")
            if key == "accuracy" and self.data.test is None:
                raise InputError("gate: accuracy needs test rows; set data.test, or name train_accuracy")
            if key == "mean_score" and self.sweep is None:
                raise InputError("gate: mean_score is of a sweep; name accuracy, or add a sweep")
        return self

    @classmethod
    def checked(cls, raw: Mapping[str, Any], where: str) -> Self:
        """Build the experiment, or say in one sentence why not."""
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise explain(error, cls, where) from None

    def build_kernel(self) -> Kernel:
        """Return the kernel these keys declare; `gamma: scale` is resolved later, against the data."""
        return Kernel.create(self.kernel)

    def build_solver(self) -> Solver:
        """Return the solver these keys declare."""
        return Solver.create(self.solver)

    def solver_for(self, n_features: int) -> Solver:
        """Return the solver for rows of so many features: of `auto`, the one that it chooses."""
        solver = self.build_solver()
        if not isinstance(solver, Auto):
            return solver
        kernel, hard = self.build_kernel(), math.isinf(self.C)
        return solver.resolved(kernel, n_features, self.build_loss(), Bias(self.bias), hard)

    def with_solver_for(self, n_features: int) -> Self:
        """Return the same experiment with the solver chosen, as it is written down and repeated."""
        return self.model_copy(update={"solver": self.solver_for(n_features).spec()})

    def build_loss(self) -> Hinge | SquaredHinge:
        """Return the loss these keys declare."""
        return Hinge() if self.loss == "hinge" else SquaredHinge()

    @property
    def tol(self) -> float:
        """Tolerance on the KKT gap."""
        return float(self.solver.get("tol", 1e-3))

    @property
    def fold_column(self) -> str | int | None:
        """Column of the source that names each row's fold, or None."""
        folds = self.sweep.folds if self.sweep else None
        return folds["column"] if isinstance(folds, dict) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the plain mapping that `load_experiment` reads back to an equal experiment, secrets hidden."""
        plain = self._to_dict()
        kwargs = plain["cluster"].get("kwargs")
        texts = {key: redacted_text(value) for key, value in plain["data"].items() if isinstance(value, str)}
        plain["data"] |= texts
        plain["store"] = redacted_text(plain["store"])
        if "address" in plain["cluster"]:
            plain["cluster"]["address"] = redacted_text(plain["cluster"]["address"])
        return plain if kwargs is None else plain | {"cluster": plain["cluster"] | {"kwargs": redacted(kwargs)}}

    def _to_dict(self) -> dict[str, Any]:
        """As `to_dict`, with everything as it was given."""
        plain = self.model_dump(by_alias=True, exclude_none=True)
        plain["cache"] = {key: format_bytes(size) for key, size in plain["cache"].items()}
        if "memory" in plain["cluster"]:
            plain["cluster"]["memory"] = format_bytes(plain["cluster"]["memory"])
        for key in ("kwargs", "insecure"):
            if not plain["cluster"][key]:
                del plain["cluster"][key]
        if self.sweep is not None:
            plain["sweep"] = {key: value for key, value in plain["sweep"].items() if value not in ({}, [])}
            plain["sweep"]["refit"] = self.sweep.refit or False
        return plain

    def to_yaml(self) -> str:
        """Return the resolved configuration as YAML, `${ENV}` as written, secrets hidden."""
        return yaml12.dump(self.to_dict())

    def fingerprint(self) -> str:
        """Sha256 over the keys that change the answer: not those of ELSEWHERE, nor the time limit.

        Sources count by their path; the bytes behind it are the dataset's fingerprint.
        """
        plain = self.model_dump(by_alias=True, exclude=set(ELSEWHERE))
        plain["solver"].pop("time_limit", None)
        for key in ("source", "test"):
            if isinstance(plain["data"][key], str):
                plain["data"][key] = expand(plain["data"][key])
        return hashlib.sha256(canonical_json(plain).encode()).hexdigest()

    def points(self) -> list[tuple[dict[str, Any], "Experiment"]]:
        """Return the sweep's points, (parameters, experiment without a sweep), in an order fixed by the config.

        Of the sweep, a point keeps only a column that names the folds, because that column is no feature. The grid
        comes first, keys in alphabetical order and the last one running fastest (as scikit-learn's ParameterGrid),
        then the list. Without a sweep: the experiment itself, with no parameters.
        """
        if self.sweep is None:
            return [({}, self)]
        base = {key: value for key, value in self._to_dict().items() if key not in ("sweep", "gate", "promote")}
        if self.fold_column is not None:
            base["sweep"] = {"folds": self.sweep.folds}
        return [(params, _point(base, params)) for params in _combinations(self.sweep)]


def canonical_json(value: Any) -> str:
    """Return JSON in which equal configurations are equal text: sorted keys, every number a float."""

    def plain(item: Any) -> Any:
        if isinstance(item, Mapping):
            return sorted(([_tagged(key), plain(part)] for key, part in item.items()), key=json.dumps)
        if isinstance(item, list | tuple):
            return [plain(part) for part in item]
        return float(item) if isinstance(item, int) and not isinstance(item, bool) else item

    return json.dumps(plain(value))


def _tagged(key: Any) -> Any:
    """Tell the label 1 from the label '1'."""
    return key if isinstance(key, str) else [type(key).__name__, key]


# ---- sweeps -----------------------------------------------------------------------------------------------------
NOT_SWEPT = ("name", "store", "cluster", "cache", "sweep", "seed", "gate", "promote")


def _combinations(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Yield each point's parameters."""
    if sweep.grid or not sweep.list_:
        keys = sorted(sweep.grid)
        for values in itertools.product(*(sweep.grid[key] for key in keys)):
            yield dict(zip(keys, values, strict=True))
    yield from sweep.list_


def _point(base: Mapping[str, Any], params: Mapping[str, Any]) -> Experiment:
    """Build one point; what is wrong with it is said with its parameters."""
    where = f"sweep point {{{', '.join(f'{key}: {value}' for key, value in params.items())}}}"
    raw = {key: dict(value) if isinstance(value, dict) else value for key, value in base.items()}
    for key in sorted(params, key=lambda k: (not k.endswith(".name"), k)):
        set_key(raw, key, params[key], where)
    return Experiment.checked(raw, where)
