"""The driver is killed at random moments of the kernel; the same program goes on from the finished strips."""

import json
import random
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from pipeline.compute.workers import InlineWorkers
from pipeline.kernel.gram import compute_gram
from svmcore.kernels import RBF

pytestmark = pytest.mark.full

DRIVER = """
import json, sys
import numpy as np
from pipeline.compute.cluster import open_workers
from pipeline.rows.dataset import open_dataset
from pipeline.kernel.gram import compute_gram
from svmcore.kernels import RBF

dataset, root = sys.argv[1:]
with open_workers({"kind": "local", "workers": 2}) as workers:
    def tell(stage, done, total, **info):
        print(done, total, flush=True)
    found = compute_gram(open_dataset(dataset), RBF(gamma=0.05), np.float64, root, workers, tell)
print(json.dumps({"path": str(found.path), "n_blocks": found.n_blocks, "n_reused": found.n_reused}), flush=True)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """6,000 rows of 400 columns: twelve strips of some 50 ms each."""
    from pipeline.config.load import load_experiment
    from pipeline.rows.dataset import ingest

    folder = tmp_path_factory.mktemp("large")
    X = np.random.default_rng(0).normal(size=(6000, 400))
    np.savez(folder / "rows.npz", X=X, y=np.where(X[:, 0] > 0, 1, -1))
    return ingest(load_experiment({"data": {"source": str(folder / "rows.npz")}}), folder / "cache")


def driver(script, large, root):
    command = [sys.executable, str(script), str(large.path), str(root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("seed", range(2))
def test_driver__killed_again_and_again_loses_only_unfinished_strips(seed, large, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    chance = random.Random(seed)
    finished = 0
    for _ in range(4):
        with driver(script, large, tmp_path / "cache") as process:
            done, total = map(int, process.stdout.readline().split())
            while done < min(finished + 2, total - 1):
                done, total = map(int, process.stdout.readline().split())
            time.sleep(chance.random() * 0.1)
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
        assert not psutil.wait_procs(children, timeout=10)[1]
        finished = done
    with driver(script, large, tmp_path / "cache") as process:
        last = json.loads(process.stdout.read().splitlines()[-1])
    undisturbed = compute_gram(large, RBF(gamma=0.05), np.float64, tmp_path / "undisturbed", InlineWorkers())
    K = np.memmap(f"{last['path']}/c/0/0", np.float64, "r", shape=(6000, 6000))
    assert last["n_reused"] >= finished > 0
    assert np.array_equal(K, undisturbed.open())
