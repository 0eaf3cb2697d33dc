"""Prefect's servers killed, stopped, restarted, broken or never there: the run goes on, and one line says so."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

WAITS = """
import sys
import time
from pathlib import Path
from flows.cli import main
from pipeline.running import run as experiment

def gated(name):
    stage = getattr(experiment, name)
    def waits(*args):
        Path("at-" + name).touch()
        while not Path("go-" + name).exists():
            time.sleep(0.02)
        result = stage(*args)
        Path("after-" + name).touch()
        return result
    setattr(experiment, name, waits)

gated("score")
gated("publish")
sys.exit(main(sys.argv[1:]))
"""
FULL = pytest.mark.full  # seconds of waiting
PROGRESS = ("ingest", "kernel", "solve", "score", "points")
LOST = "Prefect lost sight of this run"


class Run:
    """`marginflow run` in a process and a folder of its own, which waits before it scores and before it publishes."""

    def __init__(self, folder, env, config):
        self.folder = folder
        (folder / "rows.yaml").write_text(json.dumps(config))
        argv = [sys.executable, "-c", WAITS, "run", "rows.yaml", "--json", "--store", "runs"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(argv, cwd=folder, env=env, **pipes)

    def wait_for(self, said, seconds=180):
        deadline = time.monotonic() + seconds
        while not said():
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def at(self, stage):
        self.wait_for((self.folder / f"at-{stage}").exists)

    def go(self, *stages):
        for stage in stages:
            (self.folder / f"go-{stage}").touch()

    def server(self):
        """The server that was started for this run."""
        found = [p for p in psutil.Process(self.process.pid).children(recursive=True) if "flows.server" in p.cmdline()]
        return found[0] if found else None

    def api_of_server(self):
        """Its address, as the process that tells it knows it."""
        listening = [c for c in self.server().net_connections(kind="tcp") if c.status == psutil.CONN_LISTEN]
        return f"http://127.0.0.1:{listening[0].laddr.port}/api"

    def ends_well(self, lines):
        """Exit 0 soon after the run is published, once, with its record on stdout and `lines` on stderr."""
        out, err = self.process.communicate(timeout=180)
        ended = time.time()
        assert self.process.returncode == 0, err
        published = [p for p in (self.folder / "runs").glob("rows/*")]
        assert [json.loads(out)["run"]] == [str(p) for p in published]
        assert ended - (self.folder / "after-publish").stat().st_mtime < 30  # a busy machine; 10 s on an idle one
        told = [line for line in err.splitlines() if line.split(":")[0] not in PROGRESS]
        assert len(told) == lines, err
        assert all(LOST in line for line in told)
        return json.loads(out), err


@pytest.fixture
def run(tmp_path, rows_config):
    started = []

    def start(env, config=rows_config):
        started.append(Run(tmp_path, env, config))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def answer(url, path, headers=(), **body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/{path}", data, {"Content-Type": "application/json", **dict(headers)})
    with urllib.request.urlopen(request, timeout=30) as found:
        return json.load(found)


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=FULL)])
def test_private_server__killed_or_stopped_in_mid_run_costs_one_line(run, env, home, number, rows_run):
    before = scored(home)
    one = run(env)
    one.at("score")
    one.wait_for(lambda: scored(home) - before)
    server = one.server()
    server.send_signal(number)
    one.go("score", "publish")
    record, _ = one.ends_well(lines=1)
    assert not server.is_running()
    assert record["accuracy"] == rows_run["accuracy"]
    manifests = [(Path(found["model"]) / "manifest.json").read_text() for found in (record, rows_run)]
    assert manifests[0] == manifests[1]


def scored(home):
    """Flow runs of the private servers whose stage `score` has begun."""
    query = "select distinct flow_run_id from task_run where name = 'score' and state_type = 'RUNNING'"
    with contextlib.suppress(sqlite3.Error), sqlite3.connect(home / "prefect" / "prefect.db") as database:
        return set(database.execute(query).fetchall())
    return set()


@pytest.mark.parametrize(
    ("module", "text", "why"),
    [
        ("uvicorn", "raise ImportError('broken')", ["ended at the start"]),
        pytest.param(
            "uvicorn", "import time; time.sleep(600)", ["did not start", "did not end"], marks=pytest.mark.full
        ),
        pytest.param("prefect", "raise ImportError('broken')", ["ImportError: broken"], marks=FULL),
    ],
    ids=["server ends at once", "server never starts", "prefect cannot be imported"],
)
def test_private_server__that_does_not_start_costs_one_line(run, env, tmp_path, module, text, why):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / f"{module}.py").write_text(text + "\n")
    path = f"{broken}{os.pathsep}{env['PYTHONPATH']}"
    one = run(env | {"PYTHONPATH": path, "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "3"})
    one.go("score", "publish")
    _, err = one.ends_well(lines=1)
    assert any(part in err for part in why), err


@FULL
def test_users_server__that_is_not_there_costs_one_line(run, env):
    one = run(env | {"PREFECT_API_URL": "http://127.0.0.1:9/api"})
    one.go("score", "publish")
    _, err = one.ends_well(lines=1)
    assert "http://127.0.0.1:9/api" in err


class UsersServer:
    """A server as a user runs it, on a port that stays the same."""

    def __init__(self, env):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.env, self.url = env, f"http://127.0.0.1:{self.port}/api"
        self.start()

    def start(self):
        argv = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(self.port)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        self.process = subprocess.Popen(argv, env=self.env, **quiet)
        deadline = time.monotonic() + 180
        while not self.up():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def up(self):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=1):
            return True

    def send(self, number):
        os.killpg(self.process.pid, number)

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        self.process.wait()

    def newest(self):
        """The flow run that was made last, and its stages with their states."""
        found = answer(self.url, "flow_runs/filter", sort="EXPECTED_START_TIME_DESC", limit=1)
        if not found:
            return None, {}
        stages = answer(self.url, "task_runs/filter", flow_runs={"id": {"any_": [found[0]["id"]]}})
        return found[0], {stage["name"]: stage["state_type"] for stage in stages}


@pytest.fixture(scope="module")
def server(env, tmp_path_factory):
    ours = env | {"PREFECT_HOME": str(tmp_path_factory.mktemp("users")), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    one = UsersServer(ours)
    yield one
    one.close()


STAGES = ("ingest", "solve", "score", "publish")


SLOW = """
import sys
import time

if "flows.scribe" in sys.orig_argv:
    time.sleep(15)
"""


@FULL
def test_users_server__hears_of_a_short_run_though_its_client_starts_late(run, env, server, tmp_path):
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW)
    path = f"{tmp_path / 'slow'}{os.pathsep}{env['PYTHONPATH']}"
    one = run(env | {"PREFECT_API_URL": server.url, "PYTHONPATH": path})
    one.go("score", "publish")
    one.ends_well(lines=0)
    assert server.newest()[0]["state_type"] == "COMPLETED"


@FULL
def test_users_server__that_restarts_is_told_the_rest(run, env, server):
    one = run(env | {"PREFECT_API_URL": server.url})
    one.at("score")
    one.wait_for(lambda: server.newest()[1].get("score") == "RUNNING")
    server.close()
    one.go("score")
    one.at("publish")
    time.sleep(3)  # longer than a hiccup
    server.start()
    one.go("publish")
    one.ends_well(lines=1)
    flow_run, stages = server.newest()
    assert flow_run["state_type"] == "COMPLETED"
    assert stages == dict.fromkeys(STAGES, "COMPLETED")
    assert flow_run["run_count"] == 1


@FULL
def test_users_server__hears_why_an_input_was_refused(run, env, server, rows_config, tmp_path):
    one = run(env | {"PREFECT_API_URL": server.url}, rows_config | {"class_weight": {"dog": 2}})
    out, err = one.process.communicate(timeout=120)
    assert one.process.returncode == 2
    assert out == ""
    assert "class_weight names 'dog'" in err.splitlines()[-1]
    assert LOST not in err
    flow_run, stages = server.newest()
    assert flow_run["state_type"] == "FAILED"
    assert "class_weight names 'dog'" in flow_run["state"]["message"]
    assert "COMPLETED" not in (stages.get("solve"), stages.get("publish"))
    assert not [p for p in (tmp_path / "runs").iterdir() if not p.name.startswith(".")]


@FULL
def test_users_server__hears_of_a_run_that_was_killed(run, env, server):
    one = run(env | {"PREFECT_API_URL": server.url})
    one.wait_for(lambda: server.newest()[1].get("score") == "RUNNING")
    one.process.kill()
    deadline = time.monotonic() + 30
    while server.newest()[0]["state_type"] != "CRASHED":
        assert time.monotonic() < deadline, server.newest()
        time.sleep(0.1)


@FULL
def test_users_server__that_hangs_costs_one_line(run, env, server):
    one = run(env | {"PREFECT_API_URL": server.url})
    one.at("score")
    one.wait_for(lambda: server.newest()[1].get("score") == "RUNNING")
    server.send(signal.SIGSTOP)
    try:
        one.go("score", "publish")
        one.ends_well(lines=1)
    finally:
        server.send(signal.SIGCONT)


def test_users_server__names_a_run_by_its_best_and_has_a_task_for_each_part(run, env, server, rows_config):
    sweep = {"grid": {"C": [1, 10], "kernel.gamma": [0.1, 0.5]}, "folds": 3}
    one = run(env | {"PREFECT_API_URL": server.url}, rows_config | {"sweep": sweep, "gate": {"min": {"accuracy": 0.1}}})
    one.wait_for(lambda: server.newest()[1].get("publish") == "RUNNING")
    one.go("score", "publish")
    record, _ = one.ends_well(lines=0)
    flow_run, stages = server.newest()
    best = record["best"]["params"]
    assert (
        flow_run["name"] == f"rows C={best['C']} kernel.gamma={best['kernel.gamma']} accuracy={record['accuracy']:.4g}"
    )
    assert flow_run["tags"] == ["marginflow", "rows", "svc", "converged", "gate-passed"]
    parts = {"part 1 of 2: rbf gamma=0.1", "part 2 of 2: rbf gamma=0.5"}
    assert stages == dict.fromkeys([*STAGES, "refit", *parts], "COMPLETED")
    artifacts = answer(server.url, "artifacts/filter", flow_runs={"id": {"any_": [flow_run["id"]]}})
    bars = [artifact for artifact in artifacts if artifact["type"] == "progress"]
    assert [bar["data"] for bar in bars] == [100.0]
