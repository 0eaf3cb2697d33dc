"""Use an installed marginflow from a folder that has nothing of the repository; run by `make package`."""

import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def tried(program, *argv, folder):
    done = subprocess.run([program, *argv], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (argv, done.stderr)
    return done.stdout


def main(environment):
    program = str((Path(environment) / "bin" / "marginflow").absolute())
    with tempfile.TemporaryDirectory() as folder:
        version = importlib.metadata.version("marginflow")
        assert tried(program, "--version", folder=folder) == f"marginflow {version}\n"
        tried(program, "init", "sklearn:iris", "--output", "iris.yaml", folder=folder)
        quick = ("--no-prefect", "--json", "--set", "sweep.grid={C: [1, 10]}", "--set", "cluster.kind=inline")
        record = json.loads(tried(program, "run", "iris.yaml", *quick, folder=folder))
        assert record["accuracy"] > 0.9
        tried(program, "verify", record["run"], folder=folder)
        assert (Path(record["run"]) / "report.html").stat().st_size > 10_000
    files = {str(file) for file in importlib.metadata.files("marginflow")}
    assert {f"{package}/py.typed" for package in ("svmcore", "pipeline", "flows")} <= files
    assert any(file.endswith("licenses/LICENSE") for file in files)
    assert not [file for file in files if file.startswith(("tests", "config", "benchmarks", "docs"))]


if __name__ == "__main__":
    main(sys.argv[1])
