"""Which K an experiment needs and how it is held: on storage, mapped, or as columns here, all or on demand.

Computes nothing.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pipeline.config.quantities import size
from pipeline.config.schema import Experiment
from pipeline.kernel.factor import factor_fingerprint
from pipeline.kernel.gram import columns_fingerprint, gram_fingerprint, gram_folder
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.solvers import Solver
from svmcore.train.posing.plan import SMALL_BYTES, choose_plan, served_kernel

__all__ = ["KernelPlan", "asked_or_chosen", "held_as", "holds_all", "plan_kernel", "planned_alone"]

FINE = 1e-3  # a tol below which float32 values of a factor do not do
EXACT_ROWS = 1024  # up to so many rows float64 values cost nothing


@dataclasses.dataclass(frozen=True)
class KernelPlan:
    """The kernel with numbers for its parameters, and where its values are: a Gram on storage, or nowhere yet."""

    plan: str  # resident: K on storage, mapped;  columns: on demand;  shards: those of their rows;  factor: G, mapped
    kernel: dict[str, Any]  # of the model; K is of its `served_kernel`
    dtype: str
    kernel_id: str
    gram: str | None
    approximation: dict[str, Any] | None = None
    holds_all: bool = False  # of columns: this process computes all of them at once, and holds them

    def values(self, n: int) -> int:
        """Numbers of a K of `n` rows, or of its factor."""
        return n * (n if self.approximation is None else min(n, int(self.approximation["rank"])))


def held_as(exp: Experiment, dataset: Any) -> tuple[str, Kernel, np.dtype]:
    """How the K of an experiment is held: plan, the kernel of its values, and their type.

    Raises
    ------
    InputError
        As `asked_or_chosen`.
    """
    resolved = exp.build_kernel().resolved(dataset.n_features, dataset.variance)
    if exp.approximation is not None:
        if exp.plan != "auto":
            raise InputError(f"plan: {exp.plan} holds K itself; with an approximation, leave plan out")
        precise = exp.tol < FINE or dataset.n_merged <= EXACT_ROWS
        return "factor", resolved, np.dtype(np.float64 if precise else np.float32)
    dtype = np.dtype(exp.solver_for(dataset.n_features).column_dtype)
    return asked_or_chosen(exp, dataset, dtype), served_kernel(resolved, exp.machine), dtype


def plan_kernel(exp: Experiment, dataset: Any, root: Path) -> KernelPlan:
    """Which K an experiment needs, and where it is or will be: nothing is computed."""
    plan, served, dtype = held_as(exp, dataset)
    spec = exp.build_kernel().resolved(dataset.n_features, dataset.variance).spec()
    approximation = exp.build_approximation()
    if approximation is not None:
        kernel_id = factor_fingerprint(dataset, served, approximation, dtype)
        about = approximation.spec()
        return KernelPlan(plan, spec, dtype.name, kernel_id, str(gram_folder(root, kernel_id)), about)
    if plan != "resident":
        kernel_id = columns_fingerprint(dataset, served, dtype, plan)
        return KernelPlan(plan, spec, dtype.name, kernel_id, None, None, plan == "columns" and holds_all(exp, dataset))
    kernel_id = gram_fingerprint(dataset, served, dtype)
    return KernelPlan(plan, spec, dtype.name, kernel_id, str(gram_folder(root, kernel_id)))


def planned_alone(exp: Experiment, data: Any) -> Experiment:
    """The experiment of one point on `data`, with columns for its plan where it would map a K that is not small.

    A K on storage serves the points and folds of a sweep; one point is solved before that is written. Few problems
    need few columns, and several have all of them here: see `holds_all`. Workers that may be other hosts have K, or
    shards, all the same.
    """
    dtype = exp.solver_for(data.n_features).column_dtype
    here = exp.plan == "auto" and exp.approximation is None and not exp.cluster.remote
    if not here or asked_or_chosen(exp, data, dtype) != "resident":
        return exp
    plan = choose_plan(data.n_merged, dtype, budget=0, small=SMALL_BYTES)
    return exp.model_copy(update={"plan": plan}) if plan == "columns" else exp


def holds_all(exp: Experiment, data: Any) -> bool:
    """Whether columns are all computed at once and held in this process: they fit, and several problems share them.

    A cache of columns is for one thread, and computes what one problem asks for, while a K in memory serves problems
    on all threads. A solver of linear classifiers takes rows.
    """
    solver = exp.solver_for(data.n_features)
    if exp.cluster.remote or solver.solves.linear_only:
        return False
    n_problems = exp.kind.n_goals(len(data.classes), exp.multiclass)
    return choose_plan(data.n_merged, solver.column_dtype, exp.cache.limit, n_problems) == "resident"


def asked_or_chosen(exp: Experiment, dataset: Any, dtype: DTypeLike) -> str:
    """The plan that the config asks for; auto is what fits both budgets: memory to map K into, disk to lie on.

    Rows go in shards where workers may be other hosts. A solver of linear classifiers needs the rows behind the
    columns, which a K on storage does not have.

    Raises
    ------
    InputError
        If the config names a plan that its solver cannot work on, or a K that does not fit.
    """
    solves, budget = exp.solver_for(dataset.n_features).solves, min(exp.cache.limit, exp.cache.disk)
    fits = not solves.linear_only and choose_plan(dataset.n_merged, dtype, budget) == "resident"
    if exp.plan == "auto":
        otherwise = "shards" if exp.cluster.remote and solves.shards else "columns"
        return "resident" if fits else otherwise
    if exp.plan == "shards" and not solves.shards:
        able = ", ".join(name for name in Solver.names() if Solver.named(name).solves.shards)
        raise InputError(f"plan: shards is for solver {able}, not {exp.solver['name']}; set solver.name: {able}")
    if exp.plan == "resident" and not fits:
        needed = dataset.n_merged**2 * np.dtype(dtype).itemsize
        raise InputError(
            f"plan: resident needs {size(needed)} for K, and cache allows {size(budget)}; raise cache.limit and "
            "cache.disk, or set plan: auto"
        )
    return exp.plan
