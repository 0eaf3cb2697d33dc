"""Two minutes of a real Prefect server: cron makes runs, and a worker runs the deployment of prefect.yaml."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from flows.cli import main

pytestmark = pytest.mark.full
ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "MARGINFLOW"))}
    return ours | {
        "HOME": str(home),
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }


@pytest.fixture(scope="module")
def server(env, tmp_path_factory, rows_config):
    """A `marginflow schedule` of every minute: its folder and its server's address; ends by SIGTERM."""
    folder = tmp_path_factory.mktemp("cron")
    (folder / "rows.yaml").write_text(json.dumps(rows_config))
    argv = [BIN / "marginflow", "schedule", "rows.yaml", "--cron", "* * * * *", "--store", "runs"]
    with subprocess.Popen(argv, cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = re.search(r"http://\S+", process.stderr.readline())[0]
            yield folder, url
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGTERM)
            err = process.stderr.read()
            assert process.wait(timeout=60) == 143, err
            assert not psutil.wait_procs(children, timeout=10)[1]
        finally:
            process.kill()


def runs_of(url, deployment):
    import urllib.request

    body = json.dumps({"deployments": {"name": {"any_": [deployment]}}, "sort": "START_TIME_ASC"}).encode()
    request = urllib.request.Request(f"{url}/api/flow_runs/filter", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return [run for run in json.load(answer) if run["start_time"]]


def completed(url, deployment, count, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = runs_of(url, deployment)
        assert not [run["state"]["message"] for run in found if run["state_type"] in ("FAILED", "CRASHED")]
        if len([run for run in found if run["state_type"] == "COMPLETED"]) >= count:
            return [run for run in found if run["state_type"] == "COMPLETED"]
        time.sleep(1)
    raise AssertionError([run["state"] for run in found])


def test_deploy__a_worker_runs_what_prefect_yaml_declares(server, env, tmp_path):
    """As the docs say: a pool, `prefect deploy`, a worker; paths start where `prefect deploy` was called."""
    _, url = server
    env = env | {"PREFECT_API_URL": f"{url}/api", "PWD": str(tmp_path)}
    shutil.copy(ROOT / "prefect.yaml", tmp_path)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    for argv in (["work-pool", "create", "--type", "process", "local"], ["--no-prompt", "deploy", "--name", "nightly"]):
        done = subprocess.run(
            [BIN / "prefect", *argv], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    argv = [BIN / "prefect", "worker", "start", "--pool", "local"]
    with subprocess.Popen(argv, cwd=elsewhere, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as worker:
        try:
            subprocess.run([BIN / "prefect", "deployment", "run", "marginflow/nightly"], env=env, check=True)
            completed(url, "nightly", 1, 120)
        finally:
            worker.kill()
            worker.stdout.close()
    (run,) = (tmp_path / "runs" / "digits").iterdir()
    assert json.loads((run / "metrics.json").read_text())["accuracy"] > 0.97


def test_cron__every_minute_lands_and_no_two_overlap(server, capsys):
    folder, url = server
    found = completed(url, "rows", 2, 200)
    spans = [[datetime.fromisoformat(run[key]) for key in ("start_time", "end_time")] for run in found]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    assert all(run["auto_scheduled"] for run in found)
    assert main(["runs", "--store", str(folder / "runs"), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert len(listed) >= 2
    assert listed[0]["problems"] == {"total": 3, "reused": 3} or listed[1]["problems"] == {"total": 3, "reused": 3}
