"""`marginflow schedule` with the Prefect server it starts, in a process of its own over a PREFECT_HOME of its own."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from flows.cli import main
from pipeline import load_model, run
from pipeline.registry.aliases import current
from pipeline.storage.runs import open_store


class Service:
    """A `marginflow schedule` that serves `config` (rewritten between runs), and Prefect's API beside it."""

    def __init__(self, home, cron, config):
        self.home, self.file, self.store = home, home / "rows.yaml", home / "runs"
        self.write(config)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "MARGINFLOW"))}
        env |= {"HOME": str(home), "PREFECT_HOME": str(home / "prefect"), "PREFECT_RUNNER_POLL_FREQUENCY": "1"}
        argv = [sys.executable, "-m", "flows.cli", "schedule", "rows.yaml", "--cron", cron, "--store", "runs"]
        self.process = subprocess.Popen(
            argv, cwd=home, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def ready(self):
        """Wait for the line that tells where the server is."""
        line = self.process.stderr.readline()
        assert "one run at a time" in line, line + self.process.stderr.read()
        self.url = re.search(r"http://\S+", line)[0]
        self.process.stderr.readline()

    def close(self):
        if self.process.poll() is None:
            self.end(signal.SIGTERM)
        self.process.stderr.close()

    def write(self, config):
        self.file.write_text(json.dumps(config))

    def api(self, path, **body):
        data = json.dumps(body).encode() if body or path.endswith("filter") else None
        request = urllib.request.Request(
            f"{self.url}/api/{path}", data, {"Content-Type": "application/json"}, method="POST" if data else "GET"
        )
        for _ in range(50):
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503:  # a server on SQLite is locked now and then
                    raise
                error.close()
            time.sleep(0.1)
        raise AssertionError(path)

    def trigger(self):
        deployment = self.api("deployments/name/marginflow/rows")["id"]
        return self.api(f"deployments/{deployment}/create_flow_run", state={"type": "SCHEDULED"})["id"]

    def wait(self, run, *types, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.api(f"flow_runs/{run}")
            if found["state_type"] in types:
                return found
            time.sleep(0.1)
        raise AssertionError(found["state"])

    def until(self, *stage, seconds=60):
        """Wait until a task of that name runs."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if [t for t in self.api("task_runs/filter") if (t["name"].split("-")[0], t["state_type"]) == stage]:
                return
            time.sleep(0.1)
        raise AssertionError(stage)

    def artifacts(self):
        return {artifact["key"]: artifact["data"] for artifact in self.api("artifacts/latest/filter")}

    def end(self, number):
        ours = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(number)
        err = self.process.stderr.read()
        code = self.process.wait(timeout=60)
        _, alive = psutil.wait_procs(ours, timeout=10)
        return code, err, alive


@pytest.fixture(scope="module")
def endless(rows_config, noise_npz):
    """A config that is not solved for minutes."""
    solver = {"name": "smo", "tol": 1e-13}
    kernel = {"name": "rbf", "gamma": 1e-2}
    return rows_config | {"data": {"source": str(noise_npz)}, "C": 1e6, "kernel": kernel, "solver": solver}


@pytest.fixture(scope="module")
def batch(rows_config):
    return rows_config | {"sweep": {"grid": {"C": [1, 10]}, "folds": 2}}


@pytest.fixture(scope="module")
def service(tmp_path_factory, batch):
    served = Service(tmp_path_factory.mktemp("service"), "0 0 1 1 *", batch)
    try:
        served.ready()
        yield served
    finally:
        served.close()


def test_schedule__a_bad_cron_is_refused(rows_config, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    file = tmp_path / "rows.yaml"
    file.write_text(json.dumps(rows_config | {"store": str(tmp_path / "runs")}))
    for cron in ("61 * * * *", "nightly", ""):
        assert main(["schedule", str(file), "--cron", cron]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert repr(cron) in captured.err


def test_schedule__a_run_waits_for_the_one_before_whose_cancellation_keeps_what_is_finished(
    service, batch, endless, capsys
):
    service.write(endless)
    slow = service.trigger()
    service.until("solve", "RUNNING")
    service.write(batch)
    waiting = service.trigger()
    time.sleep(3)
    assert service.api(f"flow_runs/{waiting}")["state_type"] in ("SCHEDULED", "PENDING")
    service.api(f"flow_runs/{slow}/set_state", state={"type": "CANCELLING"})
    cancelled = service.wait(slow, "CANCELLED", "FAILED", "CRASHED")
    completed = service.wait(waiting, "COMPLETED", "FAILED", "CRASHED")
    assert (cancelled["state_type"], completed["state_type"]) == ("CANCELLED", "COMPLETED"), completed["state"][
        "message"
    ]
    ended, started = (datetime.fromisoformat(t) for t in (cancelled["end_time"], completed["start_time"]))
    assert ended <= started
    assert len(list((service.store / ".cache" / "gram").glob("*/zarr.json"))) == 2
    assert not any((service.store / ".drafts").glob("*"))
    assert main(["runs", "--store", str(service.store), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 1


def test_schedule__leaves_leaderboard_certificates_and_a_link(service, batch):
    artifacts = service.artifacts()
    if set(artifacts) == {"progress"}:  # a server that is busy for seconds loses sight of a run, but not of the next
        service.write(batch)
        service.wait(service.trigger(), "COMPLETED")
        artifacts = service.artifacts()
    assert set(artifacts) == {"leaderboard", "certificates", "report", "progress"}
    points = json.loads(artifacts["leaderboard"])
    assert sorted(float(point["C"]) for point in points) == [1.0, 10.0]
    assert [row["label"] for row in json.loads(artifacts["certificates"])] == ["ant", "bee", "cat"]
    page = Path(re.search(r"\(file://(\S+)\)", artifacts["report"])[1])
    assert page.is_file()


def test_schedule__a_failed_run_says_why(service, batch):
    service.write(batch | {"class_weight": {"dog": 2}})
    failed = service.wait(service.trigger(), "COMPLETED", "FAILED", "CRASHED")
    assert failed["state_type"] == "FAILED"
    assert "class_weight names 'dog'" in failed["state"]["message"]


def test_schedule__a_run_that_fails_its_gate_is_failed_and_the_old_champion_still_answers(
    service, rows_config, rows_csv
):
    config = rows_config | {"promote": "champion", "gate": {"min": {"accuracy": 0.1}}}
    run(config, store=service.store)
    champion = current(open_store(service.store), "rows", "champion")
    service.write(config | {"gate": {"min": {"accuracy": 1.1}}})
    failed = service.wait(service.trigger(), "COMPLETED", "FAILED", "CRASHED")
    assert failed["state_type"] == "FAILED"
    assert "not promoted: min.accuracy is " in failed["state"]["message"]
    assert current(open_store(service.store), "rows", "champion") == champion
    assert champion.run in load_model(f"{service.store}/rows@champion").path


def test_schedule__sigterm_cancels_the_run_under_way_and_leaves_no_process(service, endless):
    service.write(endless)
    slow = service.trigger()
    service.wait(slow, "RUNNING")
    code, err, alive = service.end(signal.SIGTERM)
    assert code == 143, err
    assert not alive
    assert "Traceback" not in err, err
    assert "class_weight names 'dog'" in err
    with sqlite3.connect(service.home / "prefect" / "prefect.db") as database:
        states = dict(database.execute("select id, state_type from flow_run"))
    assert states[str(slow)] in ("CANCELLED", "CANCELLING")


@pytest.mark.full
def test_schedule__killed_takes_its_run_along(tmp_path, endless):
    killed = Service(tmp_path, "0 0 1 1 *", endless)
    try:
        killed.ready()
        killed.trigger()
        killed.until("solve", "RUNNING")
        ours = psutil.Process(killed.process.pid).children(recursive=True)
        killed.process.kill()
        killed.process.wait()
        assert not psutil.wait_procs(ours, timeout=60)[1]
        assert not any((killed.store / ".drafts").glob("*"))
    finally:
        killed.close()
