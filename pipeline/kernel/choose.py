"""Which K an experiment needs and how it is held: on storage, mapped, or as columns on demand. Computes nothing."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config.quantities import size
from pipeline.config.schema import Experiment
from pipeline.kernel.gram import columns_fingerprint, gram_fingerprint, gram_folder
from svmcore.errors import InputError
from svmcore.kernels import Kernel
from svmcore.solvers import Solver
from svmcore.tasks import Task

__all__ = ["KernelPlan", "choose_plan", "plan_kernel", "served_kernel"]


@dataclasses.dataclass(frozen=True)
class KernelPlan:
    """The kernel with numbers for its parameters, and where its values are: a Gram on storage, or nowhere yet."""

    plan: str  # resident: K on storage, mapped;  columns: computed on demand, cached;  shards: those of their rows
    kernel: dict[str, Any]  # of the model; K is of its `served_kernel`
    dtype: str
    kernel_id: str
    gram: str | None


def served_kernel(kernel: Kernel, machine: Task) -> Kernel:
    """The kernel that K is computed of: centred where the coefficients sum to 0, which leaves the program the same."""
    return kernel.centred() if machine.can_centre else kernel


def plan_kernel(exp: Experiment, dataset: Any, root: Path) -> KernelPlan:
    """Which K an experiment needs, and where it is or will be: nothing is computed."""
    resolved = exp.build_kernel().resolved(dataset.n_features, dataset.variance)
    served = served_kernel(resolved, exp.machine)
    dtype = np.dtype(exp.solver_for(dataset.n_features).column_dtype)
    plan = choose_plan(exp, dataset, dtype.itemsize)
    if plan != "resident":
        return KernelPlan(plan, resolved.spec(), dtype.name, columns_fingerprint(dataset, served, dtype, plan), None)
    kernel_id = gram_fingerprint(dataset, served, dtype)
    gram = str(gram_folder(root, kernel_id))
    return KernelPlan(plan, resolved.spec(), dtype.name, kernel_id, gram)


def choose_plan(exp: Experiment, dataset: Any, itemsize: int) -> str:
    """Return resident if K (n, n) fits both budgets (memory to map it into, disk to lie on); else columns or shards.

    Rows go in shards where workers may be other hosts. A solver of linear classifiers needs the rows behind the
    columns, which a K on storage does not have.

    Raises
    ------
    InputError
        If the config names a plan that its solver cannot work on, or a K that does not fit.
    """
    solves, needed = exp.solver_for(dataset.n_features).solves, dataset.n_merged**2 * itemsize
    budget = min(exp.cache.limit, exp.cache.disk)
    if exp.plan == "auto" and needed <= budget and not solves.linear_only:
        return "resident"
    if exp.plan == "auto":
        return "shards" if exp.cluster.remote and solves.shards else "columns"
    if exp.plan == "shards" and not solves.shards:
        able = ", ".join(name for name in Solver.names() if Solver.named(name).solves.shards)
        raise InputError(f"plan: shards is for solver {able}, not {exp.solver['name']}; set solver.name: {able}")
    if exp.plan == "resident" and (needed > budget or solves.linear_only):
        raise InputError(
            f"plan: resident needs {size(needed)} for K, and cache allows {size(budget)}; raise cache.limit and "
            "cache.disk, or set plan: auto"
        )
    return exp.plan
