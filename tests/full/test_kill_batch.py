"""A batch killed ten times, and its workers one by one: the same results.csv, nothing solved twice, nothing left."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pipeline import run

pytestmark = pytest.mark.full

SCRIPT = """
import json, sys
from pipeline import run
if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]), store=sys.argv[2])["problems"]), flush=True)
"""
CONFIG = {
    "name": "campaign",
    "data": {"source": "sklearn:digits", "scale": 16, "test": 0.2},
    "solver": {"name": "smo", "tol": 1e-4},
    "cluster": {"kind": "local", "workers": 2},
    "sweep": {"grid": {"kernel.gamma": [0.01, 0.03, 0.1], "C": [0.1, 1, 10, 100, 1000]}, "folds": 5},
}
TOTAL = 10 * (3 * 5 * 5 + 1)


def answers(store):
    """Stored answers and their inodes: one that is written again has another."""
    return {file: file.stat().st_ino for file in Path(store).glob(".cache/problems/[!.]*")}


def driver(folder, store):
    (folder / "batch.py").write_text(SCRIPT)
    argv = [sys.executable, "batch.py", json.dumps(CONFIG), str(store)]
    return subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """results.csv of the batch when nobody interrupts it."""
    return (Path(run(CONFIG, store=tmp_path_factory.mktemp("whole"))["run"]) / "results.csv").read_bytes()


def test_driver__killed_ten_times_at_random_moments(whole, tmp_path):
    chance = random.Random(7)
    store, kept = tmp_path / "runs", {}
    for _ in range(10):
        process = driver(tmp_path, store)
        wanted = len(kept) + chance.randrange(1, 60)
        while len(answers(store)) < min(wanted, TOTAL - 20) and process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.2)
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.communicate()
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive
        now = answers(store)
        assert {file: now[file] for file in kept} == kept  # written once
        kept = now
        assert not list(store.glob("[!.]*/*")) or process.returncode == 0
    found = run(CONFIG, store=store)
    assert found["problems"] == {"total": TOTAL, "reused": len(kept)}
    assert (Path(found["run"]) / "results.csv").read_bytes() == whole
    assert not list(store.glob(".drafts/*"))
    assert not list(store.glob(".cache/live/*"))


def test_workers__killed_one_after_the_other(whole, tmp_path):
    store = tmp_path / "runs"
    process = driver(tmp_path, store)
    for wanted in (50, 150):
        while len(answers(store)) < wanted:
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(chosen(process.pid), signal.SIGKILL)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert json.loads(out)["total"] == TOTAL
    (table,) = store.glob("campaign/*/results.csv")
    assert table.read_bytes() == whole


def chosen(pid):
    """The youngest process that has K mapped: a worker."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        maps = Path(f"/proc/{child.pid}/maps")
        if "/gram/" in maps.read_text():
            found.append(child)
    return max(found, key=lambda child: child.create_time()).pid


def test_interrupt__ends_cleanly_and_goes_on(whole, tmp_path):
    store = tmp_path / "runs"
    for signum in (signal.SIGINT, signal.SIGTERM):
        process = driver(tmp_path, store)
        before = len(answers(store))
        while len(answers(store)) < before + 40:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signum)
        process.communicate(timeout=30)
        assert process.returncode != 0
    found = run(CONFIG, store=store)
    assert found["problems"]["reused"] >= 80
    assert (Path(found["run"]) / "results.csv").read_bytes() == whole
