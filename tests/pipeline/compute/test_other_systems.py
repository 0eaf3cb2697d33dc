"""Systems that lack what Linux has, and processors that lack what x86 has: what is missing is taken away."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pipeline

# Python runs it in every process that starts, workers too.
TAKEN_AWAY = """
import os, pathlib, sys

import llvmlite.binding, psutil  # they ask for what Linux has

sys.modules["resource"] = None
for name in ("sched_getaffinity", "posix_fallocate", "getloadavg"):
    vars(os).pop(name, None)
read_text, readlink = pathlib.Path.read_text, os.readlink


def there(path):
    if str(path).startswith("/proc"):
        raise FileNotFoundError(path)
    return path


pathlib.Path.read_text = lambda path, *args, **kwargs: read_text(there(path), *args, **kwargs)
os.readlink = lambda path, **kwargs: readlink(there(path), **kwargs)

def nothing_known():
    raise RuntimeError("this processor is unknown")


llvmlite.binding.get_host_cpu_features = nothing_known
"""


@pytest.fixture
def elsewhere(tmp_path):
    """Run the command line on a system that has none of it."""
    (tmp_path / "sitecustomize.py").write_text(TAKEN_AWAY)
    paths = [str(tmp_path), str(Path(pipeline.__file__).parents[1])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "XDG_CACHE_HOME": str(tmp_path / "home")}

    def command(*argv):
        done = subprocess.run(
            [sys.executable, "-m", "flows.cli", *map(str, argv)], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return command


@pytest.mark.full  # compiles without the processor's own instructions: half a minute
def test_command__plans_trains_and_verifies_without_what_only_linux_or_x86_has(elsewhere, rows_csv, rows_run, tmp_path):
    config = {
        "name": "rows",
        "data": {"source": str(rows_csv), "test": 0.2, "scale": "standard"},
        "C": 10,
        "solver": {"name": "smo", "tol": 1e-4},
        "cluster": {"kind": "local", "workers": 2, "memory": "2GiB"},
        "store": str(tmp_path / "runs"),
    }
    (tmp_path / "rows.json").write_text(json.dumps(config))
    assert elsewhere("plan", tmp_path / "rows.json", "--json")["seconds"]["total"] > 0
    found = elsewhere("run", tmp_path / "rows.json", "--no-prefect", "--json")
    assert found["peak_memory_bytes"] > 1 << 20
    assert elsewhere("verify", found["run"], "--json")["agrees"]
    for ours, theirs in zip(found["per_class"], rows_run["per_class"], strict=True):
        assert ours["dual"] == pytest.approx(theirs["dual"], rel=1e-5)


WINDOWS = """
import sys
from flows import cli
sys.platform = "win32"
sys.exit(cli.main(["runs"]))
"""


def test_windows__is_refused_in_one_sentence():
    done = subprocess.run([sys.executable, "-c", WINDOWS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    sentence = "marginflow: Windows itself is not supported; use marginflow in WSL 2, on Linux or on macOS\n"
    assert done.stderr == sentence
