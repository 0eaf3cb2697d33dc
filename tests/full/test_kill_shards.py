"""Two hosts with a bucket in common, rows in shards, workers and scheduler killed at random rounds: the same answers.

`DATA` is the folder of the data files. `ROWS=60000` is the whole of MNIST; `KILLS` and `SEED` give other campaigns.
"""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchmarks import cases
from pipeline import run

from .test_bucket_only import dask_commands, driver, hosts, two_hosts  # noqa: F401

pytestmark = pytest.mark.full

DATA = os.environ.get("DATA", "")
ROWS, KILLS, SEED = (int(os.environ.get(*given)) for given in (("ROWS", "4000"), ("KILLS", "50"), ("SEED", "1")))
MOST_ROUNDS = 16  # between two kills
AGAIN = 20  # how often a command may be given again
TELLING = """
import json, sys
from pathlib import Path
from pipeline import run
from svmcore.shards.state import ShardedState

class Telling(ShardedState):
    def apply(self, idx, beta):
        super().apply(idx, beta)
        sys.stdout.write("round\\n")
        sys.stdout.flush()

from svmcore.shards import ShardedSource
ShardedSource.state = lambda source, *given: Telling(source.group, *given)
print("record", json.dumps(run(json.loads(Path(sys.argv[1]).read_text()))), flush=True)
"""


def saved(case, rows, path):
    """A case's table, cut, where a config finds it: [source, kernel, C]."""
    table = cases.table_of(case, Path(DATA), rows)
    np.savez(path, X=table.X, y=table.y)
    return {"data": {"source": str(path), "test": 0.1}, "kernel": {"name": "rbf", "gamma": case.gamma}, "C": case.C}


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """Ten classes of digits whose K is six times `cache.limit`, and a batch of 26 letters."""
    if not DATA:
        pytest.skip("DATA names no folder of data files")
    folder = tmp_path_factory.mktemp("tables")
    digits = saved(cases.MULTICLASS["mnist-60000"], ROWS, folder / "digits.npz")
    letters = saved(cases.MULTICLASS["letter"], min(ROWS, 15_000), folder / "letters.npz")
    del letters["C"]
    few = {"solver": {"name": "smo", "newcomers": 64}, "cache": {"limit": f"{ROWS**2 // 2_000_000}MB"}}
    return [
        {"name": "digits", **digits, **few},
        {"name": "letters", **letters, **few, "sweep": {"grid": {"C": [1, 16]}, "folds": 2}},
    ]


@pytest.fixture(scope="module")
def alone(configs, tmp_path_factory):
    """What one machine answers."""
    more = {"cluster": {"kind": "inline"}, "store": str(tmp_path_factory.mktemp("alone")), "cache": {"limit": "20GB"}}
    return [run(config | more) for config in configs]


class Cluster:
    """A scheduler and workers that are started again when they have ended, as a service would be."""

    def __init__(self, hosts, folder):  # noqa: F811
        self.commands = dask_commands(hosts, folder)
        self.processes = [self._start(i) for i in range(len(self.commands))]
        self.closed = threading.Event()
        self.keeper = threading.Thread(target=self._keep)
        self.keeper.start()

    def _start(self, i):
        argv, env = self.commands[i]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(list(map(str, argv)), env=env, start_new_session=True, **quiet)

    def _keep(self):
        while not self.closed.wait(0.5):
            for i, process in enumerate(self.processes):
                if process.poll() is not None:
                    self.processes[i] = self._start(i)

    def kill(self, victim, chance):
        """Kill the scheduler or one of the workers' processes; whether there was one."""
        words = {"scheduler": "scheduler", "worker": "spawn_main"}[victim]
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.processes[victim == "worker"].pid)
            found = [p for p in (root, *root.children(recursive=True)) if any(words in part for part in p.cmdline())]
            if found:
                chance.choice(found).kill()
                return True
        return False

    def close(self):
        self.closed.set()
        self.keeper.join()
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Campaign:
    """Kills that are left, at rounds that a seed tells."""

    def __init__(self, cluster):
        self.cluster, self.chance, self.struck = cluster, random.Random(SEED), []

    def watch(self, lines):
        """The record that a driver tells in the end, None if it tells none; kills at some rounds on the way."""
        wait = self.chance.randint(1, MOST_ROUNDS)
        for line in lines:
            if line.startswith("record "):
                return json.loads(line.split(" ", 1)[1])
            wait -= 1
            if wait <= 0 and len(self.struck) < KILLS:
                wait = self.chance.randint(1, MOST_ROUNDS)
                self._strike()
        return None

    def _strike(self):
        victim = self.chance.choice(["worker", "worker", "worker", "scheduler"])
        if self.cluster.kill(victim, self.chance):
            self.struck.append(victim)

    def answer(self, hosts, config):  # noqa: F811
        """Of a command that is given until it ends well; how often it was."""
        here, _, env, mine = hosts
        (mine / "rows.json").write_text(json.dumps(config))
        env = {**env, "XDG_CACHE_HOME": str(mine / "cache"), "TMPDIR": str(mine)}
        argv = [*here, sys.executable, "-c", TELLING, str(mine / "rows.json")]
        for times in range(1, AGAIN + 1):
            with subprocess.Popen(argv, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                record, told = self.watch(process.stdout), process.stderr.read()
            if record is not None:
                return record, times
            assert "ClusterLost" in told, told
        raise AssertionError(f"{AGAIN} times lost: {told}")


def agree(found, one):
    """Both certificates are of one optimum."""
    for ours, theirs in zip(found["per_class"], one["per_class"], strict=True):
        assert ours["kkt_gap"] <= 1.05e-3
        slack = 1e-9 * abs(theirs["primal"])
        assert max(ours["dual"], theirs["dual"]) <= min(ours["primal"], theirs["primal"]) + slack
    assert found["accuracy"] == pytest.approx(one["accuracy"], abs=2.5 / one["n_test"])


def test_kills__of_workers_and_scheduler_change_no_answer(hosts, configs, alone, tmp_path):  # noqa: F811
    cluster = Cluster(hosts, tmp_path)
    campaign, address = Campaign(cluster), {"kind": "address", "address": "tcp://10.77.83.1:8786", "insecure": True}
    with contextlib.closing(cluster):
        for number in itertools.count():
            if number >= len(configs) and len(campaign.struck) >= KILLS:
                break
            config, one = configs[number % len(configs)], alone[number % len(configs)]
            before = len(campaign.struck)
            there = {"cluster": address, "store": f"s3://lab/kills-{number}"}
            found, times = campaign.answer(hosts, config | there)
            struck = campaign.struck[before:]
            sys.stdout.write(
                f"{config['name']}: {struck.count('worker')} workers, {struck.count('scheduler')} schedulers, "
                f"{times} commands, {found['seconds']['total']:.1f} s\n"
            )
            assert (found["status"], found["plan"]["plan"]) == ("converged", "shards")
            if found.get("best") == one.get("best") or config["name"] == "digits":
                agree(found, one)
            scores = {str(point["params"]): point["mean_score"] for point in one.get("points", [])}
            for point in found.get("points", []):
                assert point["mean_score"] == pytest.approx(scores[str(point["params"])], abs=0.002)
            assert driver(hosts, config, "verify", found["model"])["agrees"]
    assert len(campaign.struck) == KILLS
