"""`--log-to mlflow` against a real server."""

import json
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest

from flows.cli import main

pytestmark = pytest.mark.full
mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install mlflow")
pytest.importorskip("mlflow.server", reason="needs MLflow's server: pip install mlflow")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Address of a server of our own."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        url, until = f"http://127.0.0.1:{port}", time.monotonic() + 180
        while True:
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                assert time.monotonic() < until, (folder / "log").read_text()[-2000:]
                time.sleep(0.5)
        yield url
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_run__is_in_mlflow_with_its_points_and_a_model_that_answers(server, rows_config, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    mlflow.set_tracking_uri(server)
    config = rows_config | {"sweep": {"grid": {"C": [1, 10]}, "folds": 3}, "gate": {"min": {"accuracy": 0.5}}}
    (tmp_path / "rows.yaml").write_text(json.dumps(config))
    argv = ["run", str(tmp_path / "rows.yaml"), "--store", str(tmp_path / "runs"), "--no-prefect", "--json"]
    assert main([*argv, "--log-to", "mlflow"]) == 0
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert "logged to mlflow: run " in captured.err
    client = mlflow.MlflowClient(server)
    found = client.get_run(captured.err.rsplit("logged to mlflow: run ", 1)[1].split()[0])
    assert found.data.metrics["test_accuracy"] == record["accuracy"]
    assert found.data.metrics["kkt_gap"] == record["kkt_gap"]
    assert found.data.params["kernel.name"] == "rbf"
    assert found.data.tags["marginflow.gate"] == "passed"
    assert {"report.html", "config.yaml"} <= {file.path for file in client.list_artifacts(found.info.run_id)}
    experiment = client.get_experiment_by_name("rows")
    children = client.search_runs([experiment.experiment_id], f"tags.mlflow.parentRunId = '{found.info.run_id}'")
    assert {child.data.params["C"] for child in children} == {"1", "10"}
    model = mlflow.pyfunc.load_model(f"runs:/{found.info.run_id}/model")
    X = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    assert [*model.predict(X)] == ["ant", "bee", "cat"]
