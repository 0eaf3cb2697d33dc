import dataclasses
import os
import pickle
import signal

import numpy as np
import pytest
from scipy import sparse

from pipeline import run
from pipeline.answers.result import read_result
from pipeline.compute.progress import silent
from pipeline.compute.workers import DaskWorkers, never
from pipeline.config.load import load_experiment
from pipeline.model import assemble as scoring
from pipeline.model import decisions
from pipeline.model.decisions import Recipe, decide_test_rows
from pipeline.rows.dataset import open_dataset
from pipeline.running.batch import lay_out, solve
from pipeline.running.session import open_session
from pipeline.storage.runs import open_store
from svmcore.errors import InputError
from svmcore.runtime import threads as thread_pool

N_TEST = 1000  # not a multiple of the block


@dataclasses.dataclass
class Solved:
    """A dataset, the model trained on it and the model's recipe."""

    dataset: object
    model: object
    recipe: Recipe

    def scored(self, workers=None, progress=silent):
        return decide_test_rows(self.dataset, self.model, progress, workers, self.recipe)


def rows_at(path, n, n_classes, seed):
    """Overlapping classes, so that many rows are support vectors; three of thirty values of a row where sparse."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, 30)) + 0.5 * y[:, None]
    if path.suffix == ".libsvm":
        kept = [np.sort(rng.choice(30, 2, replace=False)) for _ in range(n)]
        lines = [f"{y[i]} " + " ".join(f"{j + 1}:{X[i, j]:.6f}" for j in kept[i]) for i in range(n)]
        path.write_text("\n".join(lines) + "\n")
    else:
        np.savez(path, X=X, y=y)
    return str(path)


def config_at(folder, n_classes, ending):
    source = rows_at(folder / f"train.{ending}", 300, n_classes, 0)
    test = rows_at(folder / f"test.{ending}", N_TEST, n_classes, 1)
    return {"data": {"source": source, "test": test}, "kernel": {"name": "rbf", "gamma": 0.1}}


@pytest.fixture(scope="module", params=[(2, "npz"), (3, "npz"), (2, "libsvm")], ids=str)
def solved(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("decisions")
    given = config_at(folder, *request.param) | {"cluster": {"kind": "inline"}}
    with open_session(load_experiment(given), open_store(str(folder / "store"))) as session:
        batch = lay_out(session)
        solve(session, batch)
        (part,) = batch.parts
        ((tasks,),) = part.tasks.values()
        dataset, kernel = open_dataset(part.data.path), part.plan.kernel
        model, support = scoring.assemble(dataset, kernel, tasks, [read_result(task) for task in tasks])
        yield Solved(dataset, model, Recipe.of(dataset, kernel, tasks, model, support))


@pytest.fixture
def large(monkeypatch):
    """Whatever there is counts as large, and a task is one block."""
    monkeypatch.setattr(decisions, "LARGE", 0.0)
    monkeypatch.setattr(decisions, "TASK", 0.0)


@pytest.fixture
def mapped(monkeypatch):
    """Names of the functions that went to Dask workers."""
    names, original = [], DaskWorkers.map

    def spied(self, fn, items, retries=2, sign=never, near=None):
        names.append(getattr(fn, "__name__", "partial"))
        return original(self, fn, items, retries, sign, near)

    monkeypatch.setattr(DaskWorkers, "map", spied)
    return names


def assert_same(found, expected):
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_workers__give_the_values_of_threads_to_the_last_bit(solved, large, mapped, two_workers):
    here = solved.scored()
    assert mapped == []
    assert_same(solved.scored(two_workers), here)
    assert mapped == ["_decide_part"]


def test_workers__get_tasks_of_one_size_however_many_classes(solved, large, monkeypatch):
    """A task named every problem: 1,000 classes were 700 kB a task."""
    sent = []
    monkeypatch.setattr(DaskWorkers, "__init__", lambda self: None)
    monkeypatch.setattr(DaskWorkers, "map", lambda self, fn, items: sent.append(len(pickle.dumps(items[0]))) or [])
    many = dataclasses.replace(solved.recipe, tasks=solved.recipe.tasks * 300)
    for recipe in (solved.recipe, many):
        dataclasses.replace(solved, recipe=recipe).scored(DaskWorkers())
    assert sent[0] == sent[1] < 1500


def test_values__do_not_depend_on_the_number_of_threads(solved, monkeypatch):
    found = []
    for count in (1, 3):
        monkeypatch.setattr(thread_pool, "n_threads", lambda count=count: count)
        found.append(solved.scored())
    assert_same(*found)


def test_values__are_those_of_the_model(solved):
    X = sparse.vstack if solved.dataset.sparse else np.concatenate
    X = X([part for part, _ in solved.dataset.test_blocks()])
    values = solved.scored()
    assert solved.dataset.sparse == sparse.issparse(X)
    assert len(values) == N_TEST
    np.testing.assert_allclose(values, solved.model.decision_function(X), atol=1e-12)


def test_workers__are_left_alone_when_the_work_is_small(solved, mapped, two_workers):
    assert_same(solved.scored(two_workers), solved.scored())
    assert mapped == []


def test_progress__counts_rows_up_to_all(solved, large, two_workers):
    told = []
    solved.scored(two_workers, lambda *args: told.append(args))
    done = [args[1] for args in told]
    assert len(done) == -(-N_TEST // decisions.BLOCK)
    assert done == sorted(done)
    assert told[-1] == ("score", N_TEST, N_TEST)


@pytest.mark.parametrize("solved", [(2, "npz")], ids=["npz"], indirect=True)
def test_workers__one_killed_midway_costs_its_blocks_only(solved, large, two_workers, monkeypatch):
    monkeypatch.setattr(decisions, "BLOCK", 2)  # 500 tasks: most are to come when the worker dies
    pairs = range(0, N_TEST, 2)
    expected = np.concatenate([solved.model.decision_function(solved.dataset.test_rows(i, i + 2)) for i in pairs])
    victim = []

    def kill_once(stage, done, total):
        if not victim:
            victim.append(next(iter(two_workers.client.run(os.getpid).values())))
            os.kill(victim[0], signal.SIGKILL)

    found = solved.scored(two_workers, kill_once)
    two_workers.client.wait_for_workers(2)
    assert victim[0] not in two_workers.client.run(os.getpid).values()
    assert_same(found, expected)


def test_workers__that_would_assemble_another_model_are_refused(solved, large, two_workers):
    other = dataclasses.replace(solved, recipe=dataclasses.replace(solved.recipe, digest="other"))
    with pytest.raises(InputError, match="sees other answers in"):
        other.scored(two_workers)


def test_workers__that_do_not_see_the_store_are_refused(solved, large, two_workers, tmp_path):
    elsewhere = tuple(dataclasses.replace(task, root=str(tmp_path)) for task in solved.recipe.tasks)
    recipe = dataclasses.replace(solved.recipe, digest="elsewhere", tasks=elsewhere)
    with pytest.raises(InputError, match="set store to a folder that every host of the cluster shares"):
        dataclasses.replace(solved, recipe=recipe).scored(two_workers)


@pytest.mark.parametrize("sweep", [None, {"grid": {"C": [1, 10]}}], ids=["run", "batch"])
def test_run__scores_large_test_sets_on_its_workers(
    sweep, large, mapped, two_workers, address_of_two_workers, tmp_path
):
    two_workers.client.wait_for_workers(2)
    given = config_at(tmp_path, 3, "npz") | {"sweep": sweep}
    inline = run(given | {"cluster": {"kind": "inline"}}, store=str(tmp_path / "inline"))
    assert mapped == []
    cluster = address_of_two_workers
    found = run(given | {"cluster": cluster}, store=str(tmp_path / "dask"))
    assert "_decide_part" in mapped
    assert found["accuracy"] == inline["accuracy"]


def test_run__starts_no_processes_of_this_host_for_its_test_rows(large, mapped, tmp_path):
    """They have no other cores; a user's own workers may."""
    given = config_at(tmp_path, 3, "npz") | {"plan": "columns", "cluster": {"kind": "local", "workers": 2}}
    found = run(given, store=str(tmp_path / "store"))
    assert found["accuracy"] > 0.5
    assert mapped == []
