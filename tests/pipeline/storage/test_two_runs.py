"""Two runs of one config on one store, from two processes, of which one is killed."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
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


def start(config, store, log, script=RUN, prefix=()):
    argv = [*prefix, sys.executable, "-c", script, json.dumps(config), str(store), str(log)]
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


# Writes down every strip and every problem that is really computed.
COUNTED = """
import json, sys
from pipeline import run
from pipeline.answers import solve
from pipeline.kernel import strips

log = open(sys.argv[3], "a")
store_result, compute = solve.store_result, strips._compute

def stored(task, *args):
    print("problem", task.fingerprint, file=log, flush=True)
    return store_result(task, *args)

def computed(task, which, *args):
    compute(task, which, *args)
    print("strip", task.folders, task.index, file=log, flush=True)

solve.store_result, strips._compute = stored, computed
print(json.dumps(run(json.loads(sys.argv[1]), store=sys.argv[2])))
"""
HOST = 'hostname "$0" && exec "$@"'


def host(name):
    """Command that runs a program as on another host: own network, name and processes, the same files."""
    return ["unshare", "--net", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", HOST, name]


@pytest.fixture
def two_hosts():
    found = [host(name) for name in ("first", "second")]
    if subprocess.run([*found[0], "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces of its own need root")
    return found


def done(log):
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.full
def test_two_hosts__share_one_store_and_one_is_killed(tmp_path, two_hosts):
    """Both at once: what one has finished the other finds, and what the killed one held is nobody's loss."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 2500)
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(2500, 20)) + 0.5 * rng.normal(size=(4, 20))[y], y=y)
    config = {
        "name": "both",
        "data": {"source": str(tmp_path / "rows.npz"), "scale": "standard"},
        "solver": {"name": "smo", "tol": 1e-5},
        "sweep": {"grid": {"kernel.gamma": [0.02, 0.1], "C": [1, 10, 100]}, "folds": 3},
        "cluster": {"kind": "inline"},
    }
    store, logs = tmp_path / "runs", [tmp_path / name for name in ("first", "second", "again")]
    first, second = (start(config, store, log, COUNTED, prefix) for log, prefix in zip(logs, two_hosts, strict=False))
    with first, second:
        while len(done(logs[0])) + len(done(logs[1])) < 40:
            assert first.poll() is None
            assert second.poll() is None
            time.sleep(0.02)
        first.kill()
        found = [json.loads(second.communicate()[0])]
    with start(config, store, logs[2], COUNTED, two_hosts[0]) as again:
        found.append(json.loads(again.communicate()[0]))
    assert answers(found[0]) == answers(found[1]) == answers(run(config, store=tmp_path / "alone"))
    work = [line for log in logs for line in done(log)]
    assert done(logs[2]) == []
    assert min(len(done(logs[0])), len(done(logs[1]))) > 5
    twice = len(work) - len(set(work))
    sys.stdout.write(f"{len(work)} strips and problems, {twice} of them twice\n")
    assert twice <= 8  # two threads each, where the two meet: in the strips and in each of the two kernels
