"""A real Prefect server: the tutorial as printed, with a night whose gate says no; the message of it; a Docker pool."""

import contextlib
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from flows.cli import main
from pipeline.registry.aliases import aliases
from pipeline.storage.runs import open_store

from ..docs.blocks import BLOCK

pytestmark = pytest.mark.full
ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def port():
    return str(free_port())


@pytest.fixture(scope="module")
def env(tmp_path_factory, port):
    """The environment of a user who has `marginflow` and `prefect` on the path and has never started a server."""
    home = tmp_path_factory.mktemp("home")
    (home / "marginflow").write_text(f'#!/bin/sh\nexec {sys.executable} -m flows.cli "$@"\n')
    (home / "marginflow").chmod(0o755)
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "MARGINFLOW"))}
    return ours | {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(home), str(BIN), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }


def shell(text, folder, env):
    done = subprocess.run(["bash", "-ec", text], cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, text + done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def terminal(text, folder, env, until):
    """A terminal that stays open: yields when `until` holds, and ends what it started by Ctrl-C."""
    with (folder / f"log{time.monotonic_ns()}").open("w+") as log:
        options = {"cwd": folder, "env": env, "stdout": log, "stderr": log, "start_new_session": True}
        process = subprocess.Popen(["bash", "-ec", text], **options)
        try:
            deadline = time.monotonic() + 180
            while not until(Path(log.name)):
                assert process.poll() is None, Path(log.name).read_text()
                assert time.monotonic() < deadline, Path(log.name).read_text()
                time.sleep(0.5)
            yield
        finally:
            for number, seconds in ((signal.SIGINT, 60), (signal.SIGKILL, 10)):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=seconds)
                    break


def blocks(port):
    """(language, text) of the tutorial, with a port that is free here."""
    page = (ROOT / "docs" / "tutorial.md").read_text()
    return [(language, text.replace("4200", port)) for language, text in BLOCK.findall(page)]


@pytest.fixture(scope="module")
def server(env, port, tmp_path_factory):
    """The tutorial's second terminal; yields the address of its server."""
    (start, _) = [text for language, text in blocks(port) if language == "text"]
    url = f"http://127.0.0.1:{port}/api"

    def answers(_):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{url}/health", timeout=5).status == 200

    with terminal(start, tmp_path_factory.mktemp("server"), env, answers):
        yield url


@pytest.fixture(scope="module")
def chat(server, env, tmp_path_factory):
    """What `deploy/notify.py` lets the server send: a list that grows."""
    heard = []

    class Chat(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Chat) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        told = f"python {ROOT / 'deploy' / 'notify.py'} http://127.0.0.1:{listening.server_port}/hook"
        for _ in range(2):  # again: it changes the one that is there
            shell(told, tmp_path_factory.mktemp("chat"), env | {"PREFECT_API_URL": server})
        yield heard
        listening.shutdown()


def post(url, path, body):
    request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_tutorial__two_nights_of_which_one_fails_its_gate(server, chat, env, port, tmp_path):
    """All blocks in their order; the champion that answers after the bad night is the one of the good night."""
    seen = []
    with contextlib.ExitStack() as open_:
        for language, text in blocks(port):
            if language == "text":
                if "marginflow schedule" in text:
                    open_.enter_context(terminal(text, tmp_path, env, lambda log: "once, now" in log.read_text()))
            elif language == "python":
                shell(f"python - <<'END'\n{text}\nEND", tmp_path, env)
            else:
                before = (tmp_path / "labels.csv").read_text() if (tmp_path / "labels.csv").exists() else ""
                out = shell(text, tmp_path, env)
                seen.append((text, out, before))
    said = {text.split("\n")[0] + str(k): out for k, (text, out, _) in enumerate(seen)}
    assert sum("the gate said no" in out.splitlines() for out in said.values()) == 1

    runs = post(server, "/flow_runs/filter", {"sort": "START_TIME_ASC"})
    good, bad = [run for run in runs if run["start_time"] and run["deployment_id"]]
    assert (good["state_name"], bad["state_name"]) == ("Completed", "Failed")
    assert bad["state"]["message"].startswith("not promoted: ")
    assert "min.accuracy is 0." in bad["state"]["message"]
    assert ("gate-passed" in good["tags"], "gate-failed" in bad["tags"]) == (True, True)

    store = open_store(tmp_path / "runs")
    nights = sorted(store.runs(), key=lambda run: run["key"])
    assert [run["gate"]["passed"] for run in nights[-2:]] == [True, False]
    (log,) = aliases(store).values()
    assert log[-1].run == nights[-2]["key"]
    (again,) = [before for text, _, before in seen if "good.csv cancer.csv" in text]
    assert (tmp_path / "labels.csv").read_text() == again  # the champion before the nights was trained on the same rows
    assert "1 failed their gate" in (tmp_path / "runs" / "index.html").read_text()
    assert main(["verify", f"{tmp_path}/runs/cancer@champion", "--trust"]) == 0

    deadline = time.monotonic() + 60
    while not chat and time.monotonic() < deadline:
        time.sleep(0.5)
    (message,) = chat
    assert message["text"].startswith(bad["name"] + ": not promoted: ")
    assert message["text"].endswith(bad["id"])


def test_docker_pool__and_its_deployment_are_taken_by_the_server(server, env, tmp_path):
    shutil.copy(ROOT / "prefect.yaml", tmp_path)
    here = env | {"PREFECT_API_URL": server, "PWD": str(tmp_path)}
    section = (ROOT / "docs" / "scheduling.md").read_text().partition("## In containers")[2].partition("\n## ")[0]
    printed = re.findall(r"^prefect (?:work-pool|deploy) .*$", section, flags=re.MULTILINE)
    assert len(printed) == 2
    for line in printed:
        shell(line.replace("prefect ", "prefect --no-prompt "), tmp_path, here)
    with urllib.request.urlopen(f"{server}/deployments/name/marginflow/nightly-in-docker", timeout=30) as answer:
        found = json.load(answer)
    assert found["work_pool_name"] == "containers"
    assert found["job_variables"]["image"] == "marginflow"
    assert found["job_variables"]["volumes"] == [f"{tmp_path}:/work"]
    assert found["pull_steps"][0]["prefect.deployments.steps.set_working_directory"] == {"directory": "/work"}
