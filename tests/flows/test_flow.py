"""Real Prefect runs, each in a process of its own, over one PREFECT_HOME that starts empty."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

LOSES_ITS_CLUSTER_ONCE = """
import sys
from flows.cli import main
from pipeline.running import run as experiment
from pipeline.compute.workers import ClusterLost

solve, calls = experiment.solve_and_prove, []

def loses_it_once(*args):
    calls.append(1)
    if len(calls) == 1:
        raise ClusterLost("for this test")
    return solve(*args)

experiment.solve_and_prove = loses_it_once
sys.exit(main(sys.argv[1:]))
"""


def command(program, *argv):
    return [sys.executable, *program, "run", *argv]


def stored(home, query):
    """Rows of Prefect's own database."""
    with sqlite3.connect(home / "prefect" / "prefect.db") as database:
        return database.execute(query).fetchall()


def newest_flow_run(home):
    """State of the flow run that was made last."""
    found = stored(home, "select state_type from flow_run order by created desc limit 1")
    return found[0] if found else None


def until(said, seconds=120):
    """Wait until `said()`."""
    deadline = time.monotonic() + seconds
    while not said():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def finished(env, home, rows_config):
    """A run whose solving stage loses its cluster once."""
    (home / "rows.yaml").write_text(json.dumps(rows_config))
    argv = command(["-c", LOSES_ITS_CLUSTER_ONCE], "rows.yaml", "--json", "--store", "runs")
    return subprocess.run(argv, cwd=home, env=env, capture_output=True, text=True, timeout=180)


def test_flow__gives_what_a_plain_run_gives(finished, rows_run):
    assert finished.returncode == 0, finished.stderr
    record = json.loads(finished.stdout)
    assert finished.stdout.count("\n") == 1
    assert set(record) == set(rows_run)
    for key in ("accuracy", "n_support", "kkt_gap", "status"):
        assert record[key] == rows_run[key]
    manifests = [(Path(run["model"]) / "manifest.json").read_text() for run in (record, rows_run)]
    assert manifests[0] == manifests[1]


def test_flow__is_quiet(finished):
    stages = [line.split(":")[0] for line in finished.stderr.splitlines()]
    assert stages == ["ingest", "kernel", "solve", "score"], finished.stderr


def test_flow__stages_are_tasks_and_a_lost_cluster_is_tried_again(finished, home):
    assert stored(home, "select state_type, name is not null from flow_run limit 1") == [("COMPLETED", 1)]
    tasks = dict(stored(home, "select name, run_count from task_run"))
    attempts = {name.split("-")[0]: count for name, count in tasks.items()}
    assert attempts == {"ingest": 1, "solve": 2, "score": 1, "publish": 1}


def test_flow__leaves_certificates_and_a_link_to_the_report(finished, home):
    artifacts = dict(stored(home, "select key, data from artifact where key is not null"))
    assert set(artifacts) == {"certificates", "report", "progress"}
    assert [row["label"] for row in json.loads(json.loads(artifacts["certificates"]))] == ["ant", "bee", "cat"]


ENDLESS = ("cluster={kind: local}", "C=1e6", "solver.tol=1e-13", "kernel.gamma=1e-2")
full = pytest.mark.full


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=full),
        pytest.param(signal.SIGKILL, -9, marks=full),
    ],
)
def test_flow__a_signal_leaves_no_process_behind(finished, env, home, noise_npz, number, code):
    sets = [part for key in (*ENDLESS, f"data.source={noise_npz}") for part in ("--set", key)]
    argv = command(["-m", "flows.cli"], "rows.yaml", "--store", f"store{number}", *sets)
    with subprocess.Popen(argv, cwd=home, env=env, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("kernel"):
                break
        until(lambda: newest_flow_run(home) == ("RUNNING",))
        ours = psutil.Process(process.pid).children(recursive=True)
        assert len(ours) >= 4  # the one that tells Prefect, its server and the workers
        started = time.monotonic()
        process.send_signal(number)
        err = process.stderr.read()
        assert process.wait() == code, err
    assert time.monotonic() - started < 15
    _, alive = psutil.wait_procs(ours, timeout=10)
    assert not alive
    assert "Traceback" not in err
    assert not [p for p in (home / f"store{number}").iterdir() if not p.name.startswith(".")]
    assert newest_flow_run(home) == ("CRASHED" if number == signal.SIGKILL else "CANCELLED",)
