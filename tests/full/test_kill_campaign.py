"""Random kills over a batch with two kernels, with and without Prefect: nothing is lost, done twice, or left behind.

`KILLS=200 pytest tests/full/test_kill_campaign.py -s` is the campaign; a few kills without it. `SEED` picks others.
"""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

pytestmark = pytest.mark.full

KILLS, SEED = int(os.environ.get("KILLS", "12")), int(os.environ.get("SEED", "1"))
END_SECONDS = 15.0
PROBLEMS, START_SECONDS = 57, 4.0
SIGNALS = {"driver": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "Ctrl-C": signal.SIGINT}
VICTIMS = [*SIGNALS, "worker", "scheduler", "Prefect's server"]
CODES = {"driver": -9, "SIGTERM": 143, "Ctrl-C": 130}


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """Two kernels, three C, three folds of three classes: 54 problems, and three of the best point."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 1500)
    np.savez(folder / "rows.npz", X=rng.normal(size=(1500, 20)) + 0.6 * rng.normal(size=(3, 20))[y], y=y)
    return {
        "name": "campaign",
        "data": {"source": str(folder / "rows.npz"), "scale": "standard", "test": 0.2},
        "solver": {"name": "smo", "tol": 1e-5},
        "cluster": {"kind": "local", "workers": 2},
        "sweep": {"grid": {"kernel.gamma": [0.02, 0.1], "C": [1, 10, 100]}, "folds": 3},
    }


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    return os.environ | {"PREFECT_HOME": str(tmp_path_factory.mktemp("prefect")), "PREFECT_LOGGING_LEVEL": "CRITICAL"}


def content(run):
    """What must be equal, whatever happened on the way."""
    return (run / "results.csv").read_bytes(), (run / "model.zarr" / "manifest.json").read_bytes()


@pytest.fixture(scope="module")
def whole(batch, env, tmp_path_factory):
    """Content of the run that nobody disturbs, and how many seconds that takes."""
    folder = tmp_path_factory.mktemp("whole")
    began = time.monotonic()
    with driver(folder, batch, env, False, folder / "runs") as process:
        assert process.wait(timeout=300) == 0
    assert len(answers(folder / "runs")) == PROBLEMS
    return content(*published(folder / "runs")), time.monotonic() - began


@contextlib.contextmanager
def driver(folder, config, env, prefect, store):
    (folder / "batch.yaml").write_text(json.dumps(config))
    argv = [sys.executable, "-m", "flows.cli", "run", str(folder / "batch.yaml"), "--json", "--store", str(store)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*argv, *([] if prefect else ["--no-prefect"])], env=env, **quiet) as process:
        try:
            yield process
        finally:
            process.kill()


def published(store):
    return [file.parent for file in Path(store).glob("[!.]*/*/metrics.json")]


def answers(store):
    """Finished answers and their inodes: one that is written again has another."""
    return {file: file.stat().st_ino for file in Path(store).glob(".cache/problems/[!.]*")}


def descendants(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(process.pid).children(recursive=True)
    return []


# ---- somebody else's cluster
class Cluster:
    """A scheduler on a port that stays the same, and two workers."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.start()

    def start(self):
        dask, quiet = str(Path(sys.executable).parent / "dask"), {"stdout": -3, "stderr": -3, "start_new_session": True}
        address = f"tcp://127.0.0.1:{self.port}"
        at = ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"]
        worker = ["worker", address, "--nworkers", "2", "--nthreads", "1", "--no-dashboard", "--death-timeout", "60"]
        worker += ["--local-directory", str(self.folder / "scratch")]
        self.processes = [subprocess.Popen([dask, *argv], **quiet) for argv in (["scheduler", *at], worker)]

    def section(self):
        return {"kind": "address", "address": f"tcp://127.0.0.1:{self.port}", "insecure": True}

    def close(self):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


# ---- kills
def wait_for_the_moment(process, store, chance):
    """Some time on the way there, or after some number of answers: the same whether the machine is busy or not."""
    wanted = chance.randint(-20, PROBLEMS)
    delay = chance.random() * (START_SECONDS if wanted < 0 else 0.5)
    while process.poll() is None and len(answers(store)) < wanted:
        time.sleep(0.01)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=delay)
    return wanted


def strike(victim, process, cluster, chance):
    """Kill somebody; False if there is nobody of the kind now."""
    if victim == "scheduler":
        cluster.close()
        time.sleep(chance.random())
        cluster.start()
        return True
    words = {"worker": "spawn_main", "Prefect's server": "flows.server"}
    if victim in SIGNALS:
        process.send_signal(SIGNALS[victim])
        return True
    with contextlib.suppress(psutil.Error):
        found = [p for p in descendants(process) if any(words[victim] in part for part in p.cmdline())]
        if found:
            chance.choice(found).kill()
            return True
    return False


@pytest.mark.parametrize("number", range(KILLS))
def test_kill__costs_what_was_in_flight_and_nothing_else(number, batch, env, whole, tmp_path):
    chance, (expected, seconds) = random.Random(f"{SEED}-{number}"), whole
    victim = VICTIMS[number % len(VICTIMS)]
    prefect = victim == "Prefect's server" or (number // len(VICTIMS)) % 2 == 1
    store, config = tmp_path / "runs", dict(batch)
    with contextlib.ExitStack() as stack:
        cluster = None
        if victim == "scheduler":
            cluster = Cluster(tmp_path)
            stack.callback(cluster.close)
            config["cluster"] = cluster.section()
        process = stack.enter_context(driver(tmp_path, config, env, prefect, store))
        wanted = wait_for_the_moment(process, store, chance)
        family, before = descendants(process), answers(store)
        struck = False
        while process.poll() is None and not (struck := strike(victim, process, cluster, chance)):
            time.sleep(0.02)
        at = time.monotonic()
        code = process.wait(timeout=END_SECONDS if victim in SIGNALS else 300)
        took = time.monotonic() - at
        _, alive = psutil.wait_procs(family, timeout=END_SECONDS)
    sys.stdout.write(
        f"{number}: {victim} after {wanted} answers, Prefect {prefect}, struck {struck}, exit {code}, {took:.1f} s\n"
    )
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    if struck and victim in SIGNALS:
        assert code in (CODES[victim], 0, -SIGNALS[victim])  # before Python listens, a signal ends it as it ends any
    else:
        assert code == 0
        assert took <= seconds + END_SECONDS  # what was left to do, at most the whole run, and 15 s
    listed = published(store)
    assert len(listed) == 1 if code == 0 else len(listed) <= 1
    again(batch, env, store, tmp_path, before if code else None)
    assert all(content(run) == expected for run in published(store))
    assert len(published(store)) == len(listed) + 1
    for left in (".drafts/*", ".cache/live/*", ".cache/.leases/*", ".cache/*/.building/*"):
        assert not list(store.glob(left)), left


def again(batch, env, store, folder, kept):
    """The same command once more: it finds all that was finished, and writes none of it again."""
    here = answers(store)
    with driver(folder, batch, env, False, store) as process:
        assert process.wait(timeout=300) == 0
    now = answers(store)
    assert {file: now[file] for file in here} == here
    assert kept is None or set(kept) <= set(here)
    newest = max(published(store), key=lambda run: run.stat().st_mtime_ns)
    assert json.loads((newest / "metrics.json").read_text())["problems"]["reused"] == len(here)
