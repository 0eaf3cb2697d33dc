"""Two runs of one config on one store, from two processes, of which one is killed."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline import run
from pipeline.storage.cache import evict
from pipeline.storage.runs import open_store

RUN = """
import json, os, sys
from pipeline import run

config, store, log = json.loads(sys.argv[1]), sys.argv[2], open(sys.argv[3], "a")
tell = lambda stage, done, total, **info: print(stage, done, total, file=log, flush=True)
print(json.dumps(run(config, store=store, progress=tell)))
"""


def start(config, store, log):
    argv = [sys.executable, "-c", RUN, json.dumps(config), str(store), str(log)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def answers(found):
    """What must be equal: the model's manifest and the leaderboard."""
    folder = Path(found["run"])
    return (folder / "model.zarr" / "manifest.json").read_bytes(), (folder / "results.csv").read_bytes()


@pytest.mark.full
def test_two_runs__one_killed_and_the_cache_evicted_all_the_time_end_as_one_alone(rows_csv, tmp_path):
    config = {
        "name": "both",
        "data": {"source": str(rows_csv), "test": 0.2, "scale": "standard"},
        "solver": {"name": "smo", "tol": 1e-4},
        "sweep": {"grid": {"C": [1, 10], "kernel.gamma": [0.1, 1]}, "folds": 2},
        "cluster": {"kind": "inline"},
    }
    store = tmp_path / "runs"
    logs = [tmp_path / "killed", tmp_path / "other"]
    with start(config, store, logs[0]) as killed, start(config, store, logs[1]) as other:
        while not (logs[0].exists() and "solve 1 " in logs[0].read_text()) and killed.poll() is None:
            evict(store / ".cache", 0)
            time.sleep(0.05)
        killed.kill()
        while other.poll() is None:
            evict(store / ".cache", 0)
            time.sleep(0.05)
        found = json.loads(other.stdout.read())
    assert answers(found) == answers(run(config, store=tmp_path / "alone"))
    assert found["status"] == "converged"
    evict(store / ".cache", 0)
    assert not [path for path in (store / ".cache").rglob("*") if path.is_file()]
    assert len(list(store.glob("both/*"))) == 1
    with open_store(store).draft() as draft:
        assert [*draft.parent.iterdir()] == [draft]
