"""Which K an experiment needs and how it is held: on storage, mapped, or as columns on demand. Computes nothing."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config.schema import Experiment
from pipeline.kernel.gram import columns_fingerprint, gram_fingerprint, gram_folder
from svmcore.train.plan import served_kernel

__all__ = ["KernelPlan", "choose_plan", "plan_kernel"]


@dataclasses.dataclass(frozen=True)
class KernelPlan:
    """The kernel with numbers for its parameters, and where its values are: a Gram on storage, or nowhere yet."""

    plan: str  # resident: K on storage, mapped;  columns: computed on demand, cached
    kernel: dict[str, Any]  # of the model; K is of its `served_kernel`
    dtype: str
    kernel_id: str
    gram: str | None


def plan_kernel(exp: Experiment, dataset: Any, root: Path) -> KernelPlan:
    """Which K an experiment needs, and where it is or will be: nothing is computed."""
    resolved = exp.build_kernel().resolved(dataset.n_features, dataset.variance)
    served = served_kernel(resolved, exp.machine)
    dtype = np.dtype(exp.solver_for(dataset.n_features).column_dtype)
    plan = choose_plan(exp, dataset, dtype.itemsize)
    if plan == "columns":
        return KernelPlan(plan, resolved.spec(), dtype.name, columns_fingerprint(dataset, served, dtype), None)
    kernel_id = gram_fingerprint(dataset, served, dtype)
    gram = str(gram_folder(root, kernel_id))
    return KernelPlan(plan, resolved.spec(), dtype.name, kernel_id, gram)


def choose_plan(exp: Experiment, dataset: Any, itemsize: int) -> str:
    """Return resident if K (n, n) fits both budgets (memory to map it into, disk to lie on); else columns.

    A solver of linear classifiers needs the rows behind the columns, which a K on storage does not have.
    """
    fits = dataset.n_merged**2 * itemsize <= min(exp.cache.limit, exp.cache.disk)
    return "resident" if fits and not exp.solver_for(dataset.n_features).solves.linear_only else "columns"
