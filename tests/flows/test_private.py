"""Prefect's private server answers nobody else, and keeps no secret. One run over an empty database: 10 s."""

import json
import os
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode

import pytest

from flows.server import local_server

CLIENT_AUTH = "PREFECT_API_AUTH_STRING"
SECRET = "hunter2-5f1d"


def status(url, auth=None):
    """Answer to a client that lists the flows."""
    headers = {"Content-Type": "application/json"}
    if auth:
        headers["Authorization"] = f"Basic {b64encode(auth.encode()).decode()}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_private_server__answers_its_own_run_alone(env, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.delenv(CLIENT_AUTH, raising=False)
    monkeypatch.setenv("PREFECT_HOME", env["PREFECT_HOME"])
    with local_server() as server:
        server.wait()
        url, auth = f"{server.url}/api/flows/filter", os.environ[CLIENT_AUTH]
        assert status(url) == 401
        assert status(url, "marginflow:guess") == 401
        assert status(url, auth) == 200
    assert CLIENT_AUTH not in os.environ
    with local_server():
        assert os.environ[CLIENT_AUTH] != auth  # another one each time


@pytest.mark.full
def test_prefect__keeps_no_secret_that_the_command_line_gave(env, rows_config, tmp_path):
    """A store with a login in it, of which --store takes the place."""
    (tmp_path / "rows.yaml").write_text(json.dumps(rows_config))
    argv = [sys.executable, "-m", "flows.cli", "run", "rows.yaml", "--store", "runs", "--json"]
    argv += ["--set", f"store=s3://me:{SECRET}@bucket/runs", "--set", "C=5"]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    with sqlite3.connect(os.path.join(env["PREFECT_HOME"], "prefect.db")) as database:
        ((parameters,),) = database.execute("select parameters from flow_run").fetchall()
        everything = "\n".join(database.iterdump())
    assert json.loads(parameters)["overrides"] == ["store=s3://***@bucket/runs", "C=5"]
    assert SECRET not in everything
    text = next((tmp_path / "runs").glob("*/*/config.yaml")).read_text()
    assert "C: 5" in text  # what was hidden in the parameters counts all the same
    assert SECRET not in text
