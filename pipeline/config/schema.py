"""Experiment: everything one YAML file declares, checked whole before any work starts.

Every key of the contract is a field here, with what it accepts as its description; kernels and solvers are checked by
their own registries. Paths are stored absolute and `${ENV}` is stored as written: `expand` fills it in at the moment a
URL is used, so no secret ever reaches a file that is written back.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from pipeline.config import yaml12
from pipeline.config.errors import explain
from pipeline.config.keys import set_key
from pipeline.config.machines import check_pairing, foreign_keys, machine_of, ranking_of
from pipeline.config.points import canonical_json, combinations
from pipeline.config.redact import redacted, redacted_text
from pipeline.config.sections import Alias, Cache, Cluster, Data, Gate, Section, Sweep
from pipeline.config.values import (
    absolute,
    expand,
    format_bytes,
    valid_approximation,
    valid_class_weight,
    valid_kernel,
    valid_scoring,
    valid_solver,
    valid_task,
)
from pipeline.kinds import Kind, kind_of
from svmcore.approximation import Approximation
from svmcore.errors import InputError, did_you_mean
from svmcore.kernels import Kernel, Linear
from svmcore.qp import Bias
from svmcore.solvers import SMO, Auto, Solver
from svmcore.sources import FactorRows
from svmcore.tasks import Task
from svmcore.tasks.losses import Hinge, SquaredHinge

PAIR = np.array([1.0, -1.0])  # targets of the smallest program of a machine
ELSEWHERE = ("name", "store", "cluster", "cache", "gate", "promote")  # what does not change the answer

__all__ = ["ELSEWHERE", "Experiment"]


class Experiment(Section):
    """One experiment, as the YAML file declares it; frozen, and complete with every default."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="letters, digits, '.', '_' and '-', no folder"
    )
    seed: int = Field(default=0, ge=0, lt=2**32, description="a whole number, 0 or more, below 2**32")
    data: Data = Field(description="a mapping with at least the key 'source'")
    task: Annotated[str, BeforeValidator(valid_task)] = Field(
        default="svc", description="svc, nu-svc, svr, nu-svr or one-class"
    )
    kernel: Annotated[dict[str, Any], BeforeValidator(valid_kernel)] = Field(
        default_factory=lambda: valid_kernel("rbf"), description="a kernel, such as {name: rbf, gamma: scale}"
    )
    loss: Literal["hinge", "squared_hinge"] = Field(default="hinge", description="hinge or squared_hinge")
    C: float = Field(default=1.0, gt=0, description="a positive number, or .inf for a hard margin")
    nu: float = Field(default=0.5, gt=0, le=1, description="a number above 0, at most 1")
    epsilon: float = Field(default=0.1, ge=0, lt=math.inf, description="a number, 0 or more, in units of the target")
    bias: Literal["free", "penalised", "none"] = Field(default="free", description="free, penalised or none")
    class_weight: Annotated[Literal["balanced"] | dict[Any, float] | None, BeforeValidator(valid_class_weight)] = Field(
        default=None, description="balanced, or a mapping of labels to positive weights"
    )
    multiclass: Literal["ovr", "ovo"] = Field(default="ovr", description="ovr or ovo")
    prove: float = Field(default=0.0, ge=0, le=1, description="a share of the test rows, 0 to 1")
    probability: bool = Field(default=False, description="true or false")
    solver: Annotated[dict[str, Any], BeforeValidator(valid_solver)] = Field(
        default_factory=lambda: valid_solver("auto"), description="a solver, such as {name: smo, tol: 1e-3}"
    )
    approximation: Annotated[dict[str, Any] | None, BeforeValidator(valid_approximation)] = Field(
        default=None, description="an approximation, such as {name: nystroem, rank: 2000}"
    )
    plan: Literal["auto", "resident", "columns", "shards"] = Field(
        default="auto", description="auto, resident, columns or shards"
    )
    cache: Cache = Field(default_factory=lambda: Cache())
    cluster: Cluster = Field(default_factory=lambda: Cluster())
    store: Annotated[str, BeforeValidator(absolute)] = Field(
        default="runs", validate_default=True, min_length=1, description="a path or s3://bucket/prefix"
    )
    scoring: Annotated[list[str] | None, BeforeValidator(valid_scoring)] = Field(
        default=None, description="the name of a scikit-learn scorer, or a list of such names"
    )
    gate: Gate | None = Field(default=None)
    promote: Alias | None = Field(default=None, description="an alias, such as champion")
    sweep: Sweep | None = Field(default=None)

    @model_validator(mode="after")
    def _pairing(self) -> Self:
        """Refuse keys that the task does not have, scores of another one, and a solver that does not admit it."""
        given, labelled = self.model_fields_set, self.data.label is not None
        kernel, approximation = self.build_kernel(), self.build_approximation()
        if approximation is not None:
            approximation.admits(kernel)
            if self.probability or self.prove:
                raise InputError("probability and prove are of the exact machine: leave approximation out, or them")
            kernel = Linear()  # of the factor's rows
        check_pairing(self.task, given, self.machine, self.build_solver(), kernel, self.C, labelled)
        self.kind.check_scores(self.scores, self.task, probability=self.probability)
        if self.sweep is not None:  # what is written back says which score it was
            object.__setattr__(self, "sweep", self.sweep.model_copy(update={"refit": self.refit}))
        return self

    @model_validator(mode="after")
    def _judged(self) -> Self:
        """Refuse a gate whose scores no run of this config has."""
        if (self.gate or self.promote) and self.sweep is not None and self.refit is None:
            raise InputError("gate and promote need a model; name a score in sweep.refit")
        known = [*self.scores, *(f"train_{name}" for name in self.scores), "mean_score"]
        for key in {**self.gate.min, **self.gate.drop} if self.gate else ():
            if key not in known:
                raise InputError(f"gate: unknown score {key!r}; known: {', '.join(known)}{did_you_mean(key, known)}")
            if key in self.scores and self.data.test is None:
                raise InputError(f"gate: {key} needs test rows; set data.test, or name train_{key}")
            if key == "mean_score" and self.sweep is None:
                raise InputError(f"gate: mean_score is of a sweep; name {self.scores[0]}, or add a sweep")
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

    @property
    def machine(self) -> Task:
        """What is trained: the task with its parameters."""
        return machine_of(dict(self))

    @property
    def kind(self) -> Kind:
        """What the task means to the pipeline."""
        return kind_of(self.task)

    @property
    def scores(self) -> list[str]:
        """Names of the scores that are counted, that which ranks points first."""
        names, refit = self._ranking()
        return names if refit is None else list(dict.fromkeys([refit, *names]))

    @property
    def refit(self) -> str | None:
        """The score whose best point is trained on all rows; None for no model."""
        return self._ranking()[1] if self.sweep is not None else None

    def _ranking(self) -> tuple[list[str], str | None]:
        sweep = self.sweep or Sweep()
        return ranking_of(self.task, self.scoring, sweep.refit, "refit" in sweep.model_fields_set)

    def build_approximation(self) -> Approximation | None:
        """Return what these keys put in place of K, if anything."""
        return None if self.approximation is None else Approximation.create(self.approximation)

    def build_solver(self) -> Solver:
        """Return the solver these keys declare."""
        return Solver.create(self.solver)

    def solver_for(self, n_features: int) -> Solver:
        """Return the solver for rows of so many features: of `auto`, the one that it chooses."""
        solver = self.build_solver()
        if not isinstance(solver, Auto):
            return solver
        kernel, hard = self.build_kernel(), math.isinf(self.C)
        if self.approximation is not None:
            return solver.for_factor(
                self.machine.program(FactorRows(np.eye(2)), PAIR, self.C), self.approximation["rank"]
            )
        near = not self.cluster.remote and self.plan != "shards"
        return solver.resolved(kernel, n_features, self.build_loss(), Bias(self.bias), hard, near)

    def with_solver_for(self, n_features: int) -> Self:
        """Return the same experiment with the solver chosen, as it is written down and repeated."""
        return self.model_copy(update={"solver": self.solver_for(n_features).spec()})

    def exact(self) -> Self:
        """Return the same experiment without its approximation, solved by pairs: they go on from any answer."""
        own = ("tol", "max_iter", "time_limit")
        solver = SMO(**{key: value for key, value in self.solver.items() if key in own})
        return self.model_copy(update={"approximation": None, "solver": solver.spec()})

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
            plain["sweep"]["refit"] = self.refit or False
        if self.data.label is None:
            plain["data"]["label"] = None
        return {key: value for key, value in plain.items() if key not in foreign_keys(self.task)}

    def to_yaml(self) -> str:
        """Return the resolved configuration as YAML, `${ENV}` as written, secrets hidden."""
        return yaml12.dump(self.to_dict())

    def fingerprint(self) -> str:
        """Sha256 over the keys that change the answer: not those of ELSEWHERE, nor the time limit.

        Sources count by their path; the bytes behind it are the dataset's fingerprint.
        """
        plain = self.model_dump(by_alias=True, exclude={*ELSEWHERE, *foreign_keys(self.task)})
        plain["solver"].pop("time_limit", None)
        for key, absent in (("plan", "auto"), ("approximation", None)):
            if plain[key] == absent:
                del plain[key]
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
            base["sweep"] = {"folds": self.sweep.folds, "refit": self.refit or False}
        return [(params, _point(base, params)) for params in combinations(self.sweep.grid, self.sweep.list_)]


def _point(base: Mapping[str, Any], params: Mapping[str, Any]) -> Experiment:
    """Build one point; what is wrong with it is said with its parameters."""
    where = f"sweep point {{{', '.join(f'{key}: {value}' for key, value in params.items())}}}"
    raw = {key: dict(value) if isinstance(value, dict) else value for key, value in base.items()}
    for key in sorted(params, key=lambda k: (not k.endswith(".name"), k)):
        set_key(raw, key, params[key], where)
    return Experiment.checked(raw, where)
