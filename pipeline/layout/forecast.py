"""What a run will take, before it is run: bytes from the shapes, seconds from this machine and a sample of the data.

The same at the start of every run as in `marginflow plan`.
"""

import contextlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from pipeline.answers.result import seems_answered
from pipeline.config.quantities import size
from pipeline.config.schema import Experiment
from pipeline.kernel.choose import holds_all
from pipeline.kernel.strips import in_whole_rows
from pipeline.layout.needs import check_fits, needed_bytes
from pipeline.layout.parts import Part, bundles, whole
from pipeline.layout.probe import PROBLEM, Sample, block_seconds, exact_seconds, seconds_of, summed_seconds
from pipeline.layout.rates import Rates, rates
from pipeline.layout.shards import Layout, solve_seconds
from pipeline.rows import dataset as datasets
from pipeline.storage.manifest import MANIFEST
from svmcore.runtime.threads import n_threads
from svmcore.solvers.shrinking import LEAST, WORTH_BYTES

__all__ = ["fitting", "forecast"]

SAMPLED = 3  # parts, and chains of each, that are tried on a sample
PROCESS_SECONDS = {"inline": 0.2}  # to have workers; local ones start as processes
REPORT_SECONDS = 0.7  # to draw and publish the report
PLANS = ("resident", "columns", "shards")
STAGES = ("start", "kernel", "solve", "score")
STREAMED, FILED = 1.6, 1.2  # strips of K against the small block and the small file that were timed,
RUNS = 0.3  # and whole rows against that file
LOADED = 0.4  # seconds until new workers have loaded what makes a block
SOLVED = 2.5e-11  # seconds of one thread for a number of a factor, times its rank: the product with L^-1
EPOCHS, SUPPORT_EPOCHS = 40.0, 650.0  # visits of all rows that a problem on a factor is worth, and of its support
LANDMARK = {"kmeans": 3e-4, "rpcholesky": 8e-4}  # seconds to choose one, where it is not merely drawn
COLUMN_WASTE = 1.5  # columns computed on demand for each support vector
NEAR = 4.0  # rows for each support vector that a solver looks at, where it leaves rows out
ASKED = 0.05  # seconds until problems are under way on workers, and the last is told
SCORED = 0.7  # a value of a decision against an exact one: most rows are told by less
OWN = 1.0  # values of all rows that a problem solved on a part of the rows is worth, for each of its support vectors,
PASSES = 1.5  # and that passes over all rows compute for each of any problem's
MODEL_SECONDS = 0.15  # to assemble, judge and store a model,
STORED = 6e-8  # and for each number of its support vectors
FRESH = 2e-9  # seconds of a value in memory that was not touched before: between 0.7e-9 and 7e-9 on virtual machines


def forecast(exp: Experiment, root: Path, parts: Sequence[Part], workers: int | None = None) -> dict[str, Any]:
    """Plan of a run whose kernels and problems are laid out, on another number of `workers` if given.

    Raises
    ------
    MemoryLimit
        If it cannot fit: memory of a worker or of this node, or the disk.
    """
    found = fitting(exp, root, parts) | _evaluations(parts) | _found(parts)
    seconds, alternatives = _seconds(exp, parts, workers)
    return found | {"alternatives": alternatives, "why": _why(exp, parts), "seconds": seconds}


def fitting(exp: Experiment, root: Path, parts: Sequence[Part]) -> dict[str, Any]:
    """Counts and bytes of a run; raises as `forecast` does."""
    data = parts[0].data
    found = {
        "plan": " and ".join(sorted({part.plan.plan for part in parts})),
        "points": len({index for part in parts for index in part.tasks}),
        "kernels": len(parts),
        "problems": sum(len(chain) for part in parts for chain in part.chains) + _refitted(exp, parts),
        "n_train": data.n_train,
        "n_merged": data.n_merged,
        "n_features": data.n_features,
        **needed_bytes(exp, parts),
    }
    check_fits(exp, root, parts, found)
    return found


def _why(exp: Experiment, parts: Sequence[Part]) -> str:
    """Why K is held as it is."""
    part = max(parts, key=lambda part: part.kernel_bytes)
    if part.plan.plan == "factor":
        return f"the config asks for an approximation, whose factor needs {size(part.kernel_bytes)}"
    if exp.plan == "columns":
        return _why_columns(part)
    if exp.plan != "auto":
        return f"the config says plan: {exp.plan}, or no host but this one sees the store's folder"
    budget = min(exp.cache.limit, exp.cache.disk)
    fits = "fits" if part.kernel_bytes <= budget else "does not fit"
    where = "other hosts may compute" if exp.cluster.remote else "the workers are of this host"
    return f"K needs {size(part.kernel_bytes)} and {fits} {size(budget)} of cache; {where}"


def _why_columns(part: Part) -> str:
    """Why columns are computed in this process, by the config's own plan or by the one chosen for a single point."""
    if not part.plan.holds_all:
        return "the config says plan: columns, or its few problems need few columns of K, which none but they will read"
    return (
        f"K needs {size(part.kernel_bytes)}, which this process holds for its problems: no workers start, and nothing "
        "is written"
    )


def _refitted(exp: Experiment, parts: Sequence[Part]) -> int:
    """Problems of the best point on all rows."""
    if exp.refit is None:
        return 0
    return exp.kind.n_goals(len(parts[0].data.classes), exp.multiclass)


# --- work -----------------------------------------------------------------------------------------------------------
def _evaluations(parts: Sequence[Part]) -> dict[str, int]:
    """Entries of K computed, each pair once, and what a kernel for every problem alone would add."""
    pairs = [_entries(part) for part in parts]
    alone = [count * sum(map(len, part.chains)) for count, part in zip(pairs, parts, strict=True)]
    return {"kernel_evaluations": sum(pairs), "kernel_evaluations_saved": sum(alone) - sum(pairs)}


def _entries(part: Part) -> int:
    """Different entries of K, or those of its factor."""
    n = part.data.n_merged
    return n * (n + 1) // 2 if part.plan.plan != "factor" else part.plan.values(n)


def _found(parts: Sequence[Part]) -> dict[str, int]:
    """What earlier runs have left: it is checked, and not made again."""
    return {
        "kernels_found": sum(map(_has_kernel, parts)),
        "problems_found": sum(seems_answered(task) for part in parts for chain in part.chains for task in chain),
    }


def _has_kernel(part: Part) -> bool:
    return part.plan.gram is not None and (Path(part.plan.gram) / MANIFEST).is_file()


# --- seconds --------------------------------------------------------------------------------------------------------
def _seconds(exp: Experiment, parts: Sequence[Part], workers: int | None) -> tuple[dict[str, float], dict[str, float]]:
    """Of the work that is left, by stage, on a machine as busy as now; kernel and solve are shared among workers.

    And of kernel and solve as each plan would need them for all of the work.
    """
    open_ = [[chain for chain in part.chains if not all(map(seems_answered, chain))] for part in parts]
    threads = max(1, min(exp.cluster.most_workers or n_threads(), n_threads()))
    tried = {int(k) for k in np.linspace(0, len(parts) - 1, min(len(parts), SAMPLED)).round()}
    samples = {k: _part_seconds(parts[k], threads, workers or threads) for k in tried}
    kernel = solve = score = 0.0
    plans = dict.fromkeys([*PLANS, *(part.plan.plan for part in parts)])
    alternatives = dict.fromkeys(plans, 0.0)
    for k, (part, todo) in enumerate(zip(parts, open_, strict=True)):
        near = samples[min(samples, key=lambda other: abs(other - k))]
        share = len(todo) / max(1, len(part.chains))
        kernel += near["kernel"] if todo and not _has_kernel(part) else 0.0
        solve += share * near["solve"]
        score += near["score"]
        for name in plans:
            alternatives[name] += near.get(name, 0.0)
    kernel *= _shared_products(exp, parts)
    solve += _refitted(exp, parts) * max(near["problem"] for near in samples.values()) / threads
    score += MODEL_SECONDS if exp.sweep is None or exp.refit is not None else 0.0
    start = REPORT_SECONDS + (_workers_seconds(exp, threads) if any(open_) and _asks_workers(exp, parts) else 0.0)
    busy = _slowdown(threads)
    stages = {name: busy * value for name, value in zip(STAGES, (start, kernel, solve, score), strict=True)}
    stages |= {"total": sum(stages.values())}
    return _rounded(stages), _rounded({name: busy * value for name, value in alternatives.items()})


def _asks_workers(exp: Experiment, parts: Sequence[Part]) -> bool:
    """Whether workers are started: columns of K are computed where they are asked for, unless that is elsewhere."""
    return exp.cluster.remote or any(part.plan.plan != "columns" for part in parts)


def _workers_seconds(exp: Experiment, threads: int) -> float:
    """Until there are workers."""
    return PROCESS_SECONDS.get(exp.cluster.kind, 1.5 + 0.5 * threads)


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}


def _slowdown(threads: int) -> float:
    """How much longer `threads` of ours take beside what else runs now, and has for a minute."""
    others = 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):
        others = psutil.getloadavg()[0]
        running = Path("/proc/loadavg").read_text().split()[3].split("/")[0]
        others = min(others, int(running) - 1.0)
    return max(1.0, (others + threads) / (os.cpu_count() or 1))


def _part_seconds(part: Part, threads: int, workers: int) -> dict[str, float]:
    dataset = datasets.open_dataset(part.data.path)
    rate, sample = rates(), Sample(dataset, part.group.kernel)
    chains = part.chains
    tried = [chains[int(k)] for k in np.linspace(0, len(chains) - 1, min(len(chains), SAMPLED)).round()]
    works = [sample.work(chain) for chain in tried]
    entry, scored = block_seconds(dataset, [part.group.kernel], part.plan.dtype), exact_seconds(dataset, sample.kernel)
    exact = 0.0 if part.group.kernel.is_linear else scored  # a linear kernel is proved through its weights
    summed = summed_seconds(dataset, sample.kernel) if sample.computes_anew else None
    anew = None if summed is None else summed * min(threads, len(chains)) / threads  # shared by the threads left
    each, near = (
        sum(seconds_of(work, dataset.n_merged, rate, exact, *how) for work in works) / len(works)
        for how in ((math.inf, None), (NEAR if dataset.n_merged >= LEAST else math.inf, anew))
    )
    support = sum(max(work.support) for work in works) / len(works)
    union = min(dataset.n_merged, support * len({chain[0].target for chain in chains}))
    n = dataset.n_merged
    problem = each / len(tried[0])
    at = Layout(n, dataset.n_features, workers, threads)
    kernel = LOADED + n * n * (FRESH + _value_seconds(dataset, part, entry, rate.strip) / workers)
    ways = {
        "resident": (kernel, ASKED + len(chains) * each / min(workers, len(chains)) + union * n * rate.fault / threads),
        "columns": _columns_seconds(part, threads, entry, (each, near), (support, union), summed),
        "shards": (0.0, solve_seconds(at, works, len(chains), union, entry + FRESH, exact, rate)),
    }
    found = {name: sum(way) for name, way in ways.items()}
    if part.plan.plan == "factor":
        return found | _factor_seconds(part, threads, workers, (entry, scored), rate, support, union)
    kernel, solve = ways[part.plan.plan]
    score = PROBLEM / 16 * sum(map(len, chains)) + SCORED * dataset.n_test * union * scored / threads
    score += STORED * union * dataset.n_features
    return found | {"problem": problem, "kernel": kernel, "solve": solve, "score": score}


def _value_seconds(dataset: Any, part: Part, entry: float, strip: float) -> float:
    """Of a value of K on storage: computed for two and written with its mirror image, or each in whole rows."""
    if in_whole_rows(dataset, part.group.kernel, part.plan.dtype):
        return entry + RUNS * strip
    return 0.5 * (STREAMED * entry + FILED * strip)


def _columns_seconds(
    part: Part,
    threads: int,
    entry: float,
    chain: tuple[float, float],
    rows: tuple[float, float],
    summed: float | None,
) -> tuple[float, float]:
    """Of K and of its problems where columns are computed in this process: all at once, or as problems ask for them.

    `chain` are seconds of a chain on a K that is there, of all rows and of those nearest to its support; `rows` those
    that support a problem, and those that support any. Large problems leave rows out, and share their passes over all
    rows; so do those whose values are `summed`, in so many seconds each, as they are computed.
    """
    n, count, (support, union), (each, near) = part.data.n_merged, len(part.chains), rows, chain
    if holds_all(part.group.points[0].exp, part.data):
        return n * n * (0.5 * entry / threads + FRESH), count * each / min(threads, count)
    if summed is not None or support * n * np.dtype(part.plan.dtype).itemsize >= WORTH_BYTES:
        value = entry if summed is None else summed
        return 0.0, count * near / min(threads, count) + (OWN * count * support + PASSES * union) * n * value / threads
    return 0.0, count * each + COLUMN_WASTE * union * n * (entry / threads + FRESH)


def _factor_seconds(
    part: Part, threads: int, workers: int, each: tuple[float, float], rate: Rates, support: float, union: float
) -> dict[str, float]:
    """Of a factor, its problems and their proof.

    `each` are seconds of a value of K in the factor's type and in float64; `support` are the rows that support a
    problem, and `union` those that support any.
    """
    (entry, exact), numbers, chains, n = each, _entries(part), part.chains, part.data.n_merged
    rank, about = numbers / n, part.plan.approximation or {}
    problem = numbers * (EPOCHS + SUPPORT_EPOCHS * support / n) * rate.entry
    chosen = LANDMARK.get(about.get("landmarks", ""), 0.0) * rank  # others' approximations need have none
    kernel = LOADED + chosen + numbers * (entry + SOLVED * rank + rate.strip) / workers
    solve = problem * sum(map(len, chains)) / min(threads, len(chains))
    score = (numbers + union * rank + 0.5 * union**2) * exact / threads
    return {"factor": kernel + solve, "problem": problem, "kernel": kernel, "solve": solve, "score": score}


def _shared_products(exp: Experiment, parts: Sequence[Part]) -> float:
    """Kernel seconds of all parts together, relative to one by one: bundles share their inner products."""
    alone = together = 0.0
    for bundle in bundles(exp, whole(parts)):
        first = bundle[0][0]
        if first.plan.plan != "resident":
            continue
        dataset = datasets.open_dataset(first.data.path)
        kernels = [part.group.kernel for part, _ in bundle]
        alone += sum(block_seconds(dataset, [kernel], first.plan.dtype) for kernel in kernels)
        together += block_seconds(dataset, kernels, first.plan.dtype)
    return together / alone if alone > 0 else 1.0
