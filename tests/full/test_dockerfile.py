"""The steps of the Dockerfile, one by one, in an environment where nothing is installed; there is no daemon here."""

import json
import os
import re
import shlex
import subprocess
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.full
ROOT = Path(__file__).parents[2]
STEPS = re.findall(r"^([A-Z]+) (.*)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)


def test_steps__are_known_and_leave_root_before_anything_is_run():
    names = [name for name, _ in STEPS]
    assert set(names) == {"FROM", "RUN", "ENV", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}
    after = STEPS[names.index("USER") :]
    assert ("RUN", "marginflow warm") in after
    assert after[0] == ("USER", "marginflow")
    assert json.loads(dict(after)["ENTRYPOINT"]) == ["marginflow"]


def test_steps__give_a_program_that_starts_warm(tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    (tmp_path / "work").mkdir()
    settings = dict(text.split("=", 1) for name, line in STEPS if name == "ENV" for text in shlex.split(line))
    settings = {key: value.replace("/home/marginflow", str(tmp_path / "home")) for key, value in settings.items()}
    env = {"PATH": f"{tmp_path / 'env' / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path / "home")}
    env |= settings | {key: os.environ[key] for key in os.environ if key.startswith(("PIP_", "HTTP", "SSL", "UV_"))}
    for name, line in STEPS:
        if name == "RUN" and not line.startswith("useradd"):
            folder = ROOT if line.startswith("pip") else tmp_path / "work"
            done = subprocess.run(line, shell=True, cwd=folder, env=env, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-2000:]
    compiled = {file: file.stat().st_mtime_ns for file in (tmp_path / "home" / ".numba").rglob("*.nbi")}
    assert compiled
    config = {"data": {"source": "sklearn:iris", "test": 0.3}, "cluster": {"kind": "inline"}}
    (tmp_path / "work" / "iris.yaml").write_text(json.dumps(config))
    argv = ["marginflow", "run", "iris.yaml", "--no-prefect", "--json"]
    done = subprocess.run(argv, cwd=tmp_path / "work", env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accuracy"] > 0.9
    assert {file: file.stat().st_mtime_ns for file in compiled} == compiled  # nothing was compiled again
