"""Decision values of the test rows: on threads of this process, or on the workers where the work is large.

Rows are cut at the same places everywhere, so that who computes them does not show in the last bit. The model travels
as a `Recipe`: a worker assembles it once from what is on storage, and so does the one that takes over from a dead
worker; a scattered model could die with its only holder.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.answers.problem import ProblemTask
from pipeline.answers.result import COEFFICIENTS, ProblemResult, read_answer, scratch
from pipeline.compute.workers import Workers
from pipeline.model.assemble import assemble
from pipeline.rows.dataset import open_dataset
from pipeline.storage.files import write_json
from pipeline.storage.leases import owned_folder
from svmcore.errors import InputError
from svmcore.model import Model
from svmcore.model.outputs import BLOCK

__all__ = ["Recipe", "decide_test_rows"]

# One core does 1e10 multiply-adds a second in float64: below ten seconds of one core, starting on workers and reading
# the support vectors in each (0.6 s) would cost what they save
LARGE = 1e11
TASK = 5e9  # multiply-adds of one task, half a second: what a killed worker costs, and how even the last ones end
RESULT_BYTES = 4 << 20
HERE_BYTES = 64 << 20  # of decision values at a time in this process


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a worker needs to assemble a model: where its problems are written down, and the digest of what comes out.

    It travels without the problems, which are as many as classes: they are in `file`, see `written`.

    Equal digests are equal models: the cache of a worker goes by it, because an answer that a time limit cut short is
    replaced under its own name by the next run.
    """

    dataset: str
    digest: str
    kernel: dict[str, Any] = dataclasses.field(compare=False)
    tasks: tuple[ProblemTask, ...] = dataclasses.field(compare=False)
    file: str = dataclasses.field(default="", compare=False)

    @classmethod
    def of(
        cls, dataset: Any, kernel: dict[str, Any], tasks: Sequence[ProblemTask], model: Model, support: Any
    ) -> "Recipe":
        """The recipe of what `scoring.assemble` returned for these tasks."""
        return cls(str(dataset.path), _digest(dataset, model, support), kernel, tuple(tasks))

    @contextlib.contextmanager
    def written(self) -> "Iterator[Recipe]":
        """The same with its problems in a file of the cache, which goes at the end."""
        with owned_folder(Path(self.tasks[0].root) / "live") as folder:
            path = folder / "recipe.json"
            write_json(path, [dataclasses.asdict(task) for task in self.tasks])
            yield dataclasses.replace(self, tasks=(), file=str(path))

    def read(self) -> list[ProblemTask]:
        """The problems, on a worker."""
        try:
            return [ProblemTask(**facts) for facts in json.loads(Path(self.file).read_text())]
        except FileNotFoundError:
            raise _unseen(Path(self.file).parent, "does not see") from None


def decide_test_rows(
    dataset: Any,
    model: Model,
    progress: Callable[..., None],
    workers: Workers | None = None,
    recipe: Recipe | None = None,
) -> Any:
    """Decision values (n_test, k) of the test rows, in a file of the cache where they are many.

    Parameters
    ----------
    progress
        Called as `progress("score", done, total)` in rows, as parts are finished.
    workers, recipe
        Who computes if the work is large, and the model for them; without, threads of this process do.
    """
    found, done = scratch(Path(dataset.path).parent, (dataset.n_test, len(model.bias))), 0
    for rows, decision in _decisions(dataset, model, workers, recipe):
        found[rows] = decision
        done += len(decision)
        progress("score", done, dataset.n_test)
    return found


def _decisions(
    dataset: Any, model: Model, workers: Workers | None, recipe: Recipe | None
) -> Iterator[tuple[slice, Any]]:
    """Yield (rows, decision values (len(rows), k)) of all test rows, in any order."""
    cost = _cost(model)
    if workers is None or recipe is None or dataset.n_test * cost < LARGE:
        for start, stop in _ranges(dataset.n_test, int(min(dataset.test_step, HERE_BYTES / (8 * len(model.bias))))):
            yield slice(start, stop), model.decision_function(dataset.test_rows(start, stop))
        return
    most = min(dataset.test_step, TASK / max(1.0, cost), RESULT_BYTES / (8 * len(model.bias)))
    with recipe.written() as short:
        tasks = [_PartTask(short, *part) for part in _ranges(dataset.n_test, int(most))]
        for index, decision in workers.map(_decide_part, tasks):
            yield slice(tasks[index].start, tasks[index].stop), decision


def _cost(model: Model) -> float:
    """Multiply-adds of one test row: support vectors x features, of sparse ones the entries that are there."""
    rows = model.support_vectors
    return float(rows.size if isinstance(rows, np.ndarray) else rows.nnz)


def _ranges(n: int, most: int) -> list[tuple[int, int]]:
    """Row ranges of whole blocks, of at most `most` rows unless a block is more.

    >>> _ranges(3000, 2000)
    [(0, 1920), (1920, 3000)]
    """
    step = max(1, most // BLOCK) * BLOCK
    return [(start, min(start + step, n)) for start in range(0, n, step)]


# --- on a worker ----------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class _PartTask:
    """Test rows start ... stop - 1; `start` is a multiple of the block."""

    recipe: Recipe
    start: int
    stop: int


def _decide_part(task: _PartTask) -> Any:
    """Decision values (stop - start, k), on a worker: one task is one core's."""
    dataset, model = _assembled(task.recipe)
    return model.decision_function(dataset.test_rows(task.start, task.stop))


@functools.lru_cache(maxsize=1)
def _assembled(recipe: Recipe) -> tuple[Any, Model]:
    """The dataset and the model, once per process."""
    tasks = recipe.read()
    if not Path(recipe.dataset).is_dir():
        raise _unseen(Path(recipe.dataset), "does not see")
    dataset = open_dataset(recipe.dataset)
    answers = [_answer(task) for task in tasks]
    model, support = assemble(dataset, recipe.kernel, tasks, answers)
    if _digest(dataset, model, support) != recipe.digest:
        raise _unseen(tasks[0].file.parent, "sees other answers in")
    return dataset, model


def _answer(task: ProblemTask) -> ProblemResult:
    """Of a task, without what only the next problem of its chain needs."""
    try:
        return read_answer(task, COEFFICIENTS)[0]
    except FileNotFoundError:
        raise _unseen(task.file, "does not see") from None


def _unseen(path: Path, how: str) -> InputError:
    return InputError(
        f"worker on host {socket.gethostname()} {how} {path}; "
        "set store to a folder that every host of the cluster shares"
    )


def _digest(dataset: Any, model: Model, support: Any) -> str:
    """Sha256 of all that decision values depend on."""
    found = hashlib.sha256(json.dumps([dataset.fingerprint, model.kernel.spec(), model.scheme]).encode())
    for values in (np.asarray(support, np.int64), model.coef, model.bias):
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()
