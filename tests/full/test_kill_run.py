"""A run killed anywhere: what was finished is used again, the answer is the same, nothing is left behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

pytestmark = pytest.mark.full

TELLING = """
import json, os, signal, sys
from pipeline import run

def tell(stage, done, total, **info):
    print(stage, done, total, info.get("status", ""), flush=True)
    if [stage, str(done)] == sys.argv[3:]:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    record = run(sys.argv[1], store=sys.argv[2], progress=tell)
    print("record", json.dumps(record), flush=True)
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """4,000 rows of 300 features in five classes: eight strips of kernel, problems that take a while."""
    return experiment(tmp_path_factory.mktemp("data"), 4000, 300, 0.25)


@pytest.fixture(scope="module")
def strips(tmp_path_factory):
    """8,000 rows of 10 features: 13 strips, more than the 10 that were handed out when the third is done."""
    return experiment(tmp_path_factory.mktemp("strips"), 8000, 10, 3.0)


def experiment(folder, n, p, spread):
    """A folder with rows, config and driver."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 5, n)
    X = rng.normal(size=(n, p)) + spread * rng.normal(size=(5, p))[y]
    np.savez(folder / "rows.npz", X=X, y=y)
    (folder / "run.py").write_text(TELLING)
    (folder / "rows.yaml").write_text(
        f"data: {{source: {folder / 'rows.npz'}, test: 0.2}}\n"
        "solver: {name: smo, tol: 1e-5}\nplan: resident\ncluster: {kind: local, workers: 2}\nC: 100\n"
    )
    return folder


class Run:
    """A driver in a process of its own, read line by line; it kills itself when a stage is as far as `end` says."""

    def __init__(self, folder, store, *end):
        argv = [sys.executable, "run.py", "rows.yaml", str(store), *end]
        self.process = subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children = []

    def until(self, *words):
        """Read until a line starts with the given words."""
        for line in self.process.stdout:
            if line.split()[: len(words)] == list(words):
                self.children = psutil.Process(self.process.pid).children(recursive=True)
                return line
        raise AssertionError(self.process.stderr.read())

    def result(self):
        record = json.loads(self.until("record").split(" ", 1)[1])
        assert self.process.wait() == 0
        self._close()
        return record

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._close()
        _, alive = psutil.wait_procs(self.children, timeout=10)
        assert not alive

    def _close(self):
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()


def answer(record):
    """The model's hashes."""
    return json.loads((Path(record["model"]) / "manifest.json").read_text())["parts"]


@pytest.fixture(scope="module")
def undisturbed(config, tmp_path_factory):
    return Run(config, tmp_path_factory.mktemp("store")).result()


def workers_of(children):
    return [child for child in children if any("spawn_main" in part for part in child.cmdline())]


def test_killed_worker__costs_nothing_but_its_block(config, undisturbed, tmp_path):
    run = Run(config, tmp_path)
    run.until("kernel", "1")
    os.kill(workers_of(run.children)[-1].pid, signal.SIGKILL)
    assert answer(run.result()) == answer(undisturbed)


def test_killed_driver__in_the_kernel_goes_on_from_its_blocks(strips, tmp_path, tmp_path_factory):
    run = Run(strips, tmp_path, "kernel", "3")
    run.until("kernel", "1")
    assert run.process.wait() == -signal.SIGKILL
    run.kill()
    assert not [folder for folder in tmp_path.iterdir() if not folder.name.startswith(".")]
    record = Run(strips, tmp_path).result()
    assert 3 <= record["blocks"]["reused"] < record["blocks"]["total"]
    assert answer(record) == answer(Run(strips, tmp_path_factory.mktemp("whole")).result())
    assert sorted(p.name for p in tmp_path.iterdir()) == [".cache", "index.html", "rows"]


def test_killed_driver__among_the_problems_solves_none_twice(config, undisturbed, tmp_path):
    run = Run(config, tmp_path)
    run.until("solve", "2", "5", "converged")
    run.kill()
    record = Run(config, tmp_path).result()
    assert record["problems"]["total"] == 5
    assert 2 <= record["problems"]["reused"] < 5
    assert record["blocks"]["reused"] == record["blocks"]["total"]
    assert answer(record) == answer(undisturbed)
